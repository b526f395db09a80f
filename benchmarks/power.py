"""Power on the paper's synthetic task: HDGM, mean ± standard error between repeats, beside the published numbers.

As in the paper, each repeat draws its own meta-tasks and one target sample of m_tr rows per mode to learn from, trains
once, and tests fresh target samples (Δ=0.7) of m_te rows per mode. Methods that split nothing get the test rows only.
The last row is the limit: the true log-likelihood ratio as a one-sided witness.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Sequence
from functools import partial

import torch

import m2st_core as m2st
from benchmarks.common import batch, bound_methods, over_repeats, print_table, rejection_rate
from m2st_core.rng import Streams
from m2st_core.testing import learn_once
from m2st_core.testing.permutation import permutation_p_value, permuted_mean_difference, random_memberships
from m2st_core.types import TwoSample

SIZES = (50, 80, 100, 120, 150, 200, 250)  # per mode
PUBLISHED = {  # N=100, C=0.3, m_tr=50
    "Meta-KL": (0.146, 0.222, 0.281, 0.340, 0.424, 0.556, 0.677),
    "Meta-MKL": (0.186, 0.321, 0.396, 0.493, 0.602, 0.759, 0.872),
}
ROWS_PER_MODE_AND_TASK = 50
LIMIT = "limit: likelihood ratio"


def limit(sample: TwoSample, n_permutations: int, streams: Streams) -> float:
    """Power of the log-likelihood ratio."""
    n, m = sample.sizes
    scores = torch.from_numpy(m2st.make_task("hdgm", delta=0.7).log_likelihood_ratio(sample.pooled.numpy()))
    generators = [streams.child(f"limit {index}").numpy("permutations") for index in range(len(scores))]
    members = random_memberships(n, m, n_permutations, generators)
    p = permutation_p_value(*permuted_mean_difference(scores, members, n, two_sided=False), "(1+b)/(1+B)")
    return float((p <= 0.05).double().mean())


def one_repeat(options: argparse.Namespace, repeat: int) -> dict[str, list[float]]:
    """Rejection rates by method, one for each test size."""
    streams = Streams(repeat).child("power benchmark")
    seed = streams.child("meta").seed
    meta = m2st.hdgm_meta_tasks(options.closeness, options.tasks, 2 * ROWS_PER_MODE_AND_TASK, seed=seed)
    task = m2st.make_task("hdgm", delta=0.7, null=options.null, stratified=options.stratified)
    train, preset = task.sample(2 * options.train, seed=streams.child("train").seed), m2st.PRESETS.find(options.preset)
    methods = {
        name: learn_once(method, train, repeat, preset)
        for name, method in bound_methods(options.methods, meta, options.preset, repeat).items()
    }
    rates: dict[str, list[float]] = {name: [] for name in [*methods, LIMIT]}
    for m_te in options.sizes:
        here = streams.child(f"m_te={m_te}")
        sample = batch(lambda seed, n=2 * m_te: task.sample(n, seed=seed), options.tests, here)
        for name, method in methods.items():
            rates[name].append(rejection_rate(sample, method, options.permutations, options.preset, here))
        rates[LIMIT].append(limit(sample, options.permutations, here))
    return rates


def main(arguments: Sequence[str] = ()) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="m2st_core bench power", description=__doc__)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--tests", type=int, default=100)
    parser.add_argument("--permutations", type=int, default=199)
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--closeness", type=float, default=0.3)
    parser.add_argument("--train", type=int, default=50, help="m_tr per mode")
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES, help="m_te per mode")
    parser.add_argument("--preset", default="recommended")
    parser.add_argument("--null", action="store_true", help="both samples from P: type-I error")
    parser.add_argument("--stratified", action="store_true", help="exactly half of the rows from each mode")
    parser.add_argument("--methods", nargs="*", help="default: all that the preset has")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    if not options.methods:
        warm = m2st.PRESETS.find(options.preset).warm_start is not None
        options.methods = [name for name, method in m2st.METHODS.items() if warm or not method.only_recommended]
    torch.set_num_threads(1)
    began = time.perf_counter()
    rates = over_repeats(partial(one_repeat, options), options.repeats, options.workers)
    print(f"HDGM, {'null' if options.null else 'Δ=0.7'}, C={options.closeness:g}, N={options.tasks}, ", end="")
    print(f"{ROWS_PER_MODE_AND_TASK} rows per mode and task, m_tr={options.train} per mode, α=0.05, ", end="")
    print(f"{options.preset}, {options.repeats} repeats × {options.tests} test sets, ", end="")
    print(f"{time.perf_counter() - began:.0f} s\n")
    published = {}
    if (options.tasks, options.closeness, options.train, options.null) == (100, 0.3, 50, False):
        for name, values in PUBLISHED.items():
            known = dict(zip(SIZES, values, strict=True))
            published[f"{name}, published"] = [known.get(size, float("nan")) for size in options.sizes]
    print_table(["m_te per mode", *map(str, options.sizes)], published | rates)


if __name__ == "__main__":
    main()
