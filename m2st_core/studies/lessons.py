"""Tables of Home and Learn: powers and views of shipped tests, for every setting of their controls.

``python -m m2st_core bench shipped`` computes them. Rows are per sample, if not said otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product

import numpy as np

from m2st_core.data import make_task
from m2st_core.rng import Streams
from m2st_core.studies.shipped import load_shipped
from m2st_core.sweeps.cells import draw_targets
from m2st_core.types import DEFAULT_TAUGHT_TEST, GENERIC_TEST, TwoSample

TAUGHT = "Meta-Witness"
ALPHA = 0.05

# Home: one target through MMD-M and Meta-Witness
CLOSENESSES = (0.6, 0.5, 0.4, 0.3, 0.2, 0.1)  # the paper's C, from the least related tasks to the most related ones
N_TASKS, ROWS_PER_TASK = 40, 100  # rows of each sample of a task
SIZE = 50  # rows per mode of a target: 100 rows of each sample
SAMPLES = 12  # targets to look at, with the seeds 0, 1, …
REPEATS, TARGETS = 8, 100  # of related tasks and learning, and fresh targets tested after each
AXIS = np.linspace(-3.5, 4.0, 33)
STEP = 1 / 20  # of a field, stored as whole numbers up to ±127


@dataclass(frozen=True)
class HomeTable:
    """Every view of S targets and the power of both tests, at C closenesses.

    ``x`` and ``y`` are (S, n, 2). ``generic_p`` is (S,), ``taught_p`` (C, S), with fields (…, g, g): witness functions
    on the plane in steps of 1/20 of their largest standard deviation under random labels. Power is the share of
    rejected targets in each repeat: ``generic_power`` (repeats,) and ``taught_power`` (C, repeats).
    """

    closeness: np.ndarray
    x: np.ndarray
    y: np.ndarray
    generic_p: np.ndarray
    generic_field: np.ndarray
    generic_power: np.ndarray
    taught_p: np.ndarray
    taught_field: np.ndarray
    taught_power: np.ndarray

    def powers(self, closeness: int) -> tuple[tuple[float, float], tuple[float, float]]:
        """The power of MMD-M, and of Meta-Witness at this index of ``closeness``, each with its standard error."""
        (a, b), (c, d) = (
            (p.mean(), p.std(ddof=1) / len(p) ** 0.5) for p in (self.generic_power, self.taught_power[closeness])
        )
        return (float(a), float(b)), (float(c), float(d))


@lru_cache(maxsize=1)
def home_table() -> HomeTable:
    """The table as shipped."""
    return HomeTable(**load_shipped("home").arrays)


# Learn: 100 tests for every setting
DELTAS = (0.0, 0.5, 0.7, 0.9)
ROWS = (20, 50, 100, 200, 400, 800)
FEW_ROWS = ROWS[:4]  # of the steps that learn
TRAINING_ROWS = (10, 20, 50, 100, 200, 400, 800)
TASK_COUNTS = (3, 5, 10, 20, 40)
CLOSENESS = 0.3
SHIFT = 0.5
TESTS = 100
OWN_ROWS = "own rows"  # a witness function learned from rows of the target
STREAMS = Streams(2027).child("course")


@dataclass(frozen=True)
class LessonCell:
    """100 tests of one method: the target, with its Δ or its shift, the rows, and how many it learned from.

    ``learned_from`` counts training rows of the target, or related tasks. Tests of one target and size share their
    samples, so that methods can be compared sample by sample.
    """

    method: str
    rows: int
    delta: float = 0.7
    learned_from: int = 0
    shifted: bool = False  # the target is a shift of the mean, which no related task has

    @property
    def key(self) -> str:
        """The cell's name among the shipped ones."""
        target = f"shift {SHIFT:g}" if self.shifted else f"Δ {self.delta:g}"
        return f"{self.method}, {target}, {self.rows} rows, from {self.learned_from}"

    @property
    def streams(self) -> Streams:
        """Randomness of the test samples, which all methods share."""
        return STREAMS.child(f"shifted {self.shifted}, Δ={self.delta:g}, {self.rows} rows")

    def samples(self) -> TwoSample:
        """The test samples: x and y are (100, rows, 2)."""
        task = make_task("mean_shift", shift=SHIFT) if self.shifted else make_task("hdgm", delta=self.delta)
        return draw_targets(task, self.rows, TESTS, self.streams)


def every_lesson_cell() -> list[LessonCell]:
    """All cells that the course shows."""
    most = TASK_COUNTS[-1]
    cells = [LessonCell(GENERIC_TEST, rows, delta) for delta, rows in product(DELTAS, ROWS)]
    cells += [LessonCell(OWN_ROWS, rows, *rest) for rows, *rest in product(FEW_ROWS, DELTAS, TRAINING_ROWS)]
    cells += [LessonCell(TAUGHT, rows, *rest) for rows, *rest in product(FEW_ROWS, DELTAS, TASK_COUNTS)]
    cells += [LessonCell(GENERIC_TEST, rows, shifted=True) for rows in FEW_ROWS]
    cells += [LessonCell(TAUGHT, rows, learned_from=most, shifted=True) for rows in FEW_ROWS]
    cells += [
        LessonCell(DEFAULT_TAUGHT_TEST, rows, 0.7, most, shifted) for rows, shifted in product(FEW_ROWS, (False, True))
    ]
    return cells


@lru_cache(maxsize=1)
def _percents() -> dict[str, np.ndarray]:
    shipped = load_shipped("course")
    return dict(zip(shipped.values["cells"], shipped.arrays["percent"], strict=True))


def lesson_p_values(cell: LessonCell) -> np.ndarray:
    """The shipped p-values of a cell (100,), which are whole percents."""
    return _percents()[cell.key] / 100


def goal_within_reach(shares: Sequence[float], preferred: float, above: float = 0.0) -> float | None:
    """A share, in tens of percent, that the settings of a control reach, but not the first one; None without any.

    It is larger than ``above``, and as near the preferred one as possible.

    >>> goal_within_reach((0.42, 0.48, 0.75), 0.5), goal_within_reach((0.98, 1.0), 0.5)
    (0.5, None)
    """
    goals = [tenths / 10 for tenths in range(1, 10) if max(above, shares[0]) < tenths / 10 <= max(shares)]
    return min(goals, key=lambda goal: abs(goal - preferred), default=None)
