"""The sample that is carried through the course, and what steps ask of it: questions that their controls can answer."""

from __future__ import annotations

from dataclasses import dataclass

from m2st_core.studies import synthetic
from m2st_core.studies.lessons import (
    FEW_ROWS,
    HISTORY_SIZES,
    OWN_ROWS,
    ROWS,
    TAUGHT,
    TRAINING_ROWS,
    Cell,
    goal_within_reach,
    p_values,
)
from m2st_core.types import GENERIC_TEST

ALPHA = 0.05
GOAL = 0.8
NOTICEABLE = 0.05  # a difference of two powers


@dataclass(frozen=True)
class Sample:
    """What all steps share: the difference Δ, the rows per sample and the seed."""

    delta: float
    rows: int
    seed: int

    @property
    def few_rows(self) -> int:
        """The rows of the steps that learn. With more of them, no test would need to."""
        return min(self.rows, FEW_ROWS[-1])

    @property
    def drawn(self) -> tuple[float, int, int]:
        """Δ, rows per mode and seed."""
        return self.delta, self.rows // 2, self.seed


def percent(share: float) -> str:
    """A share in words."""
    return f"{100 * share:.0f} %"


def power(cell: Cell) -> synthetic.Rate:
    """The stored rejection rate of a cell."""
    return synthetic.Rate(p_values(cell), ALPHA)


def size_goal(delta: float) -> float | None:
    """The power that step 4 asks for: 80 %, or what its control reaches."""
    return goal_within_reach([power(Cell(GENERIC_TEST, size, delta)).share for size in ROWS], GOAL)


def ask_width(sample: Sample) -> str:
    """Step 3's question."""
    if not sample.delta:
        return "P and Q are the same here. At which widths does noise look like a difference?"
    return "Which width comes closest to the truth?"


def ask_rows(sample: Sample) -> str:
    """Step 4's question."""
    if not sample.delta:
        return "P and Q are the same here. Do more rows change the share of false alarms?"
    goal = size_goal(sample.delta)
    return f"How many rows give {percent(goal)} power?" if goal else "How does power change with the rows?"


def ask_training(sample: Sample) -> str:
    """Step 5's question."""
    if not sample.delta:
        return "P and Q are the same here. Does learning raise more false alarms?"
    rows, delta = sample.few_rows, sample.delta
    floor = power(Cell(GENERIC_TEST, rows, delta)).share
    pays = [power(Cell(OWN_ROWS, rows, delta, one)).share > floor + NOTICEABLE for one in TRAINING_ROWS]
    if any(pays):
        return "How many training rows does it take before learning pays?"
    return "Does learning pay with any number of training rows?"


def ask_tasks(sample: Sample) -> str:
    """Step 6's question."""
    if not sample.delta:
        return "P and Q are the same here. Does history raise more false alarms?"
    rows, delta = sample.few_rows, sample.delta
    without = power(Cell(GENERIC_TEST, rows, delta)).share
    shares = [power(Cell(TAUGHT, rows, delta, one)).share for one in HISTORY_SIZES]
    goal = goal_within_reach(shares, 0.5, above=without + NOTICEABLE)
    if goal is None:
        return "Does it matter here how many related tasks there are?"
    often = "half" if goal == 0.5 else percent(goal)
    return f"How many related tasks does it take to find the difference in {often} of the samples?"
