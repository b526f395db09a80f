"""Compute what comes with the software and write it into the package: ``bench shipped home course …``.

Run it after a change of a method's ``revision`` or of the sweeps' CODE; a test says so. ``course`` and ``home`` take
minutes, the others seconds. ``bench explore`` computes the grid of Explore, in hours.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch

from benchmarks.common import CPU, p_values, processes
from m2st_core.analysis.explanation import Evidence, evidence_of
from m2st_core.criterion import witness
from m2st_core.data import make_task
from m2st_core.data.synthetic import hdgm_related_tasks
from m2st_core.device import one_thread_per_operation
from m2st_core.kernels.distance import GaussianKernel, median_squared_distance
from m2st_core.permutation.engine import permuted_mean_difference
from m2st_core.permutation.labellings import permutation_p_value, random_memberships
from m2st_core.rng import Streams
from m2st_core.studies import lessons
from m2st_core.studies.images import STORY, ImageStudy
from m2st_core.studies.lessons import OWN_ROWS, STREAMS, TAUGHT, TESTS, LessonCell
from m2st_core.studies.one_test import SingleTest
from m2st_core.studies.shipped import FOLDER, Shipped, shipped_stamp
from m2st_core.studies.synthetic import DELTA, many_tests, two_samples
from m2st_core.sweeps.cells import draw_targets
from m2st_core.testing.meta import MetaLearner, meta_train
from m2st_core.testing.methods import METHODS
from m2st_core.testing.plan import TestSettings
from m2st_core.testing.two_sample import examine
from m2st_core.types import DEFAULT_TAUGHT_TEST, GENERIC_TEST, TwoSample

PLACES = torch.from_numpy(np.stack(np.meshgrid(lessons.AXIS, lessons.AXIS), axis=-1).reshape(-1, 2))
PERMUTATIONS = 99  # so that p is a whole number of percent
LEARNED_ANEW = 10  # tests that share one training sample
HISTORIES = 4


@dataclass(frozen=True)
class View:
    """A test's p-value of one target, and its witness function on the plane (g, g), in steps of 1/20 of ``noise``.

    ``noise`` is the largest standard deviation of the witness if the labels were random.
    """

    p_value: float
    field: np.ndarray


def learn(closeness: float, repeat: int) -> MetaLearner:
    """Meta-Witness, taught by 40 related tasks."""
    streams = Streams(repeat).child(f"home, C={closeness:g}")
    tasks = hdgm_related_tasks(closeness, lessons.N_TASKS, lessons.ROWS_PER_TASK, seed=streams.child("tasks").seed)
    return meta_train(TAUGHT, tasks, seed=streams.child("learning").seed, device="cpu")


def view(seed: int, learner: MetaLearner | None = None) -> View:
    """One target through MMD-M or, with a learner, through Meta-Witness."""
    x, y = two_samples(DELTA, lessons.SIZE, seed)
    settings = TestSettings(alpha=lessons.ALPHA, seed=seed, device="cpu")
    tested = examine(x, y, GENERIC_TEST, settings) if learner is None else learner.examine(x, y, settings)
    evidence = evidence_of(tested)
    n, m = evidence.sample.sizes
    noise = _similarities(evidence).std(axis=1, ddof=1).max() * (1 / n + 1 / m) ** 0.5
    values = (evidence.witness(PLACES) / noise / lessons.STEP).clip(-127, 127)
    return View(tested.result.p_value, np.rint(values).astype(np.int8).reshape(len(lessons.AXIS), len(lessons.AXIS)))


@torch.no_grad()
def _similarities(evidence: Evidence) -> np.ndarray:
    """k(place, row) of the test's kernel, (g², N)."""
    kernel = evidence.kernel
    if kernel is None:
        raise TypeError("Both tests have a kernel.")
    rows = evidence.sample.pooled
    return kernel.gram(kernel.embed(PLACES[None].to(rows)), kernel.embed(rows)).reshape(len(PLACES), -1).numpy()


def power(repeat: int, learner: MetaLearner | None = None) -> float:
    """The share of fresh targets that are rejected. All tests of a repeat get the same targets."""
    method = METHODS[GENERIC_TEST] if learner is None else learner.bound(CPU)
    p_values = many_tests(
        method, DELTA, False, lessons.SIZE, lessons.TARGETS, Streams(repeat).child("home, targets").seed
    )
    return float((p_values <= lessons.ALPHA).mean())


def compute_column(closeness: float | None) -> tuple[list[View], list[float]]:
    """Views of every target, with the first repeat's learner, and the power of every repeat; without C, of MMD-M."""
    learners: Sequence[MetaLearner | None] = [None] * lessons.REPEATS
    if closeness is not None:
        learners = [learn(closeness, repeat) for repeat in range(lessons.REPEATS)]
    views = [view(seed, learners[0]) for seed in range(lessons.SAMPLES)]
    return views, [power(repeat, learner) for repeat, learner in enumerate(learners)]


def home_shipped(workers: int) -> Shipped:
    """Every view and power of Home, one process for each closeness."""
    with processes(workers) as pool:
        (generic, generic_power), *taught = pool.map(compute_column, [None, *lessons.CLOSENESSES])
    targets = [two_samples(DELTA, lessons.SIZE, seed) for seed in range(lessons.SAMPLES)]
    arrays = {
        "closeness": np.array(lessons.CLOSENESSES),
        "x": np.stack([x for x, _ in targets]).astype(np.float32),
        "y": np.stack([y for _, y in targets]).astype(np.float32),
        "generic_p": np.array([view.p_value for view in generic]),
        "generic_field": np.stack([view.field for view in generic]),
        "generic_power": np.array(generic_power),
        "taught_p": np.array([[view.p_value for view in views] for views, _ in taught]),
        "taught_field": np.stack([np.stack([view.field for view in views]) for views, _ in taught]),
        "taught_power": np.array([powers for _, powers in taught]),
    }
    return Shipped(arrays, stamp=shipped_stamp([GENERIC_TEST, TAUGHT]))


def compute_cell(cell: LessonCell) -> np.ndarray:
    """P-values (100,)."""
    if cell.method == OWN_ROWS:
        return _learn_from_own_rows(cell)
    if not cell.learned_from:
        return _test(cell, 0, TESTS, None)
    share = TESTS // HISTORIES
    parts = [_test(cell, i * share, share, history(cell.learned_from, i)) for i in range(HISTORIES)]
    return np.concatenate(parts)


def _test(cell: LessonCell, start: int, count: int, learner: MetaLearner | None) -> np.ndarray:
    method = METHODS[cell.method]
    if learner is not None:
        method = learner.for_method(cell.method).bound(CPU)
    samples, numbers = cell.samples(), slice(start, start + count)
    seeds = [cell.streams.child(f"test {index}").seed for index in range(start, start + count)]
    return p_values(TwoSample(samples.x[numbers], samples.y[numbers]), method, seeds, PERMUTATIONS)


@one_thread_per_operation()
def _learn_from_own_rows(cell: LessonCell) -> np.ndarray:
    """Learn a witness function from training rows; compare its means on the test rows, one-sided."""
    samples, groups = cell.samples(), TESTS // LEARNED_ANEW
    streams = cell.streams.child(f"training, {cell.learned_from} rows")
    task = make_task("hdgm", delta=cell.delta)
    train = draw_targets(task, cell.learned_from, groups, streams)
    kernel = GaussianKernel(median_squared_distance(train.pooled))
    with torch.no_grad():
        places = samples.pooled.reshape(groups, -1, samples.x.shape[-1])
        scores = witness(kernel, train.x, train.y, places).reshape(TESTS, -1)
    generators = [cell.streams.child(f"test {index}").numpy("permutations") for index in range(TESTS)]
    members = random_memberships(cell.rows, cell.rows, PERMUTATIONS, generators)
    values, rounding = permuted_mean_difference(scores, members, cell.rows, two_sided=False)
    return permutation_p_value(values, rounding, "(1+b)/(1+B)").numpy()


@lru_cache(len(lessons.TASK_COUNTS) * HISTORIES)
def history(n_tasks: int, index: int) -> MetaLearner:
    """Learn from one of four sets of related tasks, each task with 100 rows per sample."""
    seed = STREAMS.child(f"history {index}").seed
    tasks = hdgm_related_tasks(lessons.CLOSENESS, n_tasks, lessons.ROWS_PER_TASK, seed=seed)
    return meta_train(TAUGHT, tasks, seed=seed, device="cpu")


def course_shipped() -> Shipped:
    """P-values of every cell of Learn, in percent."""
    cells = lessons.every_lesson_cell()
    percent = np.stack([np.rint(100 * compute_cell(cell)).astype(np.uint8) for cell in cells])
    stamp = shipped_stamp([GENERIC_TEST, TAUGHT, DEFAULT_TAUGHT_TEST])
    return Shipped({"percent": percent}, values={"cells": [cell.key for cell in cells]}, stamp=stamp)


def study_shipped(study: SingleTest | ImageStudy, methods: Sequence[str]) -> Shipped:
    """The result of the study that a page opens with."""
    return replace(study.run().packed(), stamp=shipped_stamp(methods))


RESULTS: dict[str, Callable[[], Shipped]] = {
    "home": lambda: home_shipped(os.cpu_count() or 1),
    "course": course_shipped,
    "one_test": lambda: study_shipped(SingleTest(), [SingleTest().method, SingleTest().baseline]),
    "image_story": lambda: study_shipped(STORY, STORY.methods),
}


def main(arguments: Sequence[str] = ()) -> None:
    """Compute the named results, all by default, and write their files."""
    parser = argparse.ArgumentParser(prog="m2st_core bench shipped", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", default=[*RESULTS], choices=[*RESULTS])
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    for name in options.names:
        began = time.perf_counter()
        path = RESULTS[name]().save(name, FOLDER)
        print(f"{path.name}: {path.stat().st_size / 1e3:.0f} kB in {time.perf_counter() - began:.0f} s", flush=True)
