"""γ̂ of an upload: between its related tasks, and of the target on labels that may be used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from m2st_core.data.arrays import as_two_sample
from m2st_core.learners.ascent import part_of
from m2st_core.learners.relatedness import Relatedness, relatedness
from m2st_core.testing.finished import training_part
from m2st_core.testing.method import TestSettings
from m2st_core.testing.methods import METHODS
from m2st_core.types import Progress

MOST_LEFT_OUT = 3
MOST_COLUMNS = 200  # training a deep kernel on more would take too long
FEWEST_ROWS = 8  # of each sample: two halves of four rows


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
        meaning = "these are unlike the others" if above else "γ̂ shows no difference between these tasks"
        return (
            f"For {len(gammas)} left-out tasks, γ̂ to the most related of a few others goes from {min(gammas):.2f} to "
            f"{max(gammas):.2f}. By chance, two samples of one task with as many rows reach "
            f"{np.median([measured.floor for measured in self.by_task.values()]):.2f} (the noise floor). "
            f"γ̂ stands out from it for {above or 'none'} of them: {meaning}."
        )


def left_out_gamma(
    tasks: Mapping[str, Any], left_out: Sequence[str], *, seed: int = 0, progress: Progress | None = None
) -> LeftOutGamma:
    """Compute γ̂ of at most three left-out tasks, without any row of the target."""
    columns = next(iter(tasks.values()))[0].shape[1]
    chosen = left_out[:MOST_LEFT_OUT] if columns <= MOST_COLUMNS else []
    measured = {}
    for index, name in enumerate(chosen):
        others = {other: pair for other, pair in tasks.items() if other != name}
        stage = part_of(progress, index / len(chosen), (index + 1) / len(chosen))
        measured[name] = relatedness(tasks[name], others, restarts=2, max_tasks=3, steps=30, seed=seed, progress=stage)
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
    x: Any,
    y: Any,
    related_tasks: Any,
    method: str,
    *,
    train_fraction: float = 0.5,
    blocks: tuple[Any, Any] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> TargetGamma:
    """Compute γ̂ on the rows that the method trains on with these settings, or on all rows if it does not split.

    Five tasks, three restarts and fifty steps give a first impression within seconds; see ``relatedness`` for more.
    """
    spec, sample = METHODS.find(method), as_two_sample(x, y)
    if spec.needs_split:
        settings = TestSettings(train_fraction=train_fraction, seed=seed, blocks=blocks)
        sample = training_part(sample, spec, settings)
    n, m = sample.sizes
    if min(n, m) < FEWEST_ROWS:
        raise ValueError(f"γ̂ needs at least {FEWEST_ROWS} rows of each sample. There are {n} and {m}.")
    result = relatedness(
        (sample.x, sample.y), related_tasks, restarts=3, max_tasks=5, steps=50, seed=seed, progress=progress
    )
    use = (
        f"It uses the {n} and {m} rows that {method} trains on and does not test, so it may guide the choice."
        if spec.needs_split
        else f"This is exploratory: {method} tests the same {n} and {m} rows, so no choice may depend on it."
    )
    return TargetGamma(result, (n, m), not spec.needs_split, f"{result.sentence} {use}")
