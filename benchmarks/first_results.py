"""Compute what Weights and One test open with, and write it into the package."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import torch

from m2st_core.studies.first_results import FILE, WEIGHTS, compute_first_results


def main(arguments: Sequence[str] = ()) -> None:
    """Write the results and print their findings."""
    argparse.ArgumentParser(prog="m2st_core bench first_results", description=__doc__).parse_args(arguments)
    torch.set_num_threads(1)
    began = time.perf_counter()
    results = compute_first_results()
    results.save()
    print(f"{FILE.name}: {FILE.stat().st_size / 1e3:.0f} kB in {time.perf_counter() - began:.0f} s")
    print(f"Weights: {results.weights.finding(WEIGHTS)}\nOne test: {results.test.finding}")


if __name__ == "__main__":
    main()
