"""What MMD-D and C2ST share: the network φ, one per run."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from m2st_core.kernels.features import MLP, Units
from m2st_core.presets import Network
from m2st_core.rng import Streams


def make_network(rows: Tensor, settings: Network, streams: Sequence[Streams]) -> MLP:
    """φ: d→H→H→H→3d for training rows (R, N, d), without their labels.

    Where the settings standardise, its inputs are measured by the rows' mean and standard deviation; columns that are
    constant in training keep scale 1.
    """
    dimension = rows.shape[-1]
    features = 3 * dimension
    hidden = settings.hidden or features
    sizes = (dimension, hidden, hidden, hidden, features)
    network = MLP(sizes, [stream.torch("first weights") for stream in streams]).to(rows)
    if settings.kaiming:
        network.start_as_kaiming([stream.torch("first weights") for stream in streams])
    if settings.standardise:
        deviation = rows.std(dim=-2, keepdim=True)
        scale = torch.where(deviation > 0, deviation, torch.ones_like(deviation))
        network.measure_in(Units(rows.mean(dim=-2, keepdim=True), scale))
    return network
