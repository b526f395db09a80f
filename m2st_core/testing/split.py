"""Before the p-value: split, put the samples into one order, learn."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from m2st_core.learners.meta_mkl import Adapted
from m2st_core.permutation.blocks import Blocks, order_within
from m2st_core.presets import Preset
from m2st_core.rng import Streams
from m2st_core.testing.methods import Method
from m2st_core.types import Progress, TwoSample


@dataclass(frozen=True)
class Order:
    """The rows of each run in a new order, x (R, n) and y (R, m); the first ``n_train`` of them teach."""

    x: Tensor
    y: Tensor
    n_train: tuple[int, int]

    def parts(self, sample: TwoSample) -> tuple[TwoSample, TwoSample]:
        """Training and test rows of x (R, n, ·) and y (R, m, ·)."""
        x, y = (
            rows.take_along_dim(order[..., None].to(rows.device), dim=-2)
            for rows, order in ((sample.x, self.x), (sample.y, self.y))
        )
        n, m = self.n_train
        return TwoSample(x[:, :n], y[:, :m], sample.shape), TwoSample(x[:, n:], y[:, m:], sample.shape)


def draw_order(
    sizes: tuple[int, int], n_train: tuple[int, int], streams: Sequence[Streams], blocks: Blocks | None = None
) -> Order:
    """Which rows teach. Row i of x and row i of y go the same way, so x = y stays x = y."""
    found: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    for stream in streams:
        shuffled = stream.numpy("split").permutation(max(sizes))
        for side, size in enumerate(sizes):
            order = shuffled[shuffled < size]
            if blocks is not None:
                order = order_within((blocks.x, blocks.y)[side], n_train[side], order, stream)
            found[side].append(order)
    x, y = (torch.from_numpy(np.stack(orders)) for orders in found)
    return Order(x, y, n_train)


def split_sizes(
    sizes: tuple[int, int], method: Method, train_fraction: float
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Rows of (x, y) to learn from and to test, or an error that says how many rows are needed."""
    fraction = train_fraction if method.needs_split else 0.0
    least_train = 2 if method.needs_split else 0
    train = (int(sizes[0] * fraction), int(sizes[1] * fraction))
    test = (sizes[0] - train[0], sizes[1] - train[1])
    if min(train) >= least_train and min(test) >= method.min_test_rows:
        return train, test
    needed = method.min_test_rows
    if method.needs_split:
        needed = next(
            size
            for size in itertools.count(4)
            if int(size * fraction) >= 2 and size - int(size * fraction) >= method.min_test_rows
        )
    split_words = f" with train_fraction={train_fraction:g}" if method.needs_split else ""
    remedy = "Bring more rows, or use MMD-M, which needs no split." if method.needs_split else "Bring more rows."
    raise ValueError(
        f"{method.name} needs at least {needed} rows in each sample{split_words}. "
        f"The smaller sample has {min(sizes)}. {remedy}"
    )


def comes_second(sample: TwoSample, sizes: tuple[int, int]) -> Tensor:
    """Whether x should be called y, in each run: the smaller sample is first, or the one that starts lower: (R,).

    A test gives the same result when x and y are exchanged, because it puts them into one order first. ``sizes`` are
    those of the whole samples: parts of unequal samples may be equally long, and still all must swap or none.
    """
    n, m = sizes
    if n != m:
        return torch.full(sample.x.shape[:1], n > m)
    x, y = sample.x.flatten(1), sample.y.flatten(1)
    first = (x != y).int().argmax(dim=1, keepdim=True)  # 0 if they are equal
    return (x.gather(1, first) > y.gather(1, first))[:, 0].cpu()


def exchanged(sample: TwoSample, swap: Tensor) -> TwoSample:
    """The pairs with x and y exchanged where ``swap`` says so: (R,). Samples of unequal size all swap or none."""
    if not bool(swap.any()):
        return sample
    if bool(swap.all()):
        return sample.swapped()
    where = swap.to(sample.x.device)[:, None, None]
    x, y = torch.where(where, sample.y, sample.x), torch.where(where, sample.x, sample.y)
    return TwoSample(x, y, sample.shape)


@dataclass(frozen=True)
class Prepared:
    """R runs, ready to be tested: the rows that taught, those to test, and what was learned.

    ``about`` has two whole numbers for each test row: its block, and its position in the sample as given. ``swap`` (R,)
    says in which runs x and y were exchanged.
    """

    learned: Any
    train: TwoSample | None
    test: TwoSample
    about: TwoSample
    blocked: bool
    swap: Tensor
    weights: Sequence[dict[str, float]]
    diagnostics: Sequence[dict[str, Any]]


def prepare(
    sample: TwoSample,
    method: Method,
    n_train: tuple[int, int],
    preset: Preset,
    streams: Sequence[Streams],
    blocks: Blocks | None,
    progress: Progress | None,
) -> Prepared:
    """Split, learn on one part; a method that splits nothing sees the pooled rows unlabelled."""
    assert method.fit is not None
    runs = len(streams)
    train, test, about = None, sample, _about(sample.sizes, blocks, runs)
    swap = torch.zeros(runs, dtype=torch.bool)
    if method.learned is not None:
        learned = method.learned
    elif method.needs_split:
        order = draw_order(sample.sizes, n_train, streams, blocks)
        train, test = order.parts(sample)
        if method.symmetric:  # by training rows alone: no test row has a say in what is learned
            swap = comes_second(train, sample.sizes)
        train, test, about = (exchanged(part, swap) for part in (train, test, order.parts(about)[1]))
        learned = method.fit(train, preset, streams, progress)
    else:
        swap = comes_second(sample, sample.sizes)
        test, about = exchanged(sample, swap), exchanged(about, swap)
        learned = method.fit(test.pooled, preset, streams, progress)
    adapted = learned if isinstance(learned, Adapted) else Adapted(learned, [{}], [{}])
    weights, diagnostics = (  # what was learned once for all runs is said of each
        part if len(part) == runs else part * runs for part in (adapted.weights, adapted.diagnostics)
    )
    return Prepared(adapted.kernel, train, test, about, blocks is not None, swap, weights, diagnostics)


def _about(sizes: tuple[int, int], blocks: Blocks | None, runs: int) -> TwoSample:
    """Block and position of every row: x (R, n, 2), y (R, m, 2)."""
    parts = []
    for side, size in enumerate(sizes):
        place = torch.arange(size)
        block = torch.zeros_like(place) if blocks is None else torch.from_numpy((blocks.x, blocks.y)[side])
        parts.append(torch.stack([block, place], dim=-1).expand(runs, -1, -1))
    x, y = parts
    return TwoSample(x, y)
