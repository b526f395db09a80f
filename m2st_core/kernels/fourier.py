"""The Gaussian kernel seen at random frequencies: an inner product, so its permutations cost next to nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from m2st_core.kernels.base import Kernel, Rows


class FourierKernel(Kernel):
    """k(x, y) = (1/D)·Σ_j cos(ω_jᵀ(x−y)); ``frequencies`` ω is (…, d, D), a buffer.

    Its MMD² is the mean of |φ_P(ω_j)−φ_Q(ω_j)|² over the frequencies, φ the characteristic functions. With ω_j from
    ``gaussian_frequencies`` its expectation is the Gaussian kernel's MMD²; and where tails are light, so that
    characteristic functions are analytic, only equal distributions agree at random frequencies. ``centre`` (…, 1, d)
    changes nothing but the digits: sines are taken in float32, of angles that should not be large.
    """

    inner_product = True
    frequencies: Tensor
    centre: Tensor

    def __init__(self, frequencies: Tensor, centre: Tensor) -> None:
        super().__init__()
        self.register_buffer("frequencies", frequencies)
        self.register_buffer("centre", centre)

    def embed(self, x: Tensor) -> Rows:
        """(sin, cos)((x−centre)ᵀω)/√D, float32."""
        angles = ((x - self.centre) @ self.frequencies).float()
        return (torch.cat([angles.sin(), angles.cos()], dim=-1).div_(math.sqrt(self.frequencies.shape[-1])),)

    def gram(self, first: Rows, second: Rows, dtype: torch.dtype | None = None) -> Tensor:
        """Inner products."""
        return (first[0] @ second[0].mT).to(dtype or self.frequencies.dtype)

    def inner_features(self, rows: Rows) -> Tensor:
        """The embedding itself."""
        return rows[0]


def gaussian_frequencies(width: Tensor, columns: int, count: int, generators: Sequence[torch.Generator]) -> Tensor:
    """ω ~ N(0, 2/σ²·I), whose mean of cos(ωᵀ(x−y)) is exp(−‖x−y‖²/σ²): widths σ² (R,) → (R, columns, count)."""
    drawn = torch.stack([torch.randn(columns, count, generator=g, dtype=torch.float64) for g in generators])
    return drawn.to(width) * (2 / width).sqrt()[:, None, None]
