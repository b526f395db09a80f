"""The cost of a study of images before it is run, by pixels or by features."""

from __future__ import annotations

from m2st_core.data.images.cifar import load_images
from m2st_core.data.images.described import USUAL_SIDE, always_new, side_for
from m2st_core.studies.images import ImageStudy
from m2st_core.sweeps.cost import Cost, different_images, machine_factor, predict

IMAGE_SECONDS = 0.01  # on one core: the features of an image at 128 pixels
LEARNING_SECONDS = 3.0  # learning from class pairs, by features
ROW_SECONDS = 1e-4  # a tested image, by features


def study_cost(study: ImageStudy) -> Cost:
    """The predicted cost. Images that were described before cost less."""
    by_pixels = predict(study.spec)
    if not study.described:
        return by_pixels
    target, cells = study.target, list(study.spec.cells())
    related = different_images(study.task, target.settings, study.n_tasks, study.rows_per_task)
    tested = study.repeats * study.tests * 2 * sum(study.m_te)  # the same for all methods
    if not always_new(target.settings):
        pools = [load_images(name).for_target(training=False) for name in {target.first, target.second}]
        tested = min(tested, sum(map(len, pools)))
    each = IMAGE_SECONDS * (side_for(target.shape) / USUAL_SIDE) ** 2
    rows = sum(2 * cell.m_te * cell.tests for cell in cells)
    work = each * (study.repeats * related + tested) + LEARNING_SECONDS * by_pixels.learners + ROW_SECONDS * rows
    return Cost(len(cells), by_pixels.learners, work * machine_factor(), by_pixels.memory_bytes)
