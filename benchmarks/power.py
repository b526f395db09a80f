"""Power on the paper's synthetic task: HDGM, mean ± standard error between repeats, beside the published numbers.

Each repeat draws its own meta-tasks, trains once, and tests fresh targets Δ=0.7, each with m_tr rows per mode to learn
from and m_te per mode to test. Methods that split nothing get the test rows only. The last row is the limit: the true
log-likelihood ratio as a one-sided witness.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

import m2st_core as m2st
from m2st_core.rng import Streams
from m2st_core.testing import run_tests
from m2st_core.testing.permutation import permutation_p_value, permuted_mean_difference, random_memberships
from m2st_core.types import TwoSample

SIZES = (50, 80, 100, 120, 150, 200, 250)  # per mode
PUBLISHED = {  # N=100, C=0.3, m_tr=50
    "Meta-KL": (0.146, 0.222, 0.281, 0.340, 0.424, 0.556, 0.677),
    "Meta-MKL": (0.186, 0.321, 0.396, 0.493, 0.602, 0.759, 0.872),
}
ROWS_PER_MODE_AND_TASK = 50


def targets(delta: float, n: int, count: int, streams: Streams) -> TwoSample:
    """``count`` pairs of n rows per sample."""
    task = m2st.make_task("hdgm", delta=delta)
    pairs = [task.sample(n, seed=streams.child(f"target {index}").seed) for index in range(count)]
    return TwoSample(torch.stack([p.x for p in pairs]), torch.stack([p.y for p in pairs]))


def limit(sample: TwoSample, n_permutations: int, streams: Streams) -> float:
    """Power of the log-likelihood ratio."""
    n, m = sample.sizes
    scores = torch.from_numpy(m2st.make_task("hdgm", delta=0.7).log_likelihood_ratio(sample.pooled.numpy()))
    generators = [streams.child(f"limit {index}").numpy("permutations") for index in range(len(scores))]
    members = random_memberships(n, m, n_permutations, generators)
    p = permutation_p_value(*permuted_mean_difference(scores, members, n, two_sided=False), "(1+b)/(1+B)")
    return float((p <= 0.05).double().mean())


def main(arguments: Sequence[str] = ()) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="m2st_core bench power", description=__doc__)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--tests", type=int, default=100)
    parser.add_argument("--permutations", type=int, default=199)
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--closeness", type=float, default=0.3)
    parser.add_argument("--train", type=int, default=50, help="m_tr per mode")
    parser.add_argument("--null", action="store_true", help="both samples from P: type-I error")
    parser.add_argument("--methods", nargs="*", help="default: all that learn from meta-tasks, MMD-M and MMD-FUSE")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    available = [name for name, method in m2st.METHODS.items() if method.adapt or method.fit]
    chosen = options.methods or [n for n in available if m2st.METHODS[n].needs_meta or n in ("MMD-M", "MMD-FUSE")]
    power: dict[str, list[list[float]]] = {name: [] for name in [*chosen, "limit: likelihood ratio"]}
    began = time.perf_counter()
    for repeat in range(options.repeats):
        streams = Streams(repeat).child("power benchmark")
        meta = m2st.hdgm_meta_tasks(
            options.closeness, options.tasks, 2 * ROWS_PER_MODE_AND_TASK, seed=streams.child("meta").seed
        )
        learner = None
        for name in chosen:
            if m2st.METHODS[name].needs_meta and learner is None:
                learner = m2st.meta_train(name, meta, seed=repeat)
        rows: dict[str, list[float]] = {name: [] for name in power}
        for m_te in SIZES:
            both, test_only = 2 * (options.train + m_te), 2 * m_te
            here = streams.child(f"m_te={m_te}")
            sample = targets(0.0 if options.null else 0.7, both, options.tests, here)
            tail = TwoSample(sample.x[:, -test_only:], sample.y[:, -test_only:])
            for name in chosen:
                method = m2st.METHODS[name]
                if method.needs_meta and learner is not None:
                    method = replace(learner, method=name).bound(torch.device("cpu"))
                results = run_tests(
                    sample if method.needs_split else tail,
                    method,
                    seeds=[here.child(f"test {index}").seed for index in range(options.tests)],
                    n_permutations=options.permutations,
                    train_fraction=(2 * options.train + 0.5) / both,
                    device="cpu",
                )
                rows[name].append(float(np.mean([result.rejected for result in results])))
            rows["limit: likelihood ratio"].append(limit(tail, options.permutations, here))
        for name, values in rows.items():
            power[name].append(values)
    print(f"HDGM, {'null' if options.null else 'Δ=0.7'}, C={options.closeness:g}, N={options.tasks}, ", end="")
    print(f"{ROWS_PER_MODE_AND_TASK} rows per mode and task, m_tr={options.train} per mode, α=0.05, ", end="")
    print(f"{options.repeats} repeats × {options.tests} test sets, {time.perf_counter() - began:.0f} s\n")
    print("| m_te per mode | " + " | ".join(str(size) for size in SIZES) + " |")
    print("|---" * (len(SIZES) + 1) + "|")
    if (options.tasks, options.closeness, options.train, options.null) == (100, 0.3, 50, False):
        for name, values in PUBLISHED.items():
            print(f"| {name}, published | " + " | ".join(f"{value:.3f}" for value in values) + " |")
    for name, repeats in power.items():
        values, error = np.mean(repeats, axis=0), np.std(repeats, axis=0, ddof=min(1, options.repeats - 1))
        error = error / np.sqrt(options.repeats)
        print(f"| {name} | " + " | ".join(f"{v:.3f} ± {e:.3f}" for v, e in zip(values, error, strict=True)) + " |")


if __name__ == "__main__":
    main()
