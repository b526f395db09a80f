"""What the level studies share: null samples, rejections in batches, the binomial band."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor

import m2st_core as m2st
from m2st_core.rng import Streams
from m2st_core.testing.method import Method
from m2st_core.testing.run import run_tests
from m2st_core.types import TwoSample

ALPHA, N_PERMUTATIONS, AT_ONCE = 0.05, 99, 250

Draw = Callable[[int, int, int], TwoSample]
"""(n, m, seed) → two samples of one distribution."""


@dataclass(frozen=True)
class Section:
    """A table: its rows, from the number of null runs per cell, end with the rate and the verdict."""

    title: str
    words: Sequence[str]
    head: Sequence[str]
    rows: Callable[[int], Iterator[Sequence[str]]]


def hdgm(n: int, m: int, seed: int) -> TwoSample:
    """HDGM's P, twice."""
    return m2st.make_task("hdgm", null=True).sample(n, m, seed=seed)


def _twice(draw: Callable[[int, np.random.Generator], np.ndarray]) -> Draw:
    def pair(n: int, m: int, seed: int) -> TwoSample:
        rows = torch.from_numpy(draw(n + m, Streams(seed).numpy("null rows")))
        return TwoSample(rows[:n], rows[n:])

    return pair


HDGM_NULL: Draw = hdgm
HEAVY_TAILS = _twice(lambda count, g: g.standard_t(1.5, size=(count, 2)))
COUNTS = _twice(lambda count, g: g.poisson(0.7, size=(count, 2)).astype(float))
SKEWED = _twice(lambda count, g: np.exp(1.2 * g.standard_normal((count, 2))))
ROUNDED = _twice(lambda count, g: np.round(np.exp(g.standard_normal((count, 3))), 1))
TIES = _twice(lambda count, g: g.integers(0, 3, size=(count, 2)).astype(float))
CORRELATED = _twice(lambda count, g: g.standard_normal((count, 20)) + 2 * g.standard_normal((count, 1)))
SHAPES = {  # null, with its sizes
    "lognormal, rounded": (ROUNDED, 40, 40),
    "heavy ties": (TIES, 30, 30),
    "correlated, d=20": (CORRELATED, 30, 30),
    "Student t, 1.5 d.f.": (HEAVY_TAILS, 12, 90),
}
NULLS = {"HDGM": HDGM_NULL, "Student t, 1.5 d.f.": HEAVY_TAILS}


def null_rejections(
    method: Method,
    draw: Draw,
    n: int,
    m: int,
    runs: int,
    preset: str = "recommended",
    stream: str = "level",
    blocks: tuple[Tensor, Tensor] | None = None,
    **settings: Any,
) -> int:
    """How many of ``runs`` null pairs are rejected; all pairs share the blocks."""
    streams = Streams(0).child(f"{stream}, {method.name}, {n}, {m}, {preset}")
    rejected = 0
    for start in range(0, runs, AT_ONCE):
        children = [streams.child(f"run {index}") for index in range(start, min(start + AT_ONCE, runs))]
        pairs = [draw(n, m, child.seed) for child in children]
        results = run_tests(
            TwoSample(torch.stack([pair.x for pair in pairs]), torch.stack([pair.y for pair in pairs]), blocks=blocks),
            method,
            seeds=[child.child("test").seed for child in children],
            alpha=ALPHA,
            n_permutations=N_PERMUTATIONS,
            preset=m2st.PRESETS[preset],
            device="cpu",
            **settings,
        )
        rejected += sum(result.rejected for result in results)
    return rejected


def band(runs: int) -> tuple[float, float]:
    """The rates that a binomial with p=0.05 gives with 99 % probability."""
    low, high = stats.binom.interval(0.99, runs, ALPHA)
    return low / runs, high / runs


def cells(rejected: int, runs: int) -> tuple[str, str]:
    """The last two cells of a row: the rate, and whether it is inside, below or above the band."""
    rate, (low, high) = rejected / runs, band(runs)
    return f"{rate:.4f}", "inside" if low <= rate <= high else "**above**" if rate > high else "below"
