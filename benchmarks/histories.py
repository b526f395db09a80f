"""Power with the related tasks that users have: few tasks, in any order, distant, wide, or with errors in them.

HDGM, target Δ=0.7 (0.9 in ten columns), 100 rows per sample and related task. Each repeat has its own related tasks and
fresh targets with their own training rows (m_tr=50 per mode). Methods that do not split test the m_te rows per mode
only, which ``--sizes`` gives. With ``--total``, sizes are all rows of each sample: methods that split use half of them
for training.

Two rows that no test can have stand beside the methods: ``ceiling`` knows the log-likelihood ratio of the middle
related task and uses it as a two-sided witness; ``limit`` knows the target's and its sign, as in Power.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import torch

from benchmarks.common import Page, batch, bound_methods, mean_and_error, over_repeats, parse, rejection_rate
from m2st_core.data.synthetic import HDGM
from m2st_core.permutation.engine import permuted_mean_difference
from m2st_core.permutation.labellings import permutation_p_value, random_memberships
from m2st_core.rng import Streams
from m2st_core.types import TwoSample

METHODS = ("Meta-Witness", "Meta-WiTS", "Meta-FUSE", "Feature-MKL")
KNOWN = ("ceiling", "limit")
PERMUTATIONS = 199
TRAIN = 100  # training rows of each sample


@dataclass(frozen=True)
class History:
    """N tasks of HDGM(Δ_i), Δ_i = Δ−0.1−C + 0.1·i/N, with ``rows`` of P and Q, and what is unusual about them."""

    tasks: int = 20
    closeness: float = 0.3
    delta: float = 0.7
    columns: int = 2
    rows: tuple[int, int] = (100, 100)
    exchanged: bool = False
    fault: str = ""

    def task(self, index: float) -> HDGM:
        """The distributions of one related task."""
        return HDGM(delta=self.delta - 0.1 - self.closeness + 0.1 * index / self.tasks, dimension=self.columns)

    def draw(self, seed: int) -> dict[str, TwoSample]:
        """The related tasks. Faults have randomness of their own, so that the rest is the same as without them."""
        rows, odd = Streams(seed).numpy("rows"), Streams(seed).numpy("faults")
        tasks = {}
        for index in range(self.tasks):
            task = self.task(index)
            x, y = task.draw_p(self.rows[0], rows), task.draw_q(self.rows[1], rows)
            x, y = self._spoil(x, y, index, odd)
            if self.exchanged and odd.random() < 0.5:
                x, y = y, x
            tasks[f"task {index + 1}"] = TwoSample(torch.from_numpy(x), torch.from_numpy(y))
        if self.fault == "copy":
            tasks["task 4"] = tasks["task 8"]
        return tasks

    def _spoil(
        self, x: np.ndarray, y: np.ndarray, index: int, odd: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        if self.fault == "scale" and index == 3:
            x[:, 0] *= 1000
            y[:, 0] *= 1000
        if self.fault == "outliers":
            for sample in (x, y):
                far = odd.random(len(sample)) < 0.02
                sample[far] = 30 * odd.standard_normal((far.sum(), sample.shape[1]))
        if self.fault == "labels" and index == 3:
            pooled = odd.permutation(np.concatenate([x, y]))
            x, y = pooled[: len(x)], pooled[len(x) :]
        return x, y


PLAIN = History()
HISTORIES = {
    "N=20, one order": PLAIN,
    "N=20, exchanged": replace(PLAIN, exchanged=True),
    "N=10, exchanged": replace(PLAIN, tasks=10, exchanged=True),
    "N=3, exchanged": replace(PLAIN, tasks=3, exchanged=True),
    "N=100, one order": replace(PLAIN, tasks=100),
    "N=100, exchanged": replace(PLAIN, tasks=100, exchanged=True),
    "C=0.5, N=100, one order": replace(PLAIN, tasks=100, closeness=0.5),
    "C=0.5, N=100, exchanged": replace(PLAIN, tasks=100, closeness=0.5, exchanged=True),
    "d=10, Δ=0.9, N=50, one order": replace(PLAIN, tasks=50, delta=0.9, columns=10),
    "d=10, Δ=0.9, N=50, exchanged": replace(PLAIN, tasks=50, delta=0.9, columns=10, exchanged=True),
    "N=20, one column of one task × 1,000": replace(PLAIN, fault="scale"),
    "N=20, 2 % outliers in every task": replace(PLAIN, fault="outliers"),
    "N=20, one task twice": replace(PLAIN, fault="copy"),
    "N=20, labels of one task at random": replace(PLAIN, fault="labels"),
    "N=20, 20 against 20 rows": replace(PLAIN, rows=(20, 20)),
    "N=20, 20 against 180 rows": replace(PLAIN, rows=(20, 180)),
}


def one_repeat(options: argparse.Namespace, name: str, repeat: int) -> dict[str, list[float]]:
    """Power of each method at each size."""
    history = HISTORIES[name]
    streams = Streams(options.seed).child(f"histories, repeat {repeat}")
    related = history.draw(streams.child("tasks").seed)
    names = [method for method in options.methods if method not in KNOWN]
    methods = bound_methods(names, related, streams.seed) if names else {}
    target = HDGM(delta=history.delta, dimension=history.columns)
    powers: dict[str, list[float]] = {method: [] for method in options.methods}
    for size in options.sizes:
        rows = size if options.total else 2 * size + TRAIN
        here = streams.child(f"target, {rows} rows")
        sample = batch(lambda seed, n=rows: target.sample(n, seed=seed), options.tests, here)
        for method, spec in methods.items():
            train = 0 if options.total else TRAIN
            rate = rejection_rate(sample, spec, PERMUTATIONS, streams.child(method), train)
            powers[method].append(rate)
        tested = sample if options.total else TwoSample(sample.x[:, TRAIN:], sample.y[:, TRAIN:])
        if "ceiling" in powers:
            powers["ceiling"].append(_known_rate(history.task(history.tasks / 2), tested, streams, two_sided=True))
        if "limit" in powers:
            powers["limit"].append(_known_rate(target, tested, streams, two_sided=False))
    return powers


def _known_rate(known: HDGM, sample: TwoSample, streams: Streams, two_sided: bool) -> float:
    """The share of pairs rejected at 5 % by a test whose witness is the true log p/q of ``known``."""
    n, m = sample.sizes
    scores = torch.from_numpy(known.log_likelihood_ratio(sample.pooled.numpy()))
    generators = [streams.child(f"known, test {index}").numpy("permutations") for index in range(len(scores))]
    members = random_memberships(n, m, PERMUTATIONS, generators)
    statistics, rounding = permuted_mean_difference(scores, members, n, two_sided=two_sided)
    return float((permutation_p_value(statistics, rounding, "(1+b)/(1+B)") <= 0.05).double().mean())


def main(arguments: Sequence[str] = ()) -> None:
    """Print a table of mean ± standard error, and the smallest of the repeats."""
    options = parse(
        arguments, __doc__, repeats=20, tests=100, seed=0, sizes=(100, 200), total=False, methods=(*METHODS, *KNOWN),
        histories=HISTORIES, workers=1,
    )  # fmt: skip
    unit, page = "rows" if options.total else "m_te", Page()
    page.say(
        f"{options.repeats} repeats × {options.tests} targets, seed {options.seed}; in brackets the worst repeat\n"
    )
    page.head("related tasks", "method", *(f"{unit}={size}" for size in options.sizes))
    for name in options.histories:
        rates = over_repeats(partial(one_repeat, options, name), options.repeats, options.workers)
        for method, values in rates.items():
            rows = zip(mean_and_error(values), values.min(axis=0), strict=True)
            page.row(name, method, *(f"{mean:.3f} ± {error:.3f} ({worst:.2f})" for (mean, error), worst in rows))
