"""Power on the paper's synthetic task: HDGM, mean ± standard error between repeats, beside the published numbers.

As in the paper, each repeat draws related tasks and one target sample of m_tr rows per mode to learn from, trains
once, and tests fresh target samples (Δ=0.7) of m_te rows per mode. Methods that split nothing get the test rows only.
The last row is the limit: the true log-likelihood ratio as a one-sided witness.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence

import m2st_core as m2st
from benchmarks.common import print_table
from m2st_core.paper.published import with_published
from m2st_core.sweeps.executors import PoolExecutor
from m2st_core.sweeps.spec import LIMIT, SweepSpec
from m2st_core.sweeps.store import Store
from m2st_core.sweeps.summary import summarise
from m2st_core.sweeps.sweep import run_sweep

SIZES = (50, 80, 100, 120, 150, 200, 250)  # per mode


def main(arguments: Sequence[str] = ()) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="m2st_core bench power", description=__doc__)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--tests", type=int, default=100)
    parser.add_argument("--permutations", type=int, default=199)
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--closeness", type=float, default=0.3)
    parser.add_argument("--train", type=int, default=50, help="m_tr per mode")
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES, help="m_te per mode")
    parser.add_argument("--preset", default="recommended")
    parser.add_argument("--null", action="store_true", help="both samples from P: type-I error")
    parser.add_argument("--methods", nargs="*", help="default: all that the preset has")
    parser.add_argument("--workers", type=int, help="default: one per core")
    options = parser.parse_args(arguments)
    ours = m2st.PRESETS.find(options.preset).features is not None
    every = [name for name, method in m2st.METHODS.items() if ours or not method.only_recommended]
    spec = SweepSpec(
        methods=(*(options.methods or every), LIMIT),
        preset=options.preset,
        null=options.null,
        closeness=(options.closeness,),
        n_tasks=(options.tasks,),
        m_tr=(options.train,),
        m_te=tuple(options.sizes),
        repeats=options.repeats,
        tests=options.tests,
        n_permutations=options.permutations,
    )
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as home:
        executor = PoolExecutor(options.workers)
        rows = run_sweep(spec, Store(home), executor)
        executor.close()
    print(f"HDGM, {'null' if options.null else 'Δ=0.7'}, C={options.closeness:g}, N={options.tasks}, ", end="")
    print(f"{spec.rows_per_task} rows per mode and task, m_tr={options.train} per mode, α=0.05, ", end="")
    print(f"{options.preset}, {options.repeats} repeats × {options.tests} test sets, ", end="")
    print(f"{time.perf_counter() - began:.0f} s\n")
    table = with_published(summarise(rows))
    shown: dict[str, object] = {}
    for method, group in table.groupby("method", sort=False):
        if group["published"].notna().any():
            shown[f"{method}, published"] = group.set_index("m_te")["published"].loc[list(options.sizes)]
    for method, group in rows.groupby("method", sort=False):
        shown[str(method)] = group.pivot(index="repeat", columns="m_te", values="rate")[list(options.sizes)]
    print_table(["m_te per mode", *map(str, options.sizes)], shown)


if __name__ == "__main__":
    main()
