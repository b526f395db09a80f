"""Table 3's mixtures under what the paper does not state: how β is found, and how AGT-MKL's kernels start.

Meta-MKL's weights are pulled towards uniform ones, and AGT-MKL-A mixes fewer of its ten starts. Samples and learners
are those of ``paper table3 --scale full``; learners that are not in the store are trained.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from benchmarks.common import over_repeats, parse, print_table
from m2st_core.kernels.base import copy_with
from m2st_core.learners.knowledge import Knowledge, needed_knowledge
from m2st_core.paper.experiments import PAPER as EXPERIMENTS
from m2st_core.presets import PAPER
from m2st_core.sweeps.cells import Cell, LearnerParts, run_cell, train_learner
from m2st_core.sweeps.store import Store
from m2st_core.testing.learner_files import learner_from_parts
from m2st_core.testing.methods import METHODS

TABLE = {  # experiment and method: variants, with settings of the base kernels and the number that is mixed
    ("table3", "Meta-MKL"): {
        **{f"{share:.0%} of β uniform": ({"uniform_share": share}, 10) for share in (0.0, 0.5, 0.8, 0.95)},
        **{f"λ = {ridge:g} mean variances": ({"relative_ridge": ridge}, 10) for ridge in (1.0, 10.0, 100.0)},
    },
    ("table3-all", "AGT-MKL-A"): {f"{count} of 10 starts": ({}, count) for count in (1, 2, 3, 5, 10)},
}


def learned(cell: Cell) -> LearnerParts:
    """The learner of this cell, from the store or trained and stored."""
    spec, store = cell.learner, Store()
    assert spec is not None
    parts = store.cells.learner(spec.key)
    if parts is None:
        parts = train_learner(spec, "cpu")
        store.cells.add_learner(spec, parts, 0.0)
    return parts


def first_kernels(parts: LearnerParts, count: int) -> LearnerParts:
    """The same learner with its first base kernels only."""
    learner = learner_from_parts(*parts)
    known = learner.knowledge
    base = copy_with(needed_knowledge(known.base, "base kernels"), lambda tensor: tensor[:, :count].clone())
    fewer = Knowledge(kernel=known.kernel, base=base, base_names=known.base_names[:count], choices=known.choices)
    return replace(learner, knowledge=fewer).parts()


def one_repeat(tests: int, repeat: int) -> dict[str, list[float]]:
    """Power of each variant."""
    rates = {}
    for (experiment, method), variants in TABLE.items():
        spec = EXPERIMENTS[experiment].spec("full").with_(methods=(method,), tests=tests)
        cell = next(cell for cell in spec.cells() if cell.repeat == repeat)
        parts = learned(cell)
        for title, (settings, count) in variants.items():
            name, preset = f"{method}, {title}", replace(PAPER, base_kernels=replace(PAPER.base_kernels, **settings))
            METHODS[name] = replace(METHODS[method], name=name, preset=preset)
            result = run_cell(replace(cell, method=name), first_kernels(parts, count), "cpu")
            rates[name] = [result.rejections / result.tests]
    return rates


def main(arguments: Sequence[str] = ()) -> None:
    """Print the table."""
    options = parse(arguments, __doc__, repeats=20, tests=100, workers=1)
    rates = over_repeats(partial(one_repeat, options.tests), options.repeats, options.workers)
    print(f"Table 3, {options.repeats} repeats × {options.tests} test samples\n")
    print_table(["variant", "power"], rates)
