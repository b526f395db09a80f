"""Which rows teach, which are tested, and which sample comes first."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

from m2st_core.rng import Streams
from m2st_core.testing.methods import Method
from m2st_core.types import TwoSample


def split(sample: TwoSample, n_train: tuple[int, int], streams: Sequence[Streams]) -> tuple[TwoSample, TwoSample]:
    """Training and test rows of each run. Row i of x and row i of y go the same way, so x = y stays x = y."""
    n, m = sample.sizes
    orders = [torch.from_numpy(stream.numpy("split").permutation(max(n, m))) for stream in streams]

    def part(rows: Tensor, count: int) -> tuple[Tensor, Tensor]:
        size = rows.shape[-2]
        order = torch.stack([order[order < size] for order in orders]).to(rows.device)
        shuffled = rows.take_along_dim(order[..., None], dim=-2)
        return shuffled[:, :count], shuffled[:, count:]

    (x_train, x_test), (y_train, y_test) = part(sample.x, n_train[0]), part(sample.y, n_train[1])
    return TwoSample(x_train, y_train), TwoSample(x_test, y_test)


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
    return TwoSample(torch.where(where, sample.y, sample.x), torch.where(where, sample.x, sample.y))
