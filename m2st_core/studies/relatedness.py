"""γ̂ and power against the closeness C, for one target and several sets of meta-tasks. Sizes are per mode."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from m2st_core.data.synthetic import HDGM, hdgm_related_tasks
from m2st_core.device import resolve_device
from m2st_core.learners.ascent import part_of
from m2st_core.learners.relatedness import relatedness
from m2st_core.rng import Streams
from m2st_core.studies.lessons import DELTA, Rate, many_tests
from m2st_core.testing.meta import meta_train
from m2st_core.types import Progress

ALPHA = 0.05
ROWS_TO_LEARN = 100  # rows per sample of each meta-task that teaches the tests: 50 per mode


@dataclass(frozen=True)
class RelatednessFound:
    """``curve`` has a row per closeness: γ̂ on both halves, its spread and noise floor, power with its interval.

    ``values`` has all γ̂_it.
    """

    curve: pd.DataFrame
    values: pd.DataFrame


@dataclass(frozen=True)
class RelatednessStudy:
    """The settings; hashable, so they are also the key of the job."""

    closenesses: tuple[float, ...]
    rows: int
    tasks: int
    restarts: int
    steps: int
    n_tasks: int
    m_te: int
    tests: int
    seed: int

    def run(self, progress: Progress | None = None) -> RelatednessFound:
        """One closeness after another; the target is the same for all."""
        streams = Streams(self.seed).child("relatedness study")
        target = HDGM(delta=DELTA).sample(4 * self.rows, seed=streams.child("target").seed)
        rows, values = [], []
        for index, closeness in enumerate(self.closenesses):
            start, end = index / len(self.closenesses), (index + 1) / len(self.closenesses)
            tasks = hdgm_related_tasks(closeness, 100, 4 * self.rows, seed=streams.child("tasks").seed)
            found = relatedness(
                target,
                tasks,
                restarts=self.restarts,
                max_tasks=self.tasks,
                steps=self.steps,
                seed=self.seed,
                progress=part_of(progress, start, end - 0.1 / len(self.closenesses)),
            )
            largest = found.on_test_rows.max(axis=1)
            p_values = witness_p_values(closeness, self.n_tasks, self.m_te, self.tests, streams.child("power").seed)
            power = Rate(p_values, ALPHA)
            rows.append(
                {
                    "closeness": closeness,
                    "on_training_rows": found.gamma(on_training_rows=True),
                    "on_test_rows": found.gamma(),
                    "lowest": float(largest.min()),
                    "highest": float(largest.max()),
                    "floor": found.floor,
                    "gamma": found.gamma(),
                    "rate": power.share,
                    "low": power.interval[0],
                    "high": power.interval[1],
                }
            )
            values += [
                {"closeness": closeness, "task": name, "restart": restart, "gamma": float(value), "floor": found.floor}
                for name, per_task in zip(found.task_names, found.on_test_rows, strict=True)
                for restart, value in enumerate(per_task)
            ]
            if progress is not None:
                progress(index + 1, len(self.closenesses), found.gamma())
        return RelatednessFound(pd.DataFrame(rows), pd.DataFrame(values))


def witness_p_values(closeness: float, n_tasks: int, m_te: int, tests: int, seed: int) -> np.ndarray:
    """Meta-Witness, learned from N meta-tasks with 50 rows per mode, on fresh targets."""
    tasks = hdgm_related_tasks(closeness, n_tasks, ROWS_TO_LEARN, seed=seed)
    method = meta_train("Meta-Witness", tasks, seed=seed, device="cpu").bound(resolve_device("cpu"))
    return many_tests(method, DELTA, False, m_te, tests, seed)
