"""The rows of many tasks, of which several may show the same image: every image is kept once."""

from __future__ import annotations

from array import array
from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from m2st_core.tasks.arrays import hash_rows
from m2st_core.types import Shape, TwoSample


class RowPool:
    """Rows as tasks bring them, one task at a time; equal images are one row, other rows are all kept.

    What is kept is in one piece each: small pieces between the large temporary arrays would break up the memory.
    """

    def __init__(self, samples: Iterable[TwoSample]) -> None:
        self.sizes: list[tuple[int, int]] = []
        self.shape: Shape | None = None
        self._rows = torch.zeros(0, 1)
        self._kept, self._all = array("q"), array("q")  # keys of the rows above, and of all tasks' rows
        self._met: set[int] = set()
        for sample in samples:
            self.sizes.append(sample.sizes)
            self.shape = sample.shape
            self._add(sample.pooled)

    def _add(self, rows: Tensor) -> None:
        count = len(self._all)
        keys = hash_rows(rows.numpy()) if self.shape else np.arange(count, count + len(rows))
        self._all.frombytes(keys.tobytes())
        if self.shape:
            keys, first = np.unique(keys, return_index=True)
            new = [index for index, key in enumerate(keys.tolist()) if key not in self._met]
            keys, rows = keys[new], rows[first[new]]
            self._met.update(keys.tolist())
        start, stop = len(self._kept), len(self._kept) + len(rows)
        if stop > len(self._rows):
            larger = rows.new_empty(max(stop, 2 * start), rows.shape[-1])
            larger[:start] = self._rows[:start]
            self._rows = larger
        self._rows[start:stop] = rows
        self._kept.frombytes(keys.tobytes())

    def stacked(self, longest: int) -> tuple[Tensor, Tensor]:
        """The kept rows (U, d), images in the order of their hashes, and the number of each task's rows (T, longest).

        What is missing to the longest task is a row of zeros.
        """
        if any(sum(sizes) < longest for sizes in self.sizes):
            self._add(torch.zeros_like(self._rows[:1]))
        _, numbers = np.unique(np.array(self._all), return_inverse=True)
        rows = self._rows[np.argsort(np.array(self._kept))]
        where = torch.full((len(self.sizes), longest), int(numbers[-1]))
        start = 0
        for own, size in zip(where, map(sum, self.sizes), strict=True):
            own[:size] = torch.from_numpy(numbers[start : start + size])
            start += size
        return rows, where
