"""Power and level on the example “Handwriting”, with its related tasks and without.

Every draw deals the digits of the two forms anew, to the earlier batches and to the target. Draw 0 is the example. The
level is that of a target whose groups are both by the first hand. ``--pairs`` counts pairs of forms, the shipped one
first.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.common import ALPHA, Page, parse
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
    options = parse(arguments, __doc__, draws=100, pairs=len(PAIRS))
    page = Page()
    page.head("forms", "test", "related tasks", "power", "95 % interval", "level", "p of draw 0")
    for writers in PAIRS[: options.pairs]:
        different, null = (
            np.array([p_values(draw, writers, same=same) for draw in range(options.draws)]) for same in (False, True)
        )
        hits, alarms = ((p <= ALPHA).sum(axis=0) for p in (different, null))
        for column, name in enumerate((*WITH, *WITHOUT)):
            low, high = wilson_interval(int(hits[column]), options.draws)
            page.row(
                f"{writers[0] + 1} and {writers[1] + 1}",
                name,
                "with" if name in WITH else "without",
                f"{hits[column] / options.draws:.2f}",
                f"{low:.2f} to {high:.2f}",
                f"{alarms[column] / options.draws:.2f}",
                f"{different[0, column]:.3g}",
            )
