"""The Laplace kernel."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from m2st_core.kernels.base import Kernel, Rows


class LaplaceKernel(Kernel):
    """k(x, y) = exp(−‖x−y‖₁/σ); ``width`` is σ, positive, with any batch shape."""

    def __init__(self, width: Tensor) -> None:
        super().__init__()
        self.log_width = nn.Parameter(width.log())

    def embed(self, x: Tensor) -> Rows:
        """Rows divided by σ."""
        return (x * torch.exp(-self.log_width)[..., None, None],)

    def gram(self, first: Rows, second: Rows, dtype: torch.dtype | None = None) -> Tensor:
        """exp(−distance)."""
        distances = torch.cdist(first[0], second[0], p=1.0)
        return torch.exp(-distances.to(dtype or distances.dtype))
