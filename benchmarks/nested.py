"""The history's share of the spread between repeats: several initialisations learn from the same related tasks.

The paper's ± is between repeats. In the released code the related tasks are drawn without the repeat, so all repeats of
a published cell share one history. Here each of several histories is learned from with several initialisations, each
with training rows and test samples of its own. ``m2st_core.paper.published`` splits the variance. Rows are written
history by history, and a later call goes on where they end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

import m2st_core as m2st
from benchmarks.common import ALPHA, CPU, batch, p_values, parse
from m2st_core.data.arrays import as_related_tasks
from m2st_core.kernels.base import copy_with
from m2st_core.learners.algorithm1 import learn_meta_kl
from m2st_core.learners.knowledge import Knowledge
from m2st_core.paper.published import FOLDER, NESTED
from m2st_core.presets import PAPER
from m2st_core.rng import Streams
from m2st_core.testing.run import learn_once

METHODS = ("Meta-KL", "Meta-MKL")
SIZES = (50, 80, 100, 120, 150, 200, 250)  # m_te per mode
COUNTS = (20, 100)  # N, the related tasks of a history
TRAIN, TESTS, PERMUTATIONS = 50, 100, 199


def learned(n_tasks: int, history: int, streams: list[Streams]) -> Knowledge:
    """The knowledge that each of several initialisations learns from the same history, in one batch."""
    seed = Streams(0).child(f"nested, N={n_tasks}, history {history}").seed
    related = as_related_tasks(m2st.hdgm_related_tasks(n_tasks=n_tasks, seed=seed)).repeated(len(streams))
    return learn_meta_kl(related, PAPER, [stream.child("meta-training") for stream in streams], None)


def only(known: Knowledge, repeat: int) -> Knowledge:
    """The knowledge of one of the initialisations."""
    kernel, base = (copy_with(part, lambda tensor: tensor[repeat : repeat + 1]) for part in (known.kernel, known.base))
    return Knowledge(kernel=kernel, base=base, base_names=known.base_names, choices=known.choices)


def rows_of(n_tasks: int, history: int, repeats: int) -> Iterator[dict[str, object]]:
    """The rejections of each method, initialisation and size."""
    task = m2st.make_task("hdgm")
    streams = [Streams(0).child(f"nested, N={n_tasks}, history {history}, repeat {r}") for r in range(repeats)]
    known = learned(n_tasks, history, streams)
    for repeat, stream in enumerate(streams):
        train = task.sample(2 * TRAIN, seed=stream.child("train").seed)
        targets = {
            size: batch(lambda seed, n=2 * size: task.sample(n, seed=seed), TESTS, stream.child(f"m_te={size}"))
            for size in SIZES
        }
        for name in METHODS:
            method = m2st.METHODS[name].with_knowledge(only(known, repeat).to(CPU))
            fixed = learn_once(method, train, seed=stream.child("learning").seed)
            for size, target in targets.items():
                seeds = [stream.child(f"m_te={size}, test {index}").seed for index in range(TESTS)]
                rejected = int((p_values(target, fixed, seeds, PERMUTATIONS) <= ALPHA).sum())
                cell = {"n_tasks": n_tasks, "method": name, "history": history, "repeat": repeat, "m_te": size}
                yield cell | {"rejections": rejected, "tests": TESTS}


def main(arguments: Sequence[str] = ()) -> None:
    """Compute what is missing, history by history."""
    options = parse(arguments, __doc__, histories=10, repeats=5, out=FOLDER / NESTED)
    done = pd.read_csv(options.out) if options.out.exists() else pd.DataFrame(columns=["n_tasks", "history"])
    for history in range(options.histories):
        for n_tasks in COUNTS:
            if ((done["n_tasks"] == n_tasks) & (done["history"] == history)).any():
                continue
            fresh = pd.DataFrame(rows_of(n_tasks, history, options.repeats))
            fresh.to_csv(options.out, mode="a", header=not options.out.exists(), index=False)
            print(f"N={n_tasks}, history {history}: {len(fresh)} rows", flush=True)
