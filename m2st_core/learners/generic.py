"""Tests with general-purpose kernels, chosen from pooled rows without labels: MMD-FUSE, MMDAgg, Energy and Omnibus."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from m2st_core.kernels.base import ComposedKernel, Kernel, LinearKernel
from m2st_core.kernels.distance import EnergyKernel, GaussianKernel, LaplaceKernel, median_width
from m2st_core.kernels.mixtures import Family
from m2st_core.learners.raw_features import ImageFeatures, MetaFeatures, NetworkView
from m2st_core.learners.units import column_units
from m2st_core.permutation.combined import AggregateTest, FuseTest, RankFuseTest
from m2st_core.permutation.fitted import KernelTest
from m2st_core.presets import Preset
from m2st_core.rng import Streams, some_rows
from m2st_core.types import Progress

WIDTHS = 10  # of each family
FACTORS = (0.25, 1.0, 4.0)  # times the median heuristic
GENERIC = "Gaussian"
GENERIC_NAMES = tuple(f"{GENERIC}, {factor:g}·median" for factor in FACTORS)
DISTANCE_ROWS, BANK = 500, "kernel bank"  # the most rows whose distances are taken, and the stream that draws them
LANDMARKS = 128
FINE_SHARE, FINE_ROWS = 0.6, 600  # the fine kernel's share is half of FINE_SHARE at FINE_ROWS pooled rows
RIDGE = 1e-5  # of the largest eigenvalue
SMALLEST_RIDGE = 1e-100
FARTHEST = 1000.0  # robust standard deviations from the centre


def fit_bank(pooled: Tensor, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None) -> FuseTest:
    """MMD-FUSE: Gaussian and Laplace kernels at ten widths each, for pooled rows (R, N, d).

    The widths σ run evenly from half the 5 % to twice the 95 % quantile of the pooled distances, Euclidean for
    exp(−‖x−y‖²/(2σ²)) and ℓ₁ for exp(−√2·‖x−y‖₁/σ).
    """
    return _fuse_test(_both_ranges(some_rows(pooled, DISTANCE_ROWS, streams, BANK)))


def _fuse_test(ranges: Sequence[_Range]) -> FuseTest:
    """MMD-FUSE for distances in these ranges."""
    steps = torch.linspace(0, 1, WIDTHS).to(ranges[0].low)
    euclidean, cityblock = (torch.lerp(distances.low / 2, 2 * distances.high, steps) for distances in ranges)
    return FuseTest(_families(2 * euclidean.square(), cityblock / math.sqrt(2)))


def fit_aggregate(
    pooled: Tensor, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> AggregateTest:
    """MMDAgg: Gaussian and Laplace kernels at ten widths each, for pooled rows (R, N, d).

    The widths λ run geometrically from half the 5 % quantile to twice the largest of the pooled distances, Euclidean
    for exp(−‖x−y‖²/λ²) and ℓ₁ for exp(−‖x−y‖₁/λ). The authors keep λ above 0.05; here units do not matter.
    """
    rows = some_rows(pooled, DISTANCE_ROWS, streams, BANK)
    steps = torch.linspace(0, 1, WIDTHS).to(rows)
    euclidean, cityblock = (d.low / 2 * (4 * d.largest / d.low) ** steps for d in _both_ranges(rows))
    return AggregateTest(_families(euclidean.square(), cityblock))


def _families(gaussian: Tensor, laplace: Tensor) -> tuple[Family, ...]:
    """Gaussian and Laplace kernels of these widths, (R, 10) each, with equal weights."""
    names = {kind: tuple(f"{kind} {i + 1}/{WIDTHS}" for i in range(WIDTHS)) for kind in ("Gaussian", "Laplace")}
    share = 1 / (2 * WIDTHS)
    return (
        Family(GaussianKernel(gaussian), names["Gaussian"], share),
        Family(LaplaceKernel(laplace), names["Laplace"], share),
    )


def fit_energy(
    pooled: Tensor, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> KernelTest:
    """The energy distance, centred at the median of pooled rows (R, N, d)."""
    return KernelTest(EnergyKernel(pooled.median(dim=-2, keepdim=True).values))


def fit_omnibus(
    pooled: Tensor, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> RankFuseTest:
    """Omnibus: three kernels and MMD-FUSE for pooled rows (R, N, d), combined by rank."""
    return omnibus_beside((), pooled, 1.0, streams)


@torch.no_grad()
def omnibus_beside(others: Sequence[Family], pooled: Tensor, share: float, streams: Sequence[Streams]) -> RankFuseTest:
    """Other families and, with weight ``share`` together, three kernels and MMD-FUSE for pooled rows (R, N, d).

    Two are broad: the ℓ₁ energy distance of columns in robust units, along its 3 leading directions; the Gaussian of
    the median width. One is fine: the Gaussian as wide as the 5 % quantile of distances, along its 30 leading
    directions. It needs many rows, so its share is 0.6·N/(N+600). The energy distance has 0.3 of the remainder, the
    broad Gaussian 0.35 and MMD-FUSE 0.35.
    """
    some = some_rows(pooled, DISTANCE_ROWS, streams, BANK)
    landmarks = some_rows(pooled, LANDMARKS, streams, "landmarks")
    key = landmarks @ torch.arange(1, pooled.shape[-1] + 1).to(pooled).sqrt()
    landmarks = landmarks.take_along_dim(key.argsort(dim=-1)[..., None], dim=-2)[:, None]  # in an order of their own
    middle = pooled.median(dim=-2, keepdim=True).values[:, None]
    units = _InUnits(middle, torch.stack([column_units(rows)[1] for rows in some])[:, None, None].to(pooled))
    centre = units(middle)
    energy = regularised(ComposedKernel(units, EnergyKernel(centre, norm=1.0)), pooled[:, None], landmarks, 3)
    median = GaussianKernel(median_width(pooled, streams)[:, None])
    ranges = _both_ranges(some)
    fine = regularised(GaussianKernel(ranges[0].low.square()), pooled[:, None], landmarks, 30)
    finest = FINE_SHARE * pooled.shape[-2] / (pooled.shape[-2] + FINE_ROWS)
    broad = share * (1 - finest)
    families = (
        *others,
        Family(energy, ("ℓ₁ energy, 3 directions",), 0.3 * broad),
        Family(median, (f"{GENERIC}, median",), 0.35 * broad),
        Family(fine, (f"{GENERIC}, 30 directions",), share * finest),
    )
    return RankFuseTest(families, _fuse_test(ranges))


def _generic_family(pooled: Tensor, share: float, streams: Sequence[Streams]) -> Family:
    """Gaussian kernels of widths σ²/4, σ² and 4σ², with σ² the median heuristic of pooled rows (R, N, d)."""
    width = median_width(pooled, streams)[:, None] * torch.tensor(FACTORS).to(pooled)
    return Family(GaussianKernel(width), GENERIC_NAMES, share / len(FACTORS))


def is_generic(name: str) -> bool:
    """Whether the kernel of this name is general-purpose, with nothing learned from related tasks."""
    return name.startswith(GENERIC)


class _Range(NamedTuple):
    """The 5 % and the 95 % quantile and the maximum of distances: (R, 1) each."""

    low: Tensor
    high: Tensor
    largest: Tensor


def _both_ranges(rows: Tensor) -> list[_Range]:
    """The ranges of positive Euclidean and ℓ₁ distances between rows (R, n, d); 1 if all rows are equal."""
    n, ranges = rows.shape[-2], []
    i, j = torch.triu_indices(n, n, offset=1, device=rows.device)
    for norm in (2.0, 1.0):
        distances = torch.cdist(rows, rows, p=norm, compute_mode="donot_use_mm_for_euclid_dist")[..., i, j]
        positive = [run[run > 0] for run in distances.cpu().numpy()]
        quantiles = [np.quantile(run, [0.05, 0.95, 1.0]) if run.size else np.ones(3) for run in positive]
        ranges.append(_Range(*torch.from_numpy(np.stack(quantiles, axis=1)).to(rows)[..., None]))
    return ranges


def generic_families(
    features: MetaFeatures | None, pooled: Tensor, share: float, streams: Sequence[Streams]
) -> list[Family]:
    """Gaussian kernels for pooled rows (R, N, d); ``share`` is their total prior weight."""
    if not isinstance(features, ImageFeatures):
        return [_generic_family(pooled, share, streams)]
    pixels = _generic_family(pooled, share / 3, streams)
    return [pixels, *network_families(features, pooled, 2 * share / 3, streams)]


def network_families(features: MetaFeatures, pooled: Tensor, share: float, streams: Sequence[Streams]) -> list[Family]:
    """Gaussian kernels on the network's features and on white ones, for images (R, N, d); none for other rows."""
    if not isinstance(features, ImageFeatures):
        return []
    families = []
    for white, what in ((False, "features"), (True, "white features")):
        view = NetworkView(features, white)
        family = _generic_family(view(pooled), share / 2, streams)
        names = tuple(name.replace(GENERIC, f"{GENERIC} on {what}") for name in family.names)
        families.append(Family(ComposedKernel(view, family.kernel), names, family.share))
    return families


class LandmarkFeatures(nn.Module):
    """ψ_j(x) = k(x, z_j) for a kernel k and landmarks z (…, q, d): (…, n, d) → (…, n, q), float64."""

    landmarks: Tensor

    def __init__(self, kernel: Kernel, landmarks: Tensor) -> None:
        super().__init__()
        self.kernel = kernel
        self.register_buffer("landmarks", landmarks)

    def forward(self, x: Tensor) -> Tensor:
        """Kernel values at the landmarks."""
        return self.kernel.gram(self.kernel.embed(x), self.kernel.embed(self.landmarks), torch.float64)


@torch.no_grad()
def regularised(kernel: Kernel, rows: Tensor, landmarks: Tensor, directions: int) -> ComposedKernel:
    """ψ(x)ᵀMMᵀψ(y) = Σ_i e_i(x)·e_i(y)·s_i/(s_i+λ), but for a factor, for rows (…, N, d) and landmarks (…, q, d).

    s_i and e_i are eigenvalues and eigenfunctions of the rows' covariance operator, in the span of the landmarks
    (Nyström). λ is the eigenvalue that follows the first ``directions``: differences along these count about equally,
    and those along later ones less and less.
    """
    features = LandmarkFeatures(kernel, landmarks)
    gram = features(landmarks)
    values, vectors = torch.linalg.eigh((gram + gram.mT) / 2)
    ridge = (RIDGE * values[..., -1:]).clamp(min=SMALLEST_RIDGE)
    root = vectors * (values.clamp(min=0) + ridge).rsqrt()[..., None, :] @ vectors.mT
    centred = features(rows) @ root
    centred = centred - centred.mean(dim=-2, keepdim=True)
    values, vectors = torch.linalg.eigh(centred.mT @ centred / centred.shape[-2])
    values = values.clamp(min=0)
    level = values[..., -1 - min(directions, values.shape[-1] - 1), None]
    level = torch.maximum(level, RIDGE * values[..., -1:]).clamp(min=SMALLEST_RIDGE)
    matrix = root @ (vectors * (values + level).rsqrt()[..., None, :] @ vectors.mT)
    return ComposedKernel(features, LinearKernel(matrix))


class _InUnits(nn.Module):
    """Rows in units of their columns' spread, as a feature map: x/scale, at most ±1,000 units from the centre.

    ``centre`` and ``scale`` (…, 1, d) are buffers.
    """

    centre: Tensor
    scale: Tensor

    def __init__(self, centre: Tensor, scale: Tensor) -> None:
        super().__init__()
        self.register_buffer("centre", centre)
        self.register_buffer("scale", scale)

    def forward(self, x: Tensor) -> Tensor:
        """Rows in these units: (…, n, d) → (…, n, d)."""
        middle = self.centre / self.scale
        return (x / self.scale).clamp(middle - FARTHEST, middle + FARTHEST)
