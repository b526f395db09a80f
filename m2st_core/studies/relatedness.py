"""γ̂ and power against the closeness C, for one target and several sets of related tasks. Sizes are per mode."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from m2st_core.data.synthetic import HDGM, hdgm_related_tasks
from m2st_core.device import resolve_device
from m2st_core.learners.ascent import part_of
from m2st_core.learners.relatedness import relatedness
from m2st_core.rng import Streams
from m2st_core.studies.synthetic import DELTA, Rate, many_tests
from m2st_core.testing.meta import meta_train
from m2st_core.types import Progress

ALPHA = 0.05
ROWS_PER_TASK = 100  # per sample of each related task that Meta-Witness learns from: 50 per mode


@dataclass(frozen=True)
class RelatednessResult:
    """``curve`` has a row per closeness: γ̂ on both halves, its spread and noise floor, and power with its interval.

    ``values`` has a row per γ̂_it.
    """

    curve: pd.DataFrame
    values: pd.DataFrame


@dataclass(frozen=True)
class RelatednessStudy:
    """The settings. They are hashable, so they also identify the job."""

    rows: int
    tasks: int
    restarts: int
    steps: int
    n_tasks: int
    m_te: int
    seed: int
    tests: int = 60
    closenesses: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5)

    def run(self, progress: Progress | None = None) -> RelatednessResult:
        """Measure one closeness after another, with the same target."""
        streams = Streams(self.seed).child("relatedness study")
        target = HDGM(delta=DELTA).sample(4 * self.rows, seed=streams.child("target").seed)
        curve, values = [], []
        count = len(self.closenesses)
        for index, closeness in enumerate(self.closenesses):
            tasks = hdgm_related_tasks(closeness, 100, 4 * self.rows, seed=streams.child("tasks").seed)
            measured = relatedness(
                target,
                tasks,
                restarts=self.restarts,
                max_tasks=self.tasks,
                steps=self.steps,
                seed=self.seed,
                progress=part_of(progress, index / count, (index + 0.9) / count),
            )
            largest = measured.on_test_rows.max(axis=1)
            p_values = witness_p_values(closeness, self.n_tasks, self.m_te, self.tests, streams.child("power").seed)
            power = Rate(p_values, ALPHA)
            curve.append(
                {
                    "closeness": closeness,
                    "on_training_rows": measured.gamma(on_training_rows=True),
                    "on_test_rows": measured.gamma(),
                    "lowest": float(largest.min()),
                    "highest": float(largest.max()),
                    "floor": measured.floor,
                    "gamma": measured.gamma(),
                    "rate": power.share,
                    "low": power.interval[0],
                    "high": power.interval[1],
                }
            )
            values += [
                {"closeness": closeness, "task": name, "restart": restart, "gamma": gamma, "floor": measured.floor}
                for name, gammas in zip(measured.task_names, measured.on_test_rows.tolist(), strict=True)
                for restart, gamma in enumerate(gammas)
            ]
            if progress is not None:
                progress(index + 1, count, measured.gamma())
        return RelatednessResult(pd.DataFrame(curve), pd.DataFrame(values))


def witness_p_values(closeness: float, n_tasks: int, m_te: int, tests: int, seed: int) -> np.ndarray:
    """P-values on fresh targets of Meta-Witness, learned from N related tasks with 50 rows per mode."""
    tasks = hdgm_related_tasks(closeness, n_tasks, ROWS_PER_TASK, seed=seed)
    method = meta_train("Meta-Witness", tasks, seed=seed, device="cpu").bound(resolve_device("cpu"))
    return many_tests(method, DELTA, False, m_te, tests, seed)
