"""Before the p-value: split, put the samples into one order, learn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from m2st_core.learners.meta_mkl import Adapted
from m2st_core.presets import Preset
from m2st_core.rng import Streams
from m2st_core.testing.blocks import Blocks
from m2st_core.testing.methods import Method
from m2st_core.testing.split import comes_second, draw_order, exchanged
from m2st_core.types import Progress, TwoSample


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
