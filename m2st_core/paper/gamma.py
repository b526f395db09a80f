"""γ̂ against the closeness C, the paper's relatedness figure, as a stored experiment: one job per closeness."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, wait
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from m2st_core.data import make_task
from m2st_core.data.synthetic import hdgm_related_tasks
from m2st_core.learners.relatedness import relatedness
from m2st_core.rng import Streams
from m2st_core.sweeps.executors import Executor
from m2st_core.sweeps.spec import digest
from m2st_core.sweeps.store import Store
from m2st_core.sweeps.summary import published_gamma
from m2st_core.types import Progress

CLOSENESS = (0.1, 0.2, 0.3, 0.4, 0.5)
COLUMNS = ["closeness", "task", "restart", "on_training_rows", "on_test_rows", "floor", "seconds"]
POLL_SECONDS = 0.2


@dataclass(frozen=True)
class GammaCell:
    """γ̂_it between HDGM(0.7) and the meta-tasks of one closeness."""

    closeness: float
    rows: int  # per half and sample
    tasks: int  # of 100, at random
    restarts: int
    steps: int
    seed: int = 0

    @property
    def key(self) -> str:
        """Where its rows are stored."""
        return digest({"γ̂ and its noise floor": asdict(self)})


@dataclass(frozen=True)
class GammaSpec:
    """The whole curve; the paper has 4,000 rows per half, which changes γ̂ little."""

    rows: int
    tasks: int
    restarts: int
    steps: int
    closeness: tuple[float, ...] = CLOSENESS
    seed: int = 0

    def cells(self) -> list[GammaCell]:
        """One for each closeness."""
        return [GammaCell(c, self.rows, self.tasks, self.restarts, self.steps, self.seed) for c in self.closeness]


GAMMA = {
    "quick": GammaSpec(rows=300, tasks=4, restarts=3, steps=40, closeness=(0.1, 0.3, 0.5)),
    "full": GammaSpec(rows=2000, tasks=10, restarts=10, steps=100),
}


def measure_gamma(cell: GammaCell, device: str, progress: Progress | None = None) -> list[dict[str, Any]]:
    """One row for each task and restart: γ̂_it on the halves that chose the kernel and on fresh ones, and γ̂'s floor."""
    began = time.perf_counter()
    streams = Streams(cell.seed).child("gamma")
    target = make_task("hdgm", delta=0.7).sample(2 * cell.rows, seed=streams.child("target").seed)
    tasks = hdgm_related_tasks(cell.closeness, 100, 2 * cell.rows, seed=streams.child("meta-tasks").seed)
    found = relatedness(
        target,
        tasks,
        restarts=cell.restarts,
        max_tasks=cell.tasks,
        steps=cell.steps,
        seed=streams.child("kernels").seed,
        device=device,
        progress=progress,
    )
    seconds = time.perf_counter() - began
    return [
        {
            "closeness": cell.closeness,
            "task": name,
            "restart": restart,
            "on_training_rows": float(found.on_training_rows[index, restart]),
            "on_test_rows": float(found.on_test_rows[index, restart]),
            "floor": found.floor,
            "seconds": seconds,
        }
        for index, name in enumerate(found.task_names)
        for restart in range(cell.restarts)
    ]


def run_gamma(
    spec: GammaSpec, store: Store, executor: Executor, progress: Callable[[int, int], None] | None = None
) -> pd.DataFrame:
    """γ̂_it of every closeness as a tidy table; what the store has is not computed again.

    ``progress`` is called with thousandths of the whole; if it raises Cancelled, the work stops and what is done stays.
    """
    known = {cell: store.measurement(cell.key) for cell in spec.cells()}
    missing = [cell for cell, rows in known.items() if rows is None]
    jobs = {executor.submit(cell.key, measure_gamma, cell): cell for cell in missing}
    waiting, shares = set(jobs), dict.fromkeys((cell.key for cell in missing), 0.0)
    try:
        while waiting:
            finished, waiting = wait(waiting, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED)
            for future in finished:
                known[jobs[future]] = future.result()
                store.add_measurement(jobs[future].key, asdict(jobs[future]), future.result())
                shares[jobs[future].key] = 1.0
            shares |= {key: step / total for key, step, total in executor.reports() if shares[key] < 1}
            if progress is not None:
                progress(round(1000 * sum(shares.values()) / len(shares)), 1000)
    except BaseException:
        executor.cancel()
        raise
    return pd.DataFrame([row for rows in known.values() for row in rows or []], columns=COLUMNS)


def summarise_gamma(rows: pd.DataFrame) -> pd.DataFrame:
    """γ̂ = min_i max_t γ̂_it for each closeness on both halves, with the range of the tasks' maxima on test halves.

    Beside them are the noise floor of γ̂ on test halves and the published γ̂.
    """
    published = published_gamma().set_index("closeness")["gamma_hat"]
    table = []
    for closeness, group in rows.groupby("closeness"):
        worst = group.groupby("task")[["on_training_rows", "on_test_rows"]].max()
        table.append(
            {
                "closeness": closeness,
                "published": published.get(closeness, float("nan")),
                "on_training_rows": worst["on_training_rows"].min(),
                "on_test_rows": worst["on_test_rows"].min(),
                "lowest": worst["on_test_rows"].min(),
                "highest": worst["on_test_rows"].max(),
                "floor": group["floor"].iloc[0],
                "seconds": group["seconds"].iloc[0],
            }
        )
    return pd.DataFrame(table)
