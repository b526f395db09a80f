"""Recompute the curves with which the page Power opens, and write them into the package.

    python -m m2st_core bench shipped_power

Run it after a change of a method's ``revision`` or of the sweeps' CODE; a test says so. With two cores it takes less
than five minutes. Each point has 4 repeats of 50 tests.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence

import pandas as pd

from m2st_core.studies.power import SHIPPED, shipped_specs
from m2st_core.sweeps.executors import make_executor
from m2st_core.sweeps.store import Store
from m2st_core.sweeps.sweep import run_sweep


def main(arguments: Sequence[str] = ()) -> None:
    """Compute all cells in a store of their own and write one line for each."""
    argparse.ArgumentParser(prog="bench shipped_power", description=__doc__).parse_args(arguments)
    began, lines = time.perf_counter(), []
    executor = make_executor("pool")
    try:
        with tempfile.TemporaryDirectory() as home:
            store = Store(home)
            for spec in shipped_specs():
                run_sweep(spec, store, executor)
                cells = {cell.key: cell for cell in spec.cells()}
                results = store.results(cells)
                lines += [
                    (key, cell.null, cell.method, cell.closeness, cell.m_te, cell.repeat, result.rejections)
                    + (result.tests, round(result.seconds, 2))
                    for key, cell in cells.items()
                    if (result := results[key])
                ]
    finally:
        executor.close()
    columns = ["key", "null", "method", "closeness", "m_te", "repeat", "rejections", "tests", "seconds"]
    pd.DataFrame(lines, columns=columns).to_csv(SHIPPED, index=False)
    print(f"{len(lines)} cells in {time.perf_counter() - began:.0f} s: {SHIPPED.name}")


if __name__ == "__main__":
    main()
