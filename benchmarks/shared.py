"""Rows shared by the target and its related tasks: what is recognised, level and power, as Markdown tables.

Recognition (``--sets``): how many of 40 control rows are found in six tasks, how many could have escaped, and how often
a target that shares nothing is flagged.

Level: six null tasks (control group, fresh rows) and a null target with that control group, 40 rows each, all rows
N(0, I) with two columns. Power: the same histories with a control group of their own for every task, and with one that
they share with the target.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

import m2st_core as m2st
from benchmarks.common import ALPHA, Page, parse, processes
from m2st_core.data.arrays import as_two_sample
from m2st_core.data.overlap import KnownRows, same_rows
from m2st_core.data.separate import separate
from m2st_core.numbers import null_band
from m2st_core.rng import Streams

Draw = Callable[[np.random.Generator, int], np.ndarray]
KINDS: dict[str, Draw] = {
    "normal, d=2": lambda g, n: g.standard_normal((n, 2)),
    "Cauchy, d=5": lambda g, n: g.standard_cauchy((n, 5)),
    "normal, three decimals, d=4": lambda g, n: g.standard_normal((n, 4)).round(3),
    "normal, one decimal, d=4": lambda g, n: g.standard_normal((n, 4)).round(1),
    "normal, two decimals, d=2": lambda g, n: g.standard_normal((n, 2)).round(2),
    "normal, one decimal, d=2": lambda g, n: g.standard_normal((n, 2)).round(1),
    "a category of 8 levels and two columns of 3 decimals": lambda g, n: np.hstack(
        [np.eye(8)[g.integers(0, 8, n)], g.standard_normal((n, 2)).round(3)]
    ),
    "replicates, two of each row, d=2": lambda g, n: np.repeat(g.standard_normal((n // 2, 2)), 2, axis=0),
    "25 answers 1–6, 3 % straight-liners": lambda g, n: np.where(
        g.random((n, 1)) < 0.03, g.integers(1, 7, (n, 1)), g.integers(1, 7, (n, 25))
    ).astype(float),
    "ten binary columns": lambda g, n: g.integers(0, 2, (n, 10)) * 1.0,
    "five answers 1–5": lambda g, n: g.integers(1, 6, (n, 5)) * 1.0,
    "five Poisson counts": lambda g, n: g.poisson(2.0, (n, 5)) * 1.0,
    "integers, d=2": lambda g, n: g.normal(0, 10, (n, 2)).round(),
    "three answers 1–5": lambda g, n: g.integers(1, 6, (n, 3)) * 1.0,
    "age in years and sex": lambda g, n: np.stack([g.integers(18, 80, n), g.integers(0, 2, n)], axis=1) * 1.0,
}
METHODS = ("Meta-Witness", "Meta-WiTS", "Meta-FUSE")
B = 99
CHANGES: dict[str, Callable[[np.ndarray, np.random.Generator], np.ndarray]] = {
    "as they are": lambda rows, generator: rows,
    "rounded to 3 decimals": lambda rows, generator: rows.round(3),
    "jittered by 1e−6": lambda rows, generator: rows + 1e-6 * generator.standard_normal(rows.shape),
    "times 1,000": lambda rows, generator: rows * 1000,
}


def recognition(kind: str, seed: int) -> list[float]:
    """Rows found of 40 shared as a whole, of 50, from a pool of 60, and of 10 shared; flagged and unseen if none is."""
    generator, draw = Streams(seed).numpy(f"recognition, {kind}"), KINDS[kind]
    found = []
    for size, shared in ((40, 40), (50, 40), (60, 40), (40, 10), (40, 0)):
        group = draw(generator, size)
        x = np.concatenate([group[generator.permutation(size)[:shared]], draw(generator, 40 - shared)])
        samples = [
            part
            for _ in range(6)
            for part in (group[generator.permutation(size)[:40]] if size == 60 else group, draw(generator, 40))
        ]
        known = KnownRows(np.concatenate(samples), np.repeat(np.arange(12), [len(part) for part in samples]))
        overlap = same_rows((x, draw(generator, 40)), known)
        found.append(float((np.unique(overlap.target) < shared).sum()) if shared else float(len(overlap) > 0))
    return [*found, float(overlap.unseen)]


def rejections(x: np.ndarray, y: np.ndarray, tasks: list[tuple[np.ndarray, np.ndarray]], seed: int) -> list[bool]:
    """Which methods reject; they share the training."""
    apart = separate(as_two_sample(x, y), tasks)
    learner = m2st.meta_train(METHODS[0], apart.tasks, seed=seed, device="cpu")
    settings = {"n_permutations": B, "seed": seed, "device": "cpu"}
    return [replace(learner, method=name).test(x, y, apart=apart, **settings).rejected for name in METHODS]


def null_run(change: str, seed: int) -> list[bool]:
    """One null target whose control group, written differently, is that of its null tasks."""
    generator = Streams(seed).numpy(f"shared control, {change}")
    control = generator.standard_normal((40, 2))
    tasks = [(control, generator.standard_normal((40, 2))) for _ in range(6)]
    x, y = (CHANGES[change](rows, generator) for rows in (control, generator.standard_normal((40, 2))))
    return rejections(x, y, tasks, seed)


def power_run(kind: str, shared: bool, seed: int) -> list[bool]:
    """One target that differs as its related tasks do, with fresh control groups or a shared one; then no history."""
    streams = Streams(seed).child(kind)
    generator = streams.numpy("strengths")
    rows, tasks = (100, 20) if kind == "HDGM" else (40, 10)

    def draw(name: str, strength: float) -> tuple[np.ndarray, np.ndarray]:
        parameter = "delta" if kind == "HDGM" else "shift"
        settings = {parameter: strength} | ({} if kind == "HDGM" else {"dimension": 5})
        pair = m2st.make_task("hdgm" if kind == "HDGM" else "mean_shift", **settings).sample(
            rows, seed=streams.child(name).seed
        )
        return pair.x.numpy(), pair.y.numpy()

    strong = 0.7 if kind == "HDGM" else 0.6
    x, y = draw("target", strong)
    history = [draw(f"task {task}", strong * generator.uniform(0.7, 1.0)) for task in range(tasks)]
    found = rejections(x, y, [(x if shared else p, q) for p, q in history], seed)
    settings = {"n_permutations": B, "seed": seed, "device": "cpu"}
    return found + [m2st.two_sample_test(x, y, name, **settings).rejected for name in ("MMD-FUSE", "MMD-M")]


def main(arguments: Sequence[str] = ()) -> None:
    """Run the parts of the study whose numbers of runs are above 0, and print them."""
    options = parse(arguments, __doc__, sets=20, runs=1000, power_runs=200, workers=2)
    page = Page()
    with processes(options.workers) as pool:

        def means(run: Callable[[int], Sequence[float]], runs: int) -> np.ndarray:
            return np.mean(list(pool.map(run, range(runs), chunksize=10)), axis=0)

        def rates(run: Callable[[int], Sequence[bool]], runs: int) -> list[str]:
            return [f"{rate:.3f}" for rate in means(run, runs)]

        if options.sets:
            page.head("rows", "whole", "part of 50", "pool of 60", "10 of 40", "falsely flagged", "may escape")
            for kind in KINDS:
                *counts, flagged, unseen = means(partial(recognition, kind), options.sets)
                page.row(kind, *(f"{value:.0f}" for value in counts), f"{flagged:.2f}", f"{unseen:.0f}")
        if options.runs:
            low, high = null_band(ALPHA, options.runs)
            page.say("", f"{options.runs:,} null targets a row, 99 % band [{low:.3f}, {high:.3f}]", "")
            page.head("target's rows", *METHODS)
            for change in CHANGES:
                page.row(change, *rates(partial(null_run, change), options.runs))
        if options.power_runs:
            page.say("", f"{options.power_runs} targets a row", "")
            page.head("task", "control group", *METHODS, "MMD-FUSE", "MMD-M")
            for kind in ("HDGM", "mean shift"):
                for shared, words in ((False, "one for each task"), (True, "shared by all")):
                    page.row(kind, words, *rates(partial(power_run, kind, shared), options.power_runs))
