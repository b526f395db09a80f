"""What a whole repeat of a method with related tasks costs, against the published procedure in a common unit.

The unit U is one evaluation of Ĵ and its gradient for 10 deep kernels (H=30) with n=m=100, one kernel after another.
The published Meta-KL takes 1000 outer steps × 10 tasks × (10 inner + 1) evaluations = 11,000 U, and then its tests, one
after another: the Gram matrix of a deep kernel, and its product with 201 labellings. One core, all in one run. Seconds
are those of the processor, so other work on the machine hardly counts. On the development machine, idle, U is 18.5 ms:
the goals of 50 s for Meta-KL as in the paper's text (``paper``) and 35 s as in
the published code (``released``) are 2,700 U and 1,890 U.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence

import torch
from torch.profiler import ProfilerActivity, profile

import m2st_core as m2st
from benchmarks.common import CPU, batch, seconds
from m2st_core.criterion import h_matrix, power_criterion
from m2st_core.kernels.deep import DeepKernel
from m2st_core.kernels.networks import MLP
from m2st_core.permutation.labellings import random_memberships
from m2st_core.presets import PRESETS
from m2st_core.rng import Streams
from m2st_core.testing.run import learn_once, run_tests

SIZES = (50, 80, 100, 120, 150, 200, 250)  # per mode
EVALUATIONS = 1000 * 10 * (10 + 1)
GEMM = ("mm", "bmm", "addmm", "baddbmm", "_addmm_activation", "linalg_vector_norm")
TRANSCENDENTAL = (
    "exp",
    "exp_",
    "exp2_",
    "exp2",
    "softplus",
    "silu",
    "silu_backward",
    "softplus_backward",
    "sin",
    "cos",
    "log",
    "sigmoid",
)


def unit() -> float:
    """U, in seconds."""
    generators = [torch.Generator().manual_seed(seed) for seed in range(10)]
    rows = torch.randn(10, 2, 1, 100, 2, generator=generators[0])
    one = torch.ones(1)
    kernels = [DeepKernel(MLP((2, 30, 30, 30, 6), [g]).float(), 0.1 * one, 4 * one, 0.1 * one) for g in generators]

    def evaluate() -> None:
        for kernel, (x, y) in zip(kernels, rows, strict=True):
            kernel.zero_grad()
            power_criterion(h_matrix(kernel, x, y), 1e-8).sum().backward()

    return seconds(evaluate, 20, time.process_time)


def published_tests() -> float:
    """Seconds of 100 tests at each size with one deep kernel (H=30) and 200 permutations, as the published code has it.

    It multiplies the whole Gram matrix with labels ±1; drawing them and taking terms off the diagonal are not counted.
    """
    one = torch.ones(1)
    kernel = DeepKernel(MLP((2, 30, 30, 30, 6), [torch.Generator()]).float(), 0.1 * one, 4 * one, 0.1 * one)
    spent = 0.0
    for m_te in SIZES:
        rows = torch.randn(1, 4 * m_te, 2)
        labels = torch.randint(2, (201, 4 * m_te)) * 2.0 - 1

        def test(rows: torch.Tensor = rows, labels: torch.Tensor = labels) -> torch.Tensor:
            return torch.linalg.vecdot(labels @ kernel(rows, rows)[0], labels)

        with torch.no_grad():
            spent += 100 * seconds(test, 5, time.process_time)
    return spent


ROWS = (  # method, preset, the largest number of U that meta-training may take
    ("Meta-KL", "paper", 2700),
    ("Meta-KL", "released", 1890),
    ("Meta-MKL", "recommended", None),
    ("Feature-MKL", "recommended", None),
    ("Meta-WiTS", "recommended", None),
    ("Meta-FUSE", "recommended", None),
    ("Meta-Witness", "recommended", None),
)


def least_tests() -> dict[str, float]:
    """Seconds of the main parts of 7 × 100 tests on 14 features of 100 frequencies, as they are now, alone."""
    spent = dict.fromkeys(("labellings", "features", "products"), 0.0)
    for m_te in SIZES:
        rows = torch.randn(10 * 4 * m_te, 2)
        waves, mix = torch.randn(2, 200), torch.randn(200, 14)
        labels = torch.randint(2, (10, 200, 4 * m_te)).float()
        psi = torch.randn(10, 4 * m_te, 15)

        def draw(m_te: int = m_te) -> torch.Tensor:
            generators = [Streams(seed).numpy("permutations") for seed in range(10)]
            return random_memberships(2 * m_te, 2 * m_te, 199, generators)

        def features(rows: torch.Tensor = rows, waves: torch.Tensor = waves, mix: torch.Tensor = mix) -> list:
            return [(part @ waves).sin_() @ mix for part in rows.split(2000)]

        def product(labels: torch.Tensor = labels, psi: torch.Tensor = psi) -> torch.Tensor:
            return labels @ psi

        for name, part in zip(spent, (draw, features, product), strict=True):
            spent[name] += 10 * seconds(part, 3, time.process_time)
    return spent


def one_repeat(name: str, preset: str, tests: int) -> dict[str, float]:
    """Seconds of each part of a repeat: one training set, 7 sizes × ``tests`` test sets, 200 permutations."""
    meta = m2st.hdgm_related_tasks(seed=1)
    task = m2st.make_task("hdgm")
    began = time.process_time()
    learner = m2st.meta_train(name, meta, preset=preset, seed=1, device="cpu")
    trained = time.process_time()
    method = learner.bound(CPU)
    settings = PRESETS[preset]
    fixed = learn_once(method, task.sample(100, seed=2), 3, settings)
    adapted = time.process_time()
    spent = 0.0
    for m_te in SIZES:
        sample = batch(lambda seed, n=2 * m_te: task.sample(n, seed=seed), tests, Streams(4).child(str(m_te)))
        start = time.process_time()
        run_tests(sample, fixed, seeds=range(tests), n_permutations=200, preset=settings, device="cpu")
        spent += time.process_time() - start
    return {"meta-training": trained - began, "adaptation": adapted - trained, "tests": spent}


def print_profile(name: str, preset: str) -> None:
    """Where the time of a repeat goes."""
    with profile(activities=[ProfilerActivity.CPU]) as found:
        one_repeat(name, preset, 20)
    shares = {"GEMM": 0.0, "exp and the like": 0.0, "everything else in torch": 0.0}
    for event in found.key_averages():
        operation = event.key.removeprefix("aten::")
        if operation in GEMM:
            kind = "GEMM"
        else:
            kind = "exp and the like" if operation in TRANSCENDENTAL else "everything else in torch"
        shares[kind] += event.self_cpu_time_total
    total = sum(shares.values())
    print(f"{name}, {preset}, profile: " + ", ".join(f"{kind} {value / total:.0%}" for kind, value in shares.items()))


def main(arguments: Sequence[str] = ()) -> None:
    """Print the ratios and the profile."""
    parser = argparse.ArgumentParser(prog="m2st_core bench meta", description=__doc__)
    parser.add_argument("--tests", type=int, default=100)
    parser.add_argument("--ours", action="store_true", help="our own tests only, which are quick")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    one_repeat("Feature-MKL", "recommended", 2)  # what a process does but once: imports, first allocations
    units = [unit()]
    testing = published_tests()
    print("| method | preset | meta-training | in U | goal | adaptation | 7×100 tests | published / ours |")
    print("|---|---|---|---|---|---|---|---|")
    for name, preset, goal in ROWS[3:] if options.ours else ROWS:
        parts = one_repeat(name, preset, options.tests)
        units.append(unit())
        u = (units[-2] + units[-1]) / 2  # the machine before and after
        learning, adapting, tests = parts.values()
        cells = [f"{learning:.1f} s", f"{learning / u:,.0f}", f"{goal:,}" if goal else "–"]
        cells += [
            f"{adapting:.2f} s",
            f"{tests:.1f} s",
            f"{(EVALUATIONS / 10 * u + testing) / sum(parts.values()):.0f}×",
        ]
        print(f"| {name} | {preset} | " + " | ".join(cells) + " |", flush=True)
    low, high = 1000 * min(units), 1000 * max(units)
    print(f"\nU = {low:.1f} to {high:.1f} ms; the published training is {EVALUATIONS // 10:,} U, ", end="")
    print(f"its tests take {testing:.1f} s.")
    least = least_tests()
    bound = (EVALUATIONS / 10 * units[-1] + testing) / sum(least.values())
    parts = ", ".join(f"{name} {value:.2f} s" for name, value in least.items())
    print(f"The main parts of the tests alone, as they are now: {parts}; with nothing else, {bound:.0f}×.\n")
    for name, preset, _ in (ROWS[-3], ROWS[-1]):
        print_profile(name, preset)


if __name__ == "__main__":
    main()
