"""General-purpose kernels, chosen from pooled rows without their labels."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from m2st_core.kernels.bank import Family, KernelBank
from m2st_core.kernels.gaussian import GaussianKernel, LaplaceKernel
from m2st_core.learners.ascent import draw_rows
from m2st_core.learners.target_kernels import median_width
from m2st_core.permutation.fused import FuseTest
from m2st_core.presets import Preset
from m2st_core.rng import Streams
from m2st_core.types import Progress

WIDTHS = 10  # of each family
FACTORS = (0.25, 1.0, 4.0)
GENERIC = "Gaussian"
GENERIC_NAMES = tuple(f"{GENERIC}, {factor:g}·median" for factor in FACTORS)
DISTANCE_ROWS = 500


def fit_bank(pooled: Tensor, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None) -> FuseTest:
    """MMD-FUSE: Gaussian and Laplace kernels at ten widths each, for pooled rows (R, N, d).

    The widths σ run evenly from half the 5 % to twice the 95 % quantile of the pooled distances, Euclidean for
    exp(−‖x−y‖²/(2σ²)) and ℓ₁ for exp(−√2·‖x−y‖₁/σ).
    """
    generators = [stream.torch("kernel bank") for stream in streams]
    rows = draw_rows(pooled, min(pooled.shape[-2], DISTANCE_ROWS), generators)
    names = {kind: tuple(f"{kind} {i + 1}/{WIDTHS}" for i in range(WIDTHS)) for kind in ("Gaussian", "Laplace")}
    gaussian = Family(GaussianKernel(2 * _widths(rows, 2.0).square()), names["Gaussian"], 1 / (2 * WIDTHS))
    laplace = Family(LaplaceKernel(_widths(rows, 1.0) / math.sqrt(2)), names["Laplace"], 1 / (2 * WIDTHS))
    return FuseTest(KernelBank((gaussian, laplace)))


def generic_family(pooled: Tensor, share: float, streams: Sequence[Streams]) -> Family:
    """Gaussian kernels of widths σ²/4, σ² and 4σ², with σ² the median heuristic of pooled rows (R, N, d)."""
    width = median_width(pooled, streams)[:, None] * torch.tensor(FACTORS).to(pooled)
    return Family(GaussianKernel(width), GENERIC_NAMES, share / len(FACTORS))


def is_generic(name: str) -> bool:
    """Whether a kernel of this name is a general-purpose one, with nothing learned from related tasks."""
    return name.startswith(GENERIC)


def _widths(rows: Tensor, norm: float) -> Tensor:
    """Ten widths per run: (R, n, d) → (R, 10). Distances of equal rows do not count."""
    n = rows.shape[-2]
    i, j = torch.triu_indices(n, n, offset=1, device=rows.device)
    distances = torch.cdist(rows, rows, p=norm, compute_mode="donot_use_mm_for_euclid_dist")[..., i, j]
    positive = distances.where(distances > 0, torch.nan)
    low, high = (torch.nanquantile(positive, level, dim=-1).nan_to_num(1.0) for level in (0.05, 0.95))
    steps = torch.linspace(0, 1, WIDTHS, dtype=rows.dtype, device=rows.device)
    return torch.lerp((low / 2)[..., None], (2 * high)[..., None], steps)
