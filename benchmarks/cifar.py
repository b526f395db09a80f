"""Power on real images: CIFAR-10's class pairs as related tasks, targets whose images are in no related task.

Half of CIFAR-10's images are for choices: settings were tried on them, and every repeat takes its related tasks, 45
pairs of classes with 100 images of each class, from them. Targets are drawn from the other half: CIFAR-10 against
CIFAR-100, a shift of the classes inside CIFAR-10 (animals are 60 % of P and 80 % of Q), and CIFAR-10 against itself.
Each repeat trains once, learns from one training sample of every target, and tests many samples of the images that are
left. ``--view features`` does the same with pretrained features instead of pixels.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np
import torch
from torch import Tensor

from benchmarks.common import bound_methods, print_table
from m2st_core.data.images.features import extractor, image_features
from m2st_core.data.images.own import SIDE
from m2st_core.presets import PRESETS
from m2st_core.rng import Streams
from m2st_core.testing.method import Method
from m2st_core.testing.run import learn_once, run_tests
from m2st_core.types import Shape, TwoSample

METHODS = ["MMD-M", "MMD-FUSE", "Omnibus", "MMD-O", "MMD-D", "Meta-Witness", "Meta-FUSE", "Feature-MKL", "Meta-WiTS"]
TARGETS = ("class shift", "CIFAR-100", "null")
PER_CLASS, CHOICES = 100, 250  # images of each class in a related task; in the half for choices
PAIRS = 100  # related tasks of CIFAR-100's classes
ANIMALS = (2, 3, 4, 5, 6, 7)
LEVEL = 0.05
AT_ONCE = 10  # test samples in memory


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


def load(cifar10: str, cifar100: str, view: str, side: int) -> tuple[Images, list[np.ndarray]]:
    """The images that targets are drawn from, and the images of each class for related tasks and choices."""
    with np.load(cifar10) as first, np.load(cifar100) as second:
        pixels, labels = (first["x"], second["x"]), first["y"]
    shape = (3, 32, 32) if view == "pixels" else None
    ten, hundred = (_rows(images) if shape else _features(images, side) for images in pixels)
    order = np.random.default_rng(123).permutation(len(labels))  # the half that choices were made on
    classes = [order[labels[order] == c] for c in range(10)]
    fresh = [own[CHOICES:] for own in classes]
    animals = np.concatenate([fresh[c] for c in ANIMALS])
    others = np.concatenate([fresh[c] for c in range(10) if c not in ANIMALS])
    images = Images(ten, hundred, shape, animals, others, np.arange(len(hundred)))
    return images, [own[:CHOICES] for own in classes]


def hundred_apart(cifar100: str, images: Images) -> tuple[Images, list[np.ndarray]]:
    """The same with half of CIFAR-100's images of each class set apart for related tasks, and those images."""
    with np.load(cifar100) as second:
        labels = second["y"]
    order = np.random.default_rng(123).permutation(len(labels))
    halves = [np.array_split(order[labels[order] == c], 2) for c in np.unique(labels)]
    return replace(images, any100=np.concatenate([own for _, own in halves])), [own for own, _ in halves]


def related_hundred(images: Images, apart: list[np.ndarray], generator: np.random.Generator) -> dict[str, TwoSample]:
    """100 random pairs of CIFAR-100's classes, with the images set apart."""
    every = list(combinations(range(len(apart)), 2))
    pairs = [every[index] for index in generator.choice(len(every), PAIRS, replace=False)]
    rows = images.hundred
    return {f"{a} or {b}": TwoSample(rows[apart[a]], rows[apart[b]], images.shape) for a, b in pairs}


def related_tasks(images: Images, choices: list[np.ndarray], generator: np.random.Generator) -> dict[str, TwoSample]:
    """Pairs of classes, with 100 images of each class."""
    dealt = [generator.permutation(own)[:PER_CLASS] for own in choices]
    pairs = combinations(range(10), 2)
    return {f"{a} or {b}": TwoSample(images.ten[dealt[a]], images.ten[dealt[b]], images.shape) for a, b in pairs}


def _rows(images: np.ndarray) -> Tensor:
    return torch.from_numpy(images.transpose(0, 3, 1, 2).reshape(len(images), -1) / np.float32(255))


def _features(images: np.ndarray, side: int) -> Tensor:
    return torch.from_numpy(image_features(images, extractor(side=side)).astype(np.float64))


def p_values(
    draw: Callable[[int], TwoSample], method: Method, tests: range, streams: Streams, preset: str
) -> np.ndarray:
    """The p-values of the test samples with these numbers: (tests,)."""
    found = []
    for start in range(tests.start, tests.stop, AT_ONCE):
        pairs = [draw(index) for index in range(start, min(start + AT_ONCE, tests.stop))]
        sample = TwoSample(torch.stack([p.x for p in pairs]), torch.stack([p.y for p in pairs]), pairs[0].shape)
        seeds = [streams.child(f"test {index}").seed for index in range(start, start + len(pairs))]
        chosen = PRESETS[preset]
        results = run_tests(sample, method, seeds=seeds, n_permutations=99, device="cpu", preset=chosen)
        found += [result.p_value for result in results]
    return np.array(found)


def fewer_steps(preset: str, outer_steps: int | None) -> str:
    """The name of a preset with so many steps of Algorithm 1; None: the preset's own."""
    if outer_steps is None:
        return preset
    own = PRESETS[preset]
    name, ascent = f"{preset}, {outer_steps} steps", replace(own.images.meta_kl, outer_steps=outer_steps)
    PRESETS[name] = replace(own, images=replace(own.images, meta_kl=ascent))
    return name


def main(arguments: Sequence[str] = ()) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="m2st_core bench cifar", description=__doc__)
    parser.add_argument("cifar10", help=".npz with x (n, 32, 32, 3), bytes, and y, the classes 0…9")
    parser.add_argument("cifar100", help=".npz with x (n, 32, 32, 3), bytes")
    parser.add_argument("--stages", nargs="*", default=(), help="with --tables: only these parts of them")
    parser.add_argument("--view", choices=("pixels", "features"), default="pixels")
    parser.add_argument("--side", type=int, default=SIDE, help="pixels at which features are computed")
    parser.add_argument("--methods", nargs="*", default=METHODS)
    parser.add_argument("--targets", nargs="*", choices=TARGETS, default=TARGETS)
    parser.add_argument("--m-tr", type=int, default=100)
    parser.add_argument("--m-te", type=int, nargs="*", default=(200, 500))
    parser.add_argument("--null-m-te", type=int, nargs="*", default=(200,))
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--tests", type=int, default=60, help="test samples per repeat, target and size")
    parser.add_argument("--first", type=int, default=0, help="the first repeat")
    parser.add_argument("--preset", default="recommended")
    parser.add_argument("--outer-steps", type=int, help="fewer steps of Algorithm 1 than the preset's")
    parser.add_argument("--tables", help="a .csv of rows: compute what it lacks of the paper's tables, and print them")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    if options.tables:
        from benchmarks.cifar_tables import run_tables  # which needs this module

        return run_tables(options)
    preset = fewer_steps(options.preset, options.outer_steps)
    columns = [
        (target, m) for target in options.targets for m in (options.null_m_te if target == "null" else options.m_te)
    ]
    images, choices = load(options.cifar10, options.cifar100, options.view, options.side)
    rates: dict[str, list[list[float]]] = {name: [] for name in options.methods}
    began, spent = time.perf_counter(), dict.fromkeys(("training", *options.methods), 0.0)
    for repeat in range(options.first, options.first + options.repeats):
        streams = Streams(repeat).child("cifar benchmark")
        pairs = related_tasks(images, choices, streams.numpy("related tasks"))
        start = time.process_time()
        methods = bound_methods(options.methods, pairs, preset, repeat)
        spent["training"] += time.process_time() - start
        teaching, tested = images.split(options.m_tr, streams.numpy("training images"))
        for name, method in methods.items():
            start = time.process_time()
            found: list[float] = []
            for target in options.targets:
                train = teaching.draw(target, options.m_tr, streams.numpy(f"train {target}"))
                learned = learn_once(method, train, repeat, PRESETS[preset])
                for m in (m for own, m in columns if own == target):
                    here = streams.child(f"{target} {m}")
                    draws = draws_of(tested, target, m, here)
                    p = p_values(draws, learned, range(options.tests), here, preset)
                    found.append(float((p <= LEVEL).mean()))
            spent[name] += time.process_time() - start
            rates[name].append(found)
            print(json.dumps({"repeat": repeat, "method": name, "rates": rates[name][-1]}), flush=True)
    print(f"\n{options.view}, m_tr={options.m_tr}, {options.repeats} repeats × {options.tests} test samples, ", end="")
    print(f"{preset}; {time.perf_counter() - began:.0f} s; processor seconds: ", end="")
    print(", ".join(f"{name} {value:.0f}" for name, value in spent.items()) + "\n")
    print_table(["", *(f"{target}, m_te={m}" for target, m in columns)], rates)


def draws_of(images: Images, target: str, m: int, streams: Streams) -> Callable[[int], TwoSample]:
    """The test samples of a target by their number."""
    return lambda index: images.draw(target, m, streams.numpy(f"set {index}"))


if __name__ == "__main__":
    main()
