"""What MMD-D and C2ST share: the network φ and the units its inputs are measured in."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from m2st_core.kernels.features import MLP, Units
from m2st_core.presets import Preset
from m2st_core.rng import Streams
from m2st_core.types import TwoSample


def training_units(train: TwoSample, preset: Preset) -> Units:
    """Mean and standard deviation of the pooled training rows; raw units where the preset does not standardise.

    Columns that are constant in training keep scale 1.
    """
    rows = train.pooled
    centre, scale = torch.zeros_like(rows[..., :1, :]), torch.ones_like(rows[..., :1, :])
    if preset.network.standardise:
        deviation = rows.std(dim=-2, keepdim=True)
        centre, scale = rows.mean(dim=-2, keepdim=True), torch.where(deviation > 0, deviation, scale)
    return Units(centre, scale)


def measure(sample: TwoSample, units: Units) -> TwoSample:
    """The sample in these units, rounded to float32 only then."""
    return TwoSample(units(sample.x), units(sample.y)).to(torch.float32)


def make_network(dimension: int, preset: Preset, streams: Sequence[Streams]) -> MLP:
    """φ: d→H→H→H→3d, one network per run."""
    features = 3 * dimension
    hidden = preset.network.hidden or features
    sizes = (dimension, hidden, hidden, hidden, features)
    return MLP(sizes, [stream.torch("first weights") for stream in streams])
