"""ME and SCF: a few test points whose features should differ most between P and Q.

Both map a row to a short vector, take the mean difference of the two samples in units of its covariance (Hotelling's
statistic), and move the points to where that is largest. Rows are measured in units of their median distance.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from m2st_core.kernels.distance import median_width, negative_squared_distances
from m2st_core.learners.ascent import ascend
from m2st_core.learners.units import Units
from m2st_core.permutation.fitted import AsymptoticTest, Reference, refer
from m2st_core.presets import Preset
from m2st_core.rng import Streams, draw_rows
from m2st_core.types import Progress, TwoSample

REGULARISATION = 1e-5
ALIVE_VARIANCE = 1e-4  # below it, a direction is non-zero for few rows only and its mean is far from normal
BUMP_WIDTHS, WINDOW_WIDTHS = (-3, 4, 30), (-6, 6, 40)  # log₂ of the first widths of ME and SCF: from, to, how many


class PointFeatures(nn.Module, ABC):
    """Features of rows relative to J points: (R, n, d) → (R, n, ·)."""

    def __init__(self, points: Tensor, log2_width: Tensor, units: Units) -> None:
        super().__init__()
        self.points = nn.Parameter(points)  # R x J x d
        self.log2_width = nn.Parameter(log2_width)  # R
        self.units = units

    @abstractmethod
    def features(self, x: Tensor) -> Tensor:
        """Features of rows that are in these units already."""

    def forward(self, x: Tensor) -> Tensor:
        """Features of raw rows."""
        return self.features(self.units(x))


class _MeanEmbedding(PointFeatures):
    """ME: exp(−‖x−t_j‖²/(2·width)) at J locations t_j: (R, n, d) → (R, n, J)."""

    def features(self, x: Tensor) -> Tensor:
        """Features of rows that are in these units already."""
        scale = torch.exp2(-0.5 * (self.log2_width + 1))[..., None, None]
        return negative_squared_distances(x * scale, self.points * scale).exp_()


class _SmoothCharacteristic(PointFeatures):
    """SCF: (sin, cos)(t_j·x/√width)·exp(−‖x‖²/(2·width)) at J frequencies t_j: (R, n, d) → (R, n, 2J)."""

    def features(self, x: Tensor) -> Tensor:
        """Features of rows that are in these units already."""
        x = x * torch.exp2(-0.5 * self.log2_width)[..., None, None]
        window = torch.exp(-0.5 * x.square().sum(dim=-1, keepdim=True))
        angles = x @ self.points.mT
        return window * torch.cat([angles.sin(), angles.cos()], dim=-1)


def hotelling(x_features: Tensor, y_features: Tensor) -> Tensor:
    """n·WᵀΣ⁻¹W, with W the mean and Σ the covariance of the paired differences: (R, n, J), (R, n, J) → (R,)."""
    differences = x_features - y_features
    n, size = differences.shape[-2:]
    mean = differences.mean(dim=-2)
    centred = differences - mean[..., None, :]
    ridge = REGULARISATION * torch.eye(size, dtype=mean.dtype, device=mean.device)
    covariance = centred.mT @ centred / (n - 1) + ridge  # never singular, so nothing waits for a check
    return n * (mean * torch.linalg.solve_ex(covariance, mean).result).sum(dim=-1)


@dataclass(frozen=True)
class HotellingTest(AsymptoticTest):
    """n·WᵀΣ⁻¹W of J features, referred to a known distribution; needs n = m.

    The papers take "chi2", see :func:`refer`. J counts the directions in which the pooled, unlabelled features vary:
    points far from all rows, or features that repeat each other, add none.
    """

    features: PointFeatures
    reference: Reference

    @torch.no_grad()
    def p_values(
        self, sample: TwoSample, n_quantiles: int, streams: Sequence[Streams]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Statistics (R,), p-values (R,) and quantiles of the reference (R, n_quantiles)."""
        n = sample.sizes[0]
        pooled = self.features(sample.pooled)
        centred = pooled - pooled.mean(dim=-2, keepdim=True)
        values, directions = torch.linalg.eigh(centred.mT @ centred / (pooled.shape[-2] - 1))
        alive = values > ALIVE_VARIANCE  # R x J
        aligned = (pooled @ directions) * alive[:, None]
        statistic = hotelling(aligned[:, :n], aligned[:, n:]).cpu().numpy()
        count = alive.sum(dim=-1).clamp(min=1).cpu().numpy()
        return statistic, *refer(statistic, count, n, self.reference, n_quantiles)


def fit_mean_embedding(
    train: TwoSample, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> HotellingTest:
    """ME: start from rows of Gaussians fitted to the two samples, best width of a grid, then climb."""
    units, rows = _paired_rows(train, streams)
    generators = [stream.torch("first points") for stream in streams]
    per_sample = (preset.embedding.points // 2, preset.embedding.points - preset.embedding.points // 2)
    like = [_inner_half(sample) if preset.embedding.robust_start else sample for sample in rows]
    drawn = [_like(sample, count, generators) for sample, count in zip(like, per_sample, strict=True)]
    widths = torch.linspace(*BUMP_WIDTHS)
    return _optimise(_MeanEmbedding, torch.cat(drawn, dim=-2), widths, units, rows, preset, True, progress)


def fit_smooth_characteristic(
    train: TwoSample, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> HotellingTest:
    """SCF: start from standard normal frequencies, best width of a grid, then climb."""
    units, rows = _paired_rows(train, streams)
    shape = (preset.embedding.points, rows.x.shape[-1])
    generators = [stream.torch("first points") for stream in streams]
    points = torch.stack([torch.randn(shape, generator=g, dtype=torch.float64) for g in generators]).to(rows.x.device)
    widths = torch.linspace(*WINDOW_WIDTHS)
    climb = preset.embedding.optimise_frequencies
    return _optimise(_SmoothCharacteristic, points, widths, units, rows, preset, climb, progress)


def _paired_rows(train: TwoSample, streams: Sequence[Streams]) -> tuple[Units, TwoSample]:
    """The training rows in units of their median distance, as many of x as of y."""
    pooled = train.pooled
    centre = pooled.median(dim=-2, keepdim=True).values
    units = Units(centre, median_width(pooled, streams).sqrt()[..., None, None])
    generators = [stream.torch("pairing of training rows") for stream in streams]
    x, y = (draw_rows(units(rows), min(train.sizes), generators) for rows in train)
    return units, TwoSample(x, y)


def _inner_half(rows: Tensor) -> Tensor:
    """The half of the rows nearest to the median; outliers would place points far from all other rows."""
    far = (rows - rows.median(dim=-2, keepdim=True).values).square().sum(dim=-1)
    return rows.take_along_dim(far.argsort(dim=-1)[..., : rows.shape[-2] // 2 + 1, None], dim=-2)


def _like(rows: Tensor, count: int, generators: Sequence[torch.Generator]) -> Tensor:
    """New rows from a Gaussian with the mean and covariance of these: (R, n, d) → (R, count, d)."""
    n = rows.shape[-2]
    normal = torch.stack([torch.randn(count, n, generator=g, dtype=rows.dtype) for g in generators]).to(rows.device)
    mean = rows.mean(dim=-2, keepdim=True)
    return mean + normal @ (rows - mean) / (n - 1) ** 0.5


def _optimise(
    kind: type[PointFeatures],
    points: Tensor,
    log2_widths: Tensor,
    units: Units,
    rows: TwoSample,
    preset: Preset,
    climb: bool,
    progress: Progress | None,
) -> HotellingTest:
    """The best width of the grid, then, where asked, Adam on points and width."""
    start = kind(points, torch.zeros_like(points[..., 0, 0]), units)

    def statistic() -> Tensor:
        return hotelling(start.features(rows.x), start.features(rows.y))

    with torch.no_grad():
        scores = []
        for log2_width in log2_widths:
            start.log2_width.fill_(log2_width)
            scores.append(statistic())
        start.log2_width.copy_(log2_widths.to(points)[torch.stack(scores).argmax(dim=0)])
    settings = preset.embedding
    if climb:
        ascend(
            start.parameters(),
            statistic,
            steps=settings.steps,
            learning_rate=settings.learning_rate,
            progress=progress,
        )
    return HotellingTest(start, settings.reference)
