"""A convex combination of kernels."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from m2st_core.kernels.base import Kernel, Rows


class MixtureKernel(Kernel):
    """k = Σ_i β_i k_i with β on the simplex.

    The kernels come in families, each one kernel object with batch shape (…, k_f); ``weights`` is (…, Σ_f k_f), in the
    order of the families. Kernels that have no weight in any run are left out.
    """

    weights: Tensor

    def __init__(self, families: Sequence[Kernel], sizes: Sequence[int], weights: Tensor) -> None:
        super().__init__()
        if weights.shape[-1] != sum(sizes) or len(sizes) != len(families):
            raise ValueError(f"One weight per kernel is needed. Got {weights.shape=} for families of {sizes=}.")
        if bool((weights < 0).any()) or not torch.allclose(weights.sum(-1), torch.ones_like(weights[..., 0])):
            raise ValueError(f"Weights must be ≥ 0 and sum to 1. Got {weights}.")
        kept, columns = [], []
        for family, part in zip(families, weights.split(list(sizes), dim=-1), strict=True):
            used = (part > 0).flatten(0, -2).any(dim=0) if part.ndim > 1 else part > 0
            if bool(used.any()):
                kept.append(family if bool(used.all()) else family.some(used))
                columns.append(part[..., used])
        self.families = nn.ModuleList(kept)
        self.sizes = [part.shape[-1] for part in columns]
        self.register_buffer("weights", torch.cat(columns, dim=-1))
        self.parts = sum(family.parts for family in self._each())
        self.inner_product = all(family.inner_product for family in self._each())

    def inner_features(self, rows: Rows) -> Tensor:
        """All families' features side by side, each times √β."""
        found = [
            family.inner_features((part,)) * weights.sqrt()[..., None, None]  # … x k x n x q
            for family, part, weights in zip(self._each(), rows, self.weights.split(self.sizes, dim=-1), strict=True)
        ]
        return torch.cat([features.movedim(-3, -2).flatten(-2) for features in found], dim=-1)

    def summands(self) -> list[tuple[Tensor | float, Kernel]]:
        """The mixture of the families that are inner products, and that of the others."""
        columns = self.weights.split(self.sizes, dim=-1)
        found: list[tuple[Tensor | float, Kernel]] = []
        for linear in (True, False):
            chosen = [index for index, family in enumerate(self._each()) if family.inner_product is linear]
            if chosen:
                weights = torch.cat([columns[index] for index in chosen], dim=-1)
                total = weights.sum(dim=-1, keepdim=True)
                shares = torch.where(total > 0, weights / total, 1 / weights.shape[-1])
                families = [self._each()[index] for index in chosen]
                found.append((total[..., 0], MixtureKernel(families, [self.sizes[i] for i in chosen], shares)))
        return found

    def embed(self, x: Tensor) -> Rows:
        """All families' embeddings, one after another."""
        return tuple(part for family in self._each() for part in family.embed(x[..., None, :, :]))

    def gram(self, first: Rows, second: Rows, dtype: torch.dtype | None = None) -> Tensor:
        """Σ_i β_i·gram_i."""
        total: Tensor | None = None
        start = 0
        for family, weights in zip(self._each(), self.weights.split(self.sizes, dim=-1), strict=True):
            part = slice(start, start + family.parts)
            term = family.weighted_gram(first[part], second[part], weights, dtype)
            total = term if total is None else total.add_(term)
            start += family.parts
        assert total is not None
        return total

    def _each(self) -> list[Kernel]:
        return [family for family in self.families if isinstance(family, Kernel)]
