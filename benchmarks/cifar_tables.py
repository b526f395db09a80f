"""The paper's tables on real CIFAR, by rows that are kept: a run that was stopped continues where it was.

``bench cifar CIFAR10.npz CIFAR100.npz --tables ROWS.csv`` computes what the file lacks, the cheapest methods first, and
prints the tables. ``bench cifar_tables ROWS.csv`` prints them from the rows alone; ``--write PAGE.md`` writes them into
a page, between its marks. More repeats or test samples add rows: no number is computed twice.
"""

from __future__ import annotations

import argparse
import csv
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.cifar import (
    Images,
    draws_of,
    fewer_steps,
    hundred_apart,
    load,
    p_values,
    related_hundred,
    related_tasks,
)
from benchmarks.common import bound_methods
from m2st_core.data.images.own import SIDE
from m2st_core.presets import PRESETS
from m2st_core.rng import Streams
from m2st_core.testing.methods import METHODS, label_of
from m2st_core.testing.run import learn_once

ROWS = Path(__file__).with_name("cifar_rows.csv")  # those of docs/cifar.md
LEVEL = 0.05
SIZES = (200, 500, 900)
FEWER = {200: 1, 500: 2, 900: 4}  # test samples are divided by this
TARGETS = ("class shift", "CIFAR-100", "null")
MARKS = ("<!-- tables: {} -->", "<!-- end of {} -->")


class Key(NamedTuple):
    """What a rejection rate belongs to. ``m_tr`` is 0 for tests without training images."""

    stage: str
    method: str
    m_tr: int
    target: str
    m_te: int
    repeat: int


@dataclass(frozen=True)
class Stage:
    """Methods that are run alike, and at most how often."""

    name: str  # of its rows; stages that share it share a table
    methods: tuple[str, ...]
    view: str = "pixels"
    related: str = "CIFAR-10"
    outer_steps: int | None = None  # of Algorithm 1 in ``paper``; None: ``recommended``
    m_tr: tuple[int, ...] = (100, 200)
    targets: tuple[str, ...] = TARGETS
    repeats: int = 10
    tests: int = 20

    def groups(self) -> list[list[str]]:
        """The methods, those that share their training together."""
        found: dict[object, list[str]] = defaultdict(list)
        for name in self.methods:
            found[METHODS[name].learn or name].append(name)
        return list(found.values())

    def columns(self, method: str) -> list[tuple[int, str, int]]:
        """m_tr, target and m_te of every number, where the images suffice."""
        used = self.m_tr if METHODS[method].needs_split else (0,)
        return [
            (m_tr, target, m_te)
            for m_tr in used
            for target in self.targets
            for m_te in (SIZES[:1] if target == "null" else SIZES)
            if not (target == "null" and m_tr == 200) and (target, m_tr, m_te) != ("class shift", 200, 900)
        ]

    def wanted(self, repeats: int, tests: int) -> Iterator[tuple[Key, int]]:
        """Every number with its test samples, method by method and repeat by repeat."""
        for method in self.methods:
            for repeat in range(min(repeats, self.repeats)):
                for m_tr, target, m_te in self.columns(method):
                    yield Key(self.name, method, m_tr, target, m_te, repeat), min(tests, self.tests) // FEWER[m_te]


LEARNED = ("Meta-Witness", "Meta-WiTS", "Feature-MKL")  # ours, but for the slow one
DEEP = (
    "Meta-KL",
    "Meta-MKL",
    "Meta-MKL-A",
    "Meta-Best1",
    "Meta-MKL-SI",
    "AGT-KL",
    "AGT-MKL",
    "AGT-MKL-A",
    "MMD-D w/ AC",
)
STAGES = (
    Stage("features", ("MMD-M", *LEARNED), view="features"),
    Stage("pixels", ("MMD-O", "SCF", "ME", "C2ST-S", "C2ST-L", "MMD-D")),
    Stage("pixels", LEARNED),
    Stage("pixels", DEEP, tests=8),
    Stage("algorithm 1", ("Meta-KL", "Meta-MKL"), outer_steps=5, m_tr=(100,), targets=TARGETS[:2], repeats=3, tests=8),
    Stage(
        "CIFAR-100", (*LEARNED, "Meta-KL", "Meta-MKL", "AGT-KL"), related="CIFAR-100", m_tr=(100,), targets=TARGETS[:2]
    ),
    Stage("features", ("Meta-FUSE",), view="features"),
    Stage("pixels", ("MMD-M", "Meta-FUSE")),
)
ROUNDS = (1, 3, 5)  # so many repeats of all stages, before the others follow


class Rows:
    """The rows of a file: how many test samples each number has, and how many of them were rejected."""

    head = (*Key._fields, "tests", "rejected", "seconds")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.counts: dict[Key, tuple[int, int]] = defaultdict(lambda: (0, 0))
        self.seconds: dict[tuple[str, str], float] = defaultdict(float)
        for row in self._read():
            self._count(Key(*row[:2], int(row[2]), row[3], *map(int, row[4:6])), *map(int, row[6:8]), float(row[8]))

    def _read(self) -> list[list[str]]:
        """Complete rows; a last one that was cut off does not count."""
        if not self.path.exists():
            return []
        lines = self.path.read_text(encoding="utf-8").splitlines(keepends=True)
        return [
            row for row in csv.reader(line for line in lines[1:] if line.endswith("\n")) if len(row) == len(self.head)
        ]

    def _count(self, key: Key, tests: int, rejected: int, seconds: float) -> None:
        before = self.counts[key]
        self.counts[key] = before[0] + tests, before[1] + rejected
        self.seconds[key.stage, key.method] += seconds

    def add(self, key: Key, tests: int, rejected: int, seconds: float) -> None:
        """Append one row to the file."""
        fresh = not self.path.exists()
        cut_off = not fresh and not self.path.read_bytes().endswith(b"\n")
        with self.path.open("a", encoding="utf-8", newline="") as file:
            file.write("\n" * cut_off)
            writer = csv.writer(file, lineterminator="\n")
            if fresh:
                writer.writerow(self.head)
            writer.writerow([*key, tests, rejected, f"{seconds:.1f}"])
        self._count(key, tests, rejected, seconds)

    def rates(self, stage: str, method: str, m_tr: int, target: str, m_te: int) -> tuple[np.ndarray, int]:
        """The rejection rate of every repeat, and how many test samples there are in all."""
        own = [count for key, count in sorted(self.counts.items()) if key[:5] == (stage, method, m_tr, target, m_te)]
        return np.array([rejected / tests for tests, rejected in own]), sum(tests for tests, _ in own)


@dataclass
class Study:
    """The images of a stage's view, and the rows that its results are added to."""

    options: argparse.Namespace
    rows: Rows

    def __post_init__(self) -> None:
        self.loaded: dict[str, tuple[Images, list[np.ndarray]]] = {}

    def images(self, stage: Stage) -> tuple[Images, list[np.ndarray]]:
        """The images for targets, and those for related tasks."""
        if stage.view not in self.loaded:
            self.loaded = {stage.view: load(self.options.cifar10, self.options.cifar100, stage.view, SIDE)}
        images, choices = self.loaded[stage.view]
        return (images, choices) if stage.related == "CIFAR-10" else hundred_apart(self.options.cifar100, images)

    def run(self, stage: Stage, group: Sequence[str], repeat: int) -> None:
        """Compute what the rows lack of one repeat of methods that share their training."""
        counts, repeats, tests = self.rows.counts, self.options.repeats, self.options.tests
        lacking = {k: n for k, n in stage.wanted(repeats, tests) if k.method in group and counts[k][0] < n}
        lacking = {key: count for key, count in lacking.items() if key.repeat == repeat}
        if not lacking:
            return
        images, choices = self.images(stage)
        preset = fewer_steps("paper" if stage.outer_steps else "recommended", stage.outer_steps)
        streams = Streams(repeat).child("cifar benchmark")
        draw_pairs = related_tasks if stage.related == "CIFAR-10" else related_hundred
        pairs = draw_pairs(images, choices, streams.numpy("related tasks"))
        began = time.process_time()
        methods = bound_methods(dict.fromkeys(key.method for key in lacking), pairs, preset, repeat)
        for (name, m_tr, target), keys in groupby(lacking, key=lambda key: key[1:4]):
            teaching, tested = images.split(m_tr or 100, streams.numpy("training images"))
            train = teaching.draw(target, m_tr or 100, streams.numpy(f"train {target}"))
            learned = learn_once(methods[name], train, repeat, PRESETS[preset])
            for key in keys:
                here = streams.child(f"{target} {key.m_te}")
                numbers = range(counts[key][0], lacking[key])
                p = p_values(draws_of(tested, target, key.m_te, here), learned, numbers, here, preset)
                self.rows.add(key, len(p), int((p <= LEVEL).sum()), time.process_time() - began)
                began = time.process_time()


def run_tables(options: argparse.Namespace) -> None:
    """Compute what the rows lack, then print the tables."""
    rows = Rows(Path(options.tables))
    study = Study(options, rows)
    chosen = [stage for stage in STAGES if not options.stages or stage.name in options.stages]
    for end in (*(end for end in ROUNDS if end < options.repeats), options.repeats):
        for stage in chosen:
            for group in stage.groups():
                for repeat in range(min(end, stage.repeats)):
                    study.run(stage, group, repeat)
                    print(f"{stage.name}: {', '.join(group)}, repeat {repeat}", flush=True)
    print("\n" + "\n\n".join(tables(rows).values()))


SECTIONS = {  # of the tables: words, the stage's name, and the methods
    "pixels, no history": ("pixels", ("ME", "SCF", "C2ST-S", "C2ST-L", "MMD-O", "MMD-D", "MMD-M")),
    "pixels, the paper's": ("pixels", DEEP),
    "pixels, `paper` with 5 steps": ("algorithm 1", ("Meta-KL", "Meta-MKL")),
    "pixels, ours": ("pixels", (*LEARNED, "Meta-FUSE")),
    "features, no history": ("features", ("MMD-M",)),
    "features, ours": ("features", (*LEARNED, "Meta-FUSE")),
}
VIA_HUNDRED = {
    "the paper's": ("CIFAR-100", ("Meta-KL", "Meta-MKL", "AGT-KL")),
    "ours": ("CIFAR-100", LEARNED),
}
BOTH = [(m_tr, m_te) for m_tr in (100, 200) for m_te in SIZES]


def tables(rows: Rows) -> dict[str, str]:
    """The tables in Markdown, by name."""
    return {
        "CIFAR-100": _table(rows, SECTIONS, "CIFAR-100", BOTH),
        "class shift": _table(rows, SECTIONS, "class shift", BOTH[:-1]),
        "null": _table(rows, SECTIONS, "null", BOTH[:1]),
        "CIFAR-100 via CIFAR-100": _table(rows, VIA_HUNDRED, "CIFAR-100", BOTH[:3]),
        "class shift via CIFAR-100": _table(rows, VIA_HUNDRED, "class shift", BOTH[:3]),
    }


def _table(
    rows: Rows, sections: Mapping[str, tuple[str, Sequence[str]]], target: str, columns: Sequence[tuple[int, int]]
) -> str:
    """Power of the methods that have rows: mean ± standard error between repeats, for a single one the binomial."""
    head = ["", "", *(f"m_tr={m_tr}, m_te={m_te}" for m_tr, m_te in columns), "repeats × tests"]
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    for words, (stage, methods) in sections.items():
        for method in methods:
            splits = METHODS[method].needs_split
            found = [rows.rates(stage, method, m_tr if splits else 0, target, m_te) for m_tr, m_te in columns]
            if not any(len(rates) for rates, _ in found):
                continue
            cells = [
                "=" if m_tr == 200 and not splits else _cell(*own)
                for (m_tr, _), own in zip(columns, found, strict=True)
            ]
            counts = [len(rates) for rates, _ in found if len(rates)]
            tests = "/".join(f"{total // len(rates)}" for rates, total in found[: len(SIZES)] if len(rates))
            repeats = f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)}–{max(counts)}"
            lines.append("| " + " | ".join([words, label_of(method), *cells, f"{repeats} × {tests}"]) + " |")
    return "\n".join(lines)


def _cell(rates: np.ndarray, tests: int) -> str:
    """Mean ± standard error; a single repeat has the binomial one, with one more rejection and acceptance."""
    if not len(rates):
        return "–"
    mean = float(rates.mean())
    near = (mean * tests + 1) / (tests + 2)
    error = float(rates.std(ddof=1) / len(rates) ** 0.5) if len(rates) > 1 else (near * (1 - near) / (tests + 2)) ** 0.5
    return f"{mean:.2f} ± {error:.2f}"


def write_tables(page: Path, found: Mapping[str, str]) -> None:
    """Put every table between its marks in a page."""
    text = page.read_text(encoding="utf-8")
    for name, table in found.items():
        before, after = (mark.format(name) for mark in MARKS)
        if text.count(before) != 1 or text.count(after) != 1:
            raise ValueError(f"{page} must have the marks {before} and {after} once.")
        text = text[: text.index(before)] + f"{before}\n\n{table}\n\n" + text[text.index(after) :]
    page.write_text(text, encoding="utf-8")


def main(arguments: Sequence[str] = ()) -> None:
    """Print the tables of a file of rows, or write them into a page."""
    parser = argparse.ArgumentParser(prog="m2st_core bench cifar_tables", description=__doc__)
    parser.add_argument("rows", nargs="?", default=str(ROWS), help="the .csv of `bench cifar … --tables`")
    parser.add_argument("--write", help="a page with the marks of the tables")
    options = parser.parse_args(arguments)
    found = tables(Rows(Path(options.rows)))
    if options.write:
        write_tables(Path(options.write), found)
    else:
        print("\n\n".join(found.values()))


if __name__ == "__main__":
    main()
