"""A bank of kernels for tests that fuse many: chosen from the pooled rows, without their labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from m2st_core.kernels import GaussianKernel, Kernel, LaplaceKernel
from m2st_core.learners.ascent import draw_rows
from m2st_core.presets import Preset
from m2st_core.rng import Streams
from m2st_core.types import Progress

WIDTHS = 10  # of each family
DISTANCE_ROWS = 500


@dataclass(frozen=True)
class KernelBank:
    """Families of kernels, each with batch shape (R, kernels), and the prior weight of each kernel in its family.

    ``families`` maps a name to (kernel, weight); all weights of all kernels sum to 1.
    """

    families: dict[str, tuple[Kernel, float]]


def fit_bank(
    pooled: Tensor, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> KernelBank:
    """Gaussian and Laplace kernels at ten widths each, for pooled rows (R, N, d).

    The widths σ run evenly from half the 5 % to twice the 95 % quantile of the pooled distances, Euclidean for
    exp(−‖x−y‖²/(2σ²)) and ℓ₁ for exp(−‖x−y‖₁/σ).
    """
    generators = [stream.torch("kernel bank") for stream in streams]
    rows = draw_rows(pooled, min(pooled.shape[-2], DISTANCE_ROWS), generators)
    weight = 1 / (2 * WIDTHS)
    return KernelBank(
        {
            "Gaussian": (GaussianKernel(2 * _widths(rows, 2.0).square()), weight),
            "Laplace": (LaplaceKernel(_widths(rows, 1.0)), weight),
        }
    )


def _widths(rows: Tensor, norm: float) -> Tensor:
    """Ten widths per run: (R, n, d) → (R, 10). Distances of equal rows do not count."""
    n = rows.shape[-2]
    i, j = torch.triu_indices(n, n, offset=1, device=rows.device)
    distances = torch.cdist(rows, rows, p=norm, compute_mode="donot_use_mm_for_euclid_dist")[..., i, j]
    positive = distances.where(distances > 0, torch.nan)
    low, high = (torch.nanquantile(positive, level, dim=-1).nan_to_num(1.0) for level in (0.05, 0.95))
    steps = torch.linspace(0, 1, WIDTHS, dtype=rows.dtype, device=rows.device)
    return torch.lerp((low / 2)[..., None], (2 * high)[..., None], steps)
