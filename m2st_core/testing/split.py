"""Which rows teach, which are tested, and which sample comes first."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from m2st_core.rng import Streams
from m2st_core.testing.blocks import Blocks, order_within
from m2st_core.testing.methods import Method
from m2st_core.types import TwoSample


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
