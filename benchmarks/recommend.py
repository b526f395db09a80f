"""Is the recommended method nearly the best one? Power of all methods in a grid of situations.

A situation is a kind of difference, two sample sizes, and a history: related tasks, unrelated ones, or none. As a user
would, every method gets all rows; those that learn from the target split them in half. All methods of a repeat see the
same samples. The recommendation sees the sizes and, where there is a history, the leave-one-task-out check of it.
"""

from __future__ import annotations

import argparse
import itertools
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import torch

import m2st_core as m2st
from benchmarks.common import batch, bound_methods
from benchmarks.kinds import LATEST_KINDS, NEW_KINDS, NEWEST_KINDS, UNSEEN_KINDS, Source
from benchmarks.transfer import digit_pairs
from m2st_core.analysis.related import unlikeness
from m2st_core.data import make_task
from m2st_core.data.images.sets import load_digits_by_class
from m2st_core.rng import Streams
from m2st_core.testing.method import Method
from m2st_core.testing.run import run_tests
from m2st_core.types import TwoSample

WITHOUT = ["MMD-M", "MMD-FUSE", "MMDAgg", "Energy", "Omnibus", "ME", "SCF", "MMD-O", "C2ST-L"]
WITH = ["Meta-FUSE", "Meta-WiTS", "Meta-Witness", "Meta-MKL", "Meta-KL"]
HISTORIES = ("none", "related", "unrelated")
SIZES = [(30, 30), (100, 100), (40, 160)]
ADVISED = "recommended"
CLOSE = 0.05  # powers within this of the best are good enough


def registered(name: str, other: str, closeness: float, **settings: float) -> Source:
    """A registered task; tasks like it are related, those of another kind, with as many columns, are not."""
    task = make_task(name, **settings)
    columns = int(settings.get("dimension", 2))
    foreign = make_task(other, **({} if other == "blobs" else {"dimension": columns}))
    return Source(
        lambda n, m, seed: task.sample(n, m, seed=seed),
        lambda seed: task.draw_related_tasks(closeness=closeness, n_tasks=20, rows=100, seed=seed),
        lambda seed: foreign.draw_related_tasks(closeness=0.1, n_tasks=20, rows=100, seed=seed),
    )


def draw_digits(shares: Sequence[float], rows: int, half: int, generator: np.random.Generator) -> torch.Tensor:
    """Images of the digits 6–9 in these shares, with replacement, from the even (0) or odd (1) images of each."""
    digits = generator.choice([6, 7, 8, 9], size=rows, p=shares)
    images = {digit: load_digits_by_class()[digit][half::2] for digit in (6, 7, 8, 9)}
    return torch.from_numpy(np.stack([images[d][generator.integers(len(images[d]))] for d in digits]))


def mixed_digits(shares_p: Sequence[float], shares_q: Sequence[float]) -> Source:
    """Images of the digits 6–9; other mixes of other such images are related, pairs of the digits 0–5 are not."""

    def target(n: int, m: int, seed: int) -> TwoSample:
        streams = Streams(seed)
        return TwoSample(
            draw_digits(shares_p, n, 1, streams.numpy("P")), draw_digits(shares_q, m, 1, streams.numpy("Q"))
        )

    def mixes(seed: int) -> dict[str, TwoSample]:
        found = {}
        for index in range(20):
            streams = Streams(seed).child(f"mix {index}")
            tilt = streams.numpy("tilt").uniform(0.5, 1.5)
            shares = (np.array(shares_p) + tilt * (np.array(shares_q) - np.array(shares_p))).clip(0)
            found[f"mix {index + 1}"] = TwoSample(
                draw_digits(shares_p, 100, 0, streams.numpy("P")),
                draw_digits(shares / shares.sum(), 100, 0, streams.numpy("Q")),
            )
        return found

    return Source(target, mixes, digit_pairs)


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
    **NEW_KINDS,
    **NEWEST_KINDS,
    **LATEST_KINDS,
    **UNSEEN_KINDS,
}


def rejections(sample: TwoSample, method: Method, permutations: int, streams: Streams) -> np.ndarray:
    """Which of the pairs are rejected at 5 %."""
    seeds = [streams.child(f"test {index}").seed for index in range(sample.x.shape[0])]
    results = run_tests(sample, method, seeds=seeds, n_permutations=permutations, device="cpu")
    return np.array([result.rejected for result in results])


def advice(tasks: dict[str, TwoSample] | None, sample: TwoSample, streams: Streams) -> list[str]:
    """The method recommended for each target."""
    n, m = sample.sizes
    if tasks is None:
        return [m2st.recommend(n, m).method] * sample.x.shape[0]
    check = m2st.check_related_tasks(tasks, (n, m), seed=streams.seed, device="cpu")
    unlike = unlikeness(tasks, (n, m), streams)
    return [
        m2st.recommend(n, m, n_tasks=len(tasks), check=replace(check, unlike=unlike(pooled))).method
        for pooled in sample.pooled.numpy()
    ]


def situations(
    options: argparse.Namespace, source: str, wanted: Sequence[tuple[int, int, str]]
) -> list[dict[str, object]]:
    """Rows (source, sizes, history, method, power) of every wanted size and history; all see the same targets."""
    spec, rows = SOURCES[source], []
    histories = list(dict.fromkeys(history for _, _, history in wanted))
    for repeat in range(options.repeats):
        streams = Streams(options.seed).child(f"recommendation, {source}, repeat {repeat}")
        tasks = {h: None if h == "none" else getattr(spec, h)(streams.child(h).seed) for h in histories}
        without = bound_methods([name for name in options.methods if name in WITHOUT], None, "recommended", 0)
        learned = [name for name in options.methods if name in WITH]
        taught = {
            h: {} if tasks[h] is None else bound_methods(learned, tasks[h], "recommended", streams.seed)
            for h in histories
        }
        for n, m in dict.fromkeys((n, m) for n, m, _ in wanted):
            here = streams.child(f"{n} + {m}")
            sample = batch(partial(spec.target, n, m), options.tests, here)
            generic = {name: rejections(sample, method, options.permutations, here) for name, method in without.items()}
            for history in (h for h in histories if (n, m, h) in wanted):
                found = generic | {
                    name: rejections(sample, method, options.permutations, here)
                    for name, method in taught[history].items()
                }
                advised = advice(tasks[history], sample, here)
                common = {"source": source, "rows": f"{n} + {m}", "history": history}
                rows += [common | {"method": name, "power": float(values.mean())} for name, values in found.items()]
                power = float(np.mean([found[name][index] for index, name in enumerate(advised)]))
                counts = pd.Series(advised).value_counts()
                words = ", ".join(f"{name} {count / len(advised):.0%}" for name, count in counts.items())
                rows.append(common | {"method": ADVISED, "power": power, "advised": words})
    return rows


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """One line per situation: the recommended method's power beside the best one's."""
    lines = []
    for (source, sizes, history), group in rows.groupby(["source", "rows", "history"], sort=False):
        means = group.groupby("method")["power"].mean()
        power, others = means[ADVISED], means.drop(ADVISED)
        names = group.loc[group["method"] == ADVISED, "advised"].iloc[0]
        lines.append(
            {
                "difference": source,
                "rows": sizes,
                "history": history,
                "recommended": names.replace(" 100%", ""),
                "power": power,
                "best": others.idxmax(),
                "best power": others.max(),
                "without tasks": others[others.index.isin(WITHOUT)].max(),
                "Omnibus": others["Omnibus"],
                "close": bool(power >= others.max() - CLOSE - 1e-9),
            }
        )
    return pd.DataFrame(lines)


def by_history(found: pd.DataFrame) -> pd.DataFrame:
    """One line per history: how far the recommendation is below the best test of a situation."""
    lines = []
    for history, group in found.groupby("history", sort=False):
        gap, harm, lost = (group[name] - group["power"] for name in ("best power", "without tasks", "Omnibus"))
        lines.append(
            {
                "history": history,
                "situations": len(group),
                f"within {CLOSE} of the best": f"{group['close'].mean():.0%}",
                "within 0.12": f"{(gap <= 0.12 + 1e-9).mean():.0%}",
                "mean gap": gap.mean(),
                "largest gap": gap.max(),
                "below the best without tasks: mean": harm.mean(),
                "largest": harm.max(),
                "below Omnibus: mean": lost.mean(),
                "at most": lost.max(),
            }
        )
    return pd.DataFrame(lines)


def show(table: pd.DataFrame) -> None:
    """Print a table as Markdown."""
    print("| " + " | ".join(table.columns) + " |")
    print("|---" * len(table.columns) + "|")
    for line in table.itertuples(index=False):
        cells = [f"{cell:.2f}" if isinstance(cell, float) else str(cell) for cell in line]
        print("| " + " | ".join(cells).replace("True", "yes").replace("False", "**no**") + " |")


def main(arguments: list[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=1, help="histories per situation")
    parser.add_argument("--tests", type=int, default=100, help="targets per repeat")
    parser.add_argument("--permutations", type=int, default=199)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sources", nargs="*", default=list(SOURCES), choices=list(SOURCES))
    parser.add_argument("--histories", nargs="*", default=list(HISTORIES), choices=HISTORIES)
    parser.add_argument("--methods", nargs="*", default=[*WITHOUT, *WITH], choices=[*WITHOUT, *WITH])
    parser.add_argument("--out", type=Path, help="CSV of every method's power; situations it has are not run again")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    began = time.perf_counter()
    table = pd.read_csv(options.out) if options.out and options.out.exists() else pd.DataFrame()
    done = set() if table.empty else set(zip(table["source"], table["rows"], table["history"], strict=True))
    for source in options.sources:
        wanted = [(n, m, h) for (n, m), h in itertools.product(SIZES, options.histories)]
        wanted = [(n, m, h) for n, m, h in wanted if (source, f"{n} + {m}", h) not in done]
        if wanted:
            table = pd.concat([table, pd.DataFrame(situations(options, source, wanted))], ignore_index=True)
        if wanted and options.out:
            table.to_csv(options.out, index=False)
    found = summary(table)
    error = 0.5 / np.sqrt(options.repeats * options.tests)
    print(
        f"α=0.05, {options.repeats} repeats × {options.tests} targets, {options.permutations} permutations, seed ",
        end="",
    )
    print(f"{options.seed}, {time.perf_counter() - began:.0f} s. Close: within {CLOSE} of the best of ", end="")
    print(f"{', '.join(options.methods)}. Standard error of a power: at most {error:.3f}.\n")
    show(found)
    print()
    show(by_history(found))


if __name__ == "__main__":
    main()
