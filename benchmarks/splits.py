"""One random split against several: level and power of the combined p-value, as Markdown tables.

Every run draws a pair of samples and tests it under 21 independent splits. The first S of them are combined by
``combine_splits``, so all S see the same data. Levels are rejection rates at α=0.05 on null pairs, with the 99 % band
of a binomial. B=199.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain

import numpy as np

import m2st_core as m2st
from benchmarks.common import ALPHA, Page, batch, bound_methods, p_values, parse
from m2st_core.numbers import null_band
from m2st_core.rng import Streams
from m2st_core.testing.plan import combine_splits, split_seeds
from m2st_core.types import TwoSample

PERMUTATIONS, MOST, LEARNERS = 199, 21, 10
METHODS = ("Meta-WiTS", "Feature-MKL", "MMD-O · tuned")
SPLITS = (1, 5, 11, 21)
Draw = Callable[[bool, int], TwoSample]


def hdgm_pair(null: bool, seed: int) -> TwoSample:
    """HDGM at Δ=0.7, 80 rows per sample."""
    return m2st.make_task("hdgm", null=null, delta=0.7).sample(80, seed=seed)


def shifted_pair(null: bool, seed: int) -> TwoSample:
    """Two columns, the means half a standard deviation apart, 60 rows per sample."""
    return m2st.make_task("mean_shift", null=null, shift=0.5, dimension=2).sample(60, seed=seed)


def shift_tasks(seed: int) -> Mapping[str, TwoSample]:
    """20 tasks with the same shift, 100 rows per sample."""
    task, streams = m2st.make_task("mean_shift", shift=0.5, dimension=2), Streams(seed)
    return {f"task {i}": task.sample(100, seed=streams.child(f"task {i}").seed) for i in range(20)}


SETTINGS: dict[str, tuple[Draw, Callable[[int], Mapping[str, TwoSample]]]] = {
    "HDGM, 80 rows": (hdgm_pair, lambda seed: m2st.hdgm_related_tasks(n_tasks=20, seed=seed)),
    "mean shift, 60 rows": (shifted_pair, shift_tasks),
}


def split_p_values(method: str, setting: str, null: bool, runs: int) -> np.ndarray:
    """The p-value of each run under each split: (runs, 21). Every tenth of the runs has its own learner."""
    draw, tasks = SETTINGS[setting]
    parts = []
    for part in range(LEARNERS):
        streams = Streams(0).child(f"{setting}, null={null}, part {part}")
        ready = bound_methods([method], tasks(streams.child("tasks").seed), part)[method]
        sample = batch(lambda seed: draw(null, seed), runs // LEARNERS, streams)
        seeds = [split_seeds(streams.child(f"test {index}").seed, MOST) for index in range(runs // LEARNERS)]
        repeated = TwoSample(*(rows.repeat_interleave(MOST, dim=0) for rows in sample))
        parts.append(p_values(repeated, ready, list(chain(*seeds)), PERMUTATIONS).reshape(-1, MOST))
    return np.concatenate(parts)


def rates(p: np.ndarray) -> list[float]:
    """The share of runs rejected with 1, 5, 11 and 21 splits."""
    return [float(np.mean([combine_splits(own[:count])[0] <= ALPHA for own in p])) for count in SPLITS]


def agreement(p: np.ndarray, count: int, orders: int = 40) -> float:
    """The chance that two seeds decide alike on the same rows, from random orders of the 21 splits."""
    generator = np.random.default_rng(0)
    drawn = [generator.permuted(p, axis=1)[:, :count] for _ in range(orders)]
    share = np.mean([[combine_splits(own)[0] <= ALPHA for own in part] for part in drawn], axis=0)
    return float(np.mean(share**2 + (1 - share) ** 2))


def cells(p: np.ndarray) -> list[str]:
    """Rejection rates, twice the plain median, agreement of two seeds, and the spread of p."""
    low, high = np.quantile(p, [0.1, 0.9], axis=1).mean(axis=1)
    plain = float(np.mean(2 * np.median(p, axis=1) <= ALPHA))
    shown = [f"{rate:.3f}" for rate in (*rates(p), plain, agreement(p, 1), agreement(p, 11))]
    return [*shown, f"{low:.2f}–{high:.2f}"]


def main(arguments: Sequence[str] = ()) -> None:
    """Print both tables."""
    options = parse(arguments, __doc__, null_runs=1000, power_runs=400, methods=METHODS)
    page = Page()
    low, high = null_band(ALPHA, options.null_runs)
    for title, null, runs in (
        (f"Level, 99 % band [{low:.3f}, {high:.3f}]", True, options.null_runs),
        ("Power", False, options.power_runs),
    ):
        page.say("", f"{title}: {runs} runs", "")
        head = (*(f"S={count}" for count in SPLITS), "2·median of 21", "seeds agree, S=1", "S=11", "p over splits")
        page.head("method", "data", *head)
        for setting in SETTINGS:
            for method in options.methods:
                page.row(method, setting, *cells(split_p_values(method, setting, null, runs)))
