"""Does adapting to the target's training rows earn its place? Power with and without it, on the paper's HDGM setting.

Meta-KL with a fixed number of gradient steps on the training rows, and with the number its held-out tasks chose;
Meta-MKL with weights β and with uniform ones; Feature-MKL as chosen, with β, and with the kernel of all tasks alone.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import m2st_core as m2st
from benchmarks.common import PaperRepeat, run_study, study_options
from m2st_core.rng import Streams

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
    """Power of each variant at each size."""
    setting = PaperRepeat.draw(Streams(repeat).child("adaptation benchmark"), repeat, SIZES, tests)
    learners = {
        name: m2st.meta_train(name, setting.related, seed=repeat, device="cpu") for name in ("Meta-KL", "Feature-MKL")
    }
    rates = {}
    for title, (method, choices) in VARIANTS.items():
        learner = learners["Feature-MKL" if method == "Feature-MKL" else "Meta-KL"]
        variant = copy.deepcopy(replace(learner, method=method))
        variant.choices.update(choices)
        rates[title] = setting.power(variant)
    return rates


def main(arguments: Sequence[str] = ()) -> None:
    """Print the table."""
    options = study_options("adaptation", __doc__).parse_args(arguments)
    run_study(options, partial(one_repeat, options.tests), "m_tr=50 per mode", ["m_te per mode", *map(str, SIZES)])


if __name__ == "__main__":
    main()
