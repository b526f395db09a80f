"""Kernels that are inner products, and kernels on top of given features."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from m2st_core.kernels.base import Kernel, Rows


class LinearKernel(Kernel):
    """k(x, y) = xᵀMMᵀy/‖M‖²_F; ``matrix`` M is (…, d, r), a parameter.

    For rows of unit variance k(x, x) is 1 on average, and without any M at all (M=0) the kernel is 0.
    """

    inner_product = True

    def __init__(self, matrix: Tensor) -> None:
        super().__init__()
        self.matrix = nn.Parameter(matrix)

    def embed(self, x: Tensor) -> Rows:
        """xᵀM/‖M‖."""
        length = self.matrix.square().sum(dim=(-2, -1), keepdim=True).sqrt()
        return (x @ (self.matrix / length.where(length > 0, 1.0)),)

    def gram(self, first: Rows, second: Rows, dtype: torch.dtype | None = None) -> Tensor:
        """Inner products."""
        return (first[0] @ second[0].mT).to(dtype or first[0].dtype)

    def inner_features(self, rows: Rows) -> Tensor:
        """The embedding itself."""
        return rows[0]

    def weighted_gram(self, first: Rows, second: Rows, weights: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """One inner product of all kernels' features side by side, those of the first weighted."""
        left = (first[0] * weights[..., None, None].to(first[0])).movedim(-3, -2).flatten(-2)  # … x n x (k·r)
        return self.gram((left,), (second[0].movedim(-3, -2).flatten(-2),), dtype)


class ComposedKernel(Kernel):
    """k(ψ(x), ψ(y)) for a kernel k and a feature map ψ: (…, n, d) → (…, n, Q)."""

    def __init__(self, features: nn.Module, kernel: Kernel) -> None:
        super().__init__()
        self.features = features
        self.kernel = kernel
        self.parts = kernel.parts
        self.inner_product = kernel.inner_product

    def embed(self, x: Tensor) -> Rows:
        """The kernel's embedding of ψ(x)."""
        return self.kernel.embed(self.features(x))

    def gram(self, first: Rows, second: Rows, dtype: torch.dtype | None = None) -> Tensor:
        """The kernel's Gram matrix."""
        return self.kernel.gram(first, second, dtype)

    def inner_features(self, rows: Rows) -> Tensor:
        """The kernel's features."""
        return self.kernel.inner_features(rows)

    def some(self, which: Tensor) -> Kernel:
        """Only these kernels, on the same features."""
        return ComposedKernel(self.features, self.kernel.some(which))

    def weighted_gram(self, first: Rows, second: Rows, weights: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """The kernels' weighted sum."""
        return self.kernel.weighted_gram(first, second, weights, dtype)
