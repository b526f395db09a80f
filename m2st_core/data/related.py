"""Meta-tasks: many sample pairs at once, of unequal sizes, as one padded batch."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from m2st_core.data.arrays import as_two_sample, hash_rows
from m2st_core.data.images.sets import Digits
from m2st_core.data.images.tasks import ImageTask
from m2st_core.data.synthetic import HDGM
from m2st_core.data.task import Task
from m2st_core.rng import Streams
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


@dataclass(frozen=True)
class PairedRows:
    """As many rows of x as of y for each run, padded: x and y are (runs, c, d); ``inside`` (runs, c) is 1 or 0."""

    x: Tensor
    y: Tensor
    inside: Tensor


@dataclass(frozen=True)
class RelatedTasks:
    """T tasks of R repeats. Each task's rows are those of x, then those of y, then padding.

    ``rows`` is (R, U, d), and ``where`` (R, T, L) says which of them a task has in each place: tasks that share images
    share rows. ``x_weight`` and ``y_weight``, (R, T, L), are 1/n_i in a task's places of x, 1/m_i in those of y, and 0
    elsewhere, so that a weighted sum over places is a mean and padding never counts. ``shape`` is that of images.
    """

    rows: Tensor
    where: Tensor
    x_weight: Tensor
    y_weight: Tensor
    names: tuple[str, ...]
    shape: Shape | None = None

    @property
    def inside(self) -> Tensor:
        """Which places are no padding, nor held out: (R, T, L)."""
        return (self.x_weight > 0) | (self.y_weight > 0)

    @property
    def sizes(self) -> Tensor:
        """Rows of each task, both samples together: (R, T)."""
        return self.inside.sum(dim=-1)

    def take(self, where: Tensor) -> Tensor:
        """The rows of these numbers: (R, …) → (R, …, d)."""
        repeats = torch.arange(len(where), device=where.device)[:, None]
        return self.rows[repeats, where.flatten(1)].reshape(*where.shape, self.rows.shape[-1])

    def take_inside(self, repeat: int = 0) -> Tensor:
        """All tasks' rows of a repeat, one after another: (n, d)."""
        return self.rows[repeat][self.where[repeat][self.inside[repeat]]]

    def hold_out(
        self, share: float, generators: Sequence[torch.Generator], together: bool = False
    ) -> tuple[RelatedTasks, RelatedTasks]:
        """The same tasks with this share of each sample's rows set aside, and with only those, at random.

        A sample too small to give a row keeps all of them. If ``together``, a row that several tasks share is set aside
        in all of them or in none.
        """
        keys = torch.stack([torch.rand(self.where.shape[1:], generator=g, dtype=torch.float64) for g in generators])
        keys = keys.to(self.where.device)
        if together:
            keys = keys.flatten(1).take_along_dim(self.where.flatten(1), dim=1).reshape(keys.shape)

        def held(weight: Tensor) -> Tensor:
            inside = weight > 0
            count = (inside.sum(dim=-1, keepdim=True) * share).long()
            rank = keys.where(inside, 2.0).argsort(dim=-1).argsort(dim=-1)
            return inside & (rank < count)

        aside = held(self.x_weight) | held(self.y_weight)
        if together:
            aside = torch.stack([torch.isin(own, own[mark]) for own, mark in zip(self.where, aside, strict=True)])
        (x_kept, x_aside), (y_kept, y_aside) = (
            (_means((weight > 0) & ~aside), _means((weight > 0) & aside)) for weight in (self.x_weight, self.y_weight)
        )
        kept = replace(self, x_weight=x_kept, y_weight=y_kept)
        return kept, replace(self, x_weight=x_aside, y_weight=y_aside)

    def draw_pairs(
        self,
        which: Tensor,
        support_share: float,
        generators: Sequence[torch.Generator],
        pooled: int = 1,
        largest: int | None = None,
    ) -> tuple[PairedRows, PairedRows]:
        """Support and query rows of the chosen tasks ``which`` (R, T·pooled), as (R·T) runs; no row is in both.

        A task gives min(n_i, m_i) rows of each sample, at most ``largest``, drawn at random: this share of them to the
        support, the others to the query. ``pooled`` tasks in a row make one run.
        """
        repeats, count = which.shape
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
            x, y = (
                self.take(where.take_along_dim(side.take_along_dim(ranks, dim=-1), dim=-1)).reshape(
                    repeats * count // pooled, -1, self.rows.shape[-1]
                )
                for side in sides
            )
            return PairedRows(x, y, inside.reshape(repeats * count // pooled, -1))

        return pick(torch.zeros_like(support), support), pick(support, size - support)

    def task(self, index: int) -> TwoSample:
        """The rows of one task of the first repeat."""
        x, y = (self.where[0, index][weight[0, index] > 0] for weight in (self.x_weight, self.y_weight))
        return TwoSample(self.rows[0, x], self.rows[0, y], self.shape)

    def samples(self) -> dict[str, TwoSample]:
        """The tasks of the first repeat by name."""
        return {name: self.task(index) for index, name in enumerate(self.names)}

    def without(self, rows: np.ndarray) -> RelatedTasks:
        """The same tasks of one repeat without the rows at these positions of ``rows``."""
        gone = torch.isin(self.where, torch.from_numpy(rows).to(self.where.device))
        x_weight, y_weight = (_means((weight > 0) & ~gone) for weight in (self.x_weight, self.y_weight))
        return replace(self, x_weight=x_weight, y_weight=y_weight)

    def select(self, tasks: np.ndarray) -> RelatedTasks:
        """Only the tasks at these positions."""
        chosen = torch.from_numpy(tasks).to(self.where.device)
        parts = {part: getattr(self, part)[:, chosen] for part in ("where", "x_weight", "y_weight")}
        return replace(self, names=tuple(self.names[int(task)] for task in tasks), **parts)

    def repeated(self, times: int) -> RelatedTasks:
        """Every repeat this many times, one after another."""
        return self._changed(lambda part: part[:, None].expand(-1, times, *part.shape[1:]).flatten(0, 1))

    def with_rows(self, rows: Tensor) -> RelatedTasks:
        """The same tasks, their rows described by other numbers: (R, U, ·)."""
        return replace(self, rows=rows)

    def to(self, device: torch.device) -> RelatedTasks:
        """The same tasks on another device."""
        return self._changed(lambda part: part.to(device))

    def _changed(self, change: Callable[[Tensor], Tensor]) -> RelatedTasks:
        rows, where, x_weight, y_weight = map(change, (self.rows, self.where, self.x_weight, self.y_weight))
        return replace(self, rows=rows, where=where, x_weight=x_weight, y_weight=y_weight)


def _means(inside: Tensor) -> Tensor:
    """Weights that take the mean over the marked rows of each task; 0 where none is marked."""
    count = inside.sum(dim=-1, keepdim=True)
    return inside.to(torch.float64) / count.clamp(min=1)


def as_related_tasks(related_tasks: Any) -> RelatedTasks:
    """One repeat (R=1) from a list of (x, y) pairs, or a mapping of names to pairs, checked task by task.

    Images that several tasks show are held once, and tasks are looked at one after another: a mapping that makes a pair
    when asked for it needs no memory for the others. Tasks that were read before are taken as they are.
    """
    if isinstance(related_tasks, RelatedTasks):
        return related_tasks
    names, pairs = _named(related_tasks)
    return stack_repeats([_checked(names, pairs)], names)


def as_named_samples(related_tasks: Any) -> dict[str, TwoSample]:
    """The same tasks by their names."""
    if isinstance(related_tasks, RelatedTasks):
        return related_tasks.samples()
    names, pairs = _named(related_tasks)
    return dict(zip(names, _checked(names, pairs), strict=True))


def _named(related_tasks: Any) -> tuple[tuple[str, ...], Iterable[Any]]:
    """Names and pairs; the latter are not looked at."""
    pairs: Iterable[Any]
    if isinstance(related_tasks, Mapping):
        names, pairs = tuple(map(str, related_tasks)), related_tasks.values()
    else:
        try:
            pairs = tuple(related_tasks)
        except TypeError:
            raise ValueError("related_tasks must be a list of (x, y) pairs, or a mapping of names to pairs.") from None
        names = tuple(f"task {index + 1}" for index, _ in enumerate(pairs))
    if not names:
        raise ValueError("related_tasks is empty. Bring at least one related pair of samples, or use MMD-FUSE.")
    return names, pairs


def _checked(names: Sequence[str], pairs: Iterable[Any]) -> Iterator[TwoSample]:
    """The samples one by one, images in float32."""
    first: TwoSample | None = None
    for name, pair in zip(names, pairs, strict=True):
        try:
            x, y = pair
        except (TypeError, ValueError):
            raise ValueError(f"Meta-task {name!r} is not a pair (x, y) of two samples.") from None
        try:
            sample = as_two_sample(x, y)
        except ValueError as error:
            raise ValueError(f"Meta-task {name!r}: {error}") from None
        sample = replace(sample, shape=pair.shape) if isinstance(pair, TwoSample) else sample
        first = sample if first is None else first
        if sample.shape != first.shape:
            shapes = f"{sample.shape or 'no images'} and {names[0]!r} has {first.shape or 'no images'}"
            raise ValueError(f"Meta-task {name!r} has {shapes} (channels, height, width). Give all the same shape.")
        columns = sample.x.shape[1], first.x.shape[1]
        if columns[0] != columns[1]:
            raise ValueError(f"Meta-task {name!r} has {columns[0]} columns and {names[0]!r} has {columns[1]}.")
        yield sample.to(torch.float32) if sample.shape else sample


def stack_repeats(repeats: Sequence[Iterable[TwoSample]], names: tuple[str, ...]) -> RelatedTasks:
    """R repeats of T tasks, padded to the longest."""
    pools = [RowPool(samples) for samples in repeats]
    longest = max(sum(sizes) for pool in pools for sizes in pool.sizes)
    rows, where = zip(*(pool.stacked(longest) for pool in pools), strict=True)
    sizes = torch.tensor([pool.sizes for pool in pools])[..., None]  # R x T x 2 x 1
    places = torch.arange(longest)
    x, y = places < sizes[:, :, 0], (places >= sizes[:, :, 0]) & (places < sizes.sum(dim=2))
    together = pad_sequence(list(rows), batch_first=True) if len(rows) > 1 else rows[0][None]
    return RelatedTasks(together, torch.stack(where), _means(x), _means(y), names, pools[0].shape)


def draw_related_tasks(
    task: Task, *, closeness: float = 0.3, n_tasks: int = 100, rows: int = 100, seed: int = 0
) -> Mapping[str, TwoSample]:
    """Meta-tasks like a target: its strength θ is replaced by θ_i = (θ − 0.1 − C) + 0.1·i/N, i = 1 … N.

    For HDGM with Δ=0.7 these are the paper's. For digits they are pairs of the digits that the target does not show,
    and for images pairs of classes, as many as there are, in random order. ``rows`` counts rows per sample.

    >>> list(draw_related_tasks(HDGM(delta=0.7), closeness=0.3, n_tasks=2, rows=10))
    ['Δ=0.350', 'Δ=0.400']
    """
    streams = Streams(seed)
    if isinstance(task, Digits):
        return _digit_pairs(task, n_tasks, rows, streams)
    if isinstance(task, ImageTask):
        return task.related_tasks(n_tasks, rows, streams)
    parameter = next(p for p in type(task).parameters if p.name == type(task).strength)
    symbol = "Δ" if parameter.name == "delta" else parameter.name
    tasks = {}
    for index in range(1, n_tasks + 1):
        value = float(task.settings[parameter.name]) - 0.1 - closeness + 0.1 * index / n_tasks
        value = min(max(value, parameter.minimum), parameter.maximum)
        name = f"{symbol}={value:.3f}" if n_tasks <= 100 else f"{symbol}={value:.4f}"
        settings: dict[str, Any] = dict(task.settings) | {parameter.name: value}
        made = type(task)(**settings)
        name = name if name not in tasks else f"{name} ({index})"
        tasks[name] = made.sample(rows, seed=streams.child(f"meta-task {index}").seed)
    return tasks


def _digit_pairs(task: Digits, n_tasks: int, rows: int, streams: Streams) -> dict[str, TwoSample]:
    shown = {task.settings["first"], task.settings["second"]}
    pairs = list(combinations([digit for digit in range(10) if digit not in shown], 2))
    order = streams.numpy("order of pairs").permutation(len(pairs))[:n_tasks]
    return {
        f"{a} or {b}": Digits(first=a, second=b).sample(rows, seed=streams.child(f"pair {a} {b}").seed)
        for a, b in (pairs[index] for index in order)
    }


def hdgm_related_tasks(
    closeness: float = 0.3, n_tasks: int = 100, rows: int = 100, *, seed: int = 0
) -> dict[str, TwoSample]:
    """The paper's synthetic meta-tasks: HDGM(Δ_i), Δ_i = (0.6−C) + 0.1·i/N, with this many rows per sample."""
    return dict(draw_related_tasks(HDGM(delta=0.7), closeness=closeness, n_tasks=n_tasks, rows=rows, seed=seed))
