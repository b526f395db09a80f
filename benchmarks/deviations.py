"""Meta-KL between the paper's text and its published code: which of their differences changes its power.

Preset ``paper`` follows the text and ``released`` the code. Each variant takes one group of settings from the other.
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
from m2st_core.presets import PAPER, PRESETS, RELEASED
from m2st_core.rng import Streams
from m2st_core.testing.run import learn_once, run_tests

SIZES = (100, 200)  # per mode
GROUPS = {"inner loop": "meta_kl", "network and first widths": "meta_network", "target adaptation": "adaptation"}
VARIANTS = {
    "text (`paper`)": PAPER,
    **{
        f"text, with the code's {words}": replace(
            PAPER, name=f"paper with {field}", **{field: getattr(RELEASED, field)}
        )
        for words, field in GROUPS.items()
    },
    "code (`released`)": RELEASED,
}


def one_repeat(tests: int, repeat: int) -> dict[str, list[float]]:
    """Power of each variant at each size, after one training sample of 50 rows per mode."""
    streams = Streams(repeat).child("deviations benchmark")
    meta, task = m2st.hdgm_related_tasks(seed=streams.child("meta").seed), m2st.make_task("hdgm")
    train = task.sample(100, seed=streams.child("train").seed)
    targets = [batch(lambda seed, n=2 * m: task.sample(n, seed=seed), tests, streams.child(f"m_te={m}")) for m in SIZES]
    rates = {}
    for title, preset in VARIANTS.items():
        PRESETS[preset.name] = preset
        learner = m2st.meta_train("Meta-KL", meta, preset=preset.name, seed=repeat, device="cpu")
        fixed = learn_once(learner.bound(CPU), train, seed=repeat, preset=preset)
        results = [
            run_tests(t, fixed, seeds=range(tests), preset=preset, n_permutations=199, device="cpu") for t in targets
        ]
        rates[title] = [float(np.mean([r.rejected for r in found])) for found in results]
    return rates


def main(arguments: Sequence[str] = ()) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="m2st_core bench deviations", description=__doc__)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--tests", type=int, default=100)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    rates = over_repeats(partial(one_repeat, options.tests), options.repeats, options.workers)
    print(f"Meta-KL, HDGM, C=0.3, N=100, m_tr=50 per mode, {options.repeats} repeats × {options.tests} test sets\n")
    print_table(["m_te per mode", *map(str, SIZES)], rates)


if __name__ == "__main__":
    main()
