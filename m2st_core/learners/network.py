"""What MMD-D, C2ST and the paper's meta-learners share: the network φ, one per run, and where kernel widths start."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from m2st_core.kernels.features import MLP, FeatureNetwork, Units
from m2st_core.kernels.images import CNN
from m2st_core.presets import Convolutions, Network
from m2st_core.rng import Streams


def make_network(rows: Tensor, settings: Network, streams: Sequence[Streams]) -> FeatureNetwork:
    """φ for training rows (R, N, d), without their labels: d→H→H→H→3d, or convolutions where rows are images.

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
        features = 3 * dimension
        hidden = settings.hidden or features
        mlp = MLP((dimension, hidden, hidden, hidden, features), generators).to(rows)
        if settings.kaiming:
            mlp.start_as_kaiming([stream.torch("first weights") for stream in streams])
        network = mlp
    if settings.standardise:
        deviation = rows.std(dim=-2, keepdim=True)
        scale = torch.where(deviation > 0, deviation, torch.ones_like(deviation))
        network.measure_in(Units(rows.mean(dim=-2, keepdim=True), scale))
    return network


def make_cnn(settings: Convolutions, generators: Sequence[torch.Generator]) -> CNN:
    """Convolutions of these settings, one network per generator."""
    return CNN(settings.shape, settings.channels, settings.features, generators, settings.upsample, settings.autocast)


def published_widths(rows: Tensor, settings: Network) -> tuple[Tensor, Tensor, Tensor]:
    """σ_φ², σ_q² and ε at the start, as published, for rows (R, N, d): (R,) each.

    For CIFAR images σ_q² is published as 2048 on images enlarged to 64×64. Enlarging counts every pixel four times: on
    the images as they are it is 512, half the pixels.
    """
    ones = torch.ones_like(rows[:, 0, 0])
    if settings.convolutions is not None:
        _, height, width = settings.convolutions.shape
        return 0.005 * ones, 0.5 * height * width * ones, 1e-10 * ones
    return 0.1 * ones, 2 * rows.shape[-1] * ones, 1e-10 * ones
