"""Does adapting to the target's training rows earn its place? Power with and without it, on the paper's HDGM setting.

Meta-KL with a fixed number of gradient steps on the training rows, and with the number its held-out tasks chose;
Meta-MKL with weights β and with uniform ones; Feature-MKL as chosen, with β, and with the kernel of all tasks alone.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import torch

import m2st_core as m2st
from benchmarks.common import CPU, batch, over_repeats, print_table
from m2st_core.rng import Streams
from m2st_core.testing.run import learn_once, run_tests

SIZES = (50, 100, 200)  # per mode
VARIANTS = {
    "Meta-KL, as chosen": ("Meta-KL", {}),
    "Meta-KL, no steps": ("Meta-KL", {"adaptation_steps": 0.0}),
    "Meta-KL, 5 steps": ("Meta-KL", {"adaptation_steps": 5.0}),
    "Meta-KL, 50 steps": ("Meta-KL", {"adaptation_steps": 50.0}),
    "Meta-MKL": ("Meta-MKL", {}),
    "Meta-MKL-A (uniform)": ("Meta-MKL-A", {}),
    "Feature-MKL, as chosen": ("Feature-MKL", {}),
    "Feature-MKL, β of the tasks' kernels learned": ("Feature-MKL", {"beta_is_learned": 1.0}),
    "Feature-MKL, the kernel of all tasks": ("Feature-MKL", {"beta_is_learned": 0.0}),
}


def one_repeat(tests: int, repeat: int) -> dict[str, list[float]]:
    """Power of each variant at each size, after one training sample of 50 rows per mode."""
    streams = Streams(repeat).child("adaptation benchmark")
    meta, task = m2st.hdgm_related_tasks(seed=streams.child("meta").seed), m2st.make_task("hdgm")
    learners = {name: m2st.meta_train(name, meta, seed=repeat, device="cpu") for name in ("Meta-KL", "Feature-MKL")}
    train = task.sample(100, seed=streams.child("train").seed)
    targets = [batch(lambda seed, n=2 * m: task.sample(n, seed=seed), tests, streams.child(f"m_te={m}")) for m in SIZES]
    rates = {}
    for title, (method, choices) in VARIANTS.items():
        learner = learners["Feature-MKL" if method == "Feature-MKL" else "Meta-KL"]
        before = dict(learner.choices)
        learner.choices.update(choices)
        fixed = learn_once(replace(learner, method=method).bound(CPU), train, seed=repeat)
        results = [run_tests(t, fixed, seeds=range(tests), n_permutations=199, device="cpu") for t in targets]
        rates[title] = [float(np.mean([r.rejected for r in found])) for found in results]
        learner.choices.update(before)
    return rates


def main(arguments: Sequence[str] = ()) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="m2st_core bench adaptation", description=__doc__)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--tests", type=int, default=100)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    rates = over_repeats(partial(one_repeat, options.tests), options.repeats, options.workers)
    print(f"m_tr=50 per mode, {options.repeats} repeats × {options.tests} test sets\n")
    print_table(["m_te per mode", *map(str, SIZES)], rates)


if __name__ == "__main__":
    main()
