"""Power on real images: CIFAR-10's class pairs as meta-tasks, targets whose images are in no meta-task.

The 45 pairs of classes have 100 images of each class. Targets are CIFAR-10 against CIFAR-100, a shift of the classes
inside CIFAR-10 (animals are 60 % of P and 80 % of Q), and CIFAR-10 against itself. Each repeat trains once, learns from
one training sample of every target, and tests many other samples drawn from the images that are left.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import torch
from torch import Tensor

from benchmarks.common import bound_methods, print_table
from m2st_core.rng import Streams
from m2st_core.testing.method import Method
from m2st_core.testing.run import learn_once, run_tests
from m2st_core.types import TwoSample

METHODS = ["Feature-MKL", "Meta-Witness", "Meta-WiTS", "Meta-KL", "MMD-D", "MMD-O"]
SHAPE = (3, 32, 32)
PER_CLASS = 100
ANIMALS = (2, 3, 4, 5, 6, 7)
AT_ONCE = 17  # test sets in memory


@dataclass(frozen=True)
class Images:
    """Rows of CIFAR-10 and of CIFAR-100, and which of them targets may be drawn from."""

    ten: Tensor
    hundred: Tensor
    animals: np.ndarray
    others: np.ndarray
    any100: np.ndarray

    def split(self, count: int, generator: np.random.Generator) -> tuple[Images, Images]:
        """Some images of every kind, and all others."""
        orders = [generator.permutation(kind) for kind in (self.animals, self.others, self.any100)]
        some, rest = ([order[part] for order in orders] for part in (slice(count), slice(count, None)))
        return Images(self.ten, self.hundred, *some), Images(self.ten, self.hundred, *rest)

    def draw(self, target: str, m: int, generator: np.random.Generator) -> TwoSample:
        """P and Q of a target, m images each, none twice."""
        animals, others = generator.permutation(self.animals), generator.permutation(self.others)
        share = 0.8 if target == "class shift" else 0.6
        in_p, in_q = generator.binomial(m, 0.6), generator.binomial(m, share)
        p = self.ten[np.concatenate([animals[:in_p], others[: m - in_p]])]
        q = self.ten[np.concatenate([animals[in_p : in_p + in_q], others[m - in_p : m - in_p + m - in_q]])]
        if target == "CIFAR-100":
            q = self.hundred[generator.choice(self.any100, m, replace=False)]
        return TwoSample(p, q, SHAPE)


def load(cifar10: str, cifar100: str, streams: Streams) -> tuple[dict[str, TwoSample], Images]:
    """The meta-tasks, and the images that are left for targets."""
    with np.load(cifar10) as first, np.load(cifar100) as second:
        ten, hundred, labels = _rows(first["x"]), _rows(second["x"]), first["y"]
    generator = streams.numpy("meta images")
    classes = [generator.permutation(np.flatnonzero(labels == c)) for c in range(10)]
    pairs = {
        f"{a} or {b}": TwoSample(ten[classes[a][:PER_CLASS]], ten[classes[b][:PER_CLASS]], SHAPE)
        for a, b in combinations(range(10), 2)
    }
    animals = np.concatenate([classes[c][PER_CLASS:] for c in ANIMALS])
    others = np.concatenate([classes[c][PER_CLASS:] for c in range(10) if c not in ANIMALS])
    return pairs, Images(ten, hundred, animals, others, np.arange(len(hundred)))


def _rows(images: np.ndarray) -> Tensor:
    return torch.from_numpy(images.transpose(0, 3, 1, 2).reshape(len(images), -1) / np.float32(255))


def rate(draw: Callable[[int], TwoSample], method: Method, tests: int, streams: Streams) -> float:
    """The share of test sets rejected at 5 %."""
    rejected = 0
    for start in range(0, tests, AT_ONCE):
        pairs = [draw(index) for index in range(start, min(start + AT_ONCE, tests))]
        sample = TwoSample(torch.stack([p.x for p in pairs]), torch.stack([p.y for p in pairs]), SHAPE)
        seeds = [streams.child(f"test {index}").seed for index in range(start, start + len(pairs))]
        results = run_tests(sample, method, seeds=seeds, n_permutations=99, device="cpu")
        rejected += sum(result.rejected for result in results)
    return rejected / tests


def main(arguments: Sequence[str] = ()) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="m2st_core bench cifar", description=__doc__)
    parser.add_argument("cifar10", help=".npz with x (n, 32, 32, 3), bytes, and y, the classes 0…9")
    parser.add_argument("cifar100", help=".npz with x (n, 32, 32, 3), bytes")
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--tests", type=int, default=30, help="test sets per repeat, target and size")
    parser.add_argument("--null-tests", type=int, default=130, help="the same where both samples are CIFAR-10")
    parser.add_argument("--m-tr", type=int, default=100)
    parser.add_argument("--methods", nargs="*", default=METHODS)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    columns = [(target, m, options.tests) for target in ("CIFAR-100", "class shift") for m in (200, 500)]
    columns.append(("null", 200, options.null_tests))
    rates: dict[str, list[list[float]]] = {name: [] for name in options.methods}
    began, spent = time.perf_counter(), dict.fromkeys(("training", *options.methods), 0.0)
    for repeat in range(options.repeats):
        streams = Streams(repeat).child("cifar benchmark")
        pairs, images = load(options.cifar10, options.cifar100, streams)
        start = time.process_time()
        methods = bound_methods(options.methods, pairs, "recommended", repeat)
        spent["training"] += time.process_time() - start
        teaching, images = images.split(2 * options.m_tr, streams.numpy("training images"))
        for name, method in methods.items():
            start = time.process_time()
            rates[name].append([])
            learned = {
                target: learn_once(
                    method, teaching.draw(target, options.m_tr, streams.numpy(f"train {target}")), repeat
                )
                for target in dict.fromkeys(target for target, _, _ in columns)
            }
            for target, m, tests in columns:
                here = streams.child(f"{target} {m}")
                rates[name][-1].append(
                    rate(
                        lambda index, i=images, t=target, m=m, s=here: i.draw(t, m, s.numpy(f"set {index}")),
                        learned[target],
                        tests,
                        here,
                    )
                )
            spent[name] += time.process_time() - start
            print(repeat, name, np.round(rates[name][-1], 3), f"{time.perf_counter() - began:.0f} s", flush=True)
    print(f"\n{options.repeats} repeats, {options.tests} test sets each ({options.null_tests} of the null), ", end="")
    print(f"{time.perf_counter() - began:.0f} s; processor seconds: ", end="")
    print(", ".join(f"{name} {value:.0f}" for name, value in spent.items()) + "\n")
    print_table(["", *(f"{target}, m_te={m}" for target, m, _ in columns)], rates)


if __name__ == "__main__":
    main()
