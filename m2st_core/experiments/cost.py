"""What a sweep will cost, before it is run: cells, seconds and memory, from a quick measurement of this machine."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cache

from m2st_core.device import one_thread_per_operation
from m2st_core.experiments.image_cost import (
    GPU_SPEEDUP,
    algorithm_1_steps,
    image_cell_seconds,
    image_fit_seconds,
    image_learner_seconds,
    image_memory,
)
from m2st_core.experiments.spec import LIMIT, Cell, LearnerSpec, SweepSpec
from m2st_core.experiments.trial import ELEMENTS_AT_ONCE, draw_targets
from m2st_core.presets import PRESETS
from m2st_core.rng import Streams
from m2st_core.tasks import TASKS, make_task
from m2st_core.testing import METHODS, run_tests

REFERENCE_SECONDS = 0.039  # of the measurement below, on the machine where the other numbers were taken
OVERHEAD = 0.15  # seconds per cell for drawing samples and passing results
PER_TEST = 2.0e-3  # seconds of MMD-M at 200 pooled rows and 199 permutations
GROWTH, CHEAP_GROWTH = 1.25, 1.1  # with which power of the rows it grows, for sizes like the paper's
# How much more than MMD-M a test costs, and seconds to learn from 200 pooled training rows.
TEST_FACTOR = {"MMD-FUSE": 16.0, "Meta-FUSE": 3.5, "Meta-Witness": 0.5, "Feature-MKL": 1.2} | {
    "Meta-MKL": 2.5,
    "AGT-MKL": 2.5,
    "Meta-MKL-A": 2.5,
    "AGT-MKL-A": 2.5,
}
CHEAP_FACTOR = 0.3  # tests that compare one number per row
CHEAP = {"C2ST-S", "C2ST-L", "ME", "SCF", "Meta-WiTS", "Meta-MKL-SI", LIMIT}
FIT_SECONDS = {"MMD-O": 0.5, "MMD-D": 0.5, "C2ST-S": 0.5, "C2ST-L": 0.5, "ME": 0.2, "SCF": 0.2, "MMD-D w/ AC": 1.0}
LEARNER_SECONDS = {"learn_features": 0.6, "learn_feature_mixture": 0.8, "learn_rows": 0.1}  # N=100, 200 pooled rows
SECONDS_PER_STEP = 0.0012  # of Algorithm 1 for 10 tasks with 50 pairs of rows: a gradient; as much for its curvature


@dataclass(frozen=True)
class Cost:
    """A prediction, right within a factor of two for sizes like the paper's."""

    cells: int
    learners: int
    seconds: float  # of one core
    memory_bytes: int  # of one worker
    gpu_seconds: float | None = None  # of one GPU, for images


@cache
def machine_factor() -> float:
    """How much slower than the reference this machine is: the best of three small batches of MMD-M."""
    sample = draw_targets(make_task("hdgm"), 100, 20, Streams(0))
    times = []
    with one_thread_per_operation():
        for _ in range(3):
            began = time.perf_counter()
            run_tests(sample, METHODS["MMD-M"], seeds=range(20), n_permutations=199, device="cpu")
            times.append(time.perf_counter() - began)
    return min(times) / REFERENCE_SECONDS


def predict(spec: SweepSpec, known: frozenset[str] = frozenset()) -> Cost:
    """The cost of the cells whose keys are not known yet."""
    cells = [cell for cell in spec.cells() if cell.key not in known]
    if TASKS[spec.task].shape is not None:
        return _predict_images(spec, cells)
    learners = {cell.learner.key: cell.learner for cell in cells if cell.learner is not None}
    fits = {(cell.method, cell.closeness, cell.n_tasks, cell.m_tr, cell.repeat) for cell in cells if cell.m_tr}
    long = spec.preset != "recommended"
    seconds = sum(_cell_seconds(cell) for cell in cells) + sum(_learner_seconds(one) for one in learners.values())
    seconds += sum(FIT_SECONDS.get(fit[0], 0.05) * (6 if long else 1) for fit in fits)
    rows = 2 * max(spec.m_te) * type(make_task(spec.task, **spec.settings)).rows_per_size
    dimension = 64 if spec.task == "digits" else int(spec.settings.get("dimension", 2))
    memory = 350 * 2**20 + 8 * spec.tests * rows * (dimension + 4) + 64 * 2**20
    return Cost(len(cells), len(learners), seconds * machine_factor(), memory)


def _predict_images(spec: SweepSpec, cells: list[Cell]) -> Cost:
    shape = TASKS[spec.task].shape
    assert shape is not None
    learners = {cell.learner.key: cell.learner for cell in cells if cell.learner is not None}
    fits = {(cell.method, cell.closeness, cell.n_tasks, cell.m_tr, cell.repeat) for cell in cells if cell.m_tr}
    work = sum(image_cell_seconds(cell, shape) for cell in cells)
    work += sum(image_fit_seconds(fit[0], fit[3], spec.preset, shape) for fit in fits if fit[3])
    work += sum(image_learner_seconds(one, shape) for one in learners.values())
    memory = image_memory(spec, shape, ELEMENTS_AT_ONCE)
    overhead = OVERHEAD * len(cells)
    seconds = (overhead + work) * machine_factor()
    return Cost(len(cells), len(learners), seconds, 400 * 2**20 + memory, overhead + work / GPU_SPEEDUP)


def _cell_seconds(cell: Cell) -> float:
    rows = 2 * cell.m_te * type(make_task(cell.task, **cell.settings)).rows_per_size
    factor = CHEAP_FACTOR if cell.method in CHEAP else TEST_FACTOR.get(cell.method, 1.0)
    size = (rows / 200) ** (CHEAP_GROWTH if cell.method in CHEAP else GROWTH)
    return OVERHEAD + cell.tests * PER_TEST * factor * size * (0.4 + 0.6 * cell.n_permutations / 199)


def _learner_seconds(spec: LearnerSpec) -> float:
    rows = spec.n_tasks * spec.rows_per_task * type(make_task(spec.task, **spec.settings)).rows_per_size / 10_000
    if spec.learn in LEARNER_SECONDS:
        return LEARNER_SECONDS[spec.learn] * (0.3 + 0.7 * rows)
    ascent = PRESETS[spec.preset].meta_kl
    gradients = algorithm_1_steps(spec) * (2 if ascent.second_order else 1) * ascent.tasks_per_step / 10
    network = ((PRESETS[spec.preset].meta_network.hidden or 6) / 6) ** 0.5
    return SECONDS_PER_STEP * gradients * network * (rows * 100 / spec.n_tasks) ** 1.5
