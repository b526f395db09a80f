"""The labellings behind a p-value, planned and checked before anything is computed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import gammaln

from m2st_core.permutation.blocks import Blocks, block_rows
from m2st_core.presets import PValueRule
from m2st_core.rng import Streams
from m2st_core.testing.method import Method
from m2st_core.testing.split import draw_order, split_sizes
from m2st_core.types import DEFAULT_TEST

ENUMERATED = 10_000  # up to this many labellings are all counted, whatever B is: so few rows are cheap
MANY = 10**6  # larger counts are not distinguished


@dataclass(frozen=True)
class Labellings:
    """The ``used`` labellings of one run, the observed one included.

    ``enumerated`` says that these are all labellings, so that no random permutation is drawn. ``smallest_p`` is the
    p-value of a statistic larger than all others, or 0 if it has no bound.
    """

    used: int
    enumerated: bool
    smallest_p: float


def count_labellings(codes: np.ndarray, n: int) -> int:
    """Π_b C(n_b+m_b, n_b), or 10⁶ if it is more: blocks of the pooled rows (N,), the first n of which are x's."""
    both = np.bincount(codes)
    first = np.bincount(codes[:n], minlength=len(both))
    logarithm = (gammaln(both + 1) - gammaln(first + 1) - gammaln(both - first + 1)).sum()
    if logarithm > math.log(MANY):
        return MANY
    return math.prod(math.comb(int(rows), int(own)) for rows, own in zip(both, first, strict=True))


def all_labellings(codes: np.ndarray, n: int) -> np.ndarray:
    """Every labelling within blocks, the observed one first: (N,) → (L, N), bool.

    >>> all_labellings(np.zeros(3, dtype=int), 2).astype(int).tolist()
    [[1, 1, 0], [1, 0, 1], [0, 1, 1]]
    """
    members = np.arange(len(codes))[None] < n
    for rows in block_rows(codes, n):
        members[:, rows] = False
        chosen = np.array(list(itertools.combinations(rows, int((rows < n).sum()))), dtype=int)
        marked = np.zeros((len(chosen), len(codes)), dtype=bool)
        np.put_along_axis(marked, chosen, True, axis=1)
        members = (members[:, None] | marked).reshape(-1, len(codes))
    return members


def labellings_of(codes: np.ndarray, n: int, method: Method, n_permutations: int, rule: PValueRule) -> Labellings:
    """The labellings of one p-value. The published rules b/B leave the observed one out and always draw.

    If x and y have equally many rows in every block, a labelling and its complement have the same two-sided statistic.
    The observed labelling then has at least one equal.
    """
    if not method.by_permutation or rule != "(1+b)/(1+B)":
        return Labellings(n_permutations + 1, False, 0.0)
    count = count_labellings(codes, n)
    if count > max(ENUMERATED, n_permutations + 1) or count == MANY:
        return Labellings(n_permutations + 1, False, 1 / (n_permutations + 1))
    both = np.bincount(codes)
    balanced = (2 * np.bincount(codes[:n], minlength=len(both)) == both).all()
    return Labellings(count, True, (2 if method.two_sided and balanced else 1) / count)


def plan_labellings(
    sizes: tuple[int, int],
    method: Method,
    seeds: Sequence[int],
    blocks: Blocks | None,
    n_permutations: int,
    train_fraction: float,
    rule: PValueRule,
) -> list[Labellings]:
    """The labellings of each run, before anything is fitted. Only a split within blocks makes runs differ."""
    n_train, (n, m) = split_sizes(sizes, method, train_fraction)
    if blocks is None:
        return [labellings_of(np.zeros(n + m, dtype=int), n, method, n_permutations, rule)] * len(seeds)
    if not method.needs_split:
        return [labellings_of(np.concatenate([blocks.x, blocks.y]), n, method, n_permutations, rule)] * len(seeds)
    planned = []
    for seed in seeds:
        order = draw_order(sizes, n_train, [Streams(seed)], blocks)
        x, y = (rows[0, count:].numpy() for rows, count in zip((order.x, order.y), n_train, strict=True))
        codes = np.concatenate([blocks.x[x], blocks.y[y]])
        planned.append(labellings_of(codes, n, method, n_permutations, rule))
    return planned


def check_splits(method: Method, splits: int) -> None:
    """Refuse several splits of a method that does not split."""
    if splits > 1 and not method.needs_split:
        raise ValueError(
            f"{method.name} does not split the rows: it tests all of them. splits={splits} would change nothing. "
            "Leave splits at 1."
        )


def check_reach(method: Method, alpha: float, smallest: float, labellings: Labellings, n_test: tuple[int, int]) -> None:
    """Refuse a test that cannot reject, whatever the rows are, and say what would help."""
    if smallest <= alpha:
        return
    can = f"{method.name} cannot reject at alpha={alpha:g}: its smallest possible p-value is {smallest:.3g}"
    if not labellings.enumerated:
        times = round(smallest / labellings.smallest_p)
        raise ValueError(
            f"{can}, with {labellings.used - 1} permutations. Use at least {math.ceil(times / alpha) - 1}."
        )
    raise ValueError(
        f"{can}, because its {n_test[0]} and {n_test[1]} test rows have only {labellings.used} labellings. "
        "It needs more rows."
    )


def check_blocks(method: Method) -> None:
    """Refuse blocks for a test without permutations."""
    if not method.by_permutation:
        raise ValueError(
            f"{method.name} finds its p-value without permutations, so it cannot honour blocks. "
            f"Choose an exact method, such as {DEFAULT_TEST}."
        )
