"""The powers that Learn shows: tests of every setting of its controls, written into m2st_core/studies/course.json."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import torch

from m2st_core.studies.course import FILE, NAMES, OWN_ROWS, make_file


def main(arguments: Sequence[str] = ()) -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(prog="m2st_core bench course", description=__doc__)
    every = (*NAMES, OWN_ROWS)
    parser.add_argument("--methods", nargs="*", choices=every, default=every, help="others keep their numbers")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    began = time.perf_counter()
    FILE.write_text(make_file(lambda line: print(line, flush=True), options.methods), encoding="utf-8")
    print(f"{FILE.name}: {FILE.stat().st_size / 1000:.0f} kB, {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
