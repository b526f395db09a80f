"""What a sweep will cost, before it is run: cells, seconds and memory, from a quick measurement of this machine."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from m2st_core.data import TASKS, make_task
from m2st_core.data.images.cifar import SOURCES
from m2st_core.data.images.tasks import ImageTask
from m2st_core.device import one_thread_per_operation
from m2st_core.presets import PRESETS
from m2st_core.rng import Streams
from m2st_core.sweeps.spec import LIMIT, Cell, LearnerSpec, SweepSpec
from m2st_core.sweeps.trial import ELEMENTS_AT_ONCE, draw_targets
from m2st_core.testing.methods import METHODS
from m2st_core.testing.run import run_tests
from m2st_core.types import Shape

CIFAR_PIXELS = 3072
GPU_SPEEDUP = 30.0  # of a current GPU over one core; an assumption, as convolutions of this size allow, not measured
STEP_SECONDS = 2.0e-4  # an image of CIFAR through φ, forwards and backwards, without upsampling
LEARNED_IMAGE_SECONDS = 2.0e-3  # a different image of the meta-tasks, in all epochs of the features' network
HEADS = 3300  # tasks whose heads cost as much as the network
DEALT_SECONDS = 3.0e-5  # an image of a meta-task: read, checked and found again among the others
TEST_SECONDS = {"MMD-M": 1.0e-3, "MMD-FUSE": 45e-3, "Meta-FUSE": 5e-3, "Feature-MKL": 4.5e-4}
DEEP_TEST_SECONDS = 3.4e-4  # the meta-tasks' deep kernels
OTHER_TEST_SECONDS = 1.5e-4  # per tested image, drawing included
OTHER_FIT_SECONDS = 1.0
TRAINING_SHARE = 5 / 6  # of an official data set: the images of meta-tasks
BYTES = 8  # per pixel of the different images: while they are put together, and while features are learned
GRAPH_BYTES = 10e6  # per image of CIFAR in a task, where Algorithm 1 is differentiated through its inner steps


def _size(shape: Shape) -> float:
    """How much an image costs beside one of CIFAR; some work does not depend on its pixels."""
    return 0.08 + 0.92 * math.prod(shape) / CIFAR_PIXELS


def image_cell_seconds(cell: Cell, shape: Shape) -> float:
    """The tests of a cell."""
    other = DEEP_TEST_SECONDS if cell.learner is not None else OTHER_TEST_SECONDS
    each = 2 * cell.m_te * TEST_SECONDS.get(cell.method, other) * _size(shape)
    return cell.tests * each * (0.7 + 0.3 * cell.n_permutations / 99)


def image_fit_seconds(method: str, m_tr: int, preset_name: str, shape: Shape) -> float:
    """Learning from the target's training images."""
    preset = PRESETS[preset_name].on(shape)
    convolutions = preset.images.convolutions
    per_image = STEP_SECONDS * _size(shape) * convolutions.upsample**2
    if method in ("MMD-D", "MMD-D w/ AC"):
        return preset.mmd_d.steps * 2 * min(m_tr, preset.mmd_d.largest_batch or m_tr) * per_image
    if method.startswith("C2ST"):
        return preset.classifier.epochs * 2 * m_tr * per_image
    return OTHER_FIT_SECONDS * _size(shape)


def algorithm_1_steps(spec: LearnerSpec, shape: Shape | None = None) -> int:
    """Steps of Algorithm 1, outer and inner, of all its starts; AGT-KL and AGT-MKL take outer ones only."""
    preset = PRESETS[spec.preset].on(shape)
    ascent = preset.meta_kl
    starts = preset.base_kernels.agt_starts if spec.learn == "learn_agt_mkl" else ascent.starts
    return ascent.outer_steps * starts * (1 + ascent.inner_steps if spec.learn == "learn_meta_kl" else 1)


def image_learner_seconds(spec: LearnerSpec, shape: Shape) -> float:
    """Learning from class pairs: features, or Algorithm 1 step by step."""
    preset = PRESETS[spec.preset].on(shape)
    dealing = 0.1 + DEALT_SECONDS * 2 * spec.n_tasks * spec.rows_per_task * _size(shape)
    if spec.learn == "learn_rows":
        return dealing
    if spec.learn in ("learn_features", "learn_feature_mixture"):
        each = LEARNED_IMAGE_SECONDS * (0.8 + 0.2 * _size(shape)) * (1 + spec.n_tasks / HEADS)
        return 1.0 + dealing + each * different_images(spec.task, spec.settings, spec.n_tasks, spec.rows_per_task)
    ascent = preset.meta_kl
    in_step = ascent.tasks_per_step * ascent.pooled_tasks * 2 * spec.rows_per_task
    each = in_step * STEP_SECONDS * _size(shape) * preset.images.convolutions.upsample**2
    return dealing + algorithm_1_steps(spec, shape) * each


def different_images(task: str, settings: Mapping[str, Any], n_tasks: int, rows: int) -> int:
    """How many different images are expected in the class pairs of an official data set; a class's pairs share some."""
    made = make_task(task, **settings)
    assert isinstance(made, ImageTask)
    if made.learned_from not in SOURCES or made.settings.get("lighting"):  # a light of its own in every pair
        return 2 * n_tasks * rows
    source = SOURCES[made.learned_from]
    each = source.sizes[0] * TRAINING_SHARE / source.classes
    met = 1 - (1 - min(rows / each, 1)) ** (2 * n_tasks / source.classes)
    return round(source.classes * each * met)


def image_memory(spec: SweepSpec, shape: Shape, at_once: int) -> int:
    """Bytes of a worker: the data sets, the meta-tasks' images, Algorithm 1's graph, the test samples held together."""
    pixels, n_tasks = math.prod(shape), max(spec.n_tasks)
    preset = PRESETS[spec.preset].on(shape)
    files = 2 * 60_000 * CIFAR_PIXELS if pixels == CIFAR_PIXELS else 0
    images = different_images(spec.task, spec.settings, n_tasks, spec.rows_per_task)
    learned = images * pixels * BYTES
    origins = {METHODS[name].origin for name in spec.methods if name in METHODS}
    if "ours" in origins:
        learned += images * n_tasks  # a label for every task
    if "paper" in origins and preset.meta_kl.second_order:
        graph = round(GRAPH_BYTES * 2 * spec.rows_per_task * _size(shape))
        learned = max(learned, learned // 2 + graph)
    if "MMD-D w/ AC" in spec.methods:  # it keeps the rows of all tasks
        learned += 3 * 4 * 2 * n_tasks * spec.rows_per_task * pixels
    return files + learned + 16 * min(spec.tests * 2 * max(spec.m_te) * pixels, at_once)


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
