"""The permutation engine: statistics under all relabellings at once.

Relabellings are rows of a 0/1 matrix, "memberships" (…, 1+B, N): 1 puts a pooled row into the first sample. Row 0 is
the labelling that was observed, so the observed statistic takes the same arithmetic as its permutations.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from m2st_core.criterion import mmd2_from_sums
from m2st_core.device import map_threads
from m2st_core.kernels.base import Kernel, take
from m2st_core.kernels.mixtures import summands
from m2st_core.permutation.blocks import Pieces
from m2st_core.types import Progress

BLOCK_ROWS = 256
TINY = torch.finfo(torch.float64).tiny


@torch.no_grad()
def permuted_mmd2(
    kernel: Kernel,
    pooled: Tensor,
    members: Tensor,
    n: int,
    dtype: torch.dtype = torch.float32,
    progress: Progress | None = None,
) -> tuple[Tensor, Tensor]:
    """MMD²_u under every labelling, and the rounding error within which two of them are equal.

    Shapes: pooled (…, N, d), members (…, P, N) with n ones per row → (…, P), (…); leading dimensions broadcast, so
    several kernels share one set of labellings. Inner products are permuted through sums of their features, which costs
    next to nothing; other kernels need their Gram matrix.
    """
    statistics, rounding = torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    for weight, part in summands(kernel):
        found, error = (
            _through_features(part, pooled, members, n, dtype)
            if part.inner_product
            else _through_gram(part, pooled, members, n, dtype, progress)
        )
        scale = torch.as_tensor(weight, dtype=torch.float64, device=found.device)
        statistics = statistics.to(found) + scale[..., None] * found
        rounding = rounding.to(found) + scale * error
    return statistics, rounding


def _through_features(
    kernel: Kernel, pooled: Tensor, members: Tensor, n: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """The same for k(x, y) = f(x)·f(y), through the sums s = zᵀf and zᵀq, q_i = ‖f_i‖².

    Taking the mean off f leaves MMDs alone and makes 1ᵀf = 0; then the sums over pairs of different rows are ‖s‖²−zᵀq,
    ‖s‖²−(1−z)ᵀq and −‖s‖².
    """
    m = pooled.shape[-2] - n
    features = kernel.inner_features(kernel.embed(pooled))  # … x N x q
    centre = features.mean(dim=-2, keepdim=True, dtype=torch.float64)
    features, unit = features - centre.to(features), torch.ones_like(centre[..., :1])
    if features.dtype == torch.float64:
        unit = torch.linalg.vector_norm(features, math.inf, dim=(-2, -1), keepdim=True).clamp(min=TINY)
        features = features.div_(unit).to(dtype)  # at most 1: squares of float32 stay finite
    squares = features.square().sum(dim=-1, keepdim=True)
    every = torch.cat([features, squares], dim=-1)

    def sums(z: Tensor) -> Tensor:
        found = _products(z, every).to(torch.float64)  # … x P x (q+1)
        return torch.stack([found[..., :-1].square().sum(dim=-1), found[..., -1]])

    length, own = Pieces(members, dtype, every[..., 0, :].numel()).map(sums)
    total = squares.sum(dim=-2, dtype=torch.float64)  # … x 1
    statistics = mmd2_from_sums(length - own, length - (total - own), -length, n, m)
    rounding = 8 * torch.finfo(dtype).eps * total[..., 0] * (1 / n + 1 / m) / min(n, m)
    scale = unit[..., 0].square()
    return statistics * scale, (rounding + 1e-5 * statistics.std(dim=-1, correction=0)) * scale[..., 0]


def _products(z: Tensor, features: Tensor) -> Tensor:
    """z @ features, (…, P, N) and (…, N, q) → (…, P, q). If k kernels share z (…, 1, P, N), it is one product."""
    if z.ndim < 3 or z.shape[-3] != 1 or features.shape[-3] == 1:
        return z @ features
    side_by_side = features.movedim(-3, -2).flatten(-2)  # … x N x (k·q)
    return (z[..., 0, :, :] @ side_by_side).unflatten(-1, features.shape[-3::2]).movedim(-2, -3)


def _through_gram(
    kernel: Kernel, pooled: Tensor, members: Tensor, n: int, dtype: torch.dtype, progress: Progress | None
) -> tuple[Tensor, Tensor]:
    """The same for any kernel.

    With K₀ the Gram matrix without its diagonal, z a labelling and r = K₀1, the three sums of the U-statistic are
    a = zᵀK₀z, 1ᵀr−2zᵀr+a and zᵀr−a. K₀ is symmetric, so only its upper triangle is computed, BLOCK_ROWS rows at a
    time, and multiplied with all labellings at once: half the arithmetic, and memory linear in N. Any
    u_i + u_j may be taken off K_ij without changing an MMD: we take the mean kernel value of row i with the first
    block, and float32 sums stay accurate.
    """
    size = pooled.shape[-2]
    embedded = kernel.embed(pooled)
    first = kernel.gram(take(embedded, 0, BLOCK_ROWS), embedded, dtype)  # … x rows x N
    pieces = Pieces(members, dtype, first[..., 0].numel())
    largest = first.abs().amax(dim=(-2, -1)).to(torch.float64)
    level = first.mean(dim=-2)  # … x N
    level -= level.mean(dim=-1, keepdim=True) / 2

    def block(start: int) -> tuple[Tensor, Tensor, Tensor]:
        stop = min(start + BLOCK_ROWS, size)
        upper = first if start == 0 else kernel.gram(take(embedded, start, stop), take(embedded, start), dtype)
        upper.sub_(level[..., start:stop, None]).sub_(level[..., None, start:])  # … x rows x rest
        upper[..., : stop - start].triu_(1)
        within = pieces.map(lambda z: torch.linalg.vecdot(z[..., start:stop], z[..., start:] @ upper.mT))  # … x P
        return within, upper.sum(dim=-1), upper.sum(dim=-2)

    a = torch.zeros((), dtype=torch.float64, device=pooled.device)
    r = torch.zeros((*first.shape[:-2], size), dtype=torch.float64, device=pooled.device)
    starts = range(0, size, BLOCK_ROWS)
    for start, (within, across, down) in zip(starts, map_threads(block, starts), strict=True):
        a = a + 2 * within
        r[..., start : start + BLOCK_ROWS] += across
        r[..., start:] += down
        if progress is not None:
            progress(min(start + BLOCK_ROWS, size), size, 0.0)
    zr = Pieces(members, torch.float64).map(lambda z: (z @ r[..., None])[..., 0])
    return _from_sums(a, r, zr, n, largest)


def _from_sums(a: Tensor, r: Tensor, zr: Tensor, n: int, largest: Tensor) -> tuple[Tensor, Tensor]:
    """MMD²_u from a = zᵀK₀z, zᵀr (…, P) and r = K₀1 (…, N), and its rounding error (…)."""
    m, total = r.shape[-1] - n, r.sum(dim=-1, keepdim=True)
    statistics = mmd2_from_sums(a, total - 2 * zr + a, zr - a, n, m)
    rounding = torch.finfo(torch.float32).eps * largest * (1 / n + 1 / m)
    return statistics, rounding + 1e-5 * statistics.std(dim=-1, correction=0)


@torch.no_grad()
def permuted_mean_difference(scores: Tensor, members: Tensor, n: int, two_sided: bool = True) -> tuple[Tensor, Tensor]:
    """Mean score of the first sample − mean score of the second, under every labelling, and its rounding error.

    Two-sided, its absolute value is the MMD of the kernel f(x)·f(y). Shapes: scores (…, N), members (…, P, N) →
    (…, P), (…).
    """
    m = scores.shape[-1] - n
    scores = scores.to(torch.float64)
    first = Pieces(members, torch.float64).map(lambda z: (z @ scores[..., None])[..., 0])
    total = scores.sum(dim=-1, keepdim=True)
    difference = first / n - (total - first) / m
    return difference.abs() if two_sided else difference, 1e-12 * scores.abs().amax(dim=-1)
