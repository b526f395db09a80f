"""The powers of the course: p-values of 100 tests for every setting of its controls.

They take minutes to compute, so course.json has them (``python -m m2st_core bench course`` writes it). Tests of one
target and size share their samples, so that methods can be compared sample by sample. Rows are per sample.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from m2st_core.criterion import witness
from m2st_core.data import make_task
from m2st_core.data.synthetic import hdgm_related_tasks
from m2st_core.device import one_thread_per_operation, resolve_device
from m2st_core.kernels.distance import GaussianKernel, median_squared_distance
from m2st_core.permutation.blocks import permutation_p_value, random_memberships
from m2st_core.permutation.statistics import permuted_mean_difference
from m2st_core.rng import Streams
from m2st_core.sweeps.trial import draw_targets
from m2st_core.testing.meta import MetaLearner, meta_train
from m2st_core.testing.methods import METHODS
from m2st_core.testing.run import run_tests
from m2st_core.types import DEFAULT_TAUGHT_TEST, GENERIC_TEST, TwoSample

FILE = Path(__file__).with_name("course.json")
DELTAS = (0.0, 0.5, 0.7, 0.9)
ROWS = (20, 50, 100, 200, 400, 800)
FEW_ROWS = ROWS[:4]  # of the steps that learn
TRAINING_ROWS = (10, 20, 50, 100, 200, 400, 800)
HISTORY_SIZES = (3, 5, 10, 20, 40)
CLOSENESS, ROWS_PER_TASK = 0.3, 100
SHIFT = 0.5
TESTS, PERMUTATIONS = 100, 99  # so that p is a whole number of percent
LEARNED_ANEW = 10  # tests that share one training sample
HISTORIES = 4
OWN_ROWS = "own rows"  # a witness function learned from rows of the target
TAUGHT = "Meta-Witness"
NAMES = (GENERIC_TEST, TAUGHT, DEFAULT_TAUGHT_TEST)
STREAMS = Streams(2027).child("course")


@dataclass(frozen=True)
class Cell:
    """100 tests of one method: the target, with its Δ or its shift, the rows, and how many it learned from.

    ``learned_from`` counts training rows of the target, or related tasks.
    """

    method: str
    rows: int
    delta: float = 0.7
    learned_from: int = 0
    shifted: bool = False  # the target is a shift of the mean, which no related task has

    @property
    def key(self) -> str:
        """The cell's name in the file."""
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

    def compute(self) -> np.ndarray:
        """P-values (100,)."""
        if self.method == OWN_ROWS:
            return self._learn_from_own_rows()
        if not self.learned_from:
            return self._test(0, TESTS, None)
        share = TESTS // HISTORIES
        parts = [self._test(i * share, share, history(self.learned_from, i)) for i in range(HISTORIES)]
        return np.concatenate(parts)

    def _test(self, start: int, count: int, learner: MetaLearner | None) -> np.ndarray:
        method = METHODS[self.method]
        if learner is not None:
            method = learner.for_method(self.method).bound(resolve_device("cpu"))
        samples, chosen = self.samples(), slice(start, start + count)
        seeds = [self.streams.child(f"test {index}").seed for index in range(start, start + count)]
        some = TwoSample(samples.x[chosen], samples.y[chosen])
        results = run_tests(some, method, seeds=seeds, n_permutations=PERMUTATIONS, device="cpu")
        return np.array([result.p_value for result in results])

    @one_thread_per_operation()
    def _learn_from_own_rows(self) -> np.ndarray:
        """Learn a witness function from training rows; compare its means on the test rows, one-sided."""
        samples, groups = self.samples(), TESTS // LEARNED_ANEW
        streams = self.streams.child(f"training, {self.learned_from} rows")
        task = make_task("hdgm", delta=self.delta)
        train = draw_targets(task, self.learned_from, groups, streams)
        kernel = GaussianKernel(median_squared_distance(train.pooled))
        with torch.no_grad():
            places = samples.pooled.reshape(groups, -1, samples.x.shape[-1])
            scores = witness(kernel, train.x, train.y, places).reshape(TESTS, -1)
        generators = [self.streams.child(f"test {index}").numpy("permutations") for index in range(TESTS)]
        members = random_memberships(self.rows, self.rows, PERMUTATIONS, generators)
        values, rounding = permuted_mean_difference(scores, members, self.rows, two_sided=False)
        return permutation_p_value(values, rounding, "(1+b)/(1+B)").numpy()


@lru_cache(len(HISTORY_SIZES) * HISTORIES)
def history(n_tasks: int, index: int) -> MetaLearner:
    """Learn from one of four sets of related tasks, each task with 100 rows per sample."""
    seed = STREAMS.child(f"history {index}").seed
    tasks = hdgm_related_tasks(CLOSENESS, n_tasks, ROWS_PER_TASK, seed=seed)
    return meta_train(TAUGHT, tasks, seed=seed, device="cpu")


def every_cell() -> list[Cell]:
    """All cells that the course shows."""
    most = HISTORY_SIZES[-1]
    cells = [Cell(GENERIC_TEST, rows, delta) for delta, rows in product(DELTAS, ROWS)]
    cells += [Cell(OWN_ROWS, rows, *rest) for rows, *rest in product(FEW_ROWS, DELTAS, TRAINING_ROWS)]
    cells += [Cell(TAUGHT, rows, *rest) for rows, *rest in product(FEW_ROWS, DELTAS, HISTORY_SIZES)]
    cells += [Cell(GENERIC_TEST, rows, shifted=True) for rows in FEW_ROWS]
    cells += [Cell(TAUGHT, rows, learned_from=most, shifted=True) for rows in FEW_ROWS]
    cells += [Cell(DEFAULT_TAUGHT_TEST, rows, 0.7, most, shifted) for rows, shifted in product(FEW_ROWS, (False, True))]
    return cells


def make_file(report: Callable[[str], None], methods: Collection[str] = (*NAMES, OWN_ROWS)) -> str:
    """Compute the cells of these methods, and keep those of others; the text of the file."""
    cells = every_cell()
    kept = [cell.key for cell in cells if cell.method not in methods]
    found = {key: shipped()["p_values_in_percent"][key] for key in kept}
    for cell in (cell for cell in cells if cell.method in methods):
        percent = np.rint(100 * cell.compute()).astype(np.uint8)
        found[cell.key] = base64.b64encode(percent.tobytes()).decode()
        report(f"{cell.key}: {int((percent <= 5).sum())} of {TESTS} rejected")
    computed = {name: METHODS[name].revision for name in NAMES if name in methods}
    revisions = (shipped()["revisions"] if kept else {}) | computed
    return json.dumps({"revisions": revisions, "p_values_in_percent": found}, ensure_ascii=False, indent=0) + "\n"


@cache
def shipped() -> dict[str, dict[str, Any]]:
    """The file: revisions of the methods, and p-values by cell."""
    content: dict[str, dict[str, Any]] = json.loads(FILE.read_text(encoding="utf-8"))
    return content


def p_values(cell: Cell) -> np.ndarray:
    """The stored p-values of a cell (100,)."""
    packed: str = shipped()["p_values_in_percent"][cell.key]
    return np.frombuffer(base64.b64decode(packed), dtype=np.uint8) / 100


def goal_within_reach(shares: Sequence[float], preferred: float, above: float = 0.0) -> float | None:
    """A share, in tens of percent, that the settings of a control reach, but not the first one; None without any.

    It is larger than ``above``, and as near the preferred one as possible.

    >>> goal_within_reach((0.42, 0.48, 0.75), 0.5), goal_within_reach((0.98, 1.0), 0.5)
    (0.5, None)
    """
    goals = [tenths / 10 for tenths in range(1, 10) if max(above, shares[0]) < tenths / 10 <= max(shares)]
    return min(goals, key=lambda goal: abs(goal - preferred), default=None)
