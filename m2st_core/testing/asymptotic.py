"""Tests whose statistic is compared with a known distribution instead of with permutations."""

from __future__ import annotations

import numpy as np
import torch
from scipy import stats

from m2st_core.learners import PointFeatures, hotelling
from m2st_core.presets import Preset
from m2st_core.types import TwoSample


@torch.no_grad()
def hotelling_test(
    features: PointFeatures, sample: TwoSample, n_quantiles: int, preset: Preset
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Statistic n·WᵀΣ⁻¹W of J features, its p-value, and quantiles of the reference: → (R,), (R,), (R, n_quantiles).

    "chi2" is the limit χ²_J of the papers. "F" is Hotelling's J(n−1)/(n−J)·F(J, n−J), which has the same limit and is
    right for Gaussian features at every n: it takes the uncertainty of Σ into account. Needs n=m.
    """
    x_features, y_features = features(sample.x), features(sample.y)
    n, count = x_features.shape[-2:]
    statistic = hotelling(x_features, y_features).cpu().numpy()
    if preset.embedding.reference == "chi2":
        reference, scale = stats.chi2(count), 1.0
    else:
        reference, scale = stats.f(count, n - count), count * (n - 1) / (n - count)
    levels = (np.arange(n_quantiles) + 0.5) / n_quantiles
    quantiles = scale * reference.ppf(levels)
    return statistic, reference.sf(statistic / scale), np.tile(quantiles, (len(statistic), 1))
