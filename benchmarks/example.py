"""Power on the example “Scanner”, with its history and without, over random draws of the target's 60 images.

The history is fixed. Every draw takes 60 of the 447 images that are in no earlier check. Draw 0 is the shipped example.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
import torch

from m2st_core.data.tables.clean import prepare
from m2st_core.data.tables.examples import scanner
from m2st_core.data.tables.upload import Upload
from m2st_core.sweeps.summary import wilson_interval
from m2st_core.testing.meta import meta_train
from m2st_core.testing.methods import METHODS
from m2st_core.testing.run import run_tests
from m2st_core.types import TwoSample

PERMUTATIONS = 199
WITH, WITHOUT = "Meta-FUSE", ("Omnibus", "MMD-M", "MMD-FUSE")


def main(arguments: Sequence[str] = ()) -> None:
    """Print a table of power, and the p-values of the shipped draw."""
    parser = argparse.ArgumentParser(prog="m2st_core bench example", description=__doc__)
    parser.add_argument("--draws", type=int, default=200)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    shipped = prepare(scanner())
    learner = meta_train(WITH, shipped.related_tasks)
    uploads = (Upload(scanner(draw).target, group="group") for draw in range(options.draws))
    targets = [prepare(upload, encoding=shipped.encoding) for upload in uploads]
    sample = TwoSample(*(torch.from_numpy(np.stack([getattr(t, side) for t in targets])) for side in "xy"))
    methods = {WITH: learner.bound(torch.device("cpu"))} | {name: METHODS[name] for name in WITHOUT}
    print("| test | history | power | 95 % interval | p of draw 0 |\n|---|---|---|---|---|")
    for name, method in methods.items():
        results = run_tests(sample, method, seeds=range(options.draws), n_permutations=PERMUTATIONS, device="cpu")
        power = float(np.mean([result.rejected for result in results]))
        low, high = wilson_interval(round(power * len(results)), len(results))
        history = "with" if name == WITH else "without"
        print(f"| {name} | {history} | {power:.3f} | {low:.3f} to {high:.3f} | {results[0].p_value:.3g} |", flush=True)


if __name__ == "__main__":
    main()
