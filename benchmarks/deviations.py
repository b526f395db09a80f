"""Meta-KL between the paper's text and its published code: which of their differences changes its power.

Preset ``paper`` follows the text and ``released`` the code. Each variant takes one group of settings from the other.
``--tasks`` is the number of related tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch

import m2st_core as m2st
from benchmarks.common import PaperRepeat, over_repeats, parse, print_table
from m2st_core.presets import PAPER, PRESETS, RELEASED
from m2st_core.rng import Streams

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


def one_repeat(n_tasks: int, tests: int, repeat: int) -> dict[str, list[float]]:
    """Power of each variant at each size."""
    setting = PaperRepeat.draw(Streams(repeat).child("deviations benchmark"), repeat, SIZES, tests, n_tasks)
    rates = {}
    for title, preset in VARIANTS.items():
        PRESETS[preset.name] = preset
        learner = m2st.meta_train("Meta-KL", setting.related, preset=preset.name, seed=repeat, device="cpu")
        rates[title] = setting.power(learner, preset.name)
        print(f"repeat {repeat}, {title}: {rates[title]}", flush=True)
    return rates


def main(arguments: Sequence[str] = ()) -> None:
    """Print the power of each variant and repeat as it comes, and the table at the end."""
    options = parse(arguments, __doc__, repeats=20, tests=100, tasks=100, workers=1)
    torch.set_num_threads(1)
    rates = over_repeats(partial(one_repeat, options.tasks, options.tests), options.repeats, options.workers)
    print(f"Meta-KL, HDGM, C=0.3, m_tr=50 per mode, N={options.tasks}, {options.repeats} repeats × {options.tests}\n")
    print_table(["m_te per mode", *map(str, SIZES)], rates)
