"""One primary test and its secondary tests on the same rows, corrected for multiplicity by Holm's procedure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from m2st_core.analysis.effect import EffectSize, effect_size
from m2st_core.analysis.evidence import Evidence, evidence_of
from m2st_core.data.arrays import as_two_sample
from m2st_core.data.separate import Separated
from m2st_core.progress import part_of
from m2st_core.testing.meta import MetaLearner
from m2st_core.testing.methods import METHODS
from m2st_core.testing.plan import TestPlan, TestSettings, check_splits, plan_test
from m2st_core.testing.run import FinishedTest, run
from m2st_core.types import DECISIONS, DEFAULT_TEST, Progress, TestResult

Family = Literal["primary", "all"]
"""Tests that share one error rate: the secondary tests only ("primary"), or all tests together ("all")."""

FAMILIES: dict[Family, str] = {
    "primary": (
        "The primary test alone decides. It rejects a true null hypothesis with probability at most α={alpha:g}. The "
        "secondary tests are exploratory and are corrected by Holm's procedure among themselves only, so the "
        "probability that the primary or any secondary test errs can reach {twice:g}."
    ),
    "all": (
        "The primary and secondary tests form one family and are corrected together by Holm's procedure: the "
        "probability that any of them rejects a true null hypothesis is at most α={alpha:g}."
    ),
}


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's adjusted p-values in the given order; rejecting those ≤ α errs at all with probability ≤ α.

    The i-th smallest of k is multiplied by k+1−i. None is smaller than its predecessor or larger than 1.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, dtype=float)
    if p.ndim != 1 or not ((p >= 0) & (p <= 1)).all():
        raise ValueError(f"p-values must be numbers from 0 to 1. Got {p_values!r}.")
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    adjusted[order] = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)).clip(max=1.0)
    return adjusted.tolist()


def adjusted_p_values(p_values: Sequence[float], family: Family) -> list[float]:
    """Return the adjusted p-values of a primary test, which comes first, and its secondary tests.

    >>> adjusted_p_values([0.03, 0.01, 0.02], "primary"), adjusted_p_values([0.03, 0.01, 0.02], "all")
    ([0.03, 0.02, 0.02], [0.04, 0.03, 0.04])
    """
    return holm(p_values) if family == "all" else [p_values[0], *holm(p_values[1:])]


@dataclass(frozen=True)
class CorrectedTest:
    """A test's result, its role, and its p-value after Holm's correction within its family."""

    result: TestResult
    adjusted_p_value: float
    role: Literal["primary", "secondary"] = "secondary"

    @property
    def rejected(self) -> bool:
        """Whether the corrected p-value is at most α."""
        return self.adjusted_p_value <= self.result.alpha

    @property
    def sentence(self) -> str:
        """The decision in plain words."""
        return (
            f"{DECISIONS[self.rejected]} by {self.result.label} ({self.role}): "
            f"Holm-corrected p = {self.adjusted_p_value:.4g}, uncorrected {self.result.p_words}."
        )


@dataclass(frozen=True)
class Analysis:
    """Results of a primary test and its secondary tests, with the primary test's evidence and effect size.

    ``decision`` is the primary test's: uncorrected if ``family`` is "primary", corrected together with the secondary
    tests if it is "all".
    """

    primary: TestResult
    secondary: tuple[CorrectedTest, ...]
    effect: EffectSize
    examined: FinishedTest
    evidence: Evidence
    decision: CorrectedTest
    family: Family = "primary"

    @property
    def corrected(self) -> tuple[CorrectedTest, ...]:
        """The tests that were corrected together; empty without secondary tests."""
        return (self.decision, *self.secondary) if self.family == "all" and self.secondary else self.secondary

    @property
    def rejected(self) -> bool:
        """Whether the primary test rejects after the declared correction."""
        return self.decision.rejected

    @property
    def sentence(self) -> str:
        """The decision in plain words."""
        return self.decision.sentence if self.decision in self.corrected else self.primary.sentence

    @property
    def family_sentence(self) -> str:
        """The error rate that is controlled, in plain words; empty without secondary tests."""
        alpha = self.primary.alpha
        return FAMILIES[self.family].format(alpha=alpha, twice=2 * alpha) if self.secondary else ""


def analyse(
    x: Any,
    y: Any,
    primary: str = DEFAULT_TEST,
    secondary: Sequence[str] = (),
    *,
    family: Family = "primary",
    splits: int = 1,
    learners: Mapping[str, MetaLearner] | None = None,
    apart: Separated | None = None,
    blocks: tuple[Any, Any] | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> Analysis:
    """Run one primary test and any number of secondary tests on the same rows, and correct them within their family.

    Methods that split their rows use ``splits`` random splits; all others use none. ``learners`` holds a trained
    learner for each method that uses related tasks, by the method's name. If they were trained on
    ``separate((x, y), tasks)``, pass its result as ``apart``. The settings are those of ``two_sample_test``.

    >>> import m2st_core as m2st
    >>> x, y = m2st.make_task("mean_shift", shift=2.0).sample(50, seed=1)
    >>> analysis = m2st.analyse(x, y, "MMD-FUSE", ["MMD-M"])
    >>> analysis.primary.p_value, analysis.secondary[0].adjusted_p_value
    (0.001, 0.001)
    """
    if "preset" in settings:
        raise ValueError(
            f"analyse takes no preset, since each of its tests has its own: name a test with its settings, such as "
            f"'Meta-MKL · tuned'. Got preset={settings['preset']!r}."
        )
    names = [METHODS.name_of(name) for name in (primary, *secondary)]
    check_tests(names, family, splits)
    learners = learners or {}
    for name in names:
        if METHODS[name].uses_related_tasks and name not in learners:
            raise ValueError(f"{name} learns from related tasks, but no learner is given for it. Train one first.")
    sample = as_two_sample(x, y, blocks=blocks)
    plans = []
    for name in names:
        of_test = TestSettings(splits=splits if METHODS[name].needs_split else 1, **settings)
        learner = learners.get(name)
        plans.append(plan_test(sample, METHODS[name], of_test) if learner is None else learner.plan(sample, of_test))
    return analyse_planned(plans, family=family, learners=learners, apart=apart, progress=progress)


def analyse_planned(
    plans: Sequence[TestPlan],
    *,
    family: Family = "primary",
    learners: Mapping[str, MetaLearner] | None = None,
    apart: Separated | None = None,
    unit: str = "rows",
    progress: Progress | None = None,
) -> Analysis:
    """Run planned tests of the same rows, the primary first, and correct them as ``analyse`` does."""
    finished = []
    for index, plan in enumerate(plans):
        learner = (learners or {}).get(plan.method.name)
        stage = part_of(progress, index / len(plans), (index + 1) / len(plans))
        finished.append(run(plan if learner is None else learner.teach(plan, apart), stage))
    first, *others = finished
    decision, *adjusted = adjusted_p_values([test.result.p_value for test in finished], family)
    evidence = evidence_of(first)
    return Analysis(
        primary=first.result,
        secondary=tuple(CorrectedTest(test.result, p) for test, p in zip(others, adjusted, strict=True)),
        effect=effect_size(first, evidence, unit),
        examined=first,
        evidence=evidence,
        decision=CorrectedTest(first.result, decision, "primary"),
        family=family,
    )


def check_tests(names: Sequence[str], family: Family, splits: int) -> None:
    """Refuse an unknown family, a test named twice, and several splits where none of these tests splits its rows."""
    if family not in get_args(Family):
        raise ValueError(f"family must be one of {', '.join(map(repr, get_args(Family)))}. Got {family!r}.")
    for index, name in enumerate(names):
        if name in names[:index]:
            raise ValueError(f"{name} is named twice. Name each test once.")
    splitting = [name for name in names if METHODS.find(name).needs_split]
    check_splits(METHODS[(splitting or names)[0]], splits)
