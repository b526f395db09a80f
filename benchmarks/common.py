"""Shared by the studies: options, Markdown tables, processes, times, batches of targets and rates of rejection."""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch

import m2st_core as m2st
from m2st_core.rng import Streams
from m2st_core.testing.method import Method
from m2st_core.testing.run import run_tests
from m2st_core.types import TwoSample

ALPHA = 0.05
CPU = torch.device("cpu")


def parse(arguments: Sequence[str], description: str | None, **defaults: Any) -> argparse.Namespace:
    """Parse a study's options, which its defaults describe; it has one thread.

    False is a switch, a type is a value that may be missing, a tuple holds several values, and a mapping offers its
    keys, all of them by default.
    """
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(prog="m2st_core bench", description=description)
    for name, default in defaults.items():
        flag = f"--{name.replace('_', '-')}"
        if default is False:
            parser.add_argument(flag, action="store_true")
        elif isinstance(default, type):
            parser.add_argument(flag, type=default)
        elif isinstance(default, Mapping):
            parser.add_argument(flag, nargs="*", choices=list(default), default=list(default))
        elif isinstance(default, tuple):
            parser.add_argument(flag, nargs="*", type=type(default[0]), default=default)
        else:
            parser.add_argument(flag, type=type(default), default=default)
    return parser.parse_args(arguments)


def fill_page(text: str, section: Callable[[str], str]) -> str:
    """Rewrite every section of a page between ``<!-- begin NAME -->`` and ``<!-- end NAME -->``."""

    def rewritten(match: re.Match[str]) -> str:
        return f"{match[1]}\n\n{section(match[2])}\n\n{match[4]}"

    return re.sub(r"(<!-- begin (.+?) -->)(.*?)(<!-- end \2 -->)", rewritten, text, flags=re.DOTALL)


def markdown(head: Sequence[object], rows: Iterable[Sequence[object]]) -> str:
    """A table in Markdown."""
    lines = [f"| {' | '.join(map(str, row))} |" for row in (head, *rows)]
    return "\n".join([lines[0], "|---" * len(head) + "|", *lines[1:]])


class Page:
    """Markdown, printed line by line and written to a file if there is one."""

    def __init__(self, out: Path | None = None) -> None:
        self.out, self.lines = out, list[str]()

    def say(self, *lines: str) -> None:
        """Add lines."""
        print("\n".join(lines), flush=True)
        self.lines += lines
        if self.out:
            self.out.write_text("\n".join(self.lines) + "\n", encoding="utf-8")

    def head(self, *columns: str) -> None:
        """Begin a table."""
        self.say(markdown(columns, ()))

    def row(self, *cells: object) -> None:
        """Add a row of a table."""
        self.say(f"| {' | '.join(map(str, cells))} |")


def processes(count: int) -> ProcessPoolExecutor:
    """A pool of processes with one thread each."""
    return ProcessPoolExecutor(count, get_context("spawn"), torch.set_num_threads, (1,))


def seconds(function: Callable[[], object], repeats: int, clock: Callable[[], float] = time.perf_counter) -> float:
    """The fastest of several runs, after one that does not count."""
    return min(seconds_in_turn([function], repeats, clock)[0])


def seconds_in_turn(
    functions: Sequence[Callable[[], object]], repeats: int, clock: Callable[[], float] = time.perf_counter
) -> list[list[float]]:
    """The times of every run of functions that take turns, after one run of each that does not count.

    What else the machine does meets all of them.
    """
    spent: list[list[float]] = [[] for _ in functions]
    for _ in range(repeats + 1):
        for function, times in zip(functions, spent, strict=True):
            began = clock()
            function()
            times.append(clock() - began)
    return [times[1:] for times in spent]


def stacked(pairs: Sequence[TwoSample], **more: Any) -> TwoSample:
    """Sample pairs of equal sizes as one batch."""
    return TwoSample(torch.stack([p.x for p in pairs]), torch.stack([p.y for p in pairs]), pairs[0].shape, **more)


def batch(draw: Callable[[int], TwoSample], count: int, streams: Streams) -> TwoSample:
    """``count`` sample pairs, each from a seed of its own: x (count, n, d), y (count, m, d)."""
    return stacked([draw(streams.child(f"target {index}").seed) for index in range(count)])


def bound_methods(names: Iterable[str], meta: Any, seed: int) -> dict[str, Method]:
    """Methods ready to test; those that share their training on related tasks are trained once."""
    learners: dict[str, m2st.MetaLearner] = {}
    ready = {}
    for name in names:
        method = m2st.METHODS[name]
        if method.uses_related_tasks:
            if method.training not in learners:
                learners[method.training] = m2st.meta_train(name, meta, seed=seed, device="cpu")
            method = learners[method.training].for_method(name).bound(CPU)
        ready[name] = method
    return ready


def p_values(
    sample: TwoSample, method: Method, seeds: Sequence[int], n_permutations: int, **settings: Any
) -> np.ndarray:
    """The p-values of a batch of pairs: (pairs,)."""
    results = run_tests(sample, method, seeds=seeds, n_permutations=n_permutations, device="cpu", **settings)
    return np.array([result.p_value for result in results])


def rejections(sample: TwoSample, method: Method, n_permutations: int, streams: Streams, **settings: Any) -> np.ndarray:
    """Which pairs of a batch are rejected at 5 %: (pairs,)."""
    seeds = [streams.child(f"test {index}").seed for index in range(sample.x.shape[0])]
    return p_values(sample, method, seeds, n_permutations, **settings) <= ALPHA


def rejection_rate(sample: TwoSample, method: Method, n_permutations: int, streams: Streams, n_train: int = 0) -> float:
    """The share of pairs rejected at 5 %; the first n_train rows of each pair are training rows."""
    rest = TwoSample(sample.x[:, n_train:], sample.y[:, n_train:], sample.shape)
    fraction = (n_train + 0.5) / sample.x.shape[1] if n_train else 0.5
    tested = sample if method.needs_split else rest
    return float(rejections(tested, method, n_permutations, streams, train_fraction=fraction).mean())


def over_repeats(function: Callable[[int], Mapping[str, list[float]]], repeats: int, workers: int) -> dict[str, Any]:
    """One call per repeat, in parallel processes of one thread each: name → (repeats, columns)."""
    if workers == 1:
        rows = [function(repeat) for repeat in range(repeats)]
    else:
        with processes(workers) as pool:
            rows = list(pool.map(function, range(repeats)))
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}


def mean_and_error(values: np.ndarray) -> list[tuple[float, float]]:
    """The mean of each column over repeats, and its standard error."""
    error = values.std(axis=0, ddof=min(1, len(values) - 1)) / np.sqrt(len(values))
    return list(zip(values.mean(axis=0), error, strict=True))


def print_table(head: Sequence[str], rows: Mapping[str, Any]) -> None:
    """Print mean ± standard error between repeats, as Markdown."""
    page = Page()
    page.head(*head)
    for name, values in rows.items():
        page.row(name, *(f"{mean:.3f} ± {error:.3f}" for mean, error in mean_and_error(np.asarray(values))))
