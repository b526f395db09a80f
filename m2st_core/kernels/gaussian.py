"""The Gaussian kernel and the width that everybody starts from."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from m2st_core.kernels.base import Kernel, Rows, negative_squared_distances

ROUNDING = 1e-12  # a squared distance this small beside the largest one is the distance of equal rows


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
        return negative_squared_distances(first[0], second[0], dtype).exp_()


@torch.no_grad()
def median_squared_distance(x: Tensor) -> Tensor:
    """Median of ‖x_i−x_j‖² over i<j, of the positive ones if most are zero: (…, n, d) → (…).

    Rows that are all the same give 1.
    """
    n = x.shape[-2]
    pairs = np.triu(np.ones((n, n), dtype=bool), 1)
    distances = -negative_squared_distances(x, x).cpu().numpy()[..., pairs]  # … x n(n-1)/2
    zero = distances <= ROUNDING * distances.max(axis=-1, keepdims=True)
    if zero.mean(axis=-1).max() < 0.5:
        medians = np.median(distances, axis=-1)
    else:
        medians = np.ma.median(np.ma.array(distances, mask=zero), axis=-1)
    return torch.as_tensor(np.ma.filled(medians, 1.0), dtype=x.dtype, device=x.device)
