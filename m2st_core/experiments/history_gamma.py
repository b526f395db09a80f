"""How related the related tasks are to each other: γ̂ of some of them, each in the place of a target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from m2st_core.learners.ascent import part_of
from m2st_core.learners.relatedness import relatedness
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
