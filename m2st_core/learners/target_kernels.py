"""Kernels from the target's own rows: MMD-M, MMD-O and MMD-D. Everything is batched over R independent runs.

Learning is done in float64: with so few rows it costs little, and what a run learns does then not depend, beyond the
last digits, on how many others share its batch or on whose processor it ran.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from m2st_core.criterion import h_matrix, power_criterion
from m2st_core.data.related import RelatedTasks
from m2st_core.kernels.base import Kernel
from m2st_core.kernels.deep import DeepKernel
from m2st_core.kernels.distance import GaussianKernel, median_width
from m2st_core.kernels.networks import MLP, MOST_UNITS, FeatureNetwork, make_cnn
from m2st_core.learners.ascent import ascend
from m2st_core.learners.knowledge import Knowledge, needed_knowledge
from m2st_core.permutation.fitted import KernelTest
from m2st_core.presets import AscentSettings, NetworkSettings, Preset
from m2st_core.rng import Streams, draw_rows
from m2st_core.types import Progress, TwoSample


def make_network(rows: Tensor, settings: NetworkSettings, streams: Sequence[Streams]) -> FeatureNetwork:
    """φ for training rows (R, N, d), without their labels: d→H→H→H→3d, or convolutions where rows are images.

    No layer has more than 384 units: with 3d of them, wide rows would need 9d² weights per layer.

    Where the settings standardise, its inputs are measured by the rows' mean and standard deviation (of images, those
    of all pixels together); columns that are constant in training keep scale 1. Otherwise rows stay as they are, and
    pixels from 0 to 1 are brought to [−1, 1].
    """
    generators = [stream.torch("first weights") for stream in streams]
    if settings.convolutions is not None:
        network: FeatureNetwork = make_cnn(settings.convolutions, generators).to(rows)
        rows = rows.flatten(1)[..., None]  # R x (N·d) x 1
    else:
        dimension = rows.shape[-1]
        features = min(3 * dimension, MOST_UNITS)
        hidden = settings.hidden or features
        mlp = MLP((dimension, hidden, hidden, hidden, features), generators).to(rows)
        if settings.kaiming:
            mlp.start_as_kaiming([stream.torch("first weights") for stream in streams])
        network = mlp
    if settings.standardise:
        deviation = rows.std(dim=-2, keepdim=True)
        scale = torch.where(deviation > 0, deviation, torch.ones_like(deviation))
        network.measure_in(rows.mean(dim=-2, keepdim=True), scale)
    return network


def published_widths(rows: Tensor, settings: NetworkSettings) -> tuple[Tensor, Tensor, Tensor]:
    """σ_φ², σ_q² and ε at the start, as published, for rows (R, N, d): (R,) each.

    For CIFAR images σ_q² is published as 2048 on images enlarged to 64×64. Enlarging counts every pixel four times: on
    the images as they are it is 512, half the pixels.
    """
    ones = torch.ones_like(rows[:, 0, 0])
    if settings.convolutions is not None:
        _, height, width = settings.convolutions.shape
        return 0.005 * ones, 0.5 * height * width * ones, 1e-10 * ones
    return 0.1 * ones, 2 * rows.shape[-1] * ones, 1e-10 * ones


def fit_median(
    pooled: Tensor, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> KernelTest:
    """MMD-M: a Gaussian kernel whose width is the median heuristic of the pooled, unlabelled rows (R, N, d)."""
    return KernelTest(GaussianKernel(median_width(pooled, streams)))


def fit_gaussian(
    train: TwoSample, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> KernelTest:
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
    return KernelTest(kernel)


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


def fit_deep(
    train: TwoSample, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> KernelTest:
    """MMD-D: the deep kernel that maximises Ĵ on the training rows (R, n, d), (R, m, d)."""
    kernel = start_deep(train.pooled, preset, streams)
    maximise_criterion(kernel, train, preset.mmd_d, streams, progress)
    return KernelTest(kernel)


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
    kernel: Kernel, train: TwoSample, ascent: AscentSettings, streams: Sequence[Streams], progress: Progress | None
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


def learn_rows(
    related: RelatedTasks, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> Knowledge:
    """MMD-D w/ AC: all rows of all tasks, without their labels."""
    if related.rows.shape[0] != 1:
        raise ValueError("MMD-D w/ AC learns from one repeat at a time.")
    return Knowledge(rows=related.take_inside()[None])


def fit_deep_with_rows(
    knowledge: Knowledge, train: TwoSample, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> KernelTest:
    """MMD-D w/ AC: MMD-D with the related tasks' rows added to the training rows of x, which is P."""
    more = needed_knowledge(knowledge.rows, "rows").expand(train.x.shape[0], -1, -1)
    return fit_deep(TwoSample(torch.cat([train.x, more], dim=1), train.y), preset, streams, progress)
