"""γ̂ for an upload: of its target, and of the related tasks that the check leaves out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from m2st_core.analysis.related import MOST_COLUMNS
from m2st_core.data.arrays import as_two_sample
from m2st_core.data.related import RelatedTasks
from m2st_core.learners.relatedness import Relatedness, relatedness
from m2st_core.progress import part_of
from m2st_core.testing.methods import METHODS
from m2st_core.testing.plan import TestSettings, plan_test
from m2st_core.types import Progress, TwoSample

MOST_LEFT_OUT = 3  # tasks whose γ̂ is computed
FEWEST_ROWS = 8  # of each sample, for γ̂: two halves of four rows


@dataclass(frozen=True)
class LeftOutGamma:
    """γ̂ of each left-out task to the most related of a few others, by the task's name."""

    by_task: Mapping[str, Relatedness]

    @property
    def sentence(self) -> str:
        """The result in plain words."""
        if not self.by_task:
            return f"γ̂ is not computed for more than {MOST_COLUMNS} columns."
        gammas = [measured.gamma() for measured in self.by_task.values()]
        above = sum(measured.stands_out for measured in self.by_task.values())
        floor = np.median([measured.floor for measured in self.by_task.values()])
        unlike = {0: "None is", 1: "One is"}.get(above, f"{above} are")
        return (
            f"{len(gammas)} left-out tasks were each compared with the most similar of a few others. {unlike} clearly "
            f"unlike it (γ̂ from {min(gammas):.2f} to {max(gammas):.2f}; two samples of one task reach {floor:.2f} by "
            "chance)."
        )


def left_out_gamma(
    related: RelatedTasks, left_out: Sequence[str], *, seed: int = 0, progress: Progress | None = None
) -> LeftOutGamma:
    """Compute γ̂ of at most three left-out tasks, without any row of the target."""
    chosen = left_out[:MOST_LEFT_OUT] if related.rows.shape[-1] <= MOST_COLUMNS else []
    measured = {}
    for index, name in enumerate(chosen):
        position = related.names.index(name)
        others = related.packed(task for task in range(len(related.names)) if task != position)
        stage = part_of(progress, index / len(chosen), (index + 1) / len(chosen))
        measured[name] = relatedness(
            related.task(position), others, restarts=2, max_tasks=3, steps=30, seed=seed, progress=stage
        )
    return LeftOutGamma(measured)


@dataclass(frozen=True)
class TargetGamma:
    """γ̂ of a target, and the rows of (x, y) that it was computed on.

    γ̂ uses labels. If ``exploratory``, they are labels of tested rows, and no choice may depend on it.
    """

    relatedness: Relatedness
    sizes: tuple[int, int]
    exploratory: bool
    sentence: str


def target_gamma(
    target: Any,
    related_tasks: Any,
    method: str,
    *,
    train_fraction: float = 0.5,
    seed: int = 0,
    progress: Progress | None = None,
) -> TargetGamma:
    """Compute γ̂ of a target, a pair (x, y), on the rows that the method trains on, or on all if it does not split.

    Five tasks, three restarts and fifty steps give a first impression within seconds; see ``relatedness`` for more.
    """
    spec, sample = METHODS.find(method), target if isinstance(target, TwoSample) else as_two_sample(*target)
    if spec.needs_split:
        sample = plan_test(sample, spec, TestSettings(train_fraction=train_fraction, seed=seed)).training_rows
    n, m = sample.sizes
    if min(n, m) < FEWEST_ROWS:
        raise ValueError(f"γ̂ needs at least {FEWEST_ROWS} rows of each sample. There are {n} and {m}.")
    result = relatedness(sample, related_tasks, restarts=3, max_tasks=5, steps=50, seed=seed, progress=progress)
    use = (
        f"It uses the {n} and {m} rows that {spec.name} trains on and does not test, so it may guide the choice."
        if spec.needs_split
        else f"This is exploratory: {spec.name} tests the same {n} and {m} rows, so no choice may depend on it."
    )
    return TargetGamma(result, (n, m), not spec.needs_split, f"{result.sentence} {use}")
