"""Split the rows, put the samples into canonical order, and fit."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from m2st_core.permutation.blocks import Blocks, order_within
from m2st_core.permutation.fitted import FittedTest
from m2st_core.presets import Preset
from m2st_core.rng import Streams
from m2st_core.testing.method import Method
from m2st_core.types import DEFAULT_TEST, Progress, TwoSample


@dataclass(frozen=True)
class Order:
    """The rows of each run in random order, x (R, n) and y (R, m). The first ``n_train`` are training rows."""

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
    """Draw the training rows. Row i of x and row i of y go the same way, so that x = y stays x = y."""
    orders: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
    for stream in streams:
        shuffled = stream.numpy("split").permutation(max(sizes))
        for side, size in enumerate(sizes):
            order = shuffled[shuffled < size]
            if blocks is not None:
                order = order_within((blocks.x, blocks.y)[side], n_train[side], order, stream)
            orders[side].append(order)
    x, y = (torch.from_numpy(np.stack(side)) for side in orders)
    return Order(x, y, n_train)


def split_sizes(
    sizes: tuple[int, int], method: Method, train_fraction: float
) -> tuple[tuple[int, int], tuple[int, int]]:
    """Numbers of training rows and of test rows of (x, y). A ValueError says how many rows are needed."""
    fraction = train_fraction if method.needs_split else 0.0
    train = (int(sizes[0] * fraction), int(sizes[1] * fraction))
    test = (sizes[0] - train[0], sizes[1] - train[1])
    least_train, least_test = 2 if method.needs_split else 0, method.min_test_rows
    if min(train) >= least_train and min(test) >= least_test:
        return train, test
    needed, how, remedy = least_test, "", "Bring more rows."
    if method.needs_split:
        needed = next(n for n in itertools.count(4) if int(n * fraction) >= 2 and n - int(n * fraction) >= least_test)
        how = f" with train_fraction={train_fraction:g}"
        remedy = f"Bring more rows, or use {DEFAULT_TEST}, which needs no split."
    raise ValueError(
        f"{method.name} needs at least {needed} rows in each sample{how}. The smaller sample has {min(sizes)}. {remedy}"
    )


def to_swap(sample: TwoSample, sizes: tuple[int, int]) -> Tensor:
    """(R,) mask of runs to swap into canonical order: smaller sample first, ties broken by the first differing value.

    A test gives the same result when x and y are exchanged, because it puts them into this order first. ``sizes`` are
    those of the whole samples: parts of unequal samples may be equally long, and still all must swap or none.
    """
    n, m = sizes
    if n != m:
        return torch.full(sample.x.shape[:1], n > m)
    x, y = sample.x.flatten(1), sample.y.flatten(1)
    first = (x != y).int().argmax(dim=1, keepdim=True)  # 0 if they are equal
    return (x.gather(1, first) > y.gather(1, first))[:, 0].cpu()


def swapped_where(sample: TwoSample, swap: Tensor) -> TwoSample:
    """The pairs with x and y exchanged in the runs of the mask (R,). Samples of unequal size all swap or none."""
    if not bool(swap.any()):
        return sample
    if bool(swap.all()):
        return sample.swapped()
    where = swap.to(sample.x.device)[:, None, None]
    x, y = torch.where(where, sample.y, sample.x), torch.where(where, sample.x, sample.y)
    return TwoSample(x, y, sample.shape)


@dataclass(frozen=True)
class FittedRuns:
    """R runs that are fitted and ready to be decided.

    ``places`` (x (R, n, 2), y (R, m, 2)) has the block and the original position of each test row. ``swap`` (R,) marks
    the runs in which x and y were exchanged.
    """

    fitted: FittedTest
    train: TwoSample | None
    test: TwoSample
    places: TwoSample
    blocked: bool
    swap: Tensor


def fit_runs(
    sample: TwoSample,
    method: Method,
    n_train: tuple[int, int],
    preset: Preset,
    streams: Sequence[Streams],
    blocks: Blocks | None,
    progress: Progress | None,
) -> FittedRuns:
    """Split and fit on the training rows. A method without a split is fitted on the pooled rows, without labels."""
    train, test, places = None, sample, _places(sample.sizes, blocks, len(streams))
    swap = torch.zeros(len(streams), dtype=torch.bool)
    if method.needs_split:
        order = draw_order(sample.sizes, n_train, streams, blocks)
        train, test = order.parts(sample)
        places = order.parts(places)[1]
    if method.symmetric:  # decided by training rows alone, if there are any: no test row influences the fit
        swap = to_swap(train or test, sample.sizes)
    test, places = swapped_where(test, swap), swapped_where(places, swap)
    if train is None:
        fitted = method.fit_on(test.pooled, preset, streams, progress)
    else:
        train = swapped_where(train, swap)
        fitted = method.fit_on(train, preset, streams, progress)
    return FittedRuns(fitted, train, test, places, blocks is not None, swap)


def _places(sizes: tuple[int, int], blocks: Blocks | None, runs: int) -> TwoSample:
    """Block and position of every row: x (R, n, 2), y (R, m, 2)."""
    parts = []
    for side, size in enumerate(sizes):
        place = torch.arange(size)
        block = torch.zeros_like(place) if blocks is None else torch.from_numpy((blocks.x, blocks.y)[side])
        parts.append(torch.stack([block, place], dim=-1).expand(runs, -1, -1))
    x, y = parts
    return TwoSample(x, y)
