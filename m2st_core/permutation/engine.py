"""The permutation engine: statistics under all relabellings at once.

Relabellings are rows of a 0/1 matrix, "memberships" (…, 1+B, N): 1 puts a pooled row into the first sample. Row 0 is
the labelling that was observed, so the observed statistic takes the same arithmetic as its permutations.

Kernels that differ only in their width are a family of functions of one distance. Few of these functions are linearly
independent to within rounding, so few of them are multiplied with the labellings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from m2st_core.criterion import mmd2_from_sums
from m2st_core.device import map_threads
from m2st_core.kernels.base import Kernel, Rows, innermost_kernel, take
from m2st_core.kernels.distance import SMALLEST_EXPONENT, GaussianKernel, distance_factors
from m2st_core.kernels.mixtures import Family, MixtureKernel, summands
from m2st_core.permutation.labellings import Pieces
from m2st_core.types import Progress

BLOCK_ROWS = 256
TINY = torch.finfo(torch.float64).tiny
FAMILY_ROWS = 64  # of the upper triangle at once
LEVEL_ROWS = 32  # whose values with all rows show which kernels are independent
INDEPENDENT = 1e-5  # share of a kernel's variation that may be lost
LOST = 5e-5  # what that changes at most, in standard deviations of the statistic
RIDGE = 1e-12  # where a run needs fewer kernels than others

FamilyStatistics = tuple[Tensor, Tensor, Tensor]
"""MMD²_u (R, k, P), rounding error (R, k) and sum of squares (R, k) of a family's kernels."""


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
    terms = summands(kernel) if isinstance(kernel, MixtureKernel) else [(1.0, kernel)]
    for weight, summand in terms:
        mmd2, error = (
            _through_features(summand, pooled, members, n, dtype)
            if summand.inner_product
            else _through_gram(summand, pooled, members, n, dtype, progress)
        )
        scale = torch.as_tensor(weight, dtype=torch.float64, device=mmd2.device)
        statistics = statistics.to(mmd2) + scale[..., None] * mmd2
        rounding = rounding.to(mmd2) + scale * error
    return statistics, rounding


def _through_features(
    kernel: Kernel, pooled: Tensor, members: Tensor, n: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """The same for k(x, y) = f(x)·f(y), through the sums s = zᵀf and zᵀq, q_i = ‖f_i‖².

    Taking the mean off f leaves MMDs alone and makes 1ᵀf = 0; then the sums over pairs of different rows are ‖s‖²−zᵀq,
    ‖s‖²−(1−z)ᵀq and −‖s‖².
    """
    m = pooled.shape[-2] - n
    features = kernel.embed(pooled)[0]  # … x N x q
    centre = features.mean(dim=-2, keepdim=True, dtype=torch.float64)
    features, unit = features - centre.to(features), torch.ones_like(centre[..., :1])
    if features.dtype == torch.float64:
        unit = torch.linalg.vector_norm(features, math.inf, dim=(-2, -1), keepdim=True).clamp(min=TINY)
        features = features.div_(unit).to(dtype)  # at most 1: squares of float32 stay finite
    squares = features.square().sum(dim=-1, keepdim=True)
    every = torch.cat([features, squares], dim=-1)

    def sums(z: Tensor) -> Tensor:
        if z.ndim < 3 or z.shape[-3] != 1 or every.shape[-3] == 1:
            products = z @ every  # … x P x (q+1)
        else:  # k kernels share z (…, 1, P, N): one product with their features side by side
            side_by_side = every.movedim(-3, -2).flatten(-2)  # … x N x (k·(q+1))
            products = (z[..., 0, :, :] @ side_by_side).unflatten(-1, every.shape[-3::2]).movedim(-2, -3)
        products = products.to(torch.float64)
        return torch.stack([products[..., :-1].square().sum(dim=-1), products[..., -1]])

    length, diagonal = Pieces(members, dtype, every[..., 0, :].numel()).map(sums)  # ‖s‖² and zᵀq
    total = squares.sum(dim=-2, dtype=torch.float64)  # … x 1
    statistics = mmd2_from_sums(length - diagonal, length - (total - diagonal), -length, n, m)
    rounding = 8 * torch.finfo(dtype).eps * total[..., 0] * (1 / n + 1 / m) / min(n, m)
    scale = unit[..., 0].square()
    return statistics * scale, (rounding + 1e-5 * statistics.std(dim=-1, correction=0)) * scale[..., 0]


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
    m, total = size - n, r.sum(dim=-1, keepdim=True)
    statistics = mmd2_from_sums(a, total - 2 * zr + a, zr - a, n, m)
    rounding = torch.finfo(torch.float32).eps * largest * (1 / n + 1 / m)
    return statistics, rounding + 1e-5 * statistics.std(dim=-1, correction=0)


@torch.no_grad()
def permuted_families(
    families: Sequence[Family], pooled: Tensor, members: Tensor, n: int, progress: Progress | None = None
) -> list[FamilyStatistics]:
    """:func:`permuted_family` of each. Gaussian kernels, which are functions of one distance, become one family."""
    kernels = [family.kernel for family in families]
    gaussian = {
        index: kernel.log_width.exp()
        for index, kernel in enumerate(kernels)
        if isinstance(kernel, GaussianKernel) and kernel.log_width.ndim > 1
    }
    others = [[index] for index in range(len(kernels)) if index not in gaussian]
    statistics: dict[int, FamilyStatistics] = {}
    for indices in [list(gaussian), *others] if gaussian else others:
        sizes, kernel = [len(families[index].names) for index in indices], kernels[indices[0]]
        if len(indices) > 1:
            kernel = GaussianKernel(torch.cat(list(gaussian.values()), dim=-1))
        tensors = permuted_family(kernel, pooled, members, n, progress)
        of_families = zip(*(tensor.split(sizes, dim=1) for tensor in tensors), strict=True)
        statistics |= dict(zip(indices, of_families, strict=True))
    return [statistics[index] for index in range(len(families))]


@torch.no_grad()
def permuted_family(
    kernel: Kernel, pooled: Tensor, members: Tensor, n: int, progress: Progress | None = None
) -> FamilyStatistics:
    """MMD²_u of k kernels under every labelling, its rounding error, and the sum of the kernel's squares.

    Shapes: pooled (R, N, d), members (R, P, N) with n ones per row → (R, k, P), (R, k), (R, k). The last is
    Σ_{i≠j}k(z_i,z_j)², which no relabelling changes. Of the k kernels, only r are multiplied with the labellings, and
    the others are combinations of these but for 1e-5 of their variation. With K₀ the Gram matrix without its diagonal
    and a suitable α, MMD²_u is the quadratic form (z−α)ᵀK₀(z−α), but for a factor and a constant. Any u_i + u_j may be
    taken off K_ij without changing an MMD: we take the mean kernel value of row i with some rows.
    """
    size, dtype = pooled.shape[-2], torch.float32
    embedded = kernel.embed(pooled[:, None])
    some = slice(None, None, math.ceil(size / LEVEL_ROWS))
    sample = kernel.gram(tuple(tensor[..., some, :] for tensor in embedded), embedded).to(
        torch.float64
    )  # R x k x rows x N
    level = sample.mean(dim=-2)
    level -= level.mean(dim=-1, keepdim=True) / 2  # R x k x N
    largest = sample.abs().amax(dim=(-2, -1))
    basis, back = _independent(sample, level[..., some, None] + level[..., None, :])
    if not bool(basis.all()):
        kernel, level = kernel.some(basis), level[:, basis]
        embedded = kernel.embed(pooled[:, None])
    sums = level.sum(dim=-1)
    level = level.to(dtype)
    shift, factor, constant = _as_form(n, size - n)
    pieces = Pieces(members, dtype, level[..., 0].numel() * FAMILY_ROWS, shift)
    above = torch.ones(FAMILY_ROWS, FAMILY_ROWS, dtype=dtype, device=pooled.device).triu_(1)
    strip = _strips(kernel, embedded, dtype)

    def block(start: int) -> tuple[Tensor, Tensor, Tensor]:
        stop = min(start + FAMILY_ROWS, size)
        mask = above[: stop - start, : stop - start]
        upper = strip(start, stop)  # R x r x rows x rest
        upper[..., : stop - start].mul_(mask)
        flat = upper.flatten(-2)
        squares, total = flat @ flat.mT, flat.sum(dim=-1)
        upper.sub_(level[..., start:stop, None]).sub_(level[..., None, start:])
        upper[..., : stop - start].mul_(mask)

        def forms(z: Tensor) -> Tensor:
            products = (z[..., start:] @ upper.flatten(1, 2).mT).unflatten(-1, (-1, stop - start))  # R x P x r x rows
            return torch.linalg.vecdot(z[..., None, start:stop], products).mT  # R x r x P

        return pieces.map(forms).double(), total.double(), squares.double()

    form, total, squares = (torch.zeros((), dtype=torch.float64, device=pooled.device) for _ in range(3))
    starts = range(0, size, FAMILY_ROWS)
    for start, (block_form, block_total, block_squares) in zip(starts, map_threads(block, starts), strict=True):
        form, total, squares = form + block_form, total + block_total, squares + block_squares
        if progress is not None:
            progress(min(start + FAMILY_ROWS, size), size, 0.0)
    rest = total - (size - 1) * sums  # without the levels
    statistics = 2 * back[..., 1:] @ (factor * form + constant * rest[..., None])
    pairs = torch.full_like(total[:, :1], size * (size - 1) / 2)
    first = torch.cat([pairs, total], dim=-1)
    products = torch.cat([first[:, None], torch.cat([total[..., None], squares], dim=-1)], dim=1)  # R x 1+r x 1+r
    rounding = torch.finfo(dtype).eps * largest * (1 / n + 1 / (size - n))
    rounding = rounding + LOST * statistics.std(dim=-1, correction=0)
    return statistics, rounding, 2 * ((back @ products) * back).sum(dim=-1)


def _strips(kernel: Kernel, rows: Rows, dtype: torch.dtype) -> Callable[[int, int], Tensor]:
    """Strips of the upper triangle: (start, stop) → values of these rows with those from start on, (R, k, rows, rest).

    Of Gaussian kernels, rows are extended by their lengths once.
    """
    kernel = innermost_kernel(kernel)
    if not isinstance(kernel, GaussianKernel):
        return lambda start, stop: kernel.gram(take(rows, start, stop), take(rows, start), dtype)
    left, right = distance_factors(rows[0], rows[0])
    ratios = kernel.ratios(left).to(dtype)

    def strip(start: int, stop: int) -> Tensor:
        squares = (left[..., start:stop, :] @ right[..., start:, :].mT).to(dtype).clamp_(max=0)
        return (squares * ratios).clamp_(min=SMALLEST_EXPONENT).exp_()

    return strip


def _independent(values: Tensor, level: Tensor) -> tuple[Tensor, Tensor]:
    """Mask (k,) of a basis of r kernels, and all kernels as combinations of 1 and the basis: (R, k, 1+r).

    The combinations explain how the kernels' values (R, k, rows, N) vary around a level (R, k, rows, N). The kernel
    that the basis explains least joins it, until all are explained in every run.
    """
    length = torch.linalg.vector_norm((values - level).flatten(-2), dim=-1, keepdim=True)
    length = length.clamp(min=torch.finfo(torch.float32).tiny)
    means = values.mean(dim=(-2, -1))[..., None]
    flat = (values.flatten(-2) - means) / length  # R x k x pairs
    alike = rest = (flat @ flat.mT).nan_to_num()  # R x k x k
    basis = torch.zeros(alike.shape[-1], dtype=torch.bool, device=values.device)
    for _ in range(len(basis)):
        unexplained = rest.diagonal(dim1=-2, dim2=-1).amax(dim=0)
        index = int(unexplained.argmax())
        if bool(basis.any()) and float(unexplained[index]) <= INDEPENDENT**2:
            break
        basis[index] = True
        column = rest[..., index : index + 1]
        rest = rest - column * column.mT / column[:, index : index + 1].clamp(min=torch.finfo(rest.dtype).tiny)
    identity = torch.eye(int(basis.sum())).to(alike)
    back = torch.linalg.solve(alike[:, basis][..., basis] + RIDGE * identity, alike[:, basis]).mT
    back = back * (length / length[:, basis].mT)
    back[:, basis] = identity
    return basis, torch.cat([means - back @ means[:, basis], back], dim=-1)


def _as_form(n: int, m: int) -> tuple[float, float, float]:
    """α, A and C with MMD²_u = A·(z−α)ᵀK₀(z−α) + C·1ᵀK₀1; α and 1−α are exact in float32."""
    sums = torch.tensor([[1.0, 1.0, -1.0], [0.0, -2.0, 1.0], [0.0, 1.0, 0.0]], dtype=torch.float64)
    coefficients = mmd2_from_sums(sums[:, 0], sums[:, 1], sums[:, 2], n, m)
    a, zr, total = coefficients.tolist()  # of zᵀK₀z, zᵀK₀1 and 1ᵀK₀1
    shift = round(-zr / (2 * a) * 2**24) / 2**24
    return shift, a, total - a * shift**2


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
