"""Compute what Home shows and write it into the package: views, p-values and powers of two tests over closenesses."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import torch

from benchmarks.common import print_table
from m2st_core.studies.home import CLOSENESSES, FILE, GENERIC, TAUGHT, assemble, compute_column


def main(arguments: Sequence[str] = ()) -> None:
    """Write the table and print the powers."""
    parser = argparse.ArgumentParser(prog="m2st_core bench home", description=__doc__)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    began = time.perf_counter()
    with ProcessPoolExecutor(options.workers, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        generic, *taught = pool.map(compute_column, [None, *CLOSENESSES])
    table = assemble(generic, taught)
    table.save()
    print(f"{FILE.name}: {FILE.stat().st_size / 1e3:.0f} kB in {time.perf_counter() - began:.0f} s\n")
    rows = dict(zip((f"{TAUGHT}, C={c:g}" for c in CLOSENESSES), table.taught_power[..., None], strict=True))
    print_table(["", "power"], {GENERIC: table.generic_power[:, None], **rows})


if __name__ == "__main__":
    main()
