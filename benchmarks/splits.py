"""One random split against several: level and power of the combined p-value, as Markdown tables.

Every run draws a pair of samples and tests it under 21 independent splits. The first S of them are combined by
``combine_splits``, so all S see the same data. Levels are rejection rates at α=0.05 on null pairs, with the 99 % band
of a binomial. B=199.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from scipy import stats

import m2st_core as m2st
from benchmarks.common import batch, bound_methods
from m2st_core.rng import Streams
from m2st_core.testing.plan import combine_splits, split_seeds
from m2st_core.testing.run import run_tests
from m2st_core.types import TwoSample

ALPHA, PERMUTATIONS, MOST, LEARNERS = 0.05, 199, 21, 10
METHODS = ("Meta-WiTS", "Feature-MKL", "MMD-O")
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


def p_values(method: str, setting: str, null: bool, runs: int, splits: int = MOST) -> np.ndarray:
    """The p-value of each run under each split: (runs, splits). Every tenth of the runs has its own learner."""
    draw, tasks = SETTINGS[setting]
    found = []
    for part in range(LEARNERS):
        streams = Streams(0).child(f"{setting}, null={null}, part {part}")
        ready = bound_methods([method], tasks(streams.child("tasks").seed), "recommended", part)[method]
        sample = batch(lambda seed: draw(null, seed), runs // LEARNERS, streams)
        seeds = [split_seeds(streams.child(f"test {index}").seed, splits) for index in range(runs // LEARNERS)]
        repeated = TwoSample(*(rows.repeat_interleave(splits, dim=0) for rows in sample))
        results = run_tests(
            repeated, ready, seeds=[seed for own in seeds for seed in own], n_permutations=PERMUTATIONS, device="cpu"
        )
        found.append(np.array([result.p_value for result in results]).reshape(-1, splits))
    return np.concatenate(found)


def rates(p: np.ndarray) -> list[float]:
    """The share of runs rejected with 1, 5, 11 and 21 splits."""
    return [float(np.mean([combine_splits(own[:count])[0] <= ALPHA for own in p])) for count in SPLITS]


def agreement(p: np.ndarray, count: int, orders: int = 40) -> float:
    """The chance that two seeds decide alike on the same rows, from random orders of the 21 splits."""
    generator = np.random.default_rng(0)
    drawn = [generator.permuted(p, axis=1)[:, :count] for _ in range(orders)]
    share = np.mean([[combine_splits(own)[0] <= ALPHA for own in part] for part in drawn], axis=0)
    return float(np.mean(share**2 + (1 - share) ** 2))


def row(p: np.ndarray) -> str:
    """One line of a table: rejection rates, twice the plain median, agreement of two seeds, the spread of p."""
    low, high = np.quantile(p, [0.1, 0.9], axis=1).mean(axis=1)
    plain = float(np.mean(2 * np.median(p, axis=1) <= ALPHA))
    cells = [f"{rate:.3f}" for rate in (*rates(p), plain, agreement(p, 1), agreement(p, 11))]
    return " | ".join([*cells, f"{low:.2f}–{high:.2f}"])


def main(arguments: Sequence[str] = ()) -> None:
    """Print both tables."""
    parser = argparse.ArgumentParser(prog="m2st_core bench splits", description=__doc__)
    parser.add_argument("--null-runs", type=int, default=1000)
    parser.add_argument("--power-runs", type=int, default=400)
    parser.add_argument("--methods", nargs="+", default=METHODS)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    for title, null, runs in (("Level", True, options.null_runs), ("Power", False, options.power_runs)):
        low, high = np.array(stats.binom.interval(0.99, runs, ALPHA)) / runs
        band = f", 99 % band [{low:.3f}, {high:.3f}]" if null else ""
        print(f"\n{title}: {runs} runs{band}\n")
        head = [*(f"S={count}" for count in SPLITS), "2·median of 21", "seeds agree, S=1", "S=11", "p over splits"]
        print("| method | data | " + " | ".join(head) + " |")
        print("|---" * (len(head) + 2) + "|")
        for setting in SETTINGS:
            for method in options.methods:
                print(f"| {method} | {setting} | {row(p_values(method, setting, null, runs))} |", flush=True)


if __name__ == "__main__":
    main()
