"""Power on real images: CIFAR-10's class pairs as related tasks, targets whose images are in no related task.

Half of CIFAR-10's images are for choices: settings were tried on them, and every repeat takes its related tasks, 45
pairs of classes with 100 images of each class, from them. Targets are drawn from the other half: CIFAR-10 against
CIFAR-100, a shift of the classes inside CIFAR-10 (animals are 60 % of P and 80 % of Q), and CIFAR-10 against itself.
Each repeat trains once, learns from one training sample of every target, and tests many samples of the images that are
left.

Results are rows of a file, and a run that was stopped continues where it was. With two files of images (.npz with x,
bytes (n, 32, 32, 3), and of CIFAR-10 with y, the classes) what the rows lack is computed, the cheapest methods first.
Then the tables are printed, or written between their marks in the page of ``--write``. More repeats or test samples add
rows: no number is computed twice.
"""

from __future__ import annotations

import argparse
import csv
import re
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from benchmarks.common import ALPHA, bound_methods, fill_page, markdown, p_values, parse, stacked
from m2st_core.data.images.features import extractor, image_features
from m2st_core.data.images.files import SIDE
from m2st_core.rng import Streams
from m2st_core.testing.method import Method
from m2st_core.testing.methods import METHODS, label_of
from m2st_core.testing.run import learn_once
from m2st_core.types import Shape, TwoSample

ROWS = Path(__file__).with_name("cifar_rows.csv")  # those of docs/cifar.md
PER_CLASS, CHOICES = 100, 250  # images of each class in a related task; in the half for choices
PAIRS = 100  # related tasks of CIFAR-100's classes
ANIMALS = (2, 3, 4, 5, 6, 7)
AT_ONCE = 10  # test samples in memory
SIZES, NULL_SIZE = (200, 500, 900), 200
FEWER = {500: 2, 900: 4}  # large test samples are fewer by these factors
TARGETS = ("class shift", "CIFAR-100", "null")


@dataclass(frozen=True)
class Images:
    """Rows of CIFAR-10 and of CIFAR-100, and which of them targets may be drawn from."""

    ten: Tensor
    hundred: Tensor
    shape: Shape | None
    animals: np.ndarray
    others: np.ndarray
    any100: np.ndarray

    def split(self, count: int, generator: np.random.Generator) -> tuple[Images, Images]:
        """The images of a training sample of every target, and all others."""
        sizes = (round(1.6 * count), count, count)
        kinds = zip((self.animals, self.others, self.any100), sizes, strict=True)
        dealt = [np.split(generator.permutation(kind), [size]) for kind, size in kinds]
        some, rest = ([parts[side] for parts in dealt] for side in (0, 1))
        return Images(self.ten, self.hundred, self.shape, *some), Images(self.ten, self.hundred, self.shape, *rest)

    def draw(self, target: str, m: int, generator: np.random.Generator) -> TwoSample:
        """P and Q of a target, m images each, none twice."""
        animals, others = generator.permutation(self.animals), generator.permutation(self.others)
        share = 0.8 if target == "class shift" else 0.6
        in_p, in_q = generator.binomial(m, 0.6), generator.binomial(m, share)
        wanted = [in_p] if target == "CIFAR-100" else [in_p, in_q]
        if sum(wanted) > len(animals) or m * len(wanted) - sum(wanted) > len(others):
            raise ValueError(f"{target}, m={m}: {len(animals)} animals and {len(others)} others are too few.")
        p = self.ten[np.concatenate([animals[:in_p], others[: m - in_p]])]
        if target == "CIFAR-100":
            return TwoSample(p, self.hundred[generator.choice(self.any100, m, replace=False)], self.shape)
        q = self.ten[np.concatenate([animals[in_p : in_p + in_q], others[m - in_p : m - in_p + m - in_q]])]
        return TwoSample(p, q, self.shape)


def load(cifar10: str, cifar100: str, view: str) -> tuple[Images, list[np.ndarray]]:
    """The images that targets are drawn from, and the images of each class for related tasks and choices."""
    with np.load(cifar10) as first, np.load(cifar100) as second:
        pixels, labels = (first["x"], second["x"]), first["y"]
    shape = (3, 32, 32) if view == "pixels" else None
    ten, hundred = (
        torch.from_numpy(images.transpose(0, 3, 1, 2).reshape(len(images), -1) / np.float32(255))
        if shape
        else torch.from_numpy(image_features(images, extractor(side=SIDE)).astype(np.float64))
        for images in pixels
    )
    order = np.random.default_rng(123).permutation(len(labels))  # the half that choices were made on
    classes = [order[labels[order] == c] for c in range(10)]
    fresh = [positions[CHOICES:] for positions in classes]
    animals = np.concatenate([fresh[c] for c in ANIMALS])
    others = np.concatenate([fresh[c] for c in range(10) if c not in ANIMALS])
    images = Images(ten, hundred, shape, animals, others, np.arange(len(hundred)))
    return images, [positions[:CHOICES] for positions in classes]


def hundred_apart(cifar100: str, images: Images) -> tuple[Images, list[np.ndarray]]:
    """The same with half of CIFAR-100's images of each class set apart for related tasks, and those images."""
    with np.load(cifar100) as second:
        labels = second["y"]
    order = np.random.default_rng(123).permutation(len(labels))
    halves = [np.array_split(order[labels[order] == c], 2) for c in np.unique(labels)]
    return replace(images, any100=np.concatenate([rest for _, rest in halves])), [first for first, _ in halves]


def related_hundred(images: Images, apart: list[np.ndarray], generator: np.random.Generator) -> dict[str, TwoSample]:
    """100 random pairs of CIFAR-100's classes, with the images set apart."""
    every = list(combinations(range(len(apart)), 2))
    pairs = [every[index] for index in generator.choice(len(every), PAIRS, replace=False)]
    rows = images.hundred
    return {f"{a} or {b}": TwoSample(rows[apart[a]], rows[apart[b]], images.shape) for a, b in pairs}


def related_tasks(images: Images, choices: list[np.ndarray], generator: np.random.Generator) -> dict[str, TwoSample]:
    """Pairs of classes, with 100 images of each class."""
    dealt = [generator.permutation(positions)[:PER_CLASS] for positions in choices]
    pairs = combinations(range(10), 2)
    return {f"{a} or {b}": TwoSample(images.ten[dealt[a]], images.ten[dealt[b]], images.shape) for a, b in pairs}


def rejections(images: Images, target: str, m: int, method: Method, tests: range, streams: Streams) -> int:
    """The number of rejections among a target's test samples with these numbers."""
    count = 0
    for start in range(tests.start, tests.stop, AT_ONCE):
        numbers = range(start, min(start + AT_ONCE, tests.stop))
        sample = stacked([images.draw(target, m, streams.numpy(f"set {number}")) for number in numbers])
        seeds = [streams.child(f"test {number}").seed for number in numbers]
        count += int((p_values(sample, method, seeds, 99) <= ALPHA).sum())
    return count


def use_fewer_steps(names: Sequence[str], outer_steps: int) -> None:
    """Give these methods so many steps of Algorithm 1 on images."""
    for name in names:
        method = METHODS[name]
        ascent = replace(method.preset.images.meta_kl, outer_steps=outer_steps)
        preset = replace(method.preset, images=replace(method.preset.images, meta_kl=ascent))
        METHODS[name] = replace(method, preset=preset)


class Key(NamedTuple):
    """The setting of a rejection rate. ``m_tr`` is 0 for tests without training images."""

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
    outer_steps: int | None = None  # of Algorithm 1; None: as the methods have it
    m_tr: tuple[int, ...] = (100, 200)
    targets: tuple[str, ...] = TARGETS
    repeats: int = 10
    tests: int | None = None  # None: as many as asked for

    def groups(self) -> list[list[str]]:
        """The methods, those that share their training together."""
        groups: dict[object, list[str]] = defaultdict(list)
        for name in self.methods:
            groups[METHODS[name].training or name].append(name)
        return list(groups.values())

    def columns(self, method: str, sizes: Sequence[int] = SIZES) -> list[tuple[int, str, int]]:
        """m_tr, target and m_te of every number, where the images suffice."""
        used = self.m_tr if METHODS[method].needs_split else (0,)
        return [
            (m_tr, target, m_te)
            for m_tr in used
            for target in self.targets
            for m_te in ((NULL_SIZE,) if target == "null" else sizes)
            if not (target == "null" and m_tr == 200) and (target, m_tr, m_te) != ("class shift", 200, 900)
        ]

    def wanted(self, repeats: int, tests: int, sizes: Sequence[int]) -> Iterator[tuple[Key, int]]:
        """Every number with its test samples, method by method and repeat by repeat."""
        for method in self.methods:
            for repeat in range(min(repeats, self.repeats)):
                for m_tr, target, m_te in self.columns(method, sizes):
                    yield (
                        Key(self.name, method, m_tr, target, m_te, repeat),
                        min(tests, self.tests or tests) // FEWER.get(m_te, 1),
                    )


LEARNED = ("Meta-Witness", "Meta-WiTS", "Feature-MKL")  # ours, but for the slow one
TRANSFERRED = ("Meta-KL · tuned", "Meta-MKL · tuned", "AGT-KL · tuned")  # also taught by CIFAR-100
DEEP = (
    "Meta-KL · tuned", "Meta-MKL · tuned", "Meta-MKL-A · tuned", "Meta-Best1 · tuned", "Meta-MKL-SI · tuned",
    "AGT-KL · tuned", "AGT-MKL · tuned", "AGT-MKL-A · tuned", "MMD-D w/ AC · tuned",
)  # fmt: skip
STAGES = (
    Stage("features", ("MMD-M", *LEARNED), view="features"),
    Stage(
        "pixels", ("MMD-O · tuned", "SCF · tuned", "ME · tuned", "C2ST-S · tuned", "C2ST-L · tuned", "MMD-D · tuned")
    ),
    Stage("pixels", LEARNED),
    Stage("pixels", DEEP, tests=8),
    Stage("algorithm 1", ("Meta-KL", "Meta-MKL"), outer_steps=5, m_tr=(100,), targets=TARGETS[:2], repeats=3, tests=8),
    Stage("CIFAR-100", (*LEARNED, *TRANSFERRED), related="CIFAR-100", m_tr=(100,), targets=TARGETS[:2]),
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
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
        for row in csv.reader(line for line in lines[1:] if line.endswith("\n")):
            if len(row) == len(self.head):  # others were cut off
                self._count(Key(*row[:2], int(row[2]), row[3], *map(int, row[4:6])), int(row[6]), int(row[7]))

    def _count(self, key: Key, tests: int, rejected: int) -> None:
        before = self.counts[key]
        self.counts[key] = before[0] + tests, before[1] + rejected

    def add(self, key: Key, tests: int, rejected: int, seconds: float) -> None:
        """Append one row to the file."""
        fresh = not self.path.exists()
        cut_off = not fresh and not self.path.read_bytes().endswith(b"\n")
        with self.path.open("a", encoding="utf-8", newline="") as file:
            file.write("\n" * cut_off)
            writer = csv.writer(file, lineterminator="\n")
            writer.writerows([[*self.head]] * fresh + [[*key, tests, rejected, f"{seconds:.1f}"]])
        self._count(key, tests, rejected)

    def rates(self, stage: str, method: str, m_tr: int, target: str, m_te: int) -> tuple[np.ndarray, int]:
        """The rejection rate of every repeat, and how many test samples there are in all."""
        counts = [count for key, count in sorted(self.counts.items()) if key[:5] == (stage, method, m_tr, target, m_te)]
        return np.array([rejected / tests for tests, rejected in counts]), sum(tests for tests, _ in counts)


@dataclass
class Study:
    """The images of a stage's view, and the rows that its results are added to."""

    options: argparse.Namespace
    rows: Rows
    loaded: dict[str, tuple[Images, list[np.ndarray]]] = field(default_factory=dict)

    def images(self, stage: Stage) -> tuple[Images, list[np.ndarray]]:
        """The images for targets, and those for related tasks."""
        cifar10, cifar100 = self.options.images
        if stage.view not in self.loaded:
            self.loaded = {stage.view: load(cifar10, cifar100, stage.view)}
        images, choices = self.loaded[stage.view]
        return (images, choices) if stage.related == "CIFAR-10" else hundred_apart(cifar100, images)

    def run(self, stage: Stage, group: Sequence[str], repeat: int) -> None:
        """Compute what the rows lack of one repeat of methods that share their training."""
        counts, options = self.rows.counts, self.options
        wanted = stage.wanted(options.repeats, options.tests, options.sizes)
        lacking = {k: n for k, n in wanted if k.method in group and k.repeat == repeat and counts[k][0] < n}
        if not lacking:
            return
        images, choices = self.images(stage)
        if stage.outer_steps is not None:
            use_fewer_steps(group, stage.outer_steps)
        streams = Streams(repeat).child("cifar benchmark")
        draw_pairs = related_tasks if stage.related == "CIFAR-10" else related_hundred
        pairs = draw_pairs(images, choices, streams.numpy("related tasks"))
        began = time.process_time()
        methods = bound_methods(dict.fromkeys(key.method for key in lacking), pairs, repeat)
        for (name, m_tr, target), keys in groupby(lacking, key=lambda key: key[1:4]):
            teaching, tested = images.split(m_tr or 100, streams.numpy("training images"))
            train = teaching.draw(target, m_tr or 100, streams.numpy(f"train {target}"))
            learned = learn_once(methods[name], train, repeat)
            for key in keys:
                here = streams.child(f"{target} {key.m_te}")
                numbers = range(counts[key][0], lacking[key])
                rejected = rejections(tested, target, key.m_te, learned, numbers, here)
                self.rows.add(key, len(numbers), rejected, time.process_time() - began)
                began = time.process_time()


SECTIONS = {  # of the tables: words, the stage's name, and the methods
    "pixels, no related tasks": (
        "pixels",
        ("ME · tuned", "SCF · tuned", "C2ST-S · tuned", "C2ST-L · tuned", "MMD-O · tuned", "MMD-D · tuned", "MMD-M"),
    ),
    "pixels, the paper's": ("pixels", DEEP),
    "pixels, the paper's settings with 5 steps": ("algorithm 1", ("Meta-KL", "Meta-MKL")),
    "pixels, ours": ("pixels", (*LEARNED, "Meta-FUSE")),
    "features, no related tasks": ("features", ("MMD-M",)),
    "features, ours": ("features", (*LEARNED, "Meta-FUSE")),
}
VIA_HUNDRED = {"the paper's": ("CIFAR-100", TRANSFERRED), "ours": ("CIFAR-100", LEARNED)}


def tables(rows: Rows) -> dict[str, str]:
    """The tables in Markdown, by name."""
    sizes = sorted({key.m_te for key in rows.counts})
    both = [(m_tr, m_te) for m_tr in (100, 200) for m_te in sizes]
    first = both[: len(sizes)]
    return {
        "CIFAR-100": _table(rows, SECTIONS, "CIFAR-100", both),
        "class shift": _table(rows, SECTIONS, "class shift", [column for column in both if column != (200, 900)]),
        "null": _table(rows, SECTIONS, "null", [(100, NULL_SIZE)]),
        "CIFAR-100 via CIFAR-100": _table(rows, VIA_HUNDRED, "CIFAR-100", first),
        "class shift via CIFAR-100": _table(rows, VIA_HUNDRED, "class shift", first),
    }


def _table(
    rows: Rows, sections: Mapping[str, tuple[str, Sequence[str]]], target: str, columns: Sequence[tuple[int, int]]
) -> str:
    """Power of the methods that have rows: mean ± standard error between repeats, for a single one the binomial."""
    head = ["", "", *(f"m_tr={m_tr}, m_te={m_te}" for m_tr, m_te in columns), "repeats × tests"]
    lines = []
    for words, (stage, methods) in sections.items():
        for method in methods:
            splits = METHODS[method].needs_split
            measured = [rows.rates(stage, method, m_tr if splits else 0, target, m_te) for m_tr, m_te in columns]
            counts = [len(rates) for rates, _ in measured if len(rates)]
            if not counts:
                continue
            cells = [
                "=" if m_tr == 200 and not splits else _cell(*cell)
                for (m_tr, _), cell in zip(columns, measured, strict=True)
            ]
            tests = "/".join(f"{total // len(rates)}" for rates, total in measured[: len(SIZES)] if len(rates))
            repeats = f"{min(counts)}" if min(counts) == max(counts) else f"{min(counts)}–{max(counts)}"
            lines.append([words, label_of(method), *cells, f"{repeats} × {tests}"])
    return markdown(head, lines)


def _cell(rates: np.ndarray, tests: int) -> str:
    """Mean ± standard error; a single repeat has the binomial one, with one more rejection and acceptance."""
    if not len(rates):
        return "–"
    mean = float(rates.mean())
    near = (mean * tests + 1) / (tests + 2)
    error = float(rates.std(ddof=1) / len(rates) ** 0.5) if len(rates) > 1 else (near * (1 - near) / (tests + 2)) ** 0.5
    return f"{mean:.2f} ± {error:.2f}"


def write_tables(page: Path, written: Mapping[str, str]) -> None:
    """Put every table between its marks in a page."""
    text = page.read_text(encoding="utf-8")
    if sorted(re.findall("<!-- begin (.+?) -->", text)) != sorted(written):
        raise ValueError(f"{page} must have the marks of these tables once: {', '.join(written)}.")
    page.write_text(fill_page(text, written.__getitem__), encoding="utf-8")


def compute(study: Study, stages: Sequence[Stage]) -> None:
    """Compute what the rows lack, first of few repeats of all stages."""
    repeats = study.options.repeats
    for end in (*(end for end in ROUNDS if end < repeats), repeats):
        for stage in stages:
            for group in stage.groups():
                for repeat in range(min(end, stage.repeats)):
                    study.run(stage, group, repeat)
                    print(f"{stage.name}: {', '.join(group)}, repeat {repeat}", flush=True)


def main(arguments: Sequence[str] = ()) -> None:
    """Compute what the rows lack, if there are images; print the tables or write them into a page."""
    names = {stage.name: None for stage in STAGES}
    options = parse(
        arguments, __doc__, images=("",), rows=ROWS, repeats=10, tests=20, sizes=SIZES, stages=names, write=Path
    )
    rows = Rows(options.rows)
    if all(options.images):
        compute(Study(options, rows), [stage for stage in STAGES if stage.name in options.stages])
    if options.write:
        write_tables(options.write, tables(rows))
    else:
        print("\n\n".join(tables(rows).values()))
