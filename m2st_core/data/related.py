"""The batch of related tasks: many sample pairs at once, of unequal sizes, padded."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from m2st_core.types import Shape, TwoSample, described_columns


@dataclass(frozen=True)
class PairedRows:
    """As many rows of x as of y for each run: (runs, c, d) both. ``inside`` (runs, c) is 1, or 0 for padding."""

    x: Tensor
    y: Tensor
    inside: Tensor


@dataclass(frozen=True)
class RelatedTasks:
    """T tasks of R repeats. Each task's rows are those of x, then those of y, then padding.

    ``rows`` is (R, U, d), and ``where`` (R, T, L) is the position there of each entry of a task. Tasks that share
    images share rows. ``x_weight`` (R, T, L) is 1/n_i at the entries of x, ``y_weight`` 1/m_i at those of y, and both
    are 0 elsewhere: a weighted sum over entries is a mean, and padding never counts. ``shape`` is that of images.
    ``columns`` are the names of the rows' columns, if they have names; ``notes`` name the tasks that had none. ``ids``
    (U,) are the ids of the rows of one repeat, if a column identifies them.
    """

    rows: Tensor
    where: Tensor
    x_weight: Tensor
    y_weight: Tensor
    names: tuple[str, ...]
    shape: Shape | None = None
    columns: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    ids: Tensor | None = None

    def __repr__(self) -> str:
        repeats = f"{len(self.rows)} repeats of " if len(self.rows) > 1 else ""
        width = described_columns(self.rows.shape[-1], self.columns, self.shape)
        return f"RelatedTasks({repeats}{len(self.names)} tasks, {width})"

    @property
    def inside(self) -> Tensor:
        """Mark the entries in use, neither padding nor held out: (R, T, L)."""
        return (self.x_weight > 0) | (self.y_weight > 0)

    @property
    def sizes(self) -> Tensor:
        """Rows of each task, both samples together: (R, T)."""
        return self.inside.sum(dim=-1)

    def take(self, where: Tensor) -> Tensor:
        """Look up rows by position: (R, …) → (R, …, d)."""
        repeats = torch.arange(len(where), device=where.device)[:, None]
        return self.rows[repeats, where.flatten(1)].reshape(*where.shape, self.rows.shape[-1])

    def take_inside(self, repeat: int = 0) -> Tensor:
        """All rows in use in a repeat, task by task: (n, d)."""
        return self.rows[repeat][self.where[repeat][self.inside[repeat]]]

    def hold_out(
        self, share: float, generators: Sequence[torch.Generator], together: bool = False
    ) -> tuple[RelatedTasks, RelatedTasks]:
        """Hold out a random share of each sample's rows: the tasks without these rows, and with only these.

        A sample too small to spare a row keeps all its rows. If ``together``, a row that several tasks share is held
        out in all of them or in none.
        """
        keys = torch.stack([torch.rand(self.where.shape[1:], generator=g, dtype=torch.float64) for g in generators])
        keys = keys.to(self.where.device)
        if together:
            keys = keys.flatten(1).take_along_dim(self.where.flatten(1), dim=1).reshape(keys.shape)
        aside = torch.zeros_like(self.inside)
        for inside in (self.x_weight > 0, self.y_weight > 0):
            count = (inside.sum(dim=-1, keepdim=True) * share).long()
            rank = keys.where(inside, 2.0).argsort(dim=-1).argsort(dim=-1)
            aside |= inside & (rank < count)
        if together:
            aside = torch.stack([torch.isin(rows, rows[mark]) for rows, mark in zip(self.where, aside, strict=True)])
        return self._using(~aside), self._using(aside)

    def _using(self, marked: Tensor) -> RelatedTasks:
        """The same tasks with only the marked entries in use."""
        x_weight, y_weight = (_means((weight > 0) & marked) for weight in (self.x_weight, self.y_weight))
        return replace(self, x_weight=x_weight, y_weight=y_weight)

    def draw_pairs(
        self,
        which: Tensor,
        support_share: float,
        generators: Sequence[torch.Generator],
        pooled: int = 1,
        largest: int | None = None,
    ) -> tuple[PairedRows, PairedRows]:
        """Draw disjoint support and query rows of the chosen tasks ``which`` (R, T·pooled), as (R·T) runs.

        A task gives min(n_i, m_i) random rows of each sample, at most ``largest``. This share of them is the support,
        and the others are the query. ``pooled`` consecutive tasks make one run.
        """
        count, runs = which.shape[1], which.numel() // pooled
        keys = torch.stack([torch.rand(count, self.where.shape[2], generator=g) for g in generators]).to(which.device)
        sides, sizes = [], []
        for weight in (self.x_weight, self.y_weight):
            inside = weight.take_along_dim(which[..., None], dim=1) > 0  # R x T x L
            sides.append(keys.where(inside, 2.0).argsort(dim=-1))
            sizes.append(inside.sum(dim=-1))
        size = torch.minimum(*sizes).clamp(max=largest or self.where.shape[2])  # R x T
        support = (size * support_share).long()
        where = self.where.take_along_dim(which[..., None], dim=1)

        def pick(start: Tensor, length: Tensor) -> PairedRows:
            positions = torch.arange(int(length.max()), device=which.device)
            inside = (positions < length[..., None]).to(self.rows)  # R x T x c
            ranks = (start[..., None] + positions).clamp(max=where.shape[2] - 1)
            drawn = (where.take_along_dim(side.take_along_dim(ranks, dim=-1), dim=-1) for side in sides)
            x, y = (self.take(rows).reshape(runs, -1, self.rows.shape[-1]) for rows in drawn)
            return PairedRows(x, y, inside.reshape(runs, -1))

        return pick(torch.zeros_like(support), support), pick(support, size - support)

    def task(self, index: int) -> TwoSample:
        """The samples of one task of the first repeat."""
        x, y = (self.where[0, index][weight[0, index] > 0] for weight in (self.x_weight, self.y_weight))
        ids = None if self.ids is None else (self.ids[x], self.ids[y])
        return TwoSample(self.rows[0, x], self.rows[0, y], self.shape, self.columns, ids=ids)

    def packed(self, tasks: Iterable[int]) -> RelatedTasks:
        """The tasks of the first repeat at these positions, without rows and places that they do not use."""
        positions = [int(task) for task in tasks]
        names = tuple(self.names[position] for position in positions)
        return replace(stack_related_tasks([map(self.task, positions)], names), notes=self.notes)

    def samples(self) -> dict[str, TwoSample]:
        """The tasks of the first repeat by name."""
        return {name: self.task(index) for index, name in enumerate(self.names)}

    def without(self, rows: np.ndarray) -> RelatedTasks:
        """Remove the rows at these positions of ``rows`` from the tasks of one repeat."""
        return self._using(~torch.isin(self.where, torch.from_numpy(rows).to(self.where.device)))

    def select(self, tasks: np.ndarray) -> RelatedTasks:
        """Keep the tasks at these positions only."""
        index = torch.from_numpy(tasks).to(self.where.device)
        where, x_weight, y_weight = (tensor[:, index] for tensor in (self.where, self.x_weight, self.y_weight))
        names = tuple(self.names[int(task)] for task in tasks)
        return replace(self, where=where, x_weight=x_weight, y_weight=y_weight, names=names)

    def repeated(self, times: int) -> RelatedTasks:
        """Repeat every repeat this many times, one after another."""
        return self._map(lambda tensor: tensor[:, None].expand(-1, times, *tensor.shape[1:]).flatten(0, 1))

    def with_rows(self, rows: Tensor) -> RelatedTasks:
        """The same tasks with other features of their rows: (R, U, ·)."""
        return replace(self, rows=rows)

    def to(self, device: torch.device) -> RelatedTasks:
        """The same tasks on another device."""
        return self._map(lambda tensor: tensor.to(device))

    def _map(self, change: Callable[[Tensor], Tensor]) -> RelatedTasks:
        rows, where, x_weight, y_weight = map(change, (self.rows, self.where, self.x_weight, self.y_weight))
        return replace(self, rows=rows, where=where, x_weight=x_weight, y_weight=y_weight)


def _means(inside: Tensor) -> Tensor:
    """Weights that take the mean over the marked rows of each task; 0 elsewhere."""
    return inside.to(torch.float64) / inside.sum(dim=-1, keepdim=True).clamp(min=1)


class _RowPool:
    """The rows of tasks that are read one at a time. Equal images are one row; other rows are all kept."""

    # Rows and keys grow as one array each: small arrays between large temporary ones would fragment the memory.

    def __init__(self, samples: Iterable[TwoSample]) -> None:
        self.sizes: list[tuple[int, int]] = []
        self.shape: Shape | None = None
        self.columns: tuple[str, ...] = ()
        self._rows = torch.zeros(0, 1)
        self._row_keys, self._entry_keys = array("q"), array("q")  # keys of the kept rows, and of all entries of tasks
        self._distinct: set[int] = set()
        self._ids: list[Tensor] = []
        for sample in samples:
            self.sizes.append(sample.sizes)
            self._ids += sample.ids or ()
            self.shape, self.columns = sample.shape, self.columns or sample.columns
            self._add(sample.pooled)

    def _add(self, rows: Tensor) -> None:
        keys = np.arange(len(rows)) + len(self._entry_keys)
        if self.shape:
            digests = (hashlib.blake2b(row.tobytes(), digest_size=8).digest() for row in rows.contiguous().numpy())
            keys = np.frombuffer(b"".join(digests), dtype=np.int64)
        self._entry_keys.frombytes(keys.tobytes())
        if self.shape:
            keys, first = np.unique(keys, return_index=True)
            new = [index for index, key in enumerate(keys.tolist()) if key not in self._distinct]
            keys, rows = keys[new], rows[first[new]]
            self._distinct.update(keys.tolist())
        start, stop = len(self._row_keys), len(self._row_keys) + len(rows)
        if stop > len(self._rows):
            larger = rows.new_empty(max(stop, 2 * start), rows.shape[-1])
            larger[:start] = self._rows[:start]
            self._rows = larger
        self._rows[start:stop] = rows
        self._row_keys.frombytes(keys.tobytes())

    @property
    def ids(self) -> Tensor | None:
        """The ids of the kept rows (U,), if all samples have them; padding has 0."""
        if not self._ids:
            return None
        ids = torch.cat(self._ids)
        return torch.cat([ids, ids.new_zeros(len(self._row_keys) - len(ids))])

    def stacked(self, longest: int) -> tuple[Tensor, Tensor]:
        """Rows (U, d), images sorted by hash, and the row of each entry (T, longest): zeros beyond a task's end."""
        if any(sum(sizes) < longest for sizes in self.sizes):
            self._add(torch.zeros_like(self._rows[:1]))
        _, numbers = np.unique(np.array(self._entry_keys), return_inverse=True)
        rows = self._rows[np.argsort(np.array(self._row_keys))]
        where = torch.full((len(self.sizes), longest), int(numbers[-1]))
        ends = np.cumsum([sum(sizes) for sizes in self.sizes])
        for entries, of_task in zip(where, np.split(numbers, ends), strict=False):
            entries[: len(of_task)] = torch.from_numpy(of_task)
        return rows, where


def stack_related_tasks(repeats: Sequence[Iterable[TwoSample]], names: tuple[str, ...]) -> RelatedTasks:
    """Stack R repeats of T tasks, padded to the longest task."""
    pools = [_RowPool(samples) for samples in repeats]
    longest = max(sum(sizes) for pool in pools for sizes in pool.sizes)
    rows, where = zip(*(pool.stacked(longest) for pool in pools), strict=True)
    sizes = torch.tensor([pool.sizes for pool in pools])[..., None]  # R x T x 2 x 1
    entries = torch.arange(longest)
    x, y = entries < sizes[:, :, 0], (entries >= sizes[:, :, 0]) & (entries < sizes.sum(dim=2))
    together = pad_sequence(list(rows), batch_first=True) if len(rows) > 1 else rows[0][None]
    return RelatedTasks(
        together, torch.stack(where), _means(x), _means(y), names, pools[0].shape, pools[0].columns, (), pools[0].ids
    )
