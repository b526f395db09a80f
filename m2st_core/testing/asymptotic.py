"""Tests whose statistic is compared with a known distribution instead of with permutations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from m2st_core.learners import PointFeatures, hotelling
from m2st_core.presets import Preset
from m2st_core.rng import Streams
from m2st_core.types import TwoSample

ALIVE_VARIANCE = 1e-4  # below it, a direction is non-zero for a few rows only and its mean is far from normal


@torch.no_grad()
def hotelling_test(
    features: PointFeatures, sample: TwoSample, n_quantiles: int, preset: Preset, streams: Sequence[Streams]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Statistic n·WᵀΣ⁻¹W of J features, its p-value, and quantiles of the reference: → (R,), (R,), (R, n_quantiles).

    "chi2" is the limit χ²_J of the papers. "F" is Hotelling's J(n−1)/(n−J)·F(J, n−J), which has the same limit and is
    right for Gaussian features at every n: it takes the uncertainty of Σ into account. J counts the directions in which
    the pooled, unlabelled features vary: points far from all rows, or features that repeat each other, add none.
    Needs n=m.
    """
    from scipy import stats  # slow to import

    n = sample.sizes[0]
    pooled = features(sample.pooled)
    values, directions = torch.linalg.eigh(_covariance(pooled))
    alive = values > ALIVE_VARIANCE  # R x J
    aligned = (pooled @ directions) * alive[:, None]
    statistic = hotelling(aligned[:, :n], aligned[:, n:]).cpu().numpy()
    count = alive.sum(dim=-1, keepdim=True).clamp(min=1).cpu().numpy()  # R x 1
    if preset.embedding.reference == "chi2":
        reference, scale = stats.chi2(count), np.ones_like(count)
    else:
        reference, scale = stats.f(count, n - count), count * (n - 1) / (n - count)
    levels = (np.arange(n_quantiles) + 0.5) / n_quantiles
    p_value = reference.sf(statistic[:, None] / scale)[:, 0]
    return statistic, p_value, scale * reference.ppf(levels)


def _covariance(rows: Tensor) -> Tensor:
    """(R, N, J) → (R, J, J)."""
    centred = rows - rows.mean(dim=-2, keepdim=True)
    return centred.mT @ centred / (rows.shape[-2] - 1)
