"""Power and level on the example “Handwriting”, with its history and without.

Every draw deals the digits of the two forms anew, to the earlier batches and to the target. Draw 0 is the example. The
level is that of a target whose groups are both by the first hand.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import torch

from m2st_core.data.tables.examples import WRITERS, handwriting
from m2st_core.data.tables.prepare import prepare
from m2st_core.numbers import wilson_interval
from m2st_core.testing.two_sample import two_sample_test

PERMUTATIONS = 199
PAIRS = (WRITERS, (0, 1), (2, 3), (4, 5), (8, 9))  # no form is in two pairs
WITH, WITHOUT = ("Meta-FUSE",), ("Omnibus", "MMD-M")


def p_values(draw: int, writers: tuple[int, int], *, same: bool) -> list[float]:
    """The p-value of each test on one draw."""
    data = prepare(handwriting(draw, writers, same=same))
    shared = {"n_permutations": PERMUTATIONS, "seed": draw, "device": "cpu"}
    learned = [two_sample_test(data.x, data.y, name, related_tasks=data.related, **shared) for name in WITH]
    return [result.p_value for result in (*learned, *(two_sample_test(data.x, data.y, m, **shared) for m in WITHOUT))]


def main(arguments: Sequence[str] = ()) -> None:
    """Print power, level, and the p-value of draw 0 for each pair of hands."""
    parser = argparse.ArgumentParser(prog="m2st_core bench example", description=__doc__)
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--pairs", type=int, default=len(PAIRS), help="how many pairs of forms, the shipped one first")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    print("| forms | test | history | power | 95 % interval | level | p of draw 0 |\n|---|---|---|---|---|---|---|")
    for writers in PAIRS[: options.pairs]:
        found, null = ([p_values(draw, writers, same=same) for draw in range(options.draws)] for same in (False, True))
        for place, name in enumerate((*WITH, *WITHOUT)):
            hits, alarms = (sum(p[place] <= 0.05 for p in some) for some in (found, null))
            low, high = wilson_interval(hits, options.draws)
            print(
                f"| {writers[0] + 1} and {writers[1] + 1} | {name} | {'with' if name in WITH else 'without'} "
                f"| {hits / options.draws:.2f} | {low:.2f} to {high:.2f} | {alarms / options.draws:.2f} "
                f"| {found[0][place]:.3g} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
