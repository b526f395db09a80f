"""One primary test, declared first, and secondary ones: two families of tests, or one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from m2st_core.analysis.effect import Answer, answer
from m2st_core.analysis.evidence import Seen, what_was_seen
from m2st_core.data.separate import Separated
from m2st_core.learners.ascent import part_of
from m2st_core.testing.examined import Examined
from m2st_core.testing.labellings import check_splits
from m2st_core.testing.meta import MetaLearner
from m2st_core.testing.methods import METHODS
from m2st_core.testing.settings import TestSettings
from m2st_core.testing.two_sample import examine
from m2st_core.types import Progress, TestResult

Family = Literal["primary", "all"]
"""Which tests share one error rate: the secondary ones among themselves, or all together with the primary one."""

FAMILIES: dict[Family, str] = {
    "primary": (
        "The primary test alone decides, and rejects a true null hypothesis with probability at most α={alpha:g}. "
        "The secondary tests are exploratory: they are corrected by Holm's procedure among themselves only, so the "
        "chance that the primary or any secondary test errs can reach {twice:g}."
    ),
    "all": (
        "The primary and the secondary tests are one family, corrected by Holm's procedure together: the chance that "
        "any of them rejects a true null hypothesis is at most α={alpha:g}."
    ),
}


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's adjusted p-values, in the order given: rejecting those ≤ α errs at all with probability ≤ α.

    The i-th smallest of k is multiplied by k+1−i; none may be smaller than the one before it, nor exceed 1.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, dtype=float)
    if p.ndim != 1 or not ((p >= 0) & (p <= 1)).all():
        raise ValueError(f"p-values must be numbers from 0 to 1. Got {p_values!r}.")
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)).clip(max=1.0)
    adjusted = np.empty_like(p)
    adjusted[order] = stepped
    return [float(value) for value in adjusted]


@dataclass(frozen=True)
class Verdict:
    """A test of several: its result, its p-value after Holm's correction within its family, and its role."""

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
        found = "Evidence of a difference" if self.rejected else "No evidence of a difference"
        return (
            f"{found} by {self.result.label} ({self.role}): Holm-corrected p={self.adjusted_p_value:.4g}, "
            f"alone {self.result.p_words}."
        )


@dataclass(frozen=True)
class Analysis:
    """The primary result with its size, the secondary ones, and what the primary test saw.

    ``decision`` is the primary test's verdict: its own p-value if ``family`` is "primary", and corrected together with
    the secondary ones if it is "all".
    """

    primary: TestResult
    secondary: tuple[Verdict, ...]
    answer: Answer
    examined: Examined
    seen: Seen
    decision: Verdict
    family: Family = "primary"

    @property
    def corrected(self) -> tuple[Verdict, ...]:
        """The tests that Holm's procedure corrected together; none without secondary tests."""
        return (self.decision, *self.secondary) if self.family == "all" and self.secondary else self.secondary

    @property
    def rejected(self) -> bool:
        """Whether the primary test rejects, after the correction that was declared."""
        return self.decision.rejected

    @property
    def sentence(self) -> str:
        """The decision in plain words."""
        return self.decision.sentence if self.decision in self.corrected else self.primary.sentence

    @property
    def family_sentence(self) -> str:
        """Which error rate is kept, in plain words; nothing if there are no secondary tests."""
        alpha = self.primary.alpha
        return FAMILIES[self.family].format(alpha=alpha, twice=2 * alpha) if self.secondary else ""


def analyse(
    x: Any,
    y: Any,
    primary: str = "MMD-FUSE",
    secondary: Sequence[str] = (),
    *,
    family: Family = "primary",
    splits: int = 1,
    learners: Mapping[str, MetaLearner] | None = None,
    apart: Separated | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> Analysis:
    """One primary test and any number of secondary ones on the same rows, corrected by Holm within their family.

    With ``family="primary"`` the primary test alone decides at α and the secondary ones are corrected among themselves.
    With ``family="all"`` all of them are corrected together, so that any of them errs with probability at most α.
    Several ``splits`` are for the tests that split; the others are as with one.

    ``learners`` has a learner by the name of each method that learns from related tasks. If they were trained on
    ``separate((x, y), tasks)``, that is ``apart``. Settings are those of
    ``two_sample_test``: alpha, n_permutations, train_fraction, blocks, seed, device, and preset for methods without a
    learner.

    >>> import m2st_core as m2st
    >>> x, y = m2st.make_task("mean_shift", shift=2.0).sample(50, seed=1)
    >>> found = m2st.analyse(x, y, "MMD-FUSE", ["MMD-M"])
    >>> found.primary.p_value, found.secondary[0].adjusted_p_value
    (0.001, 0.001)
    """
    names = [primary, *secondary]
    if family not in get_args(Family):
        raise ValueError(f"family must be one of {', '.join(map(repr, get_args(Family)))}. Got {family!r}.")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice} is named twice. Name each test once.")
    known = learners or {}
    for name in names:
        METHODS.find(name)
        if METHODS[name].uses_related_tasks and name not in known:
            raise ValueError(f"{name} learns from related tasks, and no learner is given for it. Train one first.")
    check_plan_splits(names, splits)
    preset = settings.pop("preset", "recommended")
    stages = [part_of(progress, index / len(names), (index + 1) / len(names)) for index in range(len(names))]
    found = []
    for name, stage in zip(names, stages, strict=True):
        own = TestSettings(splits=splits if METHODS[name].needs_split else 1, progress=stage, **settings)
        found.append(
            known[name].examine(x, y, own, apart=apart) if name in known else examine(x, y, name, own, preset=preset)
        )
    first, *others = adjusted_p_values([examined.result.p_value for examined in found], family)
    seen = what_was_seen(found[0])
    return Analysis(
        primary=found[0].result,
        secondary=tuple(Verdict(e.result, p) for e, p in zip(found[1:], others, strict=True)),
        answer=answer(found[0], seen),
        examined=found[0],
        seen=seen,
        decision=Verdict(found[0].result, first, "primary"),
        family=family,
    )


def adjusted_p_values(p_values: Sequence[float], family: Family) -> list[float]:
    """Holm's p-values of a primary test and its secondary ones, in the family that was declared.

    >>> adjusted_p_values([0.03, 0.01, 0.02], "primary"), adjusted_p_values([0.03, 0.01, 0.02], "all")
    ([0.03, 0.02, 0.02], [0.04, 0.03, 0.04])
    """
    return holm(p_values) if family == "all" else [p_values[0], *holm(p_values[1:])]


def check_plan_splits(names: Sequence[str], splits: int) -> None:
    """Several splits need at least one test that splits."""
    splitting = [name for name in names if METHODS.find(name).needs_split]
    check_splits(METHODS[(splitting or names)[0]], splits)
