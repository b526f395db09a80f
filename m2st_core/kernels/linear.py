"""Kernels that are inner products of given features."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from m2st_core.kernels.base import Kernel, Rows


class FeatureKernel(Kernel):
    """k(x, y) = Σ_q w_q·ψ_q(x)·ψ_q(y)/Σ_q w_q for a feature map ψ with coordinates of variance about 1.

    ``weights`` ≥ 0 is (…, Q); k(x, x) is about 1 on average. If all weights are 0 the kernel is 0.
    """

    weights: Tensor

    def __init__(self, features: nn.Module, weights: Tensor) -> None:
        super().__init__()
        self.features = features
        self.register_buffer("weights", weights)

    def embed(self, x: Tensor) -> Rows:
        """ψ(x), scaled by √w."""
        total = self.weights.sum(dim=-1, keepdim=True)
        scale = (self.weights / total.where(total > 0, 1.0)).sqrt()
        return (self.features(x) * scale[..., None, :],)

    def gram(self, first: Rows, second: Rows, dtype: torch.dtype | None = None) -> Tensor:
        """Inner products."""
        return (first[0] @ second[0].mT).to(dtype or first[0].dtype)
