"""Meta-KL between the paper's text and its published code: which of their differences changes its power.

``Meta-KL`` follows the text and ``Meta-KL · code`` the code. Each variant takes one group of settings from the other.
``--tasks`` is the number of related tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import m2st_core as m2st
from benchmarks.common import ALPHA, CPU, batch, over_repeats, p_values, parse, print_table
from m2st_core.presets import PAPER, RELEASED
from m2st_core.rng import Streams
from m2st_core.testing.run import learn_once

SIZES = (100, 200)  # per mode
GROUPS = {"inner loop": "meta_kl", "network and first widths": "meta_network", "target adaptation": "adaptation"}
VARIANTS = {"text": PAPER, "code": RELEASED} | {
    f"text, with the code's {words}": replace(PAPER, name=f"paper with {group}", **{group: getattr(RELEASED, group)})
    for words, group in GROUPS.items()
}


def one_repeat(n_tasks: int, tests: int, repeat: int) -> dict[str, list[float]]:
    """Power of each variant at each size; all variants share related tasks, training rows and test samples."""
    streams, task = Streams(repeat).child("deviations benchmark"), m2st.make_task("hdgm")
    related = m2st.hdgm_related_tasks(n_tasks=n_tasks, seed=streams.child("meta").seed)
    train = task.sample(100, seed=streams.child("train").seed)
    rates = {}
    for title, preset in VARIANTS.items():
        m2st.METHODS[title] = replace(m2st.METHODS["Meta-KL"], name=title, preset=preset)
        learner = m2st.meta_train(title, related, seed=repeat, device="cpu")
        fixed, rates[title] = learn_once(learner.bound(CPU), train, seed=repeat), []
        for m_te in SIZES:
            target = batch(lambda seed, n=2 * m_te: task.sample(n, seed=seed), tests, streams.child(f"m_te={m_te}"))
            rates[title].append(float((p_values(target, fixed, range(tests), 199) <= ALPHA).mean()))
        print(f"repeat {repeat}, {title}: {rates[title]}", flush=True)
    return rates


def main(arguments: Sequence[str] = ()) -> None:
    """Print the power of each variant and repeat as it comes, and the table at the end."""
    options = parse(arguments, __doc__, repeats=20, tests=100, tasks=100, workers=1)
    rates = over_repeats(partial(one_repeat, options.tasks, options.tests), options.repeats, options.workers)
    print(f"Meta-KL, HDGM, C=0.3, m_tr=50 per mode, N={options.tasks}, {options.repeats} repeats × {options.tests}\n")
    print_table(["m_te per mode", *map(str, SIZES)], rates)
