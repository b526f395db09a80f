"""The Gaussian kernel and the width that everybody starts from."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from torch import Tensor, nn

from m2st_core.kernels.base import SMALLEST_EXPONENT, Kernel, Rows, negative_squared_distances


class GaussianKernel(Kernel):
    """k(x, y) = exp(−‖x−y‖²/σ²), no factor 2; ``width`` is σ², positive, with any batch shape.

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


@torch.no_grad()
def median_squared_distance(x: Tensor) -> Tensor:
    """Median of ‖x_i−x_j‖² over i<j, of the positive ones if most are zero: (…, n, d) → (…).

    Rows that are all the same give 1.
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
    """The median over the last dimension, without nan: the mean of the two middle ones if their number is even."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # of runs without a value, whose median is nan
        return torch.as_tensor(np.nanmedian(values.cpu().numpy(), axis=-1)).to(values)
