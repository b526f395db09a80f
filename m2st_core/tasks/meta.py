"""Meta-tasks: many sample pairs at once, of unequal sizes, as one padded batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from m2st_core.rng import Streams
from m2st_core.tasks.arrays import as_two_sample
from m2st_core.tasks.base import Task
from m2st_core.tasks.digits import Digits
from m2st_core.tasks.hdgm import HDGM
from m2st_core.tasks.image_tasks import ImageTask
from m2st_core.types import Shape, TwoSample


@dataclass(frozen=True)
class PairedRows:
    """As many rows of x as of y for each run, padded: x and y are (runs, c, d); ``inside`` (runs, c) is 1 or 0."""

    x: Tensor
    y: Tensor
    inside: Tensor


@dataclass(frozen=True)
class MetaSample:
    """T tasks of R repeats. Each task's rows are those of x, then those of y, then padding.

    ``rows`` is (R, T, L, d). ``x_weight`` and ``y_weight``, (R, T, L), are 1/n_i on the task's rows of x, 1/m_i on
    those of y, and 0 elsewhere, so that a weighted sum over rows is a mean and padding never counts. ``shape`` is that
    of images.
    """

    rows: Tensor
    x_weight: Tensor
    y_weight: Tensor
    names: tuple[str, ...]
    shape: Shape | None = None

    def hold_out(
        self, share: float, generators: Sequence[torch.Generator], same: Tensor | None = None
    ) -> tuple[MetaSample, MetaSample]:
        """The same tasks with this share of each sample's rows set aside, and with only those, at random.

        A sample too small to give a row keeps all of them. Rows with the same number in ``same`` (R, T, L) go the same
        way, also in different tasks.
        """
        keys = torch.stack([torch.rand(self.rows.shape[1:3], generator=g, dtype=torch.float64) for g in generators])
        if same is not None:
            keys = keys.flatten(1).take_along_dim(same.flatten(1), dim=1).reshape(keys.shape)
        keys = keys.to(self.rows.device)

        def held(weight: Tensor) -> Tensor:
            inside = weight > 0
            count = (inside.sum(dim=-1, keepdim=True) * share).long()
            rank = keys.where(inside, 2.0).argsort(dim=-1).argsort(dim=-1)
            return inside & (rank < count)

        aside = held(self.x_weight) | held(self.y_weight)
        if same is not None:
            aside = torch.stack([torch.isin(own, own[mark]) for own, mark in zip(same, aside.cpu(), strict=True)])
            aside = aside.to(self.rows.device)
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
        keys = torch.stack([torch.rand(count, self.rows.shape[2], generator=g) for g in generators]).to(which.device)
        sides, sizes = [], []
        for weight in (self.x_weight, self.y_weight):
            inside = weight.take_along_dim(which[..., None], dim=1) > 0  # R x T x L
            sides.append(keys.where(inside, 2.0).argsort(dim=-1))
            sizes.append(inside.sum(dim=-1))
        size = torch.minimum(*sizes).clamp(max=largest or self.rows.shape[2])  # R x T
        support = (size * support_share).long()
        rows = self.rows.take_along_dim(which[..., None, None], dim=1)

        def pick(start: Tensor, length: Tensor) -> PairedRows:
            positions = torch.arange(int(length.max()), device=which.device)
            inside = (positions < length[..., None]).to(rows)  # R x T x c
            ranks = (start[..., None] + positions).clamp(max=rows.shape[2] - 1)
            x, y = (
                rows.take_along_dim(side.take_along_dim(ranks, dim=-1)[..., None], dim=-2).reshape(
                    repeats * count // pooled, -1, rows.shape[-1]
                )
                for side in sides
            )
            return PairedRows(x, y, inside.reshape(repeats * count // pooled, -1))

        return pick(torch.zeros_like(support), support), pick(support, size - support)

    @property
    def sizes(self) -> Tensor:
        """Rows of each task, both samples together: (R, T)."""
        return ((self.x_weight > 0) | (self.y_weight > 0)).sum(dim=-1)

    def repeated(self, times: int) -> MetaSample:
        """Every repeat this many times, one after another."""
        rows, x_weight, y_weight = (
            part.repeat_interleave(times, dim=0) for part in (self.rows, self.x_weight, self.y_weight)
        )
        return replace(self, rows=rows, x_weight=x_weight, y_weight=y_weight)

    def with_rows(self, rows: Tensor) -> MetaSample:
        """The same tasks described by other numbers: rows (R, T, L, ·)."""
        return replace(self, rows=rows)

    def to(self, device: torch.device) -> MetaSample:
        """The same tasks on another device."""
        rows, x_weight, y_weight = (part.to(device) for part in (self.rows, self.x_weight, self.y_weight))
        return replace(self, rows=rows, x_weight=x_weight, y_weight=y_weight)


def _means(inside: Tensor) -> Tensor:
    """Weights that take the mean over the marked rows of each task; 0 where none is marked."""
    count = inside.sum(dim=-1, keepdim=True)
    return inside.to(torch.float64) / count.clamp(min=1)


def as_meta_sample(meta_tasks: Any) -> MetaSample:
    """One repeat (R=1) from a list of (x, y) pairs, or a mapping of names to pairs, checked task by task."""
    names, samples = zip(*_named(meta_tasks), strict=True)
    return stack_repeats([samples], names)


def as_named_samples(meta_tasks: Any) -> dict[str, TwoSample]:
    """The same tasks by their names."""
    return dict(_named(meta_tasks))


def _named(meta_tasks: Any) -> list[tuple[str, TwoSample]]:
    """Names and samples, checked task by task; images in float32."""
    if isinstance(meta_tasks, Mapping):
        named = [(str(name), pair) for name, pair in meta_tasks.items()]
    else:
        try:
            named = [(f"task {index + 1}", pair) for index, pair in enumerate(meta_tasks)]
        except TypeError:
            raise ValueError("meta_tasks must be a list of (x, y) pairs, or a mapping of names to pairs.") from None
    if not named:
        raise ValueError("meta_tasks is empty. Bring at least one related pair of samples, or use MMD-FUSE.")
    found: list[tuple[str, TwoSample]] = []
    for name, pair in named:
        try:
            x, y = pair
        except (TypeError, ValueError):
            raise ValueError(f"Meta-task {name!r} is not a pair (x, y) of two samples.") from None
        try:
            sample = as_two_sample(x, y)
        except ValueError as error:
            raise ValueError(f"Meta-task {name!r}: {error}") from None
        sample = replace(sample, shape=pair.shape) if isinstance(pair, TwoSample) else sample
        found.append((name, sample.to(torch.float32) if sample.shape else sample))
        shape, first_shape = sample.shape, found[0][1].shape
        if shape != first_shape:
            shapes = f"{shape or 'no images'} and {named[0][0]!r} has {first_shape or 'no images'}"
            raise ValueError(f"Meta-task {name!r} has {shapes} (channels, height, width). Give all the same shape.")
        columns, first = found[-1][1].x.shape[1], found[0][1].x.shape[1]
        if columns != first:
            raise ValueError(f"Meta-task {name!r} has {columns} columns and {named[0][0]!r} has {first}.")
    return found


def stack_repeats(repeats: Sequence[Sequence[TwoSample]], names: tuple[str, ...]) -> MetaSample:
    """R repeats of T tasks, padded to the longest."""
    longest = max(sum(sample.sizes) for samples in repeats for sample in samples)
    first = repeats[0][0].x
    rows = first.new_zeros(len(repeats), len(names), longest, first.shape[-1])
    x_weight, y_weight = (rows.new_zeros(rows.shape[:-1], dtype=torch.float64) for _ in range(2))
    for r, samples in enumerate(repeats):
        for t, sample in enumerate(samples):
            n, m = sample.sizes
            rows[r, t, : n + m] = sample.pooled
            x_weight[r, t, :n] = 1 / n
            y_weight[r, t, n : n + m] = 1 / m
    return MetaSample(rows, x_weight, y_weight, names, repeats[0][0].shape)


def related_tasks(
    task: Task, *, closeness: float = 0.3, n_tasks: int = 100, rows: int = 100, seed: int = 0
) -> dict[str, TwoSample]:
    """Meta-tasks like a target: its strength θ is replaced by θ_i = (θ − 0.1 − C) + 0.1·i/N, i = 1 … N.

    For HDGM with Δ=0.7 these are the paper's. For digits they are pairs of the digits that the target does not show,
    and for images pairs of classes, as many as there are, in random order. ``rows`` counts rows per sample.

    >>> list(related_tasks(HDGM(delta=0.7), closeness=0.3, n_tasks=2, rows=10))
    ['Δ=0.350', 'Δ=0.400']
    """
    streams = Streams(seed)
    if isinstance(task, Digits):
        return _digit_pairs(task, n_tasks, rows, streams)
    if isinstance(task, ImageTask):
        return task.meta_tasks(n_tasks, rows, streams)
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


def hdgm_meta_tasks(
    closeness: float = 0.3, n_tasks: int = 100, rows: int = 100, *, seed: int = 0
) -> dict[str, TwoSample]:
    """The paper's synthetic meta-tasks: HDGM(Δ_i), Δ_i = (0.6−C) + 0.1·i/N, with this many rows per sample."""
    return related_tasks(HDGM(delta=0.7), closeness=closeness, n_tasks=n_tasks, rows=rows, seed=seed)
