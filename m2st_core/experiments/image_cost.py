"""What tests of images cost: seconds of one core of the reference machine, for 3×32×32 images and smaller ones."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from m2st_core.experiments.spec import Cell, LearnerSpec, SweepSpec
from m2st_core.presets import PRESETS
from m2st_core.tasks import ImageTask, make_task
from m2st_core.tasks.cifar import SOURCES
from m2st_core.testing import METHODS
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
