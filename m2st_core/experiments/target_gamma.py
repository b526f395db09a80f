"""γ̂ of a target to its related tasks, with the labels that may be looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from m2st_core.learners.noise_floor import Relatedness
from m2st_core.learners.relatedness import relatedness
from m2st_core.tasks.arrays import as_two_sample
from m2st_core.testing import METHODS
from m2st_core.testing.examined import training_part
from m2st_core.types import Progress

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
    meta_tasks: Any,
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
        sample = training_part(sample, spec, train_fraction=train_fraction, seed=seed, blocks=blocks)
    n, m = sample.sizes
    if min(n, m) < FEWEST_ROWS:
        raise ValueError(f"γ̂ needs at least {FEWEST_ROWS} rows of each sample to look at, and there are {n} and {m}.")
    found = relatedness(
        (sample.x, sample.y), meta_tasks, restarts=RESTARTS, max_tasks=TASKS, steps=STEPS, seed=seed, progress=progress
    )
    words = (
        f"It was found on the {n} and {m} rows that {method} learns from and does not test, so it may guide the choice."
        if spec.needs_split
        else f"This is exploratory: {method} tests these same {n} and {m} rows, so no choice may depend on it."
    )
    return TargetGamma(found, (n, m), not spec.needs_split, f"{found.sentence} {words}")
