"""γ̂ of a target to its related tasks, with the labels that may be looked at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from m2st_core.data.arrays import as_two_sample
from m2st_core.learners.ascent import part_of
from m2st_core.learners.relatedness import Relatedness, relatedness
from m2st_core.testing.examined import training_part
from m2st_core.testing.methods import METHODS
from m2st_core.testing.settings import TestSettings
from m2st_core.types import Progress

MOST_LEFT_OUT = 3
MOST_COLUMNS = 200  # a deep kernel for more would take longer than it is worth
SETTINGS: dict[str, Any] = {"restarts": 2, "max_tasks": 3, "steps": 30}


@dataclass(frozen=True)
class HistoryGamma:
    """γ̂ by the name of the task left out, on fresh rows, to the most related of a few others; and its noise floor."""

    gammas: Mapping[str, float]
    floors: Mapping[str, float]

    @property
    def sentence(self) -> str:
        """What it says, in words."""
        if not self.gammas:
            return f"γ̂ is not found for more than {MOST_COLUMNS} columns."
        values = list(self.gammas.values())
        out = sum(value > self.floors[name] for name, value in self.gammas.items())
        meaning = (
            f"It stands out from its noise floor for {out} of them: these are unlike the others."
            if out
            else "None stands out from its noise floor, so γ̂ shows no difference between these tasks."
        )
        return (
            f"How far {len(values)} tasks left out are from the most related of a few others: γ̂ goes from "
            f"{min(values):.2f} to {max(values):.2f}. Two samples of one task with as many rows reach "
            f"{np.median(list(self.floors.values())):.2f} by chance (the noise floor). {meaning}"
        )


def history_gamma(
    tasks: Mapping[str, Any], left_out: Sequence[str], *, seed: int = 0, progress: Progress | None = None
) -> HistoryGamma:
    """γ̂ of at most three of the tasks left out. No row of the target is looked at."""
    columns = next(iter(tasks.values()))[0].shape[1]
    chosen = list(left_out[:MOST_LEFT_OUT]) if columns <= MOST_COLUMNS else []
    gammas, floors = {}, {}
    for index, name in enumerate(chosen):
        others = {other: pair for other, pair in tasks.items() if other != name}
        stage = part_of(progress, index / len(chosen), (index + 1) / len(chosen))
        found = relatedness(tasks[name], others, seed=seed, progress=stage, **SETTINGS)
        gammas[name], floors[name] = found.gamma(), found.floor
    return HistoryGamma(gammas, floors)


RESTARTS, TASKS, STEPS = 3, 5, 50
FEWEST_ROWS = 8  # of each sample: halves of four


@dataclass(frozen=True)
class TargetGamma:
    """γ̂ and the rows of (x, y) it was found on.

    γ̂ looks at labels. If ``exploratory``, they are labels of rows that are tested: then nothing may be decided by it.
    """

    found: Relatedness
    sizes: tuple[int, int]
    exploratory: bool
    sentence: str

    @property
    def gamma(self) -> float:
        """γ̂ on fresh halves."""
        return self.found.gamma()

    @property
    def floor(self) -> float:
        """The γ̂ on fresh halves that noise alone gives."""
        return self.found.floor


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
    """γ̂ on the rows that this method learns from with this seed, fraction and blocks; on all rows if it splits nothing.

    Five tasks, three restarts and fifty steps: an impression in seconds. ``relatedness`` has the whole study.
    """
    spec, sample = METHODS.find(method), as_two_sample(x, y)
    if spec.needs_split:
        settings = TestSettings(train_fraction=train_fraction, seed=seed, blocks=blocks)
        sample = training_part(sample, spec, settings)
    n, m = sample.sizes
    if min(n, m) < FEWEST_ROWS:
        raise ValueError(f"γ̂ needs at least {FEWEST_ROWS} rows of each sample to look at, and there are {n} and {m}.")
    found = relatedness(
        (sample.x, sample.y),
        related_tasks,
        restarts=RESTARTS,
        max_tasks=TASKS,
        steps=STEPS,
        seed=seed,
        progress=progress,
    )
    words = (
        f"It was found on the {n} and {m} rows that {method} learns from and does not test, so it may guide the choice."
        if spec.needs_split
        else f"This is exploratory: {method} tests these same {n} and {m} rows, so no choice may depend on it."
    )
    return TargetGamma(found, (n, m), not spec.needs_split, f"{found.sentence} {words}")
