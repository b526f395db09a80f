"""What the power studies share: batches of targets, learners that share their training, tables."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from multiprocessing import get_context
from typing import Any

import numpy as np
import torch

import m2st_core as m2st
from m2st_core.rng import Streams
from m2st_core.testing.method import Method
from m2st_core.testing.run import learn_once, run_tests
from m2st_core.types import TwoSample

CPU = torch.device("cpu")


def seconds(function: Callable[[], object], repeats: int, clock: Callable[[], float] = time.perf_counter) -> float:
    """The fastest of several runs, after one that does not count."""
    return seconds_in_turn([function], repeats, clock)[0]


def seconds_in_turn(
    functions: Sequence[Callable[[], object]], repeats: int, clock: Callable[[], float] = time.perf_counter
) -> list[float]:
    """The same for each of several functions, which take turns: what else the machine does meets all of them."""
    found: list[list[float]] = [[] for _ in functions]
    for _ in range(repeats + 1):
        for function, times in zip(functions, found, strict=True):
            began = clock()
            function()
            times.append(clock() - began)
    return [min(times[1:]) for times in found]


def batch(draw: Callable[[int], TwoSample], count: int, streams: Streams) -> TwoSample:
    """``count`` sample pairs, each from a seed of its own: x (count, n, d), y (count, m, d)."""
    pairs = [draw(streams.child(f"target {index}").seed) for index in range(count)]
    return TwoSample(torch.stack([p.x for p in pairs]), torch.stack([p.y for p in pairs]), pairs[0].shape)


def bound_methods(names: Iterable[str], meta: Any, preset: str, seed: int) -> dict[str, Method]:
    """Methods ready to test; those that share their training on related tasks are trained once."""
    learners: dict[Any, m2st.MetaLearner] = {}
    ready = {}
    for name in names:
        method = m2st.METHODS[name]
        if method.uses_related_tasks:
            if method.learn not in learners:
                learners[method.learn] = m2st.meta_train(name, meta, preset=preset, seed=seed, device="cpu")
            method = replace(learners[method.learn], method=name).bound(CPU)
        ready[name] = method
    return ready


def rejection_rate(
    sample: TwoSample, method: Method, n_permutations: int, preset: str, streams: Streams, n_train: int = 0
) -> float:
    """The share of pairs rejected at 5 %; the first n_train rows of each pair are training rows."""
    rest = TwoSample(sample.x[:, n_train:], sample.y[:, n_train:], sample.shape)
    results = run_tests(
        sample if method.needs_split else rest,
        method,
        seeds=[streams.child(f"test {index}").seed for index in range(sample.x.shape[0])],
        n_permutations=n_permutations,
        train_fraction=(n_train + 0.5) / sample.x.shape[1] if n_train else 0.5,
        preset=m2st.PRESETS[preset],
        device="cpu",
    )
    return float(np.mean([result.rejected for result in results]))


@dataclass(frozen=True)
class PaperRepeat:
    """One repeat of the paper's HDGM setting with 50 training rows per mode: what all variants of a study share."""

    seed: int
    related: Any
    train: TwoSample
    targets: list[TwoSample]

    @classmethod
    def draw(cls, streams: Streams, seed: int, sizes: Sequence[int], tests: int, n_tasks: int = 100) -> PaperRepeat:
        """Related tasks, training rows, and ``tests`` samples of each size per mode."""
        task = m2st.make_task("hdgm")
        return cls(
            seed,
            m2st.hdgm_related_tasks(n_tasks=n_tasks, seed=streams.child("meta").seed),
            task.sample(100, seed=streams.child("train").seed),
            [batch(lambda s, n=2 * m: task.sample(n, seed=s), tests, streams.child(f"m_te={m}")) for m in sizes],
        )

    def power(self, learner: m2st.MetaLearner, preset: str = "recommended") -> list[float]:
        """The share of samples rejected at each size, after one adaptation to the training rows."""
        settings = m2st.PRESETS[preset]
        fixed = learn_once(learner.bound(CPU), self.train, seed=self.seed, preset=settings)
        found = [
            run_tests(t, fixed, seeds=range(len(t.x)), preset=settings, n_permutations=199, device="cpu")
            for t in self.targets
        ]
        return [float(np.mean([result.rejected for result in results])) for results in found]


def study_options(name: str, description: str | None) -> argparse.ArgumentParser:
    """The options of a study over repeats."""
    parser = argparse.ArgumentParser(prog=f"m2st_core bench {name}", description=description)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--tests", type=int, default=100)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    return parser


def over_repeats(function: Callable[[int], Mapping[str, list[float]]], repeats: int, workers: int) -> dict[str, Any]:
    """One call per repeat, in parallel processes of one thread each: name → (repeats, columns)."""
    if workers == 1:
        rows = [function(repeat) for repeat in range(repeats)]
    else:
        with ProcessPoolExecutor(workers, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
            rows = list(pool.map(function, range(repeats)))
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def run_study(
    options: argparse.Namespace, one_repeat: Callable[[int], Mapping[str, list[float]]], title: str, head: Sequence[str]
) -> None:
    """Run a study over repeats, one thread per process, and print its table."""
    torch.set_num_threads(1)
    rates = over_repeats(one_repeat, options.repeats, options.workers)
    print(f"{title}, {options.repeats} repeats × {options.tests} test samples\n")
    print_table(head, rates)


def print_table(head: Sequence[str], rows: Mapping[str, Any]) -> None:
    """Mean ± standard error between repeats, as Markdown; rows that are plain numbers are printed as they are."""
    print("| " + " | ".join(head) + " |")
    print("|---" * len(head) + "|")
    for name, values in rows.items():
        values = np.asarray(values)
        if values.ndim == 1:
            cells = [f"{value:.3f}" for value in values]
        else:
            error = values.std(axis=0, ddof=min(1, len(values) - 1)) / np.sqrt(len(values))
            cells = [f"{v:.3f} ± {e:.3f}" for v, e in zip(values.mean(axis=0), error, strict=True)]
        print(f"| {name} | " + " | ".join(cells) + " |")
