"""What tests of images cost: seconds of one core of the reference machine, for 3×32×32 images and smaller ones."""

from __future__ import annotations

import math

from m2st_core.experiments.spec import Cell, LearnerSpec
from m2st_core.presets import PRESETS
from m2st_core.tasks import make_task
from m2st_core.types import Shape

CIFAR_PIXELS = 3072
GPU_SPEEDUP = 30.0  # of a current GPU over one core; an assumption, as convolutions of this size allow, not measured
STEP_SECONDS = 2.0e-4  # an image of CIFAR through φ, forwards and backwards, without upsampling
LEARNED_ROW_SECONDS = 2.0e-3  # an image of a meta-task, in all epochs of the warm start
TEST_SECONDS = {"MMD-M": 1.0e-3, "MMD-FUSE": 45e-3, "Meta-FUSE": 5e-3, "Meta-MKL": 4.5e-4, "AGT-MKL": 4.5e-4}
DEEP_TEST_SECONDS = 3.4e-4  # the meta-tasks' deep kernels
OTHER_TEST_SECONDS = 1.5e-4  # per tested image, drawing included
OTHER_FIT_SECONDS = 1.0


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


def image_learner_seconds(spec: LearnerSpec, shape: Shape) -> float:
    """Learning from class pairs: the warm start, or in the presets without one Algorithm 1 step by step."""
    preset = PRESETS[spec.preset].on(shape)
    images = 2 * spec.n_tasks * spec.rows_per_task
    if spec.learn == "learn_rows":
        return 0.1
    if preset.warm_start is not None:
        return 1.0 + images * LEARNED_ROW_SECONDS * (0.8 + 0.2 * _size(shape))
    ascent = preset.meta_kl
    steps = ascent.outer_steps * (1 if "agt" in spec.learn else 1 + ascent.inner_steps)
    in_step = ascent.tasks_per_step * ascent.pooled_tasks * 2 * spec.rows_per_task
    starts = preset.base_kernels.agt_starts if spec.learn == "learn_agt_mixture" else 1
    return steps * starts * in_step * STEP_SECONDS * _size(shape) * preset.images.convolutions.upsample**2


def image_memory(task: str, rows: int, tests: int, n_tasks: int, rows_per_task: int, at_once: int) -> int:
    """Bytes of a worker: the data sets, the meta-tasks twice, and the test samples that are held together."""
    shape = make_task(task).shape
    assert shape is not None
    pixels = math.prod(shape)
    files = 2 * 60_000 * CIFAR_PIXELS if pixels == CIFAR_PIXELS else 0
    return files + 16 * n_tasks * rows_per_task * 2 * pixels + 16 * min(tests * rows * pixels, at_once)
