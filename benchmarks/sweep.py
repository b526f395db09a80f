"""What the sweep engine costs beside the mathematics, how it scales, and how well it predicts: all in one run.

The same small sweep from nothing, in one process, in pools of one and two workers, and on a local Dask cluster of two
worker processes. Overhead is the share of the workers' time that no training and no cell accounts for. Every executor
is warmed up by another sweep first: starting a process takes seconds, once.
"""

from __future__ import annotations

import argparse
import sqlite3
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from m2st_core.experiments.cost import predict
from m2st_core.experiments.executors import DaskExecutor, Executor, InlineExecutor, PoolExecutor
from m2st_core.experiments.spec import SweepSpec
from m2st_core.experiments.store import Store
from m2st_core.experiments.sweep import run_sweep

METHODS = ("Meta-MKL", "Meta-KL", "MMD-O", "C2ST-L")


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
        with sqlite3.connect(Path(home) / "store.sqlite") as db:
            keys = {cell.learner.key for cell in spec.cells() if cell.learner is not None}
            training = sum(s for key, s in db.execute("SELECT key, seconds FROM learners") if key in keys)
    busy = rows["seconds"].sum() + training
    print(f"| {title} | {wall:.1f} | {busy:.1f} | {1 - busy / (wall * executor.workers):.1%} |", flush=True)
    return wall


def main(arguments: Sequence[str] = ()) -> None:
    """Print the table and the ratios."""
    parser = argparse.ArgumentParser(prog="m2st_core bench sweep", description=__doc__)
    parser.add_argument("--repeats", type=int, default=8)
    options = parser.parse_args(arguments)
    spec = SweepSpec(methods=METHODS, m_te=(50, 100, 200), repeats=options.repeats)
    cost = predict(spec)
    print(f"predicted: {cost.cells} cells, {cost.learners} trainings, {cost.seconds:.0f} s of one core\n")
    print("| executor | wall seconds | seconds of trainings and cells | overhead |")
    print("|---|---|---|---|")
    measure("in-process", InlineExecutor, spec)
    one = measure("pool, 1 worker", lambda: PoolExecutor(1), spec)
    two = measure("pool, 2 workers", lambda: PoolExecutor(2), spec)
    from distributed import LocalCluster

    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
        dask = measure("Dask, 2 worker processes", lambda: DaskExecutor(cluster.scheduler_address), spec)
    print(f"\ntwo workers against one: {one / two:.2f}×; Dask against the pool: {dask / two:.2f}×")
    print(f"predicted / measured, one worker: {cost.seconds / one:.2f}")


if __name__ == "__main__":
    main()
