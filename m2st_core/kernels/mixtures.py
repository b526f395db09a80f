"""Families of kernels, their convex combinations, and how such sums are computed quickly."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from m2st_core.kernels.base import InnerProductKernel, Kernel, LinearKernel, Rows, innermost_kernel
from m2st_core.kernels.distance import SMALLEST_EXPONENT, GaussianKernel, negative_squared_distances

SMALLEST_ROOT = 1e-9  # its fourth power is still a normal float32


class MixtureKernel(Kernel):
    """k = Σ_i β_i k_i with β on the simplex.

    Each family is one kernel object with batch shape (…, k_f). ``weights`` is (…, Σ_f k_f), in the order of the
    families. Kernels that have weight 0 in every run are dropped.

    >>> linear = LinearKernel(torch.eye(1)[None])
    >>> MixtureKernel([linear, linear], [1, 1], torch.tensor([0.5, 0.5]))(torch.ones(1, 1), torch.ones(1, 1)).item()
    1.0
    """

    weights: Tensor

    def __init__(self, families: Sequence[Kernel], sizes: Sequence[int], weights: Tensor) -> None:
        super().__init__()
        if weights.shape[-1] != sum(sizes) or len(sizes) != len(families):
            raise ValueError(f"One weight per kernel is needed. Got {weights.shape=} for families of {sizes=}.")
        if bool((weights < 0).any()) or not torch.allclose(weights.sum(-1), torch.ones_like(weights[..., 0])):
            raise ValueError(f"Weights must be ≥ 0 and sum to 1. Got {weights}.")
        used_families, used_weights = [], []
        for family, columns in zip(families, weights.split(list(sizes), dim=-1), strict=True):
            used = (columns > 0).flatten(0, -2).any(dim=0) if columns.ndim > 1 else columns > 0
            if bool(used.any()):
                used_families.append(family if bool(used.all()) else family.some(used))
                used_weights.append(columns[..., used])
        self.families = nn.ModuleList(used_families)
        self.sizes = [columns.shape[-1] for columns in used_weights]
        self.register_buffer("weights", torch.cat(used_weights, dim=-1))
        self.parts = sum(family.parts for family in used_families)
        self.inner_product = all(family.inner_product for family in used_families)

    def weighted(self) -> list[tuple[Kernel, Tensor]]:
        """Each family with its weights (…, k_f)."""
        kernels = (family for family in self.families if isinstance(family, Kernel))
        return list(zip(kernels, self.weights.split(self.sizes, dim=-1), strict=True))

    def embed(self, x: Tensor) -> Rows:
        """All families' embeddings, one after another."""
        return tuple(tensor for family, _ in self.weighted() for tensor in family.embed(x[..., None, :, :]))

    def gram(self, first: Rows, second: Rows, dtype: torch.dtype | None = None) -> Tensor:
        """Σ_i β_i·gram_i."""

        def terms() -> Iterator[Tensor]:
            start = 0
            for family, weights in self.weighted():
                tensors = slice(start, start + family.parts)
                yield weighted_gram(family, first[tensors], second[tensors], weights, dtype)
                start = tensors.stop

        summands = terms()
        total = next(summands)
        for term in summands:
            total.add_(term)
        return total


class _InnerProductMixture(InnerProductKernel, MixtureKernel):
    """A mixture of inner products as one: its features are those of all families side by side, each times √β."""

    def embed(self, x: Tensor) -> Rows:
        """The features of all families: (…, n, Σq)."""
        features = [
            family.embed(x[..., None, :, :])[0] * weights.sqrt()[..., None, None]  # … x k x n x q
            for family, weights in self.weighted()
        ]
        return (torch.cat([columns.movedim(-3, -2).flatten(-2) for columns in features], dim=-1),)


@dataclass(frozen=True)
class Family:
    """k kernels of one kind, batch shape (R, k), with their names and the mean prior weight π of each.

    ``weights`` (R, k) are each kernel's shares of the family's weight, if they are unequal.
    """

    kernel: Kernel
    names: tuple[str, ...]
    share: float
    weights: Tensor | None = None


def kernel_names(families: Sequence[Family]) -> tuple[str, ...]:
    """One name per kernel."""
    return tuple(name for family in families for name in family.names)


def mixture_of(families: Sequence[Family], weights: Tensor) -> MixtureKernel:
    """Σ_i β_i k_i with weights β (R, k) of the families' kernels."""
    return MixtureKernel([family.kernel for family in families], [len(family.names) for family in families], weights)


def summands(kernel: MixtureKernel) -> list[tuple[Tensor | float, Kernel]]:
    """A mixture as a weighted sum of those of its families that are inner products, and of the others.

    There is at most one term of each kind. Weights are (…).
    """
    terms: list[tuple[Tensor | float, Kernel]] = []
    for linear, kind in ((True, _InnerProductMixture), (False, MixtureKernel)):
        alike = [(family, weights) for family, weights in kernel.weighted() if family.inner_product is linear]
        if alike:
            weights = torch.cat([columns for _, columns in alike], dim=-1)
            total = weights.sum(dim=-1, keepdim=True)
            shares = torch.where(total > 0, weights / total, 1 / weights.shape[-1])
            sizes = [columns.shape[-1] for _, columns in alike]
            terms.append((total[..., 0], kind([family for family, _ in alike], sizes, shares)))
    return terms


def weighted_gram(
    kernel: Kernel, first: Rows, second: Rows, weights: Tensor, dtype: torch.dtype | None = None
) -> Tensor:
    """Σ_i w_i·k_i over a family: embedded rows (…, k, n, ·), weights (…, k) → (…, n, m).

    Linear kernels take one matrix product. Of Gaussian kernels whose widths are powers of 4 apart, only the widest
    takes an exp.
    """
    kernel = innermost_kernel(kernel)
    if isinstance(kernel, LinearKernel):  # features side by side, with the weights on the first embedding
        left = (first[0] * weights[..., None, None].to(first[0])).movedim(-3, -2).flatten(-2)  # … x n x (k·r)
        return kernel.gram((left,), (second[0].movedim(-3, -2).flatten(-2),), dtype)
    powers = _powers_of_4(kernel.log_width) if isinstance(kernel, GaussianKernel) else None
    if isinstance(kernel, GaussianKernel) and powers is not None and not torch.is_grad_enabled():
        return _sum_of_powers(kernel, powers, first[0], second[0], weights, dtype)
    gram = kernel.gram(first, second, dtype)
    scale = weights[..., None, None].to(gram.dtype)
    scaled = gram * scale if torch.is_grad_enabled() else gram.mul_(scale)
    return scaled.squeeze(-3) if scaled.shape[-3] == 1 else scaled.sum(dim=-3)


def _powers_of_4(log_width: Tensor) -> list[int] | None:
    """p with σ_i² = 4^(−p_i)·σ²_max in all runs, or None if the widths of the family (…, k) are not so spaced."""
    exponents = (log_width.amax(dim=-1, keepdim=True) - log_width).detach() / math.log(4)
    whole = exponents.round()
    shared = whole.flatten(0, -2)[0] if whole.ndim > 1 else whole
    return [int(power) for power in shared.tolist()] if bool(((exponents - shared).abs() < 1e-6).all()) else None


def _sum_of_powers(
    kernel: GaussianKernel, powers: list[int], left: Tensor, right: Tensor, weights: Tensor, dtype: torch.dtype | None
) -> Tensor:
    """Σ_i w_i·k^(4^p_i), with k the widest kernel, by repeated squares: exp(−4D) = exp(−D)⁴."""
    if kernel.log_width.ndim < 2:  # each kernel has embedded the rows by its own width
        widest = slice(powers.index(0), powers.index(0) + 1)
        left, right = left[..., widest, :, :], right[..., widest, :, :]
    value = negative_squared_distances(left, right, dtype, SMALLEST_EXPONENT).exp_()[..., 0, :, :]
    total, power = torch.zeros_like(value), 0
    for index in sorted(range(len(powers)), key=powers.__getitem__):
        for _ in range(powers[index] - power):
            value.clamp_(min=SMALLEST_ROOT).square_().square_()
        total.addcmul_(value, weights[..., index, None, None].to(value))
        power = powers[index]
    return total
