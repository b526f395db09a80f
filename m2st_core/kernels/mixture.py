"""A convex combination of kernels."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from m2st_core.kernels.base import Kernel, Rows


class MixtureKernel(Kernel):
    """k = Σ_i β_i k_i with β on the simplex; ``weights`` is (…, number of kernels)."""

    weights: Tensor

    def __init__(self, kernels: Sequence[Kernel], weights: Tensor) -> None:
        super().__init__()
        if weights.shape[-1] != len(kernels):
            raise ValueError(f"One weight per kernel is needed. Got {weights.shape=} for {len(kernels)} kernels.")
        if bool((weights < 0).any()) or not torch.allclose(weights.sum(-1), torch.ones_like(weights[..., 0])):
            raise ValueError(f"Weights must be ≥ 0 and sum to 1. Got {weights}.")
        self.kernels = nn.ModuleList(kernels)
        self.register_buffer("weights", weights)
        self.parts = sum(kernel.parts for kernel in kernels)

    def embed(self, x: Tensor) -> Rows:
        """All kernels' embeddings, one after another."""
        return tuple(part for kernel in self._each() for part in kernel.embed(x))

    def gram(self, first: Rows, second: Rows, dtype: torch.dtype | None = None) -> Tensor:
        """Σ_i β_i·gram_i."""
        terms = []
        start = 0
        for kernel, weight in zip(self._each(), self.weights.unbind(dim=-1), strict=True):
            part = slice(start, start + kernel.parts)
            term = kernel.gram(first[part], second[part], dtype)
            terms.append(term * weight[..., None, None].to(term.dtype))
            start += kernel.parts
        return sum(terms[1:], start=terms[0])

    def _each(self) -> list[Kernel]:
        return [kernel for kernel in self.kernels if isinstance(kernel, Kernel)]
