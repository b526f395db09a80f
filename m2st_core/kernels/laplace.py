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
        """Rows divided by the largest σ of the family: one set of them, and of their distances, for all widths."""
        return (x * torch.exp(-self._largest())[..., None, None],)

    def gram(self, first: Rows, second: Rows, dtype: torch.dtype | None = None) -> Tensor:
        """exp(−distance), each distance times σ_max/σ."""
        distances = torch.cdist(first[0], second[0], p=1.0)
        ratio = torch.exp(self._largest() - self.log_width)[..., None, None]
        return torch.exp(-distances.to(dtype or distances.dtype) * ratio.to(dtype or distances.dtype))

    def _largest(self) -> Tensor:
        return self.log_width.amax(dim=-1, keepdim=True) if self.log_width.ndim else self.log_width
