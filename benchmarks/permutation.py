"""Speed of the permutation engine. One core, ratios measured in one run.

The plain arithmetic is that of a permutation MMD test which computes the whole Gram matrix, timed into memory that is
allocated already: one N×N distance product, N² exponentials, one (N×N)@(N×B) product. Ours
is the whole public call: validation, median heuristic, random labellings, Gram matrix, statistics, p-value.
"""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial

import torch

import m2st_core as m2st
from benchmarks.common import Page, parse, seconds_in_turn, stacked
from m2st_core.testing.run import run_tests
from m2st_core.types import TwoSample


def plain_arithmetic(n: int, n_permutations: int, dimension: int = 2) -> Callable[[], None]:
    """The plain arithmetic, in float32."""
    size = 2 * n
    rows, labels = 0.1 * torch.randn(size, dimension), (torch.rand(size, n_permutations) < 0.5).float()
    distances, gram, sums = torch.empty(size, size), torch.empty(size, size), torch.empty(size, n_permutations)

    def run() -> None:
        torch.mm(rows, rows.T, out=distances)
        torch.exp(distances, out=gram)
        torch.mm(gram, labels, out=sums)

    return run


def compare(ours: Callable[[], object], bound: Callable[[], object], repeats: int) -> tuple[str, str, str]:
    """Median seconds of both, and the median ratio of neighbours in time, as cells of a table."""
    pairs = list(zip(*seconds_in_turn([ours, bound], repeats), strict=True))
    first, second = (statistics.median(times) for times in zip(*pairs, strict=True))
    return f"{1e3 * first:.1f} ms", f"{1e3 * second:.1f} ms", f"{statistics.median(a / b for a, b in pairs):.2f}"


def main(arguments: Sequence[str] = ()) -> None:
    """Print the ratios."""
    options = parse(arguments, __doc__, repeats=11, skip_large=False)
    page, task = Page(), m2st.make_task("hdgm")
    page.say("MMD-M, whole call, against the plain arithmetic; B=999, d=2, float32, one core", "")
    page.head("n=m", "ours", "plain", "ratio", "limit", "goal")
    for n, limit in ((500, 2.5), (2000, 2.0)):
        test = partial(m2st.two_sample_test, *task.sample(n, seed=1), "MMD-M", device="cpu")
        page.row(n, *compare(test, plain_arithmetic(n, 999), options.repeats), limit, 1.5)
    page.say("", "Tests of many kernels, whole call, against the plain arithmetic of one; n=m=500, B=999, d=2", "")
    page.head("test", "ours", "plain", "ratio", "goal")
    for name in ("MMD-FUSE", "MMDAgg", "Omnibus", "Energy"):
        test = partial(m2st.two_sample_test, *task.sample(500, seed=1), name, device="cpu")
        page.row(name, *compare(test, plain_arithmetic(500, 999), options.repeats), 12)
    page.say("", "A batch of 100 test sets against 100 single calls; MMD-M, B=199", "")
    page.head("n=m", "batch", "singles", "ratio", "limit")
    for n in (25, 100, 250):
        pairs = [task.sample(n, seed=seed) for seed in range(100)]
        settings = {"n_permutations": 199, "device": "cpu"}
        together = partial(run_tests, stacked(pairs), m2st.METHODS["MMD-M"], seeds=range(100), **settings)

        def singly(pairs: list[TwoSample] = pairs) -> object:
            return [m2st.two_sample_test(*pair, "MMD-M", n_permutations=199, device="cpu") for pair in pairs]

        page.row(n, *compare(together, singly, max(3, options.repeats // 3)), 1.0)
    if not options.skip_large:
        before, began = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
        m2st.two_sample_test(*task.sample(20_000, seed=1), "MMD-M", n_permutations=199, device="cpu")
        spent, peak = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        page.say(
            f"\nn=m=20,000, B=199: {spent:.1f} s; peak memory {peak / 2**20:.2f} GiB "
            f"(of which {before / 2**20:.2f} GiB from the smaller runs before); limit 4 GiB"
        )
