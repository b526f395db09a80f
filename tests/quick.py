"""Methods with the first steps of every climb, for tests of something else than how good a learned kernel is."""

from dataclasses import replace

import numpy as np
import pytest

from m2st_core.data.images.sources import digit_images
from m2st_core.testing.methods import METHODS

STEPS = 2


def few_steps(preset, outer_steps=STEPS):
    """The preset with so many steps of Algorithm 1 from one start, on rows and on images; features learn as ever."""

    def cut(ascent):
        return replace(ascent, steps=min(ascent.steps, STEPS))

    def short(meta):
        return replace(meta, outer_steps=outer_steps, starts=1, tasks_per_step=4, inner_steps=min(meta.inner_steps, 1))

    pretraining = preset.meta_network.pretraining
    return replace(
        preset,
        mmd_d=cut(preset.mmd_d),
        meta_network=replace(preset.meta_network, pretraining=pretraining and cut(pretraining)),
        meta_kl=short(preset.meta_kl),
        base_kernels=replace(preset.base_kernels, ascent=cut(preset.base_kernels.ascent), agt_starts=2),
        images=replace(
            preset.images,
            mmd_o=cut(preset.images.mmd_o),
            mmd_d=cut(preset.images.mmd_d),
            meta_kl=short(preset.images.meta_kl),
            classifier=replace(preset.images.classifier, epochs=1),
        ),
    )


def use_few_steps(patch: pytest.MonkeyPatch, outer_steps=STEPS):
    """Until the patch ends, the presets of all methods are cut short."""
    for name, method in list(METHODS.items()):
        patch.setitem(METHODS, name, replace(method, preset=few_steps(method.preset, outer_steps)))


QUICK = {name: method for name, method in METHODS.items() if method.preset.name == "tuned"}
"""Lines for tests over all methods: ours, general ones, and the paper's tuned ones. Others learn ten times as long."""


def draw(kind, rows, shift, seed):
    """Rows of two columns, or images of 4×4 pixels, moved by ``shift``."""
    generator = np.random.default_rng(seed)
    if kind == "rows":
        return generator.normal(size=(rows, 2)) + [shift, 0.0]
    return generator.integers(0, 200, size=(rows, 4, 4)).astype(np.uint8) + np.uint8(50 * shift)


def digits_by_class() -> list[np.ndarray]:
    """The digits as rows of 64 pixels in [0, 1], one array per digit."""
    digits = digit_images()
    return [digits.rows(np.flatnonzero(digits.labels == digit)) for digit in range(10)]
