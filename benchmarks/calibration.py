"""Does every test keep its level? Rejection rates at α=0.05 over many independent null runs, as Markdown tables.

A rate is inside the band if a binomial with p=0.05 gives it with 99 % probability; of a hundred cells about one may
fall outside by chance. B=99, so an exact p-value of at most 0.05 has probability exactly 0.05. ``--runs`` are null runs
per cell.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import m2st_core as m2st
from benchmarks.common import ALPHA, Page, bound_methods, p_values, parse, stacked
from m2st_core.analysis.related import unlikeness_to_related
from m2st_core.data.arrays import as_blocks
from m2st_core.numbers import null_band
from m2st_core.presets import PAPER, TUNED
from m2st_core.rng import Streams
from m2st_core.testing.method import Method
from m2st_core.types import TwoSample

N_PERMUTATIONS, AT_ONCE = 99, 250
LEARNERS, TASKS, ROWS = 10, 8, 40
SIZES = ((16, 16), (12, 40))

Draw = Callable[[int, int, int], TwoSample]
"""(n, m, seed) → two samples of one distribution."""
History = Callable[[int], dict[str, TwoSample]]
Levels = Iterator[Sequence[str]]
"""Rows of a table, which end with the rate and the verdict."""


def hdgm(n: int, m: int, seed: int) -> TwoSample:
    """HDGM's P, twice."""
    return m2st.make_task("hdgm", null=True).sample(n, m, seed=seed)


def _twice(draw: Callable[[int, np.random.Generator], np.ndarray]) -> Draw:
    def pair(n: int, m: int, seed: int) -> TwoSample:
        rows = torch.from_numpy(draw(n + m, Streams(seed).numpy("null rows")))
        return TwoSample(rows[:n], rows[n:])

    return pair


HEAVY_TAILS = _twice(lambda count, g: g.standard_t(1.5, size=(count, 2)))
SHAPES = {  # null, with its sizes
    "lognormal, rounded": (_twice(lambda count, g: np.round(np.exp(g.standard_normal((count, 3))), 1)), 40, 40),
    "heavy ties": (_twice(lambda count, g: g.integers(0, 3, size=(count, 2)).astype(float)), 30, 30),
    "correlated, d=20": (_twice(lambda count, g: g.normal(size=(count, 20)) + 2 * g.normal(size=(count, 1))), 30, 30),
    "Student t, 1.5 d.f.": (HEAVY_TAILS, 12, 90),
}
NULLS = {"HDGM": hdgm, "Student t, 1.5 d.f.": HEAVY_TAILS}


def null_rejections(
    method: Method, draw: Draw, n: int, m: int, runs: int, stream: str = "level", blocks: Any = None
) -> int:
    """The number of rejections among ``runs`` null pairs, which share the blocks."""
    settings = "paper" if method.preset is PAPER else "recommended"  # a part of the stream's name
    streams = Streams(0).child(f"{stream}, {method.algorithm or method.name}, {n}, {m}, {settings}")
    rejected = 0
    for start in range(0, runs, AT_ONCE):
        children = [streams.child(f"run {index}") for index in range(start, min(start + AT_ONCE, runs))]
        sample = stacked([draw(n, m, child.seed) for child in children], blocks=blocks)
        seeds = [child.child("test").seed for child in children]
        rejected += int((p_values(sample, method, seeds, N_PERMUTATIONS) <= ALPHA).sum())
    return rejected


def cells(rejected: int, runs: int) -> tuple[str, str]:
    """The last two cells of a row: the rate, and whether it is inside, below or above the band."""
    rate, (low, high) = rejected / runs, null_band(ALPHA, runs)
    return f"{rate:.4f}", "inside" if low <= rate <= high else "**above**" if rate > high else "below"


# Tests without related tasks


def plain_levels(runs: int) -> Levels:
    """Yield the level of each method that learns from the target at most."""
    for name, method in m2st.METHODS.items():
        if method.uses_related_tasks or method.preset is not TUNED:
            continue
        for null, draw in NULLS.items():
            for n, m in ((30, 30), (20, 40), (6, 15)) if method.by_permutation else ((200, 200), (200, 300)):
                yield name, null, f"{n}, {m}", *cells(null_rejections(method, draw, n, m, runs), runs)


def shape_levels(runs: int) -> Levels:
    """Yield the level of the tests of many kernels on rows with ties, long tails or correlation."""
    for name in ("MMD-FUSE", "MMDAgg", "Energy", "Omnibus"):
        for null, (draw, n, m) in SHAPES.items():
            rejected = null_rejections(m2st.METHODS[name], draw, n, m, runs, stream=f"level, {null}")
            yield name, null, f"{n}, {m}", *cells(rejected, runs)


def few_rows(runs: int) -> Levels:
    """Yield the level of ME and SCF by size, with both reference distributions."""
    for name in ("ME", "SCF"):
        for line, reference in ((f"{name} · tuned", "F"), (name, "χ²")):
            for n in (30, 60, 100, 200):
                rejected = null_rejections(m2st.METHODS[line], hdgm, n, n, runs)
                yield line, reference, f"{n} ({n // 2})", *cells(rejected, runs)


# Tests that learn from related tasks, given what they have learned


def related(seed: int) -> dict[str, TwoSample]:
    """HDGM with C=0.3."""
    return m2st.hdgm_related_tasks(0.3, TASKS, ROWS, seed=seed)


def unchanged(draw: Draw) -> History:
    """Tasks whose samples are drawn in the same way."""
    return lambda seed: {f"task {index}": draw(ROWS, ROWS, TASKS * seed + index) for index in range(TASKS)}


def changed(draw: Draw) -> History:
    """The same with a stretched first and a shifted second column of Q."""

    def change(pair: TwoSample) -> TwoSample:
        y = pair.y.clone()
        y[:, 0] *= 1.6
        y[:, 1] += 0.5
        return TwoSample(pair.x, y)

    return lambda seed: {name: change(pair) for name, pair in unchanged(draw)(seed).items()}


def histories(like: History, null: Draw, few: Draw) -> dict[str, History]:
    """Histories of each kind, from one of related tasks and draws without a difference and of few rows."""
    columns = null(2, 2, 0).x.shape[1]

    def unrelated(seed: int) -> dict[str, TwoSample]:
        task = m2st.make_task("variance_shift", scale=2.0, dimension=columns)
        return dict(task.draw_related_tasks(closeness=0.1, n_tasks=TASKS, rows=ROWS, seed=seed))

    def exchanged(seed: int) -> dict[str, TwoSample]:
        return {name: pair.swapped() if index % 2 else pair for index, (name, pair) in enumerate(like(seed).items())}

    def tiny(seed: int) -> dict[str, TwoSample]:
        return {"first": few(4, 5, 2 * seed), "second": few(6, 4, 2 * seed + 1)}

    return {"related": like, "unrelated": unrelated, "exchanged": exchanged, "tiny": tiny, "null": unchanged(null)}


HISTORIES = histories(related, hdgm, lambda n, m, seed: m2st.make_task("hdgm", delta=0.4).sample(n, m, seed=seed))
HISTORY_WORDS = {
    "related": f"HDGM, C=0.3, {TASKS} tasks of {ROWS} rows per sample",
    "unrelated": "variance shifts, as many",
    "exchanged": "the related ones, P and Q exchanged in half of them",
    "tiny": "two tasks of four to six rows",
    "null": "tasks whose samples do not differ",
}


def learned(names: Sequence[str], history: History) -> list[dict[str, Method]]:
    """Methods after learning, from ten histories."""
    return [bound_methods(names, history(seed), seed) for seed in range(LEARNERS)]


def learned_rejections(
    ready: Sequence[dict[str, Method]], name: str, draw: Draw, n: int, m: int, runs: int, stream: str
) -> tuple[list[int], int]:
    """Rejections of a method with each of its learners, and the runs of each."""
    each = max(1, runs // LEARNERS)
    counts = [
        null_rejections(methods[name], draw, n, m, each, stream=f"{stream}, learner {seed}")
        for seed, methods in enumerate(ready)
    ]
    return counts, each


def meta_levels(runs: int) -> Levels:
    """Yield the level of each method with each kind of history, at small and unequal sizes."""
    names = [name for name, method in m2st.METHODS.items() if method.uses_related_tasks and method.preset is TUNED]
    for kind, history in HISTORIES.items():
        ready = learned(names, history)
        for name in names:
            least = m2st.METHODS[name].min_test_rows
            for n, m in SIZES if least <= min(map(min, SIZES)) else ((least, least), (least, 3 * least)):
                counts, each = learned_rejections(ready, name, hdgm, n, m, runs, kind)
                spread = f"{min(counts) / each:.3f} to {max(counts) / each:.3f}"
                yield name, kind, f"{n}, {m}", spread, *cells(sum(counts), each * LEARNERS)


def learned_shape_levels(runs: int) -> Levels:
    """Yield the level of our own tests on rows that are not HDGM's, with each kind of history."""
    names = [name for name, method in m2st.METHODS.items() if method.uses_related_tasks and method.origin == "ours"]
    for null, (draw, n, m) in SHAPES.items():
        for kind, history in histories(changed(draw), draw, draw).items():
            ready = learned(names, history)
            for name in names:
                counts, each = learned_rejections(ready, name, draw, n, m, runs, f"{null}, {kind}")
                yield name, null, kind, f"{n}, {m}", *cells(sum(counts), each * LEARNERS)


# Other ways to a p-value


def blocks(runs: int) -> Levels:
    """Two blocks whose means differ by 2; x has three quarters of its rows in the first, y a third."""
    n, m = 24, 24
    labels = np.repeat([0, 1], [18, 6]), np.repeat([0, 1], [8, 16])
    coded = as_blocks(labels, (n, m))

    def draw(n: int, m: int, seed: int) -> TwoSample:
        pairs = zip(hdgm(n, m, seed), labels, strict=True)
        return TwoSample(*(rows + 2.0 * rows.new_tensor(part)[:, None] for rows, part in pairs))

    names = ["MMD-M", "MMD-FUSE", "MMD-O · tuned", "Meta-FUSE", "Meta-WiTS"]
    for name, method in bound_methods(names, related(0), 0).items():
        yield "blocks", name, f"{n}, {m}", *cells(null_rejections(method, draw, n, m, runs, blocks=coded), runs)


def recommendations(runs: int) -> Levels:
    """The choice from sizes, pooled rows and the check of the history, then the chosen test on the same rows."""
    n, m = 30, 60
    each = max(1, runs // LEARNERS)
    for kind in ("related", "unrelated"):
        rejected, chosen = 0, set()
        for seed in range(LEARNERS):
            tasks, streams = HISTORIES[kind](seed), Streams(seed).child(f"recommendation, {kind}")
            check = m2st.check_related_tasks(tasks, (n, m), repeats=4, seed=seed, device="cpu")
            unlike = unlikeness_to_related(tasks, (n, m), streams)
            learner = m2st.meta_train("Meta-FUSE", tasks, seed=seed, device="cpu")
            for index in range(each):
                target = streams.child(f"target {index}")
                x, y = hdgm(n, m, target.seed)
                known = replace(check, unlike=unlike(np.concatenate([x, y])))
                name = m2st.recommend(n, m, n_tasks=len(tasks), check=known).method
                chosen.add(name)
                test = learner.test if name == learner.method else partial(m2st.two_sample_test, method=name)
                rejected += test(x, y, n_permutations=N_PERMUTATIONS, seed=target.seed, device="cpu").rejected
        yield f"recommend, {kind} history", " or ".join(sorted(chosen)), f"{n}, {m}", *cells(rejected, each * LEARNERS)


def path_levels(runs: int) -> Levels:
    """Yield the levels with blocks and of recommended tests."""
    yield from blocks(runs)
    yield from recommendations(runs)


@dataclass(frozen=True)
class Section:
    """A table."""

    title: str
    head: Sequence[str]
    rows: Callable[[int], Levels]
    words: Sequence[str] = ()


SIZE = "rows n, m per sample"
SECTIONS = {
    "plain": Section("Tests without related tasks", ("method", "null", SIZE), plain_levels),
    "shapes": Section("Many kernels on other kinds of rows", ("method", "null", SIZE), shape_levels),
    "few": Section(
        "ME and SCF with few rows",
        ("method", "reference", "rows n=m per sample (tested)"),
        few_rows,
        (
            "Their p-values are asymptotic. Tuned lines refer the statistic to Hotelling's F, the paper's to χ². With",
            "few rows χ² rejects far too often, which is why the tuned lines do not use it.",
        ),
    ),
    "meta": Section(
        "Tests that learn from related tasks",
        ("method", "history", SIZE, "between learners"),
        meta_levels,
        (
            f"The level given what was learned: {LEARNERS} learners, each trained on its own set of related tasks, and",
            "equally many null targets (HDGM's P, twice) with each. “Between learners” is the lowest and the highest",
            "of their rates. The sets of related tasks are called histories:",
            *(f"- {name}: {words}" for name, words in HISTORY_WORDS.items()),
        ),
    ),
    "learned": Section(
        "Learned features on other kinds of rows",
        ("method", "null", "history", SIZE),
        learned_shape_levels,
        (
            f"{LEARNERS} learners in each cell. Related tasks are drawn like the null, with a stretched first and a",
            "shifted second column in Q; the other kinds of history are as above.",
        ),
    ),
    "paths": Section(
        "Other ways to a p-value",
        ("path", "method", SIZE),
        path_levels,
        (
            "[uploads.md](uploads.md) has files and analyses, [splits.md](splits.md) several splits, and",
            "[shared_rows.md](shared_rows.md) a control group that the related tasks have too.",
        ),
    ),
}


def main(arguments: Sequence[str] = ()) -> None:
    """Run the study; write the tables where --out says."""
    options = parse(arguments, __doc__, runs=1000, sections=SECTIONS, out=Path)
    low, high = null_band(ALPHA, options.runs)
    page = Page(options.out)
    page.say(
        "# Type-I error of every test",
        "",
        f"{options.runs:,} independent null runs per cell, α=0.05, B={N_PERMUTATIONS}, the paper's tests tuned. A test",
        f"that learns from its target learns from half of the rows. 99 % band [{low:.3f}, {high:.3f}]. “Below” costs",
        "power and is not an error. Made by `python -m m2st_core bench calibration --out docs/calibration.md`.",
    )
    for name in options.sections:
        section, began = SECTIONS[name], time.perf_counter()
        page.say("", f"## {section.title}", "", *section.words, *([""] if section.words else []))
        page.head(*section.head, "rejection rate", "99 % band")
        for row in section.rows(options.runs):
            page.row(*row)
        print(f"{name}: {time.perf_counter() - began:.0f} s")
