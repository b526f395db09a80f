"""γ̂ against the closeness C, the paper's relatedness figure, as a stored experiment: one job per closeness."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from m2st_core.data import make_task
from m2st_core.data.synthetic import hdgm_related_tasks
from m2st_core.learners.relatedness import relatedness
from m2st_core.paper.published import published_gamma
from m2st_core.rng import Streams
from m2st_core.sweeps.executors import Executor
from m2st_core.sweeps.store import Store
from m2st_core.sweeps.trial import digest
from m2st_core.types import Progress

COLUMNS = ["closeness", "task", "restart", "on_training_rows", "on_test_rows", "floor", "seconds"]
POLL_SECONDS = 0.2


@dataclass(frozen=True)
class GammaCell:
    """γ̂_it between HDGM(0.7) and the related tasks of one closeness."""

    closeness: float
    rows: int  # per half and sample; the paper's 4,000 change γ̂ little
    tasks: int  # of 100, at random
    restarts: int
    steps: int
    seed: int = 0

    @property
    def key(self) -> str:
        """The hash under which its rows are stored."""
        return digest({"γ̂ and its noise floor": asdict(self)})


GAMMA = {
    "quick": [GammaCell(closeness, rows=300, tasks=4, restarts=3, steps=40) for closeness in (0.1, 0.3, 0.5)],
    "full": [
        GammaCell(closeness, rows=2000, tasks=10, restarts=10, steps=100) for closeness in (0.1, 0.2, 0.3, 0.4, 0.5)
    ],
}


def measure_gamma(cell: GammaCell, device: str, progress: Progress | None = None) -> list[dict[str, Any]]:
    """One row per task and restart: γ̂_it on the halves that chose the kernel and on fresh halves, with γ̂'s floor."""
    began = time.perf_counter()
    streams = Streams(cell.seed).child("gamma")
    measured = relatedness(
        make_task("hdgm", delta=0.7).sample(2 * cell.rows, seed=streams.child("target").seed),
        hdgm_related_tasks(cell.closeness, 100, 2 * cell.rows, seed=streams.child("meta-tasks").seed),
        restarts=cell.restarts,
        max_tasks=cell.tasks,
        steps=cell.steps,
        seed=streams.child("kernels").seed,
        device=device,
        progress=progress,
    )
    shared = {"floor": measured.floor, "seconds": time.perf_counter() - began}
    return [
        {"closeness": cell.closeness, "task": task, "restart": restart}
        | {name: float(getattr(measured, name)[index, restart]) for name in ("on_training_rows", "on_test_rows")}
        | shared
        for index, task in enumerate(measured.task_names)
        for restart in range(cell.restarts)
    ]


def run_gamma(
    cells: Sequence[GammaCell],
    store: Store,
    executor: Executor,
    progress: Callable[[int, int], None] | None = None,
) -> pd.DataFrame:
    """γ̂_it of every closeness as a tidy table. Stored measurements are not computed again.

    ``progress`` is called with thousandths of the whole. If it raises Cancelled, the work stops and finished
    measurements are kept.
    """
    rows = {cell: store.cells.measurement(cell.key) for cell in cells}
    jobs = {executor.submit(cell.key, measure_gamma, cell): cell for cell in cells if rows[cell] is None}
    shares = {cell.key: 0.0 for cell in jobs.values()}
    waiting = set(jobs)
    try:
        while waiting:
            finished, waiting = wait(waiting, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED)
            shares |= {key: step / total for key, step, total in executor.reports()}
            for future in finished:
                cell = jobs[future]
                rows[cell] = future.result()
                store.cells.add_measurement(cell.key, asdict(cell), future.result())
            shares |= {cell.key: 1.0 for future, cell in jobs.items() if future not in waiting}
            if progress is not None:
                progress(round(1000 * sum(shares.values()) / len(shares)), 1000)
    except BaseException:
        executor.cancel()
        raise
    return pd.DataFrame([row for measured in rows.values() for row in measured or []], columns=COLUMNS)


def summarise_gamma(rows: pd.DataFrame) -> pd.DataFrame:
    """γ̂ = min_i max_t γ̂_it for each closeness on both halves, beside the published γ̂ and the noise floor.

    ``lowest`` and ``highest`` are the range of the tasks' maxima on test halves.
    """
    largest = rows.groupby(["closeness", "task"]).max().groupby("closeness")
    table = largest[["on_training_rows", "on_test_rows"]].min()
    first = rows.groupby("closeness")[["floor", "seconds"]].first()
    table = table.assign(lowest=table["on_test_rows"], highest=largest["on_test_rows"].max()).join(first)
    published = published_gamma().set_index("closeness")["gamma_hat"].reindex(table.index)
    table.insert(0, "published", published)
    return table.reset_index()
