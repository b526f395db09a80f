"""The cost of a sweep before it is run: cells, seconds and memory, scaled by a quick measurement of this machine."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from m2st_core.data import TASKS, make_task
from m2st_core.data.images.sources import SOURCES
from m2st_core.data.images.tasks import ImageTask
from m2st_core.device import one_thread_per_operation
from m2st_core.learners.algorithm1 import learn_agt_kl, learn_agt_mkl, learn_meta_kl
from m2st_core.learners.knowledge import Learn
from m2st_core.learners.learned_tests import learn_feature_mixture, learn_features
from m2st_core.learners.target_kernels import learn_rows
from m2st_core.numbers import duration
from m2st_core.presets import TUNED
from m2st_core.rng import Streams
from m2st_core.sweeps.cells import ELEMENTS_AT_ONCE, Cell, LearnerSpec, draw_targets
from m2st_core.sweeps.spec import LIMIT, SweepSpec
from m2st_core.testing.method import Method, MethodCost
from m2st_core.testing.methods import METHODS, trained_by
from m2st_core.testing.plan import bytes_of_test
from m2st_core.testing.run import run_tests
from m2st_core.types import Shape

REFERENCE_SECONDS = 0.039  # duration of the measurement below on the machine where the other numbers were taken
GPU_SPEEDUP = 30.0  # assumed, not measured: a current GPU against one core, for convolutions of this size
OVERHEAD = 0.15  # seconds per cell for drawing samples and passing results

# Rows of numbers: a test in units of MMD-M, and a fit in seconds for 200 pooled training rows.
PER_TEST = 2.0e-3  # seconds of MMD-M at 200 pooled rows and 199 permutations
GROWTH, GROWTH_BY_ROW = 1.25, 1.1  # exponents of the number of rows, for sizes like the paper's
LIMIT_COST = MethodCost(test=0.3, by_row=True)
LONG_FITS = 6  # times as long where settings are not tuned
STEP_SECONDS = 0.0012  # a gradient of Algorithm 1 for 10 tasks with 50 pairs of rows; the curvature costs as much

# Images.
CIFAR_PIXELS = 3072
IMAGE_STEP_SECONDS = 2.0e-4  # an image of CIFAR through φ, forwards and backwards, without upsampling
LEARNED_IMAGE_SECONDS = 2.0e-3  # a distinct image of the related tasks, in all epochs of the feature network
HEADS = 3300  # number of tasks whose heads cost as much as the network
DEALT_SECONDS = 3.0e-5  # an image of a related task: read, checked and compared with the others
DEEP_TEST_SECONDS = 3.4e-4  # deep kernels of the related tasks
OTHER_TEST_SECONDS = 1.5e-4  # per tested image, drawing included
OTHER_IMAGE_FIT_SECONDS = 1.0
TRAINING_SHARE = 5 / 6  # images of an official data set that related tasks use
PIXEL_BYTES = 8  # per pixel of the distinct images, while they are assembled and while features are learned
GRAPH_BYTES = 10e6  # per image of CIFAR in a task, where Algorithm 1 is differentiated through its inner steps


@dataclass(frozen=True)
class TrainingCost:
    """The cost of a training on related tasks. Without ``seconds`` it is counted in steps of Algorithm 1."""

    seconds: float | None = None  # for N=100 tasks with 200 pooled rows of numbers
    features: bool = False  # learns a feature network from images
    inner_steps: bool = False  # differentiates through Algorithm 1's inner steps
    agt_starts: bool = False  # has the starts of AGT-MKL


TRAINING_COSTS: dict[Learn | None, TrainingCost] = {
    learn_features: TrainingCost(seconds=0.6, features=True),
    learn_feature_mixture: TrainingCost(seconds=0.8, features=True),
    learn_rows: TrainingCost(seconds=0.1),
    learn_meta_kl: TrainingCost(inner_steps=True),
    learn_agt_kl: TrainingCost(),
    learn_agt_mkl: TrainingCost(agt_starts=True),
}


@dataclass(frozen=True)
class SweepCost:
    """A prediction, correct within a factor of two for sizes like the paper's."""

    cells: int
    learners: int
    seconds: float  # on one core
    memory_bytes: int  # of one worker
    gpu_seconds: float | None = None  # on one GPU, for images

    @property
    def gpu_words(self) -> str:
        """The estimate for a GPU, after a semicolon; empty if there is none."""
        return "" if self.gpu_seconds is None else f"; on a GPU it may take {duration(self.gpu_seconds)}"


@cache
def machine_factor() -> float:
    """The time of this machine over that of the reference: the best of three small batches of MMD-M.

    What other processes take of the clock is left out: they may be gone when the prediction is needed.
    """
    sample = draw_targets(make_task("hdgm"), 100, 20, Streams(0))
    times = []
    with one_thread_per_operation():
        for _ in range(3):
            began, used = time.perf_counter(), time.process_time()
            run_tests(sample, METHODS["MMD-M"], seeds=range(20), n_permutations=199, device="cpu")
            times.append(min(time.perf_counter() - began, time.process_time() - used))
    return min(times) / REFERENCE_SECONDS


def predict_cost(spec: SweepSpec, stored: frozenset[str] = frozenset()) -> SweepCost:
    """The cost of the cells whose keys are not in the store."""
    cells = [cell for cell in spec.cells() if cell.key not in stored]
    learners = {learner.key: learner for cell in cells if (learner := cell.learner) is not None}
    fits = {(cell.method, cell.closeness, cell.n_tasks, cell.m_tr, cell.repeat) for cell in cells if cell.m_tr}
    shape = TASKS[spec.task].shape
    work = sum(_test_seconds(cell, shape) for cell in cells)
    work += sum(_training_seconds(learner, shape) for learner in learners.values())
    work += sum(fit_seconds(METHODS[method], m_tr, shape) for method, _, _, m_tr, _ in fits if m_tr)
    overhead = OVERHEAD * len(cells)
    memory = _memory(spec) if shape is None else _image_memory(spec, shape)
    gpu_seconds = None if shape is None else overhead + work / GPU_SPEEDUP
    return SweepCost(len(cells), len(learners), (overhead + work) * machine_factor(), memory, gpu_seconds)


def relative_seconds(work: Cell | LearnerSpec) -> float:
    """The predicted duration of a cell or of a training, on the machine where the numbers above were taken."""
    shape = TASKS[work.task].shape
    if isinstance(work, LearnerSpec):
        return OVERHEAD + _training_seconds(work, shape)
    return OVERHEAD + _test_seconds(work, shape)


def _size(shape: Shape) -> float:
    """The work for an image in units of one of CIFAR; some work does not depend on the pixels."""
    return 0.08 + 0.92 * math.prod(shape) / CIFAR_PIXELS


def _test_seconds(cell: Cell, shape: Shape | None) -> float:
    cost = METHODS[cell.method].cost if cell.method in METHODS else LIMIT_COST
    if shape is not None:
        other = OTHER_TEST_SECONDS if cell.learner is None else DEEP_TEST_SECONDS
        each = 2 * cell.m_te * (cost.image_test or other) * _size(shape)
        return cell.tests * each * (0.7 + 0.3 * cell.n_permutations / 99)
    growth = (2 * cell.m_te * cell.rows_per_size / 200) ** (GROWTH_BY_ROW if cost.by_row else GROWTH)
    return cell.tests * PER_TEST * cost.test * growth * (0.4 + 0.6 * cell.n_permutations / 199)


def fit_seconds(method: Method, m_tr: int, shape: Shape | None) -> float:
    """Learning from the target's training rows."""
    if shape is None:
        return method.cost.fit * (1 if method.preset == TUNED else LONG_FITS)
    preset = method.preset.on(shape)
    per_image = IMAGE_STEP_SECONDS * _size(shape) * preset.images.convolutions.upsample**2
    if method.cost.image_fit == "deep":
        return preset.mmd_d.steps * 2 * min(m_tr, preset.mmd_d.largest_batch or m_tr) * per_image
    if method.cost.image_fit == "classifier":
        return preset.classifier.epochs * 2 * m_tr * per_image
    return OTHER_IMAGE_FIT_SECONDS * _size(shape)


def _training_seconds(spec: LearnerSpec, shape: Shape | None) -> float:
    method = trained_by(spec.learn)
    cost, preset = TRAINING_COSTS.get(method.learn, TrainingCost()), method.preset.on(shape)
    ascent = preset.meta_kl
    starts = preset.base_kernels.agt_starts if cost.agt_starts else ascent.starts
    steps = ascent.outer_steps * starts * (1 + ascent.inner_steps if cost.inner_steps else 1)
    if shape is None:
        rows = spec.rows_per_task * spec.rows_per_size / 100  # per task, in units of the reference
        if cost.seconds is not None:
            return cost.seconds * (0.3 + 0.7 * rows * spec.n_tasks / 100)
        gradients = steps * (2 if ascent.second_order else 1) * ascent.tasks_per_step / 10
        return STEP_SECONDS * gradients * ((preset.meta_network.hidden or 6) / 6) ** 0.5 * rows**1.5
    dealing = 0.1 + DEALT_SECONDS * 2 * spec.n_tasks * spec.rows_per_task * _size(shape)
    if cost.features:
        each = LEARNED_IMAGE_SECONDS * (0.8 + 0.2 * _size(shape)) * (1 + spec.n_tasks / HEADS)
        return 1.0 + dealing + each * different_images(spec.task, spec.settings, spec.n_tasks, spec.rows_per_task)
    if cost.seconds is not None:
        return dealing
    in_step = ascent.tasks_per_step * ascent.pooled_tasks * 2 * spec.rows_per_task
    each = in_step * IMAGE_STEP_SECONDS * _size(shape) * preset.images.convolutions.upsample**2
    return dealing + steps * each


def different_images(task: str, settings: Mapping[str, Any], n_tasks: int, rows: int) -> int:
    """The expected number of distinct images in the class pairs of a data set; pairs with a common class share some."""
    made = make_task(task, **settings)
    if not isinstance(made, ImageTask):
        raise ValueError(f"The task {task!r} has no images.")
    if made.learned_from not in SOURCES or made.settings.get("lighting"):  # every pair has its own light
        return 2 * n_tasks * rows
    source = SOURCES[made.learned_from]
    each = source.sizes[0] * TRAINING_SHARE / source.classes
    drawn = 1 - (1 - min(rows / each, 1)) ** (2 * n_tasks / source.classes)
    return round(source.classes * each * drawn)


def _memory(spec: SweepSpec) -> int:
    """Bytes of a worker: the software, the test samples held together, and the labellings of a batch of tests."""
    rows = 2 * max(spec.m_te) * type(make_task(spec.task, **spec.settings)).rows_per_size
    dimension = 64 if spec.task == "digits" else int(spec.settings.get("dimension", 2))
    return 350 * 2**20 + 8 * spec.tests * rows * (dimension + 4) + max(_labelling_memory(spec, rows), 64 * 2**20)


def _labelling_memory(spec: SweepSpec, rows: int) -> int:
    """Bytes of the labellings of one test; the limit draws those of all tests together."""
    labellings = spec.n_permutations + 1
    methods = [METHODS[name] for name in spec.methods if name in METHODS]
    limit = 9 * spec.tests * labellings * rows if LIMIT in spec.methods else 0
    return max(limit, *(bytes_of_test(method, labellings, rows) for method in methods), 0)


def _image_memory(spec: SweepSpec, shape: Shape) -> int:
    """Bytes of a worker: software, data sets, the related tasks' images, Algorithm 1's graph, and test samples."""
    pixels, n_tasks = math.prod(shape), max(spec.n_tasks)
    files = 2 * 60_000 * CIFAR_PIXELS if pixels == CIFAR_PIXELS else 0
    images = different_images(spec.task, spec.settings, n_tasks, spec.rows_per_task)
    learned = images * pixels * PIXEL_BYTES
    methods = [METHODS[name] for name in spec.methods if name in METHODS]
    if any(method.origin == "ours" for method in methods):
        learned += images * n_tasks  # a label for every task
    if any(method.origin == "paper" and method.preset.on(shape).meta_kl.second_order for method in methods):
        graph = round(GRAPH_BYTES * 2 * spec.rows_per_task * _size(shape))
        learned = max(learned, learned // 2 + graph)
    if any(method.learn == learn_rows for method in methods):  # it keeps the rows of all tasks
        learned += 3 * 4 * 2 * n_tasks * spec.rows_per_task * pixels
    samples = 16 * min(spec.tests * 2 * max(spec.m_te) * pixels, ELEMENTS_AT_ONCE)
    return 400 * 2**20 + files + learned + max(samples, _labelling_memory(spec, 2 * max(spec.m_te)))
