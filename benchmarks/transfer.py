"""Learning from other tasks: the help where they are related, the harm where they are not.

Settings, power and type-I error (both samples from P) of methods with and without meta-tasks:
- digits, related: all pairs of the classes 0–5 as meta-tasks, the target a pair of held-out classes, 6 and 8, with
  shares 0.6 and 0.4 in P and the reverse in Q, so that it is hard;
- digits, unrelated: the same meta-tasks, the target a changed mix of the classes 6–9;
- blobs, related: 3×3 blobs with varying correlation as meta-tasks, another correlation as target;
- HDGM meta-tasks with a mean shift as target: unrelated;
- HDGM, swapped: the paper's setting, with P and Q exchanged in half of the meta-tasks;
- on request, HDGM with N=20 meta-tasks that name P and Q in one order, or swapped.

Every target has rows to learn from and rows to test. Methods that split nothing test the latter only, so that all have
the same test rows, and once more, as a user would, all rows.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import combinations
from typing import NamedTuple

import numpy as np
import torch

import m2st_core as m2st
from benchmarks.common import batch, bound_methods, over_repeats, print_table, rejection_rate
from m2st_core.data.images.sets import load_digits_by_class
from m2st_core.rng import Streams
from m2st_core.types import TwoSample

WITHOUT_META_TASKS = ["MMD-M", "MMD-O", "MMD-FUSE"]
WITH_META_TASKS = ["AGT-KL", "Meta-KL", "Meta-MKL", "Feature-MKL", "Meta-Witness", "Meta-WiTS", "Meta-FUSE"]


class Setting(NamedTuple):
    """Meta-tasks and targets, as functions of a seed, and the rows per sample to learn from and to test."""

    meta: Callable[[int], dict[str, TwoSample]]
    target: Callable[[int, bool, int], TwoSample]  # rows, null, seed
    n_train: int
    n_test: int


def digit_pairs(seed: int) -> dict[str, TwoSample]:
    """All 15 pairs of the classes 0–5, 100 images of each."""
    streams = Streams(seed)
    return {
        f"{a} or {b}": m2st.make_task("digits", first=a, second=b).sample(100, seed=streams.child(f"{a}{b}").seed)
        for a, b in combinations(range(6), 2)
    }


def digit_mix(shares_p: Sequence[float], shares_q: Sequence[float]) -> Callable[[int, bool, int], TwoSample]:
    """Images of the classes 6–9 in these shares, drawn with replacement."""

    def draw(rows: int, null: bool, seed: int) -> TwoSample:
        samples = []
        for side, shares in (("P", shares_p), ("Q", shares_p if null else shares_q)):
            generator = Streams(seed).numpy(f"mix {side}")
            digits = generator.choice([6, 7, 8, 9], size=rows, p=shares)
            images = load_digits_by_class()
            picked = [images[digit][generator.integers(len(images[digit]))] for digit in digits]
            samples.append(torch.from_numpy(np.stack(picked)))
        return TwoSample(*samples)

    return draw


def blob_tasks(seed: int) -> dict[str, TwoSample]:
    """30 tasks whose blobs are correlated by 0.3 to 0.6, 150 rows per sample."""
    streams = Streams(seed)
    return {
        f"{c:.2f}": m2st.make_task("blobs", correlation=float(c)).sample(150, seed=streams.child(f"{c:.3f}").seed)
        for c in np.linspace(0.3, 0.6, 30)
    }


def swapped_tasks(seed: int, n_tasks: int = 100) -> dict[str, TwoSample]:
    """The paper's meta-tasks, every other one with P and Q exchanged."""
    tasks = m2st.hdgm_related_tasks(n_tasks=n_tasks, seed=seed)
    return {name: pair.swapped() if index % 2 else pair for index, (name, pair) in enumerate(tasks.items())}


def task_target(name: str, **settings: float) -> Callable[[int, bool, int], TwoSample]:
    """Targets from a registered task."""
    return lambda rows, null, seed: m2st.make_task(name, null=null, **settings).sample(rows, seed=seed)


SETTINGS = {
    "digits, related": Setting(digit_pairs, digit_mix((0.6, 0, 0.4, 0), (0.4, 0, 0.6, 0)), 50, 50),
    "digits, unrelated": Setting(digit_pairs, digit_mix((0.25,) * 4, (0.15, 0.35, 0.15, 0.35)), 50, 100),
    "blobs, related": Setting(blob_tasks, task_target("blobs", correlation=0.8), 100, 100),
    "HDGM → mean shift": Setting(
        lambda seed: m2st.hdgm_related_tasks(seed=seed), task_target("mean_shift", shift=0.5), 50, 50
    ),
    "HDGM, swapped": Setting(swapped_tasks, task_target("hdgm"), 100, 100),
}
FEW_TASKS = {
    f"N=20, {order}, m_te={rows // 2}": Setting(meta, task_target("hdgm"), 100, rows)
    for rows in (200, 400)
    for order, meta in (
        ("one order", lambda seed: m2st.hdgm_related_tasks(n_tasks=20, seed=seed)),
        ("swapped", partial(swapped_tasks, n_tasks=20)),
    )
}
ALL_ROWS = ", all rows"


def one_repeat(options: argparse.Namespace, index: int) -> dict[str, list[float]]:
    """Rejection rates by method: power and type-I error of each setting."""
    rates: dict[str, list[float]] = {
        name + suffix: []
        for name in options.methods
        for suffix in ("", *[ALL_ROWS] * (not m2st.METHODS[name].needs_split))
    }
    repeat = options.first + index
    for title in options.settings:
        setting = (SETTINGS | FEW_TASKS)[title]
        streams = Streams(repeat).child(f"transfer benchmark, {title}")
        methods = bound_methods(options.methods, setting.meta(streams.child("meta").seed), "recommended", repeat)
        for null in (False, True):
            here = streams.child(f"null={null}")
            rows = setting.n_train + setting.n_test
            sample = batch(lambda seed, s=setting, n=null, k=rows: s.target(k, n, seed), options.tests, here)
            for name, method in methods.items():
                rate = rejection_rate(sample, method, options.permutations, "recommended", here, setting.n_train)
                rates[name].append(rate)
                if not method.needs_split:
                    rates[name + ALL_ROWS].append(
                        rejection_rate(sample, method, options.permutations, "recommended", here)
                    )
    return rates


def main(arguments: Sequence[str] = ()) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="m2st_core bench transfer", description=__doc__)
    parser.add_argument("--repeats", type=int, default=6)
    parser.add_argument("--first", type=int, default=0, help="number of the first repeat: others are fresh draws")
    parser.add_argument("--tests", type=int, default=100)
    parser.add_argument("--permutations", type=int, default=199)
    parser.add_argument("--methods", nargs="*", default=WITHOUT_META_TASKS + WITH_META_TASKS)
    parser.add_argument("--settings", nargs="*", default=list(SETTINGS), choices=[*SETTINGS, *FEW_TASKS])
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    began = time.perf_counter()
    rates = over_repeats(partial(one_repeat, options), options.repeats, options.workers)
    print(f"α=0.05, {options.repeats} repeats × {options.tests} test sets, {time.perf_counter() - began:.0f} s\n")
    for title in options.settings:
        setting = (SETTINGS | FEW_TASKS)[title]
        print(f"- {title}: {setting.n_train} rows per sample to learn from, {setting.n_test} to test")
    print()
    print_table(["", *(f"{t}: {k}" for t in options.settings for k in ("power", "null"))], rates)


if __name__ == "__main__":
    main()
