"""Power and level on the example “Handwriting”, with its history and without, over random draws of the target's digits.

The history is fixed. Every draw takes 15 digits of each hand from those that are in no earlier batch. Draw 0 of the
shipped pair of hands is the example. The level is that of two groups by the first hand.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import numpy as np
import torch

from m2st_core.data.tables.clean import prepare
from m2st_core.data.tables.examples import WRITERS, handwriting
from m2st_core.data.tables.upload import Upload
from m2st_core.sweeps.summary import wilson_interval
from m2st_core.testing.meta import meta_train
from m2st_core.testing.methods import METHODS
from m2st_core.testing.run import run_tests
from m2st_core.types import TwoSample

PERMUTATIONS = 199
PAIRS = (WRITERS, (0, 1), (2, 3), (4, 5), (1, 6), (0, 5), (3, 8))
WITH, WITHOUT = ("Meta-FUSE", "Meta-WiTS"), ("Omnibus", "MMD-M", "MMD-FUSE")


def drawn(writers: tuple[int, int], draws: int, *, same: bool) -> TwoSample:
    """The targets of many draws."""
    encoding = prepare(handwriting(writers=writers)).encoding
    uploads = (Upload(handwriting(draw, writers, same=same).target, group="group") for draw in range(draws))
    targets = [prepare(upload, encoding=encoding) for upload in uploads]
    return TwoSample(*(torch.from_numpy(np.stack([getattr(t, side) for t in targets])) for side in "xy"))


def main(arguments: Sequence[str] = ()) -> None:
    """Print a table per pair of hands: power, level, and the p-value of draw 0."""
    parser = argparse.ArgumentParser(prog="m2st_core bench example", description=__doc__)
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--pairs", type=int, default=len(PAIRS), help="how many pairs of hands, the shipped one first")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    print("| forms | test | history | power | 95 % interval | level | p of draw 0 |\n|---|---|---|---|---|---|---|")
    for writers in PAIRS[: options.pairs]:
        samples = [drawn(writers, options.draws, same=same) for same in (False, True)]
        related = prepare(handwriting(writers=writers)).related_tasks
        for name in (*WITH, *WITHOUT):
            method = meta_train(name, related).bound(torch.device("cpu")) if name in WITH else METHODS[name]
            results, nulls = (
                run_tests(sample, method, seeds=range(options.draws), n_permutations=PERMUTATIONS, device="cpu")
                for sample in samples
            )
            found, alarms = (sum(result.rejected for result in some) for some in (results, nulls))
            low, high = wilson_interval(found, options.draws)
            print(
                f"| {writers[0] + 1} and {writers[1] + 1} | {name} | {'with' if name in WITH else 'without'} "
                f"| {found / options.draws:.3f} | {low:.3f} to {high:.3f} | {alarms / options.draws:.3f} "
                f"| {results[0].p_value:.3g} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
