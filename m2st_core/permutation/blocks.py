"""Random labellings, the p-value they give, and blocks: rows that may be exchanged within their block only.

If the rows of each block are exchangeable under the null hypothesis (same site, same day, same pair), then labels
permuted within blocks are as likely as those observed, however much the blocks differ. The p-value stays exact.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from m2st_core.presets import PValueRule
from m2st_core.rng import Streams

SHORT_KEYS = 4096  # pooled rows up to which 16-bit keys rarely tie
KEYS_AT_ONCE = 2**25  # random keys held together
PIECE_BYTES = 2**28  # of labellings as numbers, or of their products with a kernel


def random_memberships(n: int, m: int, n_permutations: int, generators: Sequence[np.random.Generator]) -> Tensor:
    """The observed labelling, then B uniform random ones, for each generator: (R, 1+B, n+m), bool.

    Each random row marks the n smallest of N i.i.d. keys, found by selection rather than by sorting. A tie at the n-th
    key, about one row in 2ᵇ/N for keys of b bits, is drawn again, so every n-subset is equally likely. Short keys are
    cheaper to draw, and long ones several times cheaper to select, because processors have instructions for it.
    """
    size = n + m
    key = np.dtype(np.uint16 if size <= SHORT_KEYS else np.uint32)
    at_once = 8 * max(1, KEYS_AT_ONCE // (8 * size))  # random words hold two or four keys, and none is lost
    members = np.empty((len(generators), 1 + n_permutations, size), dtype=bool)
    members[:, 0] = np.arange(size) < n
    for generator, rows in zip(generators, members[:, 1:], strict=True):
        tied = [
            start + _draw(generator, rows[start : start + at_once], n, key)
            for start in range(0, n_permutations, at_once)
        ]
        todo = np.concatenate(tied)
        while todo.size:
            some = todo[:at_once]
            again = np.empty((some.size, size), dtype=bool)
            still = some[_draw(generator, again, n, key)]
            rows[some] = again
            todo = np.concatenate([todo[at_once:], still])
    return torch.from_numpy(members)


def _draw(generator: np.random.Generator, rows: np.ndarray, n: int, key: np.dtype) -> np.ndarray:
    """Mark the n smallest of new keys in each row, and return the rows with a tie at the n-th."""
    keys = _random_keys(generator, (len(rows), rows.shape[1]), key)
    ordered = keys.astype(np.uint32)
    ordered.partition(n - 1, axis=1)
    last = ordered[:, n - 1]
    np.less_equal(keys, last.astype(key)[:, None], out=rows)
    return (ordered[:, n:].min(axis=1) == last).nonzero()[0]


def _random_keys(generator: np.random.Generator, shape: tuple[int, int], key: np.dtype) -> np.ndarray:
    """Uniform integers of this type; whole words of the generator, if they fill them, are cheaper than its integers."""
    words, rest = divmod(shape[0] * shape[1] * key.itemsize, 8)
    if rest:
        return generator.integers(0, 256**key.itemsize, size=shape, dtype=key)
    return generator.bit_generator.random_raw(words).view(key).reshape(shape)


def as_numbers(members: Tensor, dtype: torch.dtype) -> Tensor:
    """Labellings as 0 and 1 in this type. From bytes that takes half as long as from booleans."""
    return members.view(torch.uint8).to(dtype) if members.dtype == torch.bool else members.to(dtype)


class Pieces:
    """Labellings (…, P, N) as numbers, so many at a time that these and ``width`` results of each fit into memory.

    The numbers are 1−``shift`` in the first sample and −``shift`` in the second.
    """

    def __init__(self, members: Tensor, dtype: torch.dtype, width: int = 1, shift: float = 0.0) -> None:
        each = dtype.itemsize * max(members[..., 0, :].numel(), width)
        self.dtype, self.shift = dtype, shift
        self.parts = members.split(max(1, PIECE_BYTES // each), dim=-2)
        self.whole = self._numbers(members) if len(self.parts) == 1 else None

    def _numbers(self, members: Tensor) -> Tensor:
        numbers = as_numbers(members, self.dtype)
        return numbers.sub_(self.shift) if self.shift else numbers

    def map(self, function: Callable[[Tensor], Tensor]) -> Tensor:
        """``function`` of every piece, (…, P, N) → (…, P), side by side."""
        if self.whole is not None:
            return function(self.whole)
        return torch.cat([function(self._numbers(part)) for part in self.parts], dim=-1)


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


@dataclass(frozen=True)
class Blocks:
    """The block of each row, numbered, for the rows kept: those whose block holds rows of both samples.

    ``x`` (n,) and ``y`` (m,) are the numbers of the rows at ``rows_x`` and ``rows_y`` of the samples as given.
    """

    x: np.ndarray
    y: np.ndarray
    rows_x: np.ndarray
    rows_y: np.ndarray
    notes: tuple[str, ...]


def as_blocks(blocks: Any, sizes: tuple[int, int]) -> Blocks:
    """Labels (blocks_x, blocks_y), one per row, checked; blocks with rows of one sample only are left out, and named.

    >>> as_blocks((["a", "a", "b"], ["a", "c"]), (3, 2)).notes
    ('Left out, since their blocks hold rows of one sample only: 1 row of x and 1 row of y in 2 blocks.',)
    """
    try:
        first, second = blocks
        labels = [np.asarray(part) for part in (first, second)]
    except (TypeError, ValueError):
        raise ValueError("blocks must be a pair (blocks of x's rows, blocks of y's rows), one label per row.") from None
    for name, part, size in zip("xy", labels, sizes, strict=True):
        if part.shape != (size,):
            found = f"{part.shape[0]} labels" if part.ndim == 1 else f"the shape {part.shape}"
            raise ValueError(f"blocks of {name} need one label for each of its {size} rows. Got {found}.")
    text = [[_label(value, name, row) for row, value in enumerate(p)] for name, p in zip("xy", labels, strict=True)]
    names, codes = np.unique(np.array(text[0] + text[1]), return_inverse=True)
    codes_x, codes_y = codes[: sizes[0]], codes[sizes[0] :]
    counts = [np.bincount(part, minlength=len(names)) for part in (codes_x, codes_y)]
    both = (counts[0] > 0) & (counts[1] > 0)
    if not both.any():
        raise ValueError(
            f"None of the {len(names)} blocks holds rows of both samples, so no labels can be exchanged within blocks. "
            "Choose another block column, or none."
        )
    rows_x, rows_y = np.flatnonzero(both[codes_x]), np.flatnonzero(both[codes_y])
    notes: tuple[str, ...] = ()
    if not both.all():
        left = [_count(int(count[~both].sum()), f"row of {name}") for count, name in zip(counts, "xy", strict=True)]
        notes = (
            f"Left out, since their blocks hold rows of one sample only: {' and '.join(left)} in "
            f"{_count(int((~both).sum()), 'block')}.",
        )
    return Blocks(codes_x[rows_x], codes_y[rows_y], rows_x, rows_y, notes)


def block_rows(codes: np.ndarray, n: int) -> list[np.ndarray]:
    """The pooled rows of each block with rows of both samples, x's first: codes (N,), the first n rows are x's."""
    order = np.argsort(codes, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(codes[order])) + 1)
    return [rows for rows in parts if 0 < (rows < n).sum() < len(rows)]


def memberships_within(codes: Tensor, n: int, n_permutations: int, generators: Sequence[np.random.Generator]) -> Tensor:
    """The observed labelling, then B random ones within blocks, for each run: (R, 1+B, N), bool.

    ``codes`` (R, N) are the blocks of the pooled rows, the first n of which are x's.
    """
    runs, size = codes.shape
    members = np.zeros((runs, 1 + n_permutations, size), dtype=bool)
    members[:, :, :n] = True
    for run, generator in enumerate(generators):
        for rows in block_rows(codes[run].cpu().numpy(), n):
            first = int((rows < n).sum())
            drawn = random_memberships(first, len(rows) - first, n_permutations, [generator])
            members[run, :, rows] = drawn[0].numpy().T
    return torch.from_numpy(members)


def order_within(codes: np.ndarray, n_train: int, shuffled: np.ndarray, streams: Streams) -> np.ndarray:
    """Row indices, training rows first, then test rows: every block gives its share of both, to within one row.

    Blocks are lined up in random order, their rows as ``shuffled``, and every (size/n_train)-th row becomes a training
    row. Values play no part. Both samples line up their blocks alike, so a block with one row of each goes as a whole.
    """
    place = streams.numpy("order of blocks").random(int(codes.max()) + 1)
    line = shuffled[np.argsort(place[codes[shuffled]], kind="stable")]
    steps = np.arange(len(line) + 1) * n_train // len(line)
    trains = np.diff(steps) > 0
    return np.concatenate([line[trains], line[~trains]])


def _label(value: Any, name: str, row: int) -> str:
    """A label as text; whole floats read like integers, and missing ones are an error."""
    if value is None or value != value:
        raise ValueError(f"blocks of {name} have a missing label at row {row + 1}. Name its block, or drop the row.")
    if isinstance(value, (float, np.floating)) and float(value).is_integer():
        return str(int(value))
    return str(value)


def _count(number: int, what: str) -> str:
    noun, *rest = what.split(" ")
    return " ".join([str(number), noun if number == 1 else f"{noun}s", *rest])
