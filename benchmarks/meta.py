"""Cost of a whole repeat of a method with related tasks, against the published procedure in a common unit.

The unit U is one evaluation of Ĵ and its gradient for 10 deep kernels (H=30) with n=m=100, one kernel after another.
The published Meta-KL takes 1000 outer steps × 10 tasks × (10 inner + 1) evaluations = 11,000 U, and then its tests, one
after another: the Gram matrix of a deep kernel, and its product with 201 labellings. One core, all in one run. Seconds
are those of the processor, so other work on the machine hardly counts. On the development machine, idle, U is 18.5 ms:
the goals of 50 s for Meta-KL as in the paper's text (``paper``) and 35 s as in
the published code (``released``) are 2,700 U and 1,890 U.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch

import m2st_core as m2st
from benchmarks.common import CPU, Page, batch, parse, seconds
from m2st_core.criterion import h_matrix, power_criterion
from m2st_core.kernels.deep import DeepKernel
from m2st_core.kernels.networks import MLP
from m2st_core.rng import Streams
from m2st_core.testing.run import learn_once, run_tests

SIZES = (50, 80, 100, 120, 150, 200, 250)  # per mode
EVALUATIONS = 1000 * 10 * (10 + 1)


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


ROWS = (  # method, the largest number of U that meta-training may take
    ("Meta-KL", 2700),
    ("Meta-KL · code", 1890),
    ("Meta-MKL · tuned", None),
    ("Feature-MKL", None),
    ("Meta-WiTS", None),
    ("Meta-FUSE", None),
    ("Meta-Witness", None),
)


def one_repeat(name: str, tests: int) -> tuple[float, float, float]:
    """Seconds of learning, of adaptation, and of ``tests`` tests at each of 7 sizes with 200 permutations."""
    meta = m2st.hdgm_related_tasks(seed=1)
    task = m2st.make_task("hdgm")
    began = time.process_time()
    learner = m2st.meta_train(name, meta, seed=1, device="cpu")
    trained = time.process_time()
    method = learner.bound(CPU)
    fixed = learn_once(method, task.sample(100, seed=2), 3)
    adapted = time.process_time()
    spent = 0.0
    for m_te in SIZES:
        sample = batch(lambda seed, n=2 * m_te: task.sample(n, seed=seed), tests, Streams(4).child(str(m_te)))
        start = time.process_time()
        run_tests(sample, fixed, seeds=range(tests), n_permutations=200, device="cpu")
        spent += time.process_time() - start
    return trained - began, adapted - trained, spent


def main(arguments: Sequence[str] = ()) -> None:
    """Print the ratios; ``--ours`` measures our own tests only, which are quick."""
    options = parse(arguments, __doc__, tests=100, ours=False)
    one_repeat("Feature-MKL", 2)  # what a process does but once: imports, first allocations
    units = [unit()]
    testing = published_tests()
    page = Page()
    page.head("method", "learning", "in U", "goal", "adaptation", "7×100 tests", "published / ours")
    for name, goal in ROWS[3:] if options.ours else ROWS:
        learning, adapting, tests = spent = one_repeat(name, options.tests)
        units.append(unit())
        u = (units[-2] + units[-1]) / 2  # the machine before and after
        published = EVALUATIONS / 10 * u + testing
        times = f"{learning:.1f} s", f"{learning / u:,.0f}", f"{goal:,}" if goal else "–", f"{adapting:.2f} s"
        page.row(name, *times, f"{tests:.1f} s", f"{published / sum(spent):.0f}×")
    low, high = 1000 * min(units), 1000 * max(units)
    page.say(
        f"\nU = {low:.1f} to {high:.1f} ms; the published training is {EVALUATIONS // 10:,} U, the published tests "
        f"{testing:.1f} s"
    )
