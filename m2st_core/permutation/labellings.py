"""Random labellings, the p-value they give, and blocks: rows that may be exchanged within their block only.

If the rows of each block are exchangeable under the null hypothesis (same site, same day, same pair), then labels
permuted within blocks are as likely as those observed, however much the blocks differ. The p-value stays exact.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from m2st_core.rng import Streams
from m2st_core.types import PValueRule

SHORT_KEYS = 4096  # pooled rows up to which 16-bit keys rarely tie
KEYS_AT_ONCE = 2**25  # random keys held together
PIECE_BYTES = 2**28  # of labellings as numbers, or of their products with a kernel


def random_memberships(
    n: int, m: int, n_permutations: int, generators: Sequence[np.random.Generator], blocks: Tensor | None = None
) -> Tensor:
    """The observed labelling, then B uniform random ones, for each generator: (R, 1+B, n+m), bool.

    With the ``blocks`` of the pooled rows (R, n+m), the first n of which are x's, rows are relabelled within blocks.

    Each random labelling marks the n smallest of N i.i.d. keys, found by selection rather than by sorting. A tie at
    the n-th key, about one row in 2ᵇ/N for keys of b bits, is drawn again, so every n-subset is equally likely. Short
    keys are cheaper to draw, and long ones several times cheaper to select, because processors have instructions for
    it.
    """
    size = n + m
    if blocks is not None:
        within = torch.zeros(len(generators), 1 + n_permutations, size, dtype=torch.bool)
        within[:, :, :n] = True
        for run, generator in enumerate(generators):
            for rows in _block_rows(blocks[run].cpu().numpy(), n):
                of_x = int((rows < n).sum())
                within[run][:, rows] = random_memberships(of_x, len(rows) - of_x, n_permutations, [generator])[0]
        return within
    key = np.dtype(np.uint16 if size <= SHORT_KEYS else np.uint32)
    at_once = 8 * max(1, KEYS_AT_ONCE // (8 * size))  # a random word holds two or four keys, and all are used
    members = np.empty((len(generators), 1 + n_permutations, size), dtype=bool)
    members[:, 0] = np.arange(size) < n
    for generator, rows in zip(generators, members[:, 1:], strict=True):
        tied = [
            start + _draw(generator, rows[start : start + at_once], n, key)
            for start in range(0, n_permutations, at_once)
        ]
        to_redraw = np.concatenate(tied)
        while to_redraw.size:
            some = to_redraw[:at_once]
            redrawn = np.empty((some.size, size), dtype=bool)
            still_tied = some[_draw(generator, redrawn, n, key)]
            rows[some] = redrawn
            to_redraw = np.concatenate([to_redraw[at_once:], still_tied])
    return torch.from_numpy(members)


def _draw(generator: np.random.Generator, rows: np.ndarray, n: int, key: np.dtype) -> np.ndarray:
    """Mark the n smallest of new keys in each row. Return the rows with a tie at the n-th key.

    Keys are cut from whole words of the generator where these fill them, which is cheaper.
    """
    words, rest = divmod(rows.size * key.itemsize, 8)
    if rest:
        keys = generator.integers(0, 256**key.itemsize, size=rows.shape, dtype=key)
    else:
        keys = generator.bit_generator.random_raw(words).view(key).reshape(rows.shape)
    ordered = keys.astype(np.uint32)
    ordered.partition(n - 1, axis=1)
    last = ordered[:, n - 1]
    np.less_equal(keys, last.astype(key)[:, None], out=rows)
    return (ordered[:, n:].min(axis=1) == last).nonzero()[0]


class Pieces:
    """Labellings (…, P, N) as numbers, so many at a time that these and ``width`` results of each fit into memory.

    The numbers are 1−``shift`` in the first sample and −``shift`` in the second.
    """

    def __init__(self, members: Tensor, dtype: torch.dtype, width: int = 1, shift: float = 0.0) -> None:
        each = dtype.itemsize * max(members[..., 0, :].numel(), width)
        self.dtype, self.shift = dtype, shift
        self.pieces = members.split(max(1, PIECE_BYTES // each), dim=-2)
        self.whole = self._numbers(members) if len(self.pieces) == 1 else None

    def _numbers(self, members: Tensor) -> Tensor:
        """Labellings as numbers. From bytes that takes half as long as from booleans."""
        numbers = (members.view(torch.uint8) if members.dtype == torch.bool else members).to(self.dtype, copy=True)
        return numbers.sub_(self.shift) if self.shift else numbers

    def map(self, function: Callable[[Tensor], Tensor]) -> Tensor:
        """``function`` of every piece, (…, P, N) → (…, P), side by side."""
        if self.whole is not None:
            return function(self.whole)
        return torch.cat([function(self._numbers(piece)) for piece in self.pieces], dim=-1)


def permutation_p_value(statistics: Tensor, rounding: Tensor, rule: PValueRule) -> Tensor:
    """The share of labellings whose statistic reaches the observed one: (…, 1+B), (…) → (…).

    "(1+b)/(1+B)" counts the observed labelling too and so keeps the level exactly. The other two are the paper's and
    its code's, which reject slightly too often. Non-finite statistics count as at least as extreme.
    """
    observed, permuted = statistics[..., :1], statistics[..., 1:]
    tolerance = rounding[..., None]
    count = permuted.shape[-1]
    if rule == "b/B, >":
        return (~(permuted <= observed + tolerance)).sum(dim=-1, dtype=torch.float64) / count
    reached = (~(permuted < observed - tolerance)).sum(dim=-1, dtype=torch.float64)
    return reached / count if rule == "b/B, ≥" else (1 + reached) / (1 + count)


def _block_rows(codes: np.ndarray, n: int) -> list[np.ndarray]:
    """The pooled rows of each block with rows of both samples, x's first: codes (N,), the first n rows are x's."""
    order = np.argsort(codes, kind="stable")
    blocks = np.split(order, np.flatnonzero(np.diff(codes[order])) + 1)
    return [rows for rows in blocks if 0 < (rows < n).sum() < len(rows)]


def order_within(codes: np.ndarray, n_train: int, shuffled: np.ndarray, streams: Streams) -> np.ndarray:
    """Row indices, training rows first, then test rows: every block is split in the same proportion, to within one row.

    Blocks are put in random order, their rows as ``shuffled``, and every (size/n_train)-th row becomes a training row,
    whatever its values. Both samples have the same order of blocks, so a block with one row of each is not split.
    """
    rank = streams.numpy("order of blocks").random(int(codes.max()) + 1)
    rows = shuffled[np.argsort(rank[codes[shuffled]], kind="stable")]
    is_training = np.diff(np.arange(len(rows) + 1) * n_train // len(rows)) > 0
    return np.concatenate([rows[is_training], rows[~is_training]])


def all_labellings(codes: np.ndarray, n: int) -> np.ndarray:
    """Every labelling within blocks, the observed one first: (N,) → (L, N), bool.

    >>> all_labellings(np.zeros(3, dtype=int), 2).astype(int).tolist()
    [[1, 1, 0], [1, 0, 1], [0, 1, 1]]
    """
    members = np.arange(len(codes))[None] < n
    for rows in _block_rows(codes, n):
        members[:, rows] = False
        subsets = np.array(list(itertools.combinations(rows, int((rows < n).sum()))), dtype=int)
        of_block = np.zeros((len(subsets), len(codes)), dtype=bool)
        np.put_along_axis(of_block, subsets, True, axis=1)
        members = (members[:, None] | of_block).reshape(-1, len(codes))
    return members
