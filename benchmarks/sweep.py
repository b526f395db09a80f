"""What the sweep engine costs beside the mathematics, how it scales, and how well it predicts: all in one run.

The same small sweep from nothing, in one process, in pools of one and two workers, and on a local Dask cluster of two
worker processes. Overhead is the share of the in-process run that no training and no cell accounts for. Every executor
is warmed up by another sweep first: starting a process takes seconds, once.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any
from unittest.mock import patch

from m2st_core.sweeps import work
from m2st_core.sweeps.cluster import DaskExecutor
from m2st_core.sweeps.cost import predict
from m2st_core.sweeps.executors import Executor, InlineExecutor, PoolExecutor
from m2st_core.sweeps.spec import SweepSpec
from m2st_core.sweeps.store import Store
from m2st_core.sweeps.sweep import run_sweep

METHODS = ("Feature-MKL", "Meta-WiTS", "MMD-O", "C2ST-L")


def measure(title: str, make: Callable[[], Executor], spec: SweepSpec) -> float:
    """Print and return the wall time."""
    with tempfile.TemporaryDirectory() as home:
        store, executor = Store(home), make()
        try:
            run_sweep(spec.with_(seed=spec.seed + 1, repeats=2, tests=2, m_te=(20,)), store, executor)
            began = time.perf_counter()
            rows = run_sweep(spec, store, executor)
            wall = time.perf_counter() - began
        finally:
            executor.close()
    print(f"| {title} | {wall:.1f} | {rows['seconds'].sum():.1f} |", flush=True)
    return wall


def measure_overhead(spec: SweepSpec) -> None:
    """Time every training and every cell of an in-process run."""
    spent: list[float] = []

    def timed(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            began = time.perf_counter()
            try:
                return function(*arguments)
            finally:
                spent.append(time.perf_counter() - began)

        return call

    with (
        patch.object(work, "train_learner", timed(work.train_learner)),
        patch.object(work, "run_cell", timed(work.run_cell)),
    ):
        began = time.perf_counter()
        measure("in-process", InlineExecutor, spec)
    warm_up_and_run = time.perf_counter() - began
    print(f"\noverhead, warm-up sweep included: {1 - sum(spent) / warm_up_and_run:.1%}\n")


def main(arguments: Sequence[str] = ()) -> None:
    """Print the table and the ratios."""
    parser = argparse.ArgumentParser(prog="m2st_core bench sweep", description=__doc__)
    parser.add_argument("--repeats", type=int, default=8)
    options = parser.parse_args(arguments)
    spec = SweepSpec(methods=METHODS, m_te=(50, 100, 200), repeats=options.repeats)
    cost = predict(spec)
    print(f"predicted: {cost.cells} cells, {cost.learners} trainings, {cost.seconds:.0f} s of one core\n")
    print("| executor | wall seconds | of which cells, all workers |")
    print("|---|---|---|")
    measure_overhead(spec)
    one = measure("pool, 1 worker", lambda: PoolExecutor(1), spec)
    two = measure("pool, 2 workers", lambda: PoolExecutor(2), spec)
    from distributed import LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
        dask = measure("Dask, 2 worker processes", lambda: DaskExecutor(cluster.scheduler_address), spec)
    print(f"\ntwo workers against one: {one / two:.2f}×; Dask against the pool: {dask / two:.2f}×")
    print(f"predicted / measured, one worker: {cost.seconds / one:.2f}")


if __name__ == "__main__":
    main()
