"""Is the recommended method nearly the best one? Power of all methods in a grid of situations.

A situation is a kind of difference, two sample sizes, and a history: related tasks, unrelated ones, or none. As a user
would, every method gets all rows; those that learn from the target split them in half. All methods of a repeat see the
same samples. The recommendation sees the sizes and, where there is a history, the leave-one-task-out check of it.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch

import m2st_core as m2st
from benchmarks.common import batch, bound_methods, rejection_rate
from benchmarks.transfer import digit_mix, digit_pairs
from m2st_core.rng import Streams
from m2st_core.tasks import make_task
from m2st_core.tasks.meta import related_tasks
from m2st_core.types import TwoSample

WITHOUT = ["MMD-M", "MMD-FUSE", "ME", "C2ST-L"]
WITH = ["Meta-FUSE", "Meta-WiTS", "Meta-Witness", "Meta-MKL"]
SIZES = [(30, 30), (100, 100), (40, 160), (200, 200)]
SLOW = {"C2ST-L": 20}  # most columns for which a method is measured
CLOSE = 0.1  # powers within this of the best are good enough


class Source(NamedTuple):
    """Draws targets (rows of x, rows of y, seed) and histories of related and of unrelated tasks (seed)."""

    target: Callable[[int, int, int], TwoSample]
    columns: int
    related: Callable[[int], dict[str, TwoSample]]
    unrelated: Callable[[int], dict[str, TwoSample]]


def registered(name: str, other: str, closeness: float, **settings: float) -> Source:
    """A registered task; tasks like it are related, those of another kind, with as many columns, are not."""
    task = make_task(name, **settings)
    columns = int(settings.get("dimension", 2))
    foreign = make_task(other, **({} if other == "blobs" else {"dimension": columns}))
    return Source(
        lambda n, m, seed: task.sample(n, m, seed=seed),
        columns,
        lambda seed: related_tasks(task, closeness=closeness, n_tasks=20, rows=100, seed=seed),
        lambda seed: related_tasks(foreign, closeness=0.1, n_tasks=20, rows=100, seed=seed),
    )


def mixed_digits(shares_p: Sequence[float], shares_q: Sequence[float]) -> Source:
    """Images of the digits 6–9; pairs of the digits 0–5 are another matter, other mixes of 6–9 are related."""
    draw = digit_mix(shares_p, shares_q)

    def target(n: int, m: int, seed: int) -> TwoSample:
        sample = draw(max(n, m), False, seed)
        return TwoSample(sample.x[:n], sample.y[:m])

    def mixes(seed: int) -> dict[str, TwoSample]:
        streams = Streams(seed)
        found = {}
        for index in range(20):
            generator = streams.numpy(f"mix {index}")
            tilt = generator.uniform(0.5, 1.5)
            shares = np.array(shares_p) + tilt * (np.array(shares_q) - np.array(shares_p))
            shares = shares.clip(0) / shares.clip(0).sum()
            found[f"mix {index + 1}"] = digit_mix(shares_p, tuple(shares))(100, False, streams.child(f"{index}").seed)
        return found

    return Source(target, 64, mixes, digit_pairs)


SOURCES = {
    "HDGM, Δ=0.7, d=2": registered("hdgm", "mean_shift", 0.2, delta=0.7),
    "HDGM, Δ=0.9, d=10": registered("hdgm", "mean_shift", 0.1, delta=0.9, dimension=10),
    "blobs, ρ=0.8": registered("blobs", "mean_shift", 0.2, correlation=0.8),
    "mean shift 0.5, d=2": registered("mean_shift", "hdgm", 0.1, shift=0.5),
    "mean shift 0.8, d=50": registered("mean_shift", "variance_shift", 0.2, shift=0.8, dimension=50),
    "variance shift 1.6, d=2": registered("variance_shift", "hdgm", 0.1, scale=1.6),
    "variance shift 2.5, d=20": registered("variance_shift", "mean_shift", 0.3, scale=2.5, dimension=20),
    "digits 6 and 8, other shares": mixed_digits((0.6, 0, 0.4, 0), (0.4, 0, 0.6, 0)),
    "digits 6–9, other shares": mixed_digits((0.25,) * 4, (0.15, 0.35, 0.15, 0.35)),
}


def one_repeat(options: argparse.Namespace, source: str, repeat: int) -> list[dict[str, object]]:
    """Rows (source, sizes, history, method, power, recommended) of one repeat; all sizes share its histories."""
    spec = SOURCES[source]
    streams = Streams(options.seed).child(f"recommendation, {source}, repeat {repeat}")
    histories = {
        "none": None,
        "related": spec.related(streams.child("related").seed),
        "unrelated": spec.unrelated(streams.child("unrelated").seed),
    }
    without = [name for name in WITHOUT if spec.columns <= SLOW.get(name, spec.columns)]
    methods = {
        history: bound_methods(without if tasks is None else [*without, *WITH], tasks, "recommended", streams.seed)
        for history, tasks in histories.items()
    }
    rows: list[dict[str, object]] = []
    for n, m in SIZES:
        here = streams.child(f"{n} + {m}")
        sample = batch(partial(spec.target, n, m), options.tests, here)
        plain: dict[str, float] = {}
        for history, tasks in histories.items():
            check = None if tasks is None else m2st.history_check(tasks, (n, m), seed=here.seed, device="cpu")
            advice = m2st.recommend(n, m, spec.columns, n_tasks=len(tasks or ()), history=check).method
            for name, method in methods[history].items():
                if name not in plain:
                    power = rejection_rate(sample, method, options.permutations, "recommended", here)
                else:
                    power = plain[name]
                if not method.needs_meta:
                    plain[name] = power
                rows.append(
                    {
                        "source": source,
                        "sizes": f"{n} + {m}",
                        "history": history,
                        "method": name,
                        "power": power,
                        "recommended": name == advice,
                    }
                )
    return rows


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """One line per situation: the recommended method's power beside the best one's."""
    lines = []
    for (source, sizes, history), group in rows.groupby(["source", "sizes", "history"], sort=False):
        means = group.groupby("method")["power"].mean()
        advised = group[group["recommended"]]
        power = advised["power"].mean()
        lines.append(
            {
                "situation": source,
                "rows": sizes,
                "history": history,
                "recommended": " / ".join(advised["method"].unique()),
                "power": power,
                "best": means.idxmax(),
                "best power": means.max(),
                "close": power >= means.max() - CLOSE,
            }
        )
    return pd.DataFrame(lines)


def main(arguments: list[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=1, help="histories per situation")
    parser.add_argument("--tests", type=int, default=120, help="targets per repeat")
    parser.add_argument("--permutations", type=int, default=199)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sources", nargs="*", default=list(SOURCES), choices=list(SOURCES))
    parser.add_argument("--out", help="CSV of every method's power")
    options = parser.parse_args(arguments)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    began = time.perf_counter()
    rows: list[dict[str, object]] = []
    for source in options.sources:
        for repeat in range(options.repeats):
            rows += one_repeat(options, source, repeat)
        table = pd.DataFrame(rows)
        if options.out:
            table.to_csv(options.out, index=False)
    found = summary(table)
    print(f"α=0.05, {options.repeats} repeats × {options.tests} targets, seed {options.seed}, ", end="")
    print(f"{time.perf_counter() - began:.0f} s. Close: within {CLOSE} of the best of {', '.join(WITHOUT + WITH)}.\n")
    print("| " + " | ".join(found.columns) + " |")
    print("|---" * len(found.columns) + "|")
    for line in found.itertuples(index=False):
        cells = [f"{cell:.2f}" if isinstance(cell, float) else str(cell) for cell in line]
        print("| " + " | ".join(cells).replace("True", "yes").replace("False", "**no**") + " |")
    print(f"\nThe recommended method is close in {found['close'].sum()} of {len(found)} ({found['close'].mean():.0%}).")


if __name__ == "__main__":
    main()
