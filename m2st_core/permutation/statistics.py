"""The permutation engine: statistics under all relabellings at once, then the p-value.

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
from m2st_core.permutation.blocks import as_numbers
from m2st_core.preset import PValueRule
from m2st_core.types import Progress

BLOCK_ROWS = 256
FAMILY_ROWS = 64  # the same for a family of kernels
TINY = torch.finfo(torch.float64).tiny
INDEPENDENT = 1e-5  # share of a kernel's variation that may be lost when a family is reduced to mixtures


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
    for weight, part in kernel.summands():
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
    sums = _products(as_numbers(members, dtype), torch.cat([features, squares], dim=-1)).to(
        torch.float64
    )  # … x P x (q+1)
    length, own = sums[..., :-1].square().sum(dim=-1), sums[..., -1]
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
    z = as_numbers(members, dtype)
    first = kernel.gram(take(embedded, 0, BLOCK_ROWS), embedded, dtype)  # … x rows x N
    largest = first.abs().amax(dim=(-2, -1)).to(torch.float64)
    level = first.mean(dim=-2)  # … x N
    level -= level.mean(dim=-1, keepdim=True) / 2

    def block(start: int) -> tuple[Tensor, Tensor, Tensor]:
        stop = min(start + BLOCK_ROWS, size)
        upper = first if start == 0 else kernel.gram(take(embedded, start, stop), take(embedded, start), dtype)
        upper.sub_(level[..., start:stop, None]).sub_(level[..., None, start:])  # … x rows x rest
        upper[..., : stop - start].triu_(1)
        within = torch.linalg.vecdot(z[..., start:stop], z[..., start:] @ upper.mT)  # … x P
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
    return _from_sums(a, r, (z.to(torch.float64) @ r[..., None])[..., 0], n, largest)


@torch.no_grad()
def permuted_family(
    kernel: Kernel, pooled: Tensor, members: Tensor, n: int, progress: Progress | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """The same for k kernels of pooled rows (R, N, d) and labellings (R, P, N): (R, k, P), (R, k).

    Last comes Σ_{i≠j}k(z_i,z_j)², (R, k), which no relabelling changes. Kernels that differ only in their width are
    functions of one distance, and few of these functions are independent: all labellings are multiplied with r ≤ k
    mixtures of the kernels, from which each kernel is recovered but for 1e-5 of its variation.
    """
    size, dtype = pooled.shape[-2], torch.float32
    embedded, z = kernel.embed(pooled[:, None]), as_numbers(members, dtype)
    some = slice(None, None, math.ceil(size / FAMILY_ROWS))
    sample = kernel.gram(tuple(part[..., some, :] for part in embedded), embedded, dtype)  # R x k x rows x N
    level = sample.mean(dim=-2)
    level -= level.mean(dim=-1, keepdim=True) / 2  # R x k x N
    mix, back = _independent(sample - level[..., some, None] - level[..., None, :])
    mixed_level = mix @ level  # R x r x N
    largest = sample.abs().amax(dim=(-2, -1)).to(torch.float64)

    def block(start: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        stop = min(start + FAMILY_ROWS, size)
        upper = kernel.gram(take(embedded, start, stop), take(embedded, start), dtype)  # R x k x rows x rest
        upper[..., : stop - start].triu_(1)
        squares = torch.linalg.vector_norm(upper.flatten(-2), dim=-1).to(torch.float64).square()
        mixed = (mix @ upper.flatten(-2)).unflatten(-1, upper.shape[-2:])  # R x r x rows x rest
        mixed.sub_(mixed_level[..., start:stop, None]).sub_(mixed_level[..., None, start:])
        mixed[..., : stop - start].triu_(1)
        products = z[..., start:] @ mixed.flatten(1, 2).mT  # R x P x (r·rows)
        products = products.unflatten(-1, (-1, stop - start))
        within = torch.linalg.vecdot(z[..., None, start:stop], products).mT  # R x r x P
        return within.to(torch.float64), mixed.sum(dim=-1), mixed.sum(dim=-2), squares

    a, squares = (torch.zeros((), dtype=torch.float64, device=pooled.device) for _ in range(2))
    r = torch.zeros((*mix.shape[:-1], size), dtype=torch.float64, device=pooled.device)
    starts = range(0, size, FAMILY_ROWS)
    for start, (within, across, down, found) in zip(starts, map_threads(block, starts), strict=True):
        a, squares = a + 2 * within, squares + 2 * found
        r[..., start : start + FAMILY_ROWS] += across
        r[..., start:] += down
        if progress is not None:
            progress(min(start + FAMILY_ROWS, size), size, 0.0)
    return *_from_sums(back @ a, back @ r, (z.to(torch.float64) @ (back @ r).mT).mT, n, largest), squares


def _independent(values: Tensor) -> tuple[Tensor, Tensor]:
    """Mixtures (R, r, k) of k functions whose values are (R, k, rows, N), and the way back (R, k, r).

    They are the leading eigenvectors of the functions' correlations, as many as needed in every run.
    """
    flat = values.flatten(-2).to(torch.float64)
    length = torch.linalg.vector_norm(flat, dim=-1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)
    flat = flat / length
    shares, vectors = torch.linalg.eigh((flat @ flat.mT).nan_to_num())  # R x k, R x k x k; in ascending order
    missed = (shares.clamp(min=0)[:, None] * vectors.square()).cumsum(dim=-1).amax(dim=(0, 1))  # of the first 1 … k
    kept = vectors[..., int((missed <= INDEPENDENT**2).sum()) :]
    return (kept / length).mT.to(values.dtype), length * kept


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
    first = (as_numbers(members, torch.float64) @ scores[..., None])[..., 0]
    total = scores.sum(dim=-1, keepdim=True)
    difference = first / n - (total - first) / m
    return difference.abs() if two_sided else difference, 1e-12 * scores.abs().amax(dim=-1)


def permutation_p_value(statistics: Tensor, rounding: Tensor, rule: PValueRule) -> Tensor:
    """The share of labellings whose statistic reaches the observed one: (…, 1+B), (…) → (…).

    "(1+b)/(1+B)" counts the observed labelling too and so keeps the level exactly. The other two are the paper's and
    its code's, which reject slightly too often. Non-finite statistics count as at least as extreme.
    """
    observed, permuted = statistics[..., :1], statistics[..., 1:]
    tolerance = rounding[..., None]
    count = permuted.shape[-1]
    if rule == "b/B, >":
        return (~(permuted <= observed + tolerance)).sum(dim=-1, dtype=torch.float64) / count
    reached = (~(permuted < observed - tolerance)).sum(dim=-1, dtype=torch.float64)
    return reached / count if rule == "b/B, ≥" else (1 + reached) / (1 + count)
