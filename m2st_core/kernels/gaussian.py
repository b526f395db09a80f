"""Gaussian and Laplace kernels, and the median heuristic for their widths."""

from __future__ import annotations

import math
import warnings

import numpy as np
import torch
from torch import Tensor, nn

from m2st_core.kernels.base import SMALLEST_EXPONENT, Kernel, Rows, negative_squared_distances

SMALLEST_ROOT = 1e-9  # its fourth power is still a normal float32


class GaussianKernel(Kernel):
    """k(x, y) = exp(−‖x−y‖²/σ²), without a factor 2; ``width`` is σ² > 0, of any batch shape.

    >>> GaussianKernel(torch.tensor(4.0))(torch.tensor([[0.0]]), torch.tensor([[2.0]])).item() # doctest: +ELLIPSIS
    0.3678...
    """

    def __init__(self, width: Tensor) -> None:
        super().__init__()
        self.log_width = nn.Parameter(width.log())

    @property
    def width(self) -> Tensor:
        """σ²."""
        return self.log_width.exp()

    def embed(self, x: Tensor) -> Rows:
        """Rows divided by σ."""
        return (x * torch.exp(-0.5 * self.log_width)[..., None, None],)

    def gram(self, first: Rows, second: Rows, dtype: torch.dtype | None = None) -> Tensor:
        """exp(−distance²)."""
        return negative_squared_distances(first[0], second[0], dtype, SMALLEST_EXPONENT).exp_()

    def weighted_gram(self, first: Rows, second: Rows, weights: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """Σ_i w_i·k_i. If widths are powers of 4 apart, only the widest kernel takes an exp: exp(−4D) = exp(−D)⁴."""
        powers = self._powers_of_4()
        if powers is None or torch.is_grad_enabled():
            return super().weighted_gram(first, second, weights, dtype)
        widest = slice(powers.index(0), powers.index(0) + 1)
        value = self.gram((first[0][..., widest, :, :],), (second[0][..., widest, :, :],), dtype)[..., 0, :, :]
        total, power = torch.zeros_like(value), 0
        for index in sorted(range(len(powers)), key=powers.__getitem__):
            for _ in range(powers[index] - power):
                value.clamp_(min=SMALLEST_ROOT).square_().square_()
            total.addcmul_(value, weights[..., index, None, None].to(value))
            power = powers[index]
        return total

    def _powers_of_4(self) -> list[int] | None:
        """p with σ_i² = 4^(−p_i)·σ²_max in all runs, or None if the widths of the family (…, k) are not so spaced."""
        exponents = (self.log_width.amax(dim=-1, keepdim=True) - self.log_width).detach() / math.log(4)
        whole = exponents.round()
        same = whole.flatten(0, -2)[0] if whole.ndim > 1 else whole
        alike = bool(((exponents - same).abs() < 1e-6).all())
        return [int(power) for power in same.tolist()] if alike else None


@torch.no_grad()
def median_squared_distance(x: Tensor) -> Tensor:
    """Median of ‖x_i−x_j‖² over i<j: (…, n, d) → (…).

    If it is 0, the median of the positive distances is used; identical rows give 1.
    """
    n = x.shape[-2]
    i, j = torch.triu_indices(n, n, offset=1, device=x.device)
    distances = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist")[..., i, j]  # … x n(n-1)/2
    medians = _median(distances)
    if not bool((medians > 0).all()):
        positive = distances.where(distances > 0, torch.nan)
        medians = medians.where(medians > 0, _median(positive).nan_to_num(nan=1.0))
    return medians.square()


def _median(values: Tensor) -> Tensor:
    """The median over the last dimension, ignoring nan; the mean of the two middle values if their number is even."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # numpy warns about runs that have nan only
        return torch.as_tensor(np.nanmedian(values.cpu().numpy(), axis=-1)).to(values)


class LaplaceKernel(Kernel):
    """k(x, y) = exp(−‖x−y‖₁/σ); ``width`` is σ > 0, of any batch shape."""

    def __init__(self, width: Tensor) -> None:
        super().__init__()
        self.log_width = nn.Parameter(width.log())

    def embed(self, x: Tensor) -> Rows:
        """Rows divided by the largest σ of the family, so that all widths share their distances."""
        return (x * torch.exp(-self._largest())[..., None, None],)

    def gram(self, first: Rows, second: Rows, dtype: torch.dtype | None = None) -> Tensor:
        """exp(−distance·σ_max/σ)."""
        distances = torch.cdist(first[0], second[0], p=1.0)
        ratio = torch.exp(self._largest() - self.log_width)[..., None, None]
        return torch.exp(-distances.to(dtype or distances.dtype) * ratio.to(dtype or distances.dtype))

    def _largest(self) -> Tensor:
        return self.log_width.amax(dim=-1, keepdim=True) if self.log_width.ndim else self.log_width
