"""How fast is the permutation engine? One core, ratios measured in one run.

The plain arithmetic is that of a permutation MMD test which computes the whole Gram matrix, timed into memory that is
allocated already: one N×N distance product, N² exponentials, one (N×N)@(N×B) product. Ours
is the whole public call: validation, median heuristic, random labellings, Gram matrix, statistics, p-value.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time
from collections.abc import Callable, Sequence

import torch

import m2st_core as m2st
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


def seconds(function: Callable[[], object]) -> float:
    """Wall time of one call."""
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


def compare(ours: Callable[[], object], bound: Callable[[], object], repeats: int) -> tuple[float, float, float]:
    """Median seconds of both and the median ratio of neighbours in time, after one warm-up each."""
    ours(), bound()
    pairs = [(seconds(ours), seconds(bound)) for _ in range(repeats)]
    return (
        statistics.median(a for a, _ in pairs),
        statistics.median(b for _, b in pairs),
        statistics.median(a / b for a, b in pairs),
    )


def main(arguments: Sequence[str] = ()) -> None:
    """Print the ratios."""
    parser = argparse.ArgumentParser(prog="m2st_core bench permutation", description=__doc__)
    parser.add_argument("--repeats", type=int, default=11)
    parser.add_argument("--skip-large", action="store_true", help="leave out n=m=20,000")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    task = m2st.make_task("hdgm")

    print("MMD-M, whole call, against the plain arithmetic; B=999, d=2, float32, one core")
    print(f"{'n=m':>7} {'ours':>10} {'plain':>10} {'ratio':>8}   limit  goal")
    for n, limit in ((500, 2.5), (2000, 2.0)):
        x, y = task.sample(n, seed=1)
        ours, bound, ratio = compare(
            lambda x=x, y=y: m2st.two_sample_test(x, y, "MMD-M", device="cpu"),
            plain_arithmetic(n, 999),
            options.repeats,
        )
        print(f"{n:>7} {1e3 * ours:>7.1f} ms {1e3 * bound:>7.1f} ms {ratio:>8.2f}   {limit:<5}  1.5")

    print("\nTests of many kernels, whole call, against the plain arithmetic of one kernel; n=m=500, B=999, d=2")
    print(f"{'':>10} {'ours':>10} {'plain':>10} {'ratio':>8}   goal")
    x, y = task.sample(500, seed=1)
    for name in ("MMD-FUSE", "MMDAgg", "Omnibus", "Energy"):
        ours, bound, ratio = compare(
            lambda name=name, x=x, y=y: m2st.two_sample_test(x, y, name, device="cpu"),
            plain_arithmetic(500, 999),
            options.repeats,
        )
        print(f"{name:>10} {1e3 * ours:>7.1f} ms {1e3 * bound:>7.1f} ms {ratio:>8.2f}   12")

    print("\nA batch of 100 test sets against 100 single calls; MMD-M, B=199")
    print(f"{'n=m':>7} {'batch':>10} {'singles':>10} {'ratio':>8}   limit")
    for n in (25, 100, 250):
        pairs = [task.sample(n, seed=seed) for seed in range(100)]
        batch = TwoSample(torch.stack([p.x for p in pairs]), torch.stack([p.y for p in pairs]))

        def together(batch: TwoSample = batch) -> object:
            return run_tests(batch, m2st.METHODS["MMD-M"], seeds=range(100), n_permutations=199, device="cpu")

        def singly(pairs: list[TwoSample] = pairs) -> object:
            return [m2st.two_sample_test(*p, "MMD-M", n_permutations=199, device="cpu") for p in pairs]

        ours, bound, ratio = compare(together, singly, max(3, options.repeats // 3))
        print(f"{n:>7} {1e3 * ours:>7.1f} ms {1e3 * bound:>7.1f} ms {ratio:>8.2f}   1.0")

    if not options.skip_large:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        x, y = task.sample(20_000, seed=1)
        took = seconds(lambda: m2st.two_sample_test(x, y, "MMD-M", n_permutations=199, device="cpu"))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(f"\nn=m=20,000, B=199: {took:.1f} s; peak memory {peak / 2**20:.2f} GiB", end=" ")
        print(f"(of which {before / 2**20:.2f} GiB from the smaller runs before); limit 4 GiB")


if __name__ == "__main__":
    main()
