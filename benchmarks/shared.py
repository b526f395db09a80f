"""One control group for the target and all related tasks: level and power, as Markdown tables.

Level: six null tasks (control group, fresh rows) and a null target with that control group, 40 rows each, all rows
N(0, I) with two columns. Power: the same histories with a control group of their own for every task, and with one that
they share with the target.
"""

from __future__ import annotations

import argparse
import io
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context

import numpy as np
import pandas as pd
import torch
from scipy import stats

import m2st_core as m2st
from m2st_core.data.arrays import as_two_sample
from m2st_core.data.separate import separate
from m2st_core.data.tables.files import Table
from m2st_core.rng import Streams

METHODS = ("Meta-Witness", "Meta-WiTS", "Meta-FUSE")
B = 99
CHANGES: dict[str, Callable[[np.ndarray, np.random.Generator], np.ndarray]] = {
    "as they are": lambda rows, generator: rows,
    "rounded to 3 decimals": lambda rows, generator: rows.round(3),
    "jittered by 1e−6": lambda rows, generator: rows + 1e-6 * generator.standard_normal(rows.shape),
    "times 1,000": lambda rows, generator: rows * 1000,
}


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


def upload_run(change: str, seed: int) -> list[bool]:
    """The same through CSV files, as the shell and the page read them."""
    generator = Streams(seed).numpy(f"shared control in files, {change}")
    control = generator.standard_normal((40, 2))

    def table(name: str, rows: np.ndarray, **more: object) -> Table:
        frame = pd.DataFrame(rows, columns=["a", "b"]).assign(**more)
        text = io.StringIO()
        frame.to_csv(text, index=False)
        return m2st.read_table(name, text.getvalue().encode())

    x, y = (CHANGES[change](rows, generator) for rows in (control, generator.standard_normal((40, 2))))
    tasks = [
        table(
            f"t{task}.csv", np.concatenate([control, generator.standard_normal((40, 2))]), group=["P"] * 40 + ["Q"] * 40
        )
        for task in range(6)
    ]
    data = m2st.prepare(m2st.Upload((table("p.csv", x), table("q.csv", y)), tuple(tasks)))
    plan = m2st.Plan(METHODS[0], METHODS[1:], n_permutations=B, seed=seed)
    analysis = m2st.carry_out(data, plan, explained=False, device="cpu").analysis
    return [result.rejected for result in (analysis.primary, *(verdict.result for verdict in analysis.secondary))]


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
    """Run the study and print it."""
    parser = argparse.ArgumentParser(prog="m2st_core bench shared", description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--power-runs", type=int, default=200, help="0: levels only; --runs 0: power only")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args(arguments)
    low, high = np.array(stats.binom.interval(0.99, options.runs, 0.05)) / max(options.runs, 1)
    with ProcessPoolExecutor(options.workers, get_context("spawn"), torch.set_num_threads, (1,)) as pool:

        def rates(run: Callable[[int], list[bool]], runs: int) -> str:
            return " | ".join(f"{rate:.3f}" for rate in np.mean(list(pool.map(run, range(runs), chunksize=10)), axis=0))

        print(f"{options.runs:,} null targets a row, 99 % band [{low:.3f}, {high:.3f}]\n")
        print(f"| path | target's rows | {' | '.join(METHODS)} |\n|---|---|---|---|---|")
        for path, run in (("Python", null_run), ("files", upload_run)):
            for change in CHANGES if options.runs else ():
                print(f"| {path} | {change} | {rates(partial(run, change), options.runs)} |", flush=True)
        print(f"\n{options.power_runs} targets a row\n")
        print(f"| task | control group | {' | '.join(METHODS)} | MMD-FUSE | MMD-M |\n|---|---|---|---|---|---|---|")
        for kind in ("HDGM", "mean shift"):
            for shared in (False, True) if options.power_runs else ():
                words = "shared by all" if shared else "one for each task"
                print(
                    f"| {kind} | {words} | {rates(partial(power_run, kind, shared), options.power_runs)} |", flush=True
                )


if __name__ == "__main__":
    main()
