"""A convex combination of kernels."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

Rows = tuple[Tensor, ...]
"""Embedded rows: tensors (…, n, ·) that share their leading dimensions."""


SMALLEST_EXPONENT = -80.0  # exp of anything below is a denormal float32, which is 0 for us and slow for processors
CENTRE_ROWS = 64


def take(rows: Rows, start: int, stop: int | None = None) -> Rows:
    """Rows start…stop of an embedding."""
    return tuple(part[..., start:stop, :] for part in rows)


class Kernel(nn.Module, ABC):
    """k(x, y), batched by leading dimensions: (…, n, d), (…, m, d) → (…, n, m).

    ``embed`` does what costs O(n) once per row, ``gram`` what costs O(nm), so that a large Gram matrix can be walked
    block by block. Parameters with batch shape S act on inputs (S…, n, d).
    """

    parts: int = 1  # how many tensors an embedding has
    inner_product: bool = False  # whether gram is linear in either embedding

    @abstractmethod
    def embed(self, x: Tensor) -> Rows:
        """What ``gram`` needs of each row: x is (…, n, d)."""

    @abstractmethod
    def gram(self, first: Rows, second: Rows, dtype: torch.dtype | None = None) -> Tensor:
        """Kernel values (…, n, m); distances are taken in the rows' dtype, then rounded to ``dtype``."""

    def weighted_gram(self, first: Rows, second: Rows, weights: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """Σ_i w_i·k_i over the last batch dimension: rows (…, k, n, ·), weights (…, k) → (…, n, m)."""
        gram = self.gram(first, second, dtype)
        scale = weights[..., None, None].to(gram.dtype)
        scaled = gram * scale if torch.is_grad_enabled() else gram.mul_(scale)
        return scaled.squeeze(-3) if scaled.shape[-3] == 1 else scaled.sum(dim=-3)

    def inner_features(self, rows: Rows) -> Tensor:
        """f with k(x, y) = f(x)·f(y), of embedded rows, where k is an inner product: (…, n, q)."""
        raise ValueError(f"{type(self).__name__} is not an inner product of finitely many features.")

    def summands(self) -> list[tuple[Tensor | float, Kernel]]:
        """k as a weighted sum: at most one inner product, at most one other kernel; weights are numbers or (…)."""
        return [(1.0, self)]

    def some(self, which: Tensor) -> Kernel:
        """Only these kernels of a family with batch shape (R, k): a boolean mask (k,)."""
        chosen = copy.deepcopy(self)
        map_tensors(chosen, lambda tensor: tensor[:, which])
        return chosen

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """The Gram matrix k(x_i, y_j): (…, n, m)."""
        return self.gram(self.embed(x), self.embed(y))


def map_tensors(module: nn.Module, change: Callable[[Tensor], Tensor]) -> None:
    """Replace every parameter and buffer."""
    for part in module.modules():
        for name, parameter in list(part.named_parameters(recurse=False)):
            setattr(part, name, nn.Parameter(change(parameter.detach())))
        for name, buffer in list(part.named_buffers(recurse=False)):
            setattr(part, name, change(buffer))


def negative_squared_distances(
    a: Tensor, b: Tensor, dtype: torch.dtype | None = None, smallest: float | None = None
) -> Tensor:
    """−‖a_i−b_j‖², (…, n, m), as one matrix product of the rows extended by their squared lengths.

    Both are first shifted by the median of some of b, which leaves distances alone and keeps a large common offset, or
    one huge row, from eating the digits. Rounding can not make a distance negative; values below ``smallest`` become
    that.
    """
    every = math.ceil(b.shape[-2] / CENTRE_ROWS)
    centre = b.detach()[..., ::every, :].median(dim=-2, keepdim=True).values
    a, b = a - centre, b - centre
    a_length, b_length = (rows.square().sum(dim=-1, keepdim=True) for rows in (a, b))
    left = torch.cat([a, a_length, torch.ones_like(a_length)], dim=-1)  # (…, n, d+2)
    right = torch.cat([2 * b, -torch.ones_like(b_length), -b_length], dim=-1)  # (…, m, d+2)
    return (left @ right.mT).to(dtype or a.dtype).clamp_(min=smallest, max=0)


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
