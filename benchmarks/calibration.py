"""Does every test keep its level? Rejection rates at α=0.05 over many independent null runs, as Markdown tables.

A rate is inside the band if a binomial with p=0.05 gives it with 99 % probability; of a hundred cells about one may
fall outside by chance. B=99, so an exact p-value of at most 0.05 has probability exactly 0.05. A section is a function
that yields the rows of its table; ``SECTIONS`` lists all of them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import m2st_core as m2st
from benchmarks.calibration_meta import HISTORIES, LEARNERS, meta_levels, selective_levels
from benchmarks.calibration_meta import shape_levels as learned_shape_levels
from benchmarks.calibration_paths import path_levels
from benchmarks.levels import HDGM_NULL, N_PERMUTATIONS, NULLS, SHAPES, Section, band, cells, null_rejections

SECTIONS = {
    "plain": Section(
        "Tests without related tasks",
        (),
        ("method", "null", "rows n, m per sample"),
        lambda runs: plain_levels(runs),
    ),
    "shapes": Section(
        "Many kernels on other kinds of rows",
        (),
        ("method", "null", "rows n, m per sample"),
        lambda runs: shape_levels(runs),
    ),
    "few": Section(
        "ME and SCF with few rows",
        (
            "Their p-values are asymptotic. `recommended` refers the statistic to Hotelling's F, `paper` to χ². With",
            "few rows χ² rejects far too often, which is why `recommended` does not use it.",
        ),
        ("method", "reference", "rows n=m per sample (tested)"),
        lambda runs: few_rows(runs),
    ),
    "meta": Section(
        "Tests that learn from related tasks",
        (
            f"The level given what was learned: {LEARNERS} learners, each trained on its own set of related tasks, and",
            "equally many null targets (HDGM's P, twice) with each. “Between learners” is the lowest and the highest",
            "of their rates. The sets of related tasks are called histories:",
            *(f"- {name}: {words}" for name, (words, _) in HISTORIES.items()),
        ),
        ("method", "history", "rows n, m per sample", "between learners"),
        meta_levels,
    ),
    "learned": Section(
        "Learned features on other kinds of rows",
        (
            f"{LEARNERS} learners in each cell. Related tasks are drawn like the null, with a stretched first and a",
            "shifted second column in Q; the other kinds of history are as above.",
        ),
        ("method", "null", "history", "rows n, m per sample"),
        learned_shape_levels,
    ),
    "selective": Section(
        "Meta-MKL-SI by size",
        (
            "Its p-value is asymptotic: it pairs the rows of the smaller sample, so 12 rows give 6 terms for up to 11",
            "kernels. Sizes in brackets are below its minimum and are refused: there it rejects too often.",
        ),
        ("null, history", "rows n, m per sample"),
        selective_levels,
    ),
    "paths": Section(
        "Every way to a p-value",
        ("The primary test alone, which decides. [uploads.md](uploads.md) also has the secondary tests.",),
        ("path", "method", "rows n, m per sample"),
        path_levels,
    ),
}


def plain_levels(runs: int) -> Iterator[Sequence[str]]:
    """Yield the level of each method that learns from the target at most."""
    for name, method in m2st.METHODS.items():
        if method.uses_related_tasks:
            continue
        sizes = ((30, 30), (20, 40), (6, 15)) if method.by_permutation else ((200, 200), (200, 300))
        for null, draw in NULLS.items():
            for n, m in sizes:
                found = null_rejections(method, draw, n, m, runs)
                yield name, null, f"{n}, {m}", *cells(found, runs)


def shape_levels(runs: int) -> Iterator[Sequence[str]]:
    """Yield the level of the tests of many kernels on rows with ties, long tails or correlation."""
    for name in ("MMD-FUSE", "MMDAgg", "Energy", "Omnibus"):
        for null, (draw, n, m) in SHAPES.items():
            found = null_rejections(m2st.METHODS[name], draw, n, m, runs, stream=f"level, {null}")
            yield name, null, f"{n}, {m}", *cells(found, runs)


def few_rows(runs: int) -> Iterator[Sequence[str]]:
    """Yield the level of ME and SCF by size, with both reference distributions."""
    for name in ("ME", "SCF"):
        for preset, reference in (("recommended", "F"), ("paper", "χ² (`paper`)")):
            for n in (30, 60, 100, 200):
                found = null_rejections(m2st.METHODS[name], HDGM_NULL, n, n, runs, preset)
                yield name, reference, f"{n} ({n // 2})", *cells(found, runs)


def main(arguments: Sequence[str] = ()) -> None:
    """Run the study; write the tables where --out says."""
    parser = argparse.ArgumentParser(prog="m2st_core bench calibration", description=__doc__)
    parser.add_argument("--runs", type=int, default=1000, help="null runs per cell")
    parser.add_argument("--sections", nargs="*", choices=list(SECTIONS), default=list(SECTIONS))
    parser.add_argument("--out", type=Path, help="write the Markdown tables to this file too")
    options = parser.parse_args(arguments)
    low, high = band(options.runs)
    lines: list[str] = []

    def say(*more: str) -> None:
        print("\n".join(more), flush=True)
        lines.extend(more)

    say("# Type-I error of every test", "")
    say(f"{options.runs:,} independent null runs per cell, α=0.05, B={N_PERMUTATIONS}, preset `recommended`. A test")
    say(f"that learns from its target learns from half of the rows. 99 % band [{low:.3f}, {high:.3f}]. “Below” costs")
    say("power and is not an error. Made by `python -m m2st_core bench calibration --out docs/calibration.md`.")
    for name in options.sections:
        section, began = SECTIONS[name], time.perf_counter()
        say("", f"## {section.title}", "", *section.words, *([""] if section.words else []))
        say("| " + " | ".join((*section.head, "rejection rate", "99 % band")) + " |")
        say("|---" * (len(section.head) + 2) + "|")
        for row in section.rows(options.runs):
            say("| " + " | ".join(row) + " |")
        print(f"{name}: {time.perf_counter() - began:.0f} s")
    if options.out:
        options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
