"""Kernels from the target's own rows: MMD-M, MMD-O and MMD-D. Everything is batched over R independent runs.

Learning is done in float64: with so few rows it costs little, and what a run learns does then not depend, beyond the
last digits, on how many others share its batch or on whose processor it ran.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from m2st_core.criterion import h_matrix, power_criterion
from m2st_core.kernels import DeepKernel, GaussianKernel, Kernel, median_squared_distance
from m2st_core.learners.ascent import ascend, draw_rows
from m2st_core.learners.network import make_network, published_widths
from m2st_core.presets import Ascent, Preset
from m2st_core.rng import Streams
from m2st_core.types import Progress, TwoSample

MEDIAN_ROWS = 500


def median_width(rows: Tensor, streams: Sequence[Streams]) -> Tensor:
    """The median heuristic σ² = median ‖x_i−x_j‖² of at most 500 rows, drawn blind to the labels: (R, n, d) → (R,)."""
    generators = [stream.torch("median heuristic") for stream in streams]
    return median_squared_distance(draw_rows(rows, min(rows.shape[-2], MEDIAN_ROWS), generators))


def fit_median(pooled: Tensor, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None) -> Kernel:
    """MMD-M: a Gaussian kernel whose width is the median heuristic of the pooled, unlabelled rows (R, N, d)."""
    return GaussianKernel(median_width(pooled, streams))


def fit_gaussian(
    train: TwoSample, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> Kernel:
    """MMD-O: the Gaussian kernel whose width maximises Ĵ on the training rows (R, n, d), (R, m, d)."""
    if preset.median_start or preset.network.convolutions is not None:
        width = median_width(train.pooled, streams)
    else:
        uniform = torch.cat([torch.rand(1, generator=stream.torch("first width")) for stream in streams])
        width = 2 * train.x.shape[-1] * uniform.to(train.x)
    kernel = GaussianKernel(width)
    if preset.network.convolutions is not None:
        train = same_distances(train)
    maximise_criterion(kernel, train, preset.mmd_o, streams, progress)
    return kernel


@torch.no_grad()
def same_distances(sample: TwoSample) -> TwoSample:
    """Rows with the same distances between them, but at most as many columns as there are rows.

    It is what makes learning a width from a few hundred images of thousands of pixels fast.
    """
    pooled = sample.pooled
    if pooled.shape[-1] <= pooled.shape[-2]:
        return sample
    short = torch.linalg.qr((pooled - pooled.mean(dim=-2, keepdim=True)).double().mT, mode="r").R.mT
    x, y = short.to(pooled.dtype).split(sample.sizes, dim=-2)
    return TwoSample(x, y)


def fit_deep(train: TwoSample, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None) -> Kernel:
    """MMD-D: the deep kernel that maximises Ĵ on the training rows (R, n, d), (R, m, d)."""
    kernel = start_deep(train.pooled, preset, streams)
    maximise_criterion(kernel, train, preset.mmd_d, streams, progress)
    return kernel


def start_deep(pooled: Tensor, preset: Preset, streams: Sequence[Streams]) -> DeepKernel:
    """A fresh deep kernel for pooled rows (R, N, d), without their labels."""
    network = make_network(pooled, preset.network, streams)
    if not preset.median_start:
        return DeepKernel(network, *published_widths(pooled, preset.network))
    rows = network.normalise(pooled)
    input_width = median_width(rows, streams)
    feature_width = median_width(network(rows).detach(), streams)
    return DeepKernel(network, feature_width, input_width, 0.5 * torch.ones_like(input_width))


def maximise_criterion(
    kernel: Kernel, train: TwoSample, ascent: Ascent, streams: Sequence[Streams], progress: Progress | None
) -> Tensor:
    """Climb Ĵ_λ of each run's training rows; of unequal or large samples, rows are drawn anew each step."""
    count = min(*train.sizes, ascent.largest_batch or max(train.sizes))
    generators = [stream.torch("training rows") for stream in streams]

    def criterion() -> Tensor:
        x, y = (draw_rows(rows, count, generators) for rows in train)
        return power_criterion(h_matrix(kernel, x, y), ascent.regularisation)

    return ascend(
        kernel.parameters(), criterion, steps=ascent.steps, learning_rate=ascent.learning_rate, progress=progress
    )
