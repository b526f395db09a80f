"""Kernels with leading batch dimensions, and convex combinations of them."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn

Rows = tuple[Tensor, ...]
"""Embedded rows: tensors (…, n, ·) that share their leading dimensions."""

SMALLEST_EXPONENT = -80.0  # exp of anything below is a denormal float32, which processors handle slowly
CENTRE_ROWS = 64


def take(rows: Rows, start: int, stop: int | None = None) -> Rows:
    """Rows start…stop of an embedding."""
    return tuple(part[..., start:stop, :] for part in rows)


class Kernel(nn.Module, ABC):
    """k(x, y), batched by leading dimensions: (…, n, d), (…, m, d) → (…, n, m).

    ``embed`` does the O(n) work once per row and ``gram`` the O(nm) work, so a large Gram matrix can be computed block
    by block. Parameters with batch shape S act on inputs (S…, n, d).
    """

    parts: int = 1  # number of tensors in an embedding
    inner_product: bool = False  # whether gram is linear in either embedding

    @abstractmethod
    def embed(self, x: Tensor) -> Rows:
        """The embedding of each row that ``gram`` needs: x is (…, n, d)."""

    @abstractmethod
    def gram(self, first: Rows, second: Rows, dtype: torch.dtype | None = None) -> Tensor:
        """Kernel values (…, n, m). Distances are computed in the rows' dtype, then rounded to ``dtype``."""

    def strips(self, rows: Rows, dtype: torch.dtype | None = None) -> Callable[[int, int], Tensor]:
        """Strips of the upper triangle: a function (start, stop) → values of these rows with those from start on."""
        return lambda start, stop: self.gram(take(rows, start, stop), take(rows, start), dtype)

    def weighted_gram(self, first: Rows, second: Rows, weights: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """Σ_i w_i·k_i over the last batch dimension: rows (…, k, n, ·), weights (…, k) → (…, n, m)."""
        gram = self.gram(first, second, dtype)
        scale = weights[..., None, None].to(gram.dtype)
        scaled = gram * scale if torch.is_grad_enabled() else gram.mul_(scale)
        return scaled.squeeze(-3) if scaled.shape[-3] == 1 else scaled.sum(dim=-3)

    def inner_features(self, rows: Rows) -> Tensor:
        """f(x) with k(x, y) = f(x)·f(y), of embedded rows: (…, n, q)."""
        raise ValueError(f"{type(self).__name__} is not an inner product of finitely many features.")

    def summands(self) -> list[tuple[Tensor | float, Kernel]]:
        """k as a weighted sum of at most one inner product and one other kernel; weights are numbers or (…)."""
        return [(1.0, self)]

    def some(self, which: Tensor) -> Kernel:
        """The kernels that a boolean mask (k,) selects from a family with batch shape (R, k)."""
        return copy_with(self, lambda tensor: tensor[:, which])

    def joined(self, other: Kernel) -> Kernel | None:
        """One family of the kernels of both, if they are functions of the same distance."""
        return None

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """The Gram matrix k(x_i, y_j): (…, n, m)."""
        return self.gram(self.embed(x), self.embed(y))


AnyModule = TypeVar("AnyModule", bound=nn.Module)


def map_tensors(module: AnyModule, change: Callable[[Tensor], Tensor]) -> AnyModule:
    """Replace every parameter and buffer by its change, and return the module."""
    for part in module.modules():
        for name, parameter in list(part.named_parameters(recurse=False)):
            setattr(part, name, nn.Parameter(change(parameter.detach())))
        for name, buffer in list(part.named_buffers(recurse=False)):
            setattr(part, name, change(buffer))
    return module


def copy_with(module: AnyModule, change: Callable[[Tensor], Tensor]) -> AnyModule:
    """A copy with changed parameters and buffers."""
    return map_tensors(copy.deepcopy(module), change)


def negative_squared_distances(
    a: Tensor, b: Tensor, dtype: torch.dtype | None = None, smallest: float | None = None
) -> Tensor:
    """−‖a_i−b_j‖², (…, n, m), as one matrix product. Values are clamped to [``smallest``, 0]."""
    left, right = distance_factors(a, b)
    return (left @ right.mT).to(dtype or a.dtype).clamp_(min=smallest, max=0)


def distance_factors(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Rows extended by their squared lengths, (…, n, d+2) and (…, m, d+2), whose product is −‖a_i−b_j‖².

    Both sides are first shifted by the median of some rows of b: a large common offset, or one huge row, then costs no
    digits.
    """
    every = math.ceil(b.shape[-2] / CENTRE_ROWS)
    centre = b.detach()[..., ::every, :].median(dim=-2, keepdim=True).values
    a, b = a - centre, b - centre
    a_length, b_length = (rows.square().sum(dim=-1, keepdim=True) for rows in (a, b))
    left = torch.cat([a, a_length, torch.ones_like(a_length)], dim=-1)
    return left, torch.cat([2 * b, -torch.ones_like(b_length), -b_length], dim=-1)


class MixtureKernel(Kernel):
    """k = Σ_i β_i k_i with β on the simplex.

    Each family is one kernel object with batch shape (…, k_f). ``weights`` is (…, Σ_f k_f), in the order of the
    families. Kernels that have weight 0 in every run are dropped.
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
        self.parts = sum(family.parts for family in kept)
        self.inner_product = all(family.inner_product for family in kept)

    def _weighted(self) -> list[tuple[Kernel, Tensor]]:
        """Each family with its weights (…, k_f)."""
        kernels = (family for family in self.families if isinstance(family, Kernel))
        return list(zip(kernels, self.weights.split(self.sizes, dim=-1), strict=True))

    def inner_features(self, rows: Rows) -> Tensor:
        """All families' features side by side, each times √β."""
        features = [
            family.inner_features((part,)) * weights.sqrt()[..., None, None]  # … x k x n x q
            for (family, weights), part in zip(self._weighted(), rows, strict=True)
        ]
        return torch.cat([part.movedim(-3, -2).flatten(-2) for part in features], dim=-1)

    def summands(self) -> list[tuple[Tensor | float, Kernel]]:
        """The mixture of the families that are inner products, and that of the others."""
        parts: list[tuple[Tensor | float, Kernel]] = []
        for linear in (True, False):
            chosen = [pair for pair in self._weighted() if pair[0].inner_product is linear]
            if chosen:
                weights = torch.cat([columns for _, columns in chosen], dim=-1)
                total = weights.sum(dim=-1, keepdim=True)
                shares = torch.where(total > 0, weights / total, 1 / weights.shape[-1])
                sizes = [columns.shape[-1] for _, columns in chosen]
                parts.append((total[..., 0], MixtureKernel([family for family, _ in chosen], sizes, shares)))
        return parts

    def embed(self, x: Tensor) -> Rows:
        """All families' embeddings, one after another."""
        return tuple(part for family, _ in self._weighted() for part in family.embed(x[..., None, :, :]))

    def gram(self, first: Rows, second: Rows, dtype: torch.dtype | None = None) -> Tensor:
        """Σ_i β_i·gram_i."""

        def terms() -> Iterator[Tensor]:
            start = 0
            for family, weights in self._weighted():
                part = slice(start, start + family.parts)
                yield family.weighted_gram(first[part], second[part], weights, dtype)
                start = part.stop

        summands = terms()
        total = next(summands)
        for term in summands:
            total.add_(term)
        return total


@dataclass(frozen=True)
class Family:
    """k kernels of one kind, batch shape (R, k), with their names and the mean prior weight π of each.

    ``weights`` (R, k) are the parts of each kernel in the family's weight, if they are unequal.
    """

    kernel: Kernel
    names: tuple[str, ...]
    share: float
    weights: Tensor | None = None


@dataclass(frozen=True)
class KernelBank:
    """Families of kernels. The prior weights of all kernels sum to 1."""

    families: tuple[Family, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """One name per kernel."""
        return tuple(name for family in self.families for name in family.names)

    def mixture(self, weights: Tensor) -> MixtureKernel:
        """Σ_i β_i k_i with weights β of shape (R, k)."""
        families = self.families
        return MixtureKernel([family.kernel for family in families], [len(f.names) for f in families], weights)
