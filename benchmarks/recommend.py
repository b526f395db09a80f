"""Is the recommended method nearly the best one? Power of all methods in a grid of situations.

A situation is a kind of difference, two sample sizes, and a history: related tasks, unrelated ones, or none. As a user
would, every method gets all rows; those that learn from the target split them in half. All methods of a repeat see the
same samples. The recommendation sees the sizes and, where there is a history, the leave-one-task-out check of it.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch

import m2st_core as m2st
from benchmarks.common import Page, batch, bound_methods, parse, rejections
from m2st_core.analysis.related import unlikeness_to_related
from m2st_core.data import make_task
from m2st_core.data.images.sources import digit_images
from m2st_core.rng import Streams
from m2st_core.types import TwoSample

TUNED = ["ME · tuned", "SCF · tuned", "MMD-O · tuned", "C2ST-L · tuned"]
WITHOUT = ["MMD-M", "MMD-FUSE", "MMDAgg", "Energy", "Omnibus", *TUNED]
WITH = ["Meta-FUSE", "Meta-WiTS", "Meta-Witness", "Meta-MKL · tuned", "Meta-KL · tuned"]
HISTORIES = ("none", "related", "unrelated")
SIZES = [(30, 30), (100, 100), (40, 160)]
ADVISED = "recommended"
CLOSE = 0.05  # powers within this of the best are good enough


class Source(NamedTuple):
    """Draws targets (rows of x, rows of y, seed) and histories of related and of unrelated tasks (seed)."""

    target: Callable[[int, int, int], TwoSample]
    related: Callable[[int], dict[str, TwoSample]]
    unrelated: Callable[[int], dict[str, TwoSample]]


Draw = Callable[[int, float, np.random.Generator], np.ndarray]
"""(rows, strength, generator) → rows; at strength 0 those of P."""


def invented(draw: Draw, columns: int, strength: float) -> Source:
    """A kind of difference made for this grid; weaker ones are related, those of a registered task are not."""

    def pair(n: int, m: int, strength: float, seed: int) -> TwoSample:
        streams = Streams(seed)
        rows = draw(n, 0.0, streams.numpy("P")), draw(m, strength, streams.numpy("Q"))
        return TwoSample(*(torch.from_numpy(np.ascontiguousarray(part, dtype=float)) for part in rows))

    def related(seed: int) -> dict[str, TwoSample]:
        streams = Streams(seed)
        weaker = strength * streams.numpy("strengths").uniform(0.5, 0.9, size=20)
        return {f"task {i + 1}": pair(100, 100, w, streams.child(f"task {i}").seed) for i, w in enumerate(weaker)}

    foreign = make_task("mean_shift", dimension=max(columns, 2))
    return Source(
        lambda n, m, seed: pair(n, m, strength, seed),
        related,
        lambda seed: foreign.draw_related_tasks(closeness=0.1, n_tasks=20, rows=100, seed=seed),
    )


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
    every = digit_images()
    images = {digit: every.rows(np.flatnonzero(every.labels == digit)[half::2]) for digit in (6, 7, 8, 9)}
    return torch.from_numpy(np.stack([images[d][generator.integers(len(images[d]))] for d in digits]))


def digit_pairs(seed: int) -> dict[str, TwoSample]:
    """All 15 pairs of the classes 0–5, 100 images of each."""
    streams = Streams(seed)
    return {
        f"{a} or {b}": make_task("digits", first=a, second=b).sample(100, seed=streams.child(f"{a}{b}").seed)
        for a, b in itertools.combinations(range(6), 2)
    }


def mixed_digits(shares_p: Sequence[float], shares_q: Sequence[float]) -> Source:
    """Images of the digits 6–9; other mixes of other such images are related, pairs of the digits 0–5 are not."""

    def target(n: int, m: int, seed: int) -> TwoSample:
        streams = Streams(seed)
        return TwoSample(
            draw_digits(shares_p, n, 1, streams.numpy("P")), draw_digits(shares_q, m, 1, streams.numpy("Q"))
        )

    def mixes(seed: int) -> dict[str, TwoSample]:
        tasks = {}
        for index in range(20):
            streams = Streams(seed).child(f"mix {index}")
            tilt = streams.numpy("tilt").uniform(0.5, 1.5)
            shares = (np.array(shares_p) + tilt * (np.array(shares_q) - np.array(shares_p))).clip(0)
            tasks[f"mix {index + 1}"] = TwoSample(
                draw_digits(shares_p, 100, 0, streams.numpy("P")),
                draw_digits(shares / shares.sum(), 100, 0, streams.numpy("Q")),
            )
        return tasks

    return Source(target, mixes, digit_pairs)


def zero_inflated(n: int, s: float, g: np.random.Generator) -> np.ndarray:
    """Four positive columns with many zeros; in Q two of them are 0 more often."""
    zero = g.uniform(size=(n, 4)) < 0.4 + s * (np.arange(4) < 2)
    return np.where(zero, 0.0, g.gamma(2.0, size=(n, 4)))


def moved_cluster(n: int, s: float, g: np.random.Generator) -> np.ndarray:
    """Five clusters in three columns; in Q one of them is elsewhere."""
    centres = 4.0 * np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1]])
    which = g.integers(5, size=n)
    return centres[which] + s * (which == 4)[:, None] + g.standard_normal((n, 3))


def upper_tail(n: int, s: float, g: np.random.Generator) -> np.ndarray:
    """Three columns; in Q values above 1 lie further out by the factor 1+s."""
    rows = g.standard_normal((n, 3))
    return np.where(rows > 1, 1 + (1 + s) * (rows - 1), rows)


def equicorrelated(n: int, s: float, g: np.random.Generator) -> np.ndarray:
    """Eight columns with variance 1; in Q every two have the correlation s."""
    return np.sqrt(1 - s) * g.standard_normal((n, 8)) + np.sqrt(s) * g.standard_normal((n, 1))


def phase(n: int, s: float, g: np.random.Generator) -> np.ndarray:
    """Twenty values of a noisy sine wave with a random phase; in Q it has a second harmonic of amplitude s."""
    turn = g.uniform(0, 2 * np.pi, size=(n, 1)) + np.linspace(0, 2 * np.pi, 20, endpoint=False)
    return np.sin(turn) + s * np.sin(2 * turn) + 0.5 * g.standard_normal((n, 20))


def ratings(n: int, s: float, g: np.random.Generator) -> np.ndarray:
    """Six answers from 1 to 5 that share a latent trait; in Q the trait spreads more by the factor 1+s."""
    latent = (1 + s) * g.standard_normal((n, 1)) + g.standard_normal((n, 6))
    return np.clip(np.round(3 + latent), 1, 5)


def circular(n: int, s: float, g: np.random.Generator) -> np.ndarray:
    """Two times of day on the unit circle, as sine and cosine; in Q the second follows the first more closely."""
    first = g.uniform(0, 2 * np.pi, size=n)
    second = np.where(g.uniform(size=n) < s, first + 0.5 * g.standard_normal(n), g.uniform(0, 2 * np.pi, size=n))
    return np.stack([np.sin(first), np.cos(first), np.sin(second), np.cos(second)], axis=1)


def censored(n: int, s: float, g: np.random.Generator) -> np.ndarray:
    """Five lognormal columns cut off below a detection limit; in Q two of them are larger by the factor e^s."""
    return np.maximum(np.exp(g.standard_normal((n, 5)) + s * (np.arange(5) < 2)), 0.7)


def composition(n: int, s: float, g: np.random.Generator) -> np.ndarray:
    """Shares of four parts that sum to 1; in Q they vary more."""
    return g.dirichlet(np.full(4, 4 / (1 + s)), size=n)


def rotated(n: int, s: float, g: np.random.Generator) -> np.ndarray:
    """An elongated cloud in three columns; in Q it is turned by s radians in the plane of the first two."""
    rows = g.standard_normal((n, 3)) * [2.0, 1.0, 1.0]
    turn = np.array([[np.cos(s), np.sin(s), 0], [-np.sin(s), np.cos(s), 0], [0, 0, 1]])
    return rows @ turn


def uneven_groups(n: int, s: float, g: np.random.Generator) -> np.ndarray:
    """Two groups of rows in ten columns; Q has a share s more of the second."""
    second = g.uniform(size=(n, 1)) < 0.3 + s
    return g.standard_normal((n, 10)) + 1.5 * second * (np.arange(10) < 4)


def skewed(n: int, s: float, g: np.random.Generator) -> np.ndarray:
    """Three columns with mean 0 and variance 1; in Q they are skewed to the right."""
    gamma = g.gamma(1 / s**2, size=(n, 3)) if s else np.zeros((n, 3))
    return s * (gamma - 1 / s**2) if s else g.standard_normal((n, 3))


KINDS = {
    # invented after Omnibus had got MMD-FUSE and robust units
    "zeros, 20 % more in 2 of 4": invented(zero_inflated, 4, 0.2),
    "one cluster of five moved": invented(moved_cluster, 3, 1.5),
    "upper tail × 1.8": invented(upper_tail, 3, 0.8),
    "correlation 0.25, d=8": invented(equicorrelated, 8, 0.25),
    "second harmonic, d=20": invented(phase, 20, 0.35),
    "ratings, trait × 1.6": invented(ratings, 6, 0.6),
    # invented after Meta-FUSE gave half of its weight to learned kernels
    "times of day, tied": invented(circular, 4, 0.35),
    "censored at a limit": invented(censored, 5, 0.45),
    "shares of four parts": invented(composition, 4, 0.7),
    "turned cloud": invented(rotated, 3, 0.45),
    "more of the second group": invented(uneven_groups, 10, 0.2),
    "skewed, same moments": invented(skewed, 3, 0.9),
}
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
    **KINDS,
}


def advice(tasks: dict[str, TwoSample] | None, sample: TwoSample, streams: Streams) -> list[str]:
    """The method recommended for each target."""
    n, m = sample.sizes
    if tasks is None:
        return [m2st.recommend(n, m).method] * sample.x.shape[0]
    check = m2st.check_related_tasks(tasks, (n, m), seed=streams.seed, device="cpu")
    unlike = unlikeness_to_related(tasks, (n, m), streams)
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
        without = bound_methods([name for name in options.methods if name in WITHOUT], None, 0)
        learned = [name for name in options.methods if name in WITH]
        taught = {h: {} if tasks[h] is None else bound_methods(learned, tasks[h], streams.seed) for h in histories}
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
    keys = ["source", "rows", "history"]
    names = rows[rows["method"] == ADVISED].groupby(keys, sort=False)["advised"].first()
    powers = rows.groupby([*keys, "method"])["power"].mean().unstack().loc[names.index]
    others = powers.drop(columns=ADVISED)
    table = pd.DataFrame(
        {
            "recommended": names.str.replace(" 100%", ""),
            "power": powers[ADVISED],
            "best": others.idxmax(axis=1),
            "best power": others.max(axis=1),
            "without tasks": others[others.columns.intersection(WITHOUT)].max(axis=1),
            "Omnibus": others["Omnibus"],
        }
    )
    close = table["power"] >= table["best power"] - CLOSE - 1e-9
    return table.assign(close=close).rename_axis(["difference", "rows", "history"]).reset_index()


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


def show(page: Page, table: pd.DataFrame) -> None:
    """Print a table as Markdown."""
    page.head(*table.columns)
    for line in table.itertuples(index=False):
        cells = [f"{cell:.2f}" if isinstance(cell, float) else str(cell) for cell in line]
        page.row(*({"True": "yes", "False": "**no**"}.get(cell, cell) for cell in cells))


def main(arguments: Sequence[str] = ()) -> None:
    """Print the tables; situations that ``--out``, a CSV of every method's power, has are not run again."""
    options = parse(
        arguments, __doc__, repeats=1, tests=100, permutations=199, seed=0, sources=SOURCES,
        histories=dict.fromkeys(HISTORIES), methods=dict.fromkeys([*WITHOUT, *WITH]), out=Path,
    )  # fmt: skip
    table = pd.read_csv(options.out) if options.out and options.out.exists() else pd.DataFrame()
    done = set() if table.empty else set(zip(table["source"], table["rows"], table["history"], strict=True))
    for source in options.sources:
        wanted = [(n, m, h) for (n, m), h in itertools.product(SIZES, options.histories)]
        wanted = [(n, m, h) for n, m, h in wanted if (source, f"{n} + {m}", h) not in done]
        if wanted:
            table = pd.concat([table, pd.DataFrame(situations(options, source, wanted))], ignore_index=True)
        if wanted and options.out:
            table.to_csv(options.out, index=False)
    page, found = Page(), summary(table)
    error = 0.5 / np.sqrt(options.repeats * options.tests)
    page.say(
        f"α=0.05, {options.repeats} repeats × {options.tests} targets, {options.permutations} permutations, seed "
        f"{options.seed}. Close: within {CLOSE} of the best of {', '.join(options.methods)}. Standard error of a "
        f"power: at most {error:.3f}.\n"
    )
    show(page, found)
    page.say("")
    show(page, by_history(found))
