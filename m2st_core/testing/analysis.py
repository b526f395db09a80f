"""One primary test, declared first; the others are secondary and pay for being many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from m2st_core.learners.ascent import part_of
from m2st_core.tasks.separate import Separated
from m2st_core.testing.answer import Answer, answer
from m2st_core.testing.examined import Examined
from m2st_core.testing.meta import MetaLearner
from m2st_core.testing.methods import METHODS
from m2st_core.testing.seen import Seen, what_was_seen
from m2st_core.testing.two_sample import examine
from m2st_core.types import Progress, TestResult


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
    """A secondary test: its result, and its p-value after Holm's correction among the secondary tests."""

    result: TestResult
    adjusted_p_value: float

    @property
    def rejected(self) -> bool:
        """Whether the corrected p-value is at most α."""
        return self.adjusted_p_value <= self.result.alpha

    @property
    def sentence(self) -> str:
        """The decision in plain words."""
        found = "Evidence of a difference" if self.rejected else "No evidence of a difference"
        return (
            f"{found} by {self.result.method} (secondary): Holm-corrected p={self.adjusted_p_value:.4g}, "
            f"alone p={self.result.p_value:.4g}."
        )


@dataclass(frozen=True)
class Analysis:
    """The primary result, which alone decides, with its size; the secondary ones; and what the primary test saw."""

    primary: TestResult
    secondary: tuple[Verdict, ...]
    answer: Answer
    examined: Examined
    seen: Seen


def analyse(
    x: Any,
    y: Any,
    primary: str = "MMD-FUSE",
    secondary: Sequence[str] = (),
    *,
    learners: Mapping[str, MetaLearner] | None = None,
    apart: Separated | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> Analysis:
    """One primary test and any number of secondary ones on the same rows, the latter corrected by Holm.

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
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"{twice} is named twice. Name each test once.")
    known = learners or {}
    for name in names:
        METHODS.find(name)
        if METHODS[name].needs_meta and name not in known:
            raise ValueError(f"{name} learns from related tasks, and no learner is given for it. Train one first.")
    own = {key: value for key, value in settings.items() if key != "preset"}
    stages = [part_of(progress, index / len(names), (index + 1) / len(names)) for index in range(len(names))]
    found = [
        known[name].examine(x, y, apart=apart, progress=stage, **own)
        if name in known
        else examine(x, y, name, progress=stage, **settings)
        for name, stage in zip(names, stages, strict=True)
    ]
    adjusted = holm([examined.result.p_value for examined in found[1:]])
    seen = what_was_seen(found[0])
    return Analysis(
        primary=found[0].result,
        secondary=tuple(Verdict(e.result, p) for e, p in zip(found[1:], adjusted, strict=True)),
        answer=answer(found[0], seen),
        examined=found[0],
        seen=seen,
    )
