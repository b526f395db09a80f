"""Families of kernels: statistics of kernels that are functions of one distance, under all relabellings at once.

Kernels that differ only in their width are functions of one distance, and few of these functions are linearly
independent to within rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from m2st_core.criterion import mmd2_from_sums
from m2st_core.device import map_threads
from m2st_core.kernels.base import Kernel, Rows, innermost, take
from m2st_core.kernels.distance import SMALLEST_EXPONENT, GaussianKernel, distance_factors, width_ratios
from m2st_core.kernels.mixtures import Family
from m2st_core.permutation.blocks import Pieces
from m2st_core.types import Progress

FAMILY_ROWS = 64  # of the upper triangle at once
LEVEL_ROWS = 32  # whose values with all rows show which kernels are independent
INDEPENDENT = 1e-5  # share of a kernel's variation that may be lost
LOST = 5e-5  # what that changes at most, in standard deviations of the statistic
RIDGE = 1e-12  # where a run needs fewer kernels than others

Found = tuple[Tensor, Tensor, Tensor]
"""MMD²_u (R, k, P), rounding error (R, k) and sum of squares (R, k) of a family's kernels."""


@torch.no_grad()
def permuted_families(
    families: Sequence[Family], pooled: Tensor, members: Tensor, n: int, progress: Progress | None = None
) -> list[Found]:
    """:func:`permuted_family` of each. Kernels that are functions of the same distance become one family."""
    joined: list[tuple[Kernel, list[int]]] = []
    for place, family in enumerate(families):
        for index, (other, places) in enumerate(joined):
            both = _joined(other, family.kernel)
            if both is not None:
                joined[index] = both, [*places, place]
                break
        else:
            joined.append((family.kernel, [place]))
    found: dict[int, Found] = {}
    for both, places in joined:
        sizes = [len(families[place].names) for place in places]
        every = permuted_family(both, pooled, members, n, progress)
        parts = zip(*(part.split(sizes, dim=1) for part in every), strict=True)
        found |= dict(zip(places, parts, strict=True))
    return [found[place] for place in range(len(families))]


@torch.no_grad()
def permuted_family(
    kernel: Kernel, pooled: Tensor, members: Tensor, n: int, progress: Progress | None = None
) -> tuple[Tensor, Tensor, Tensor]:
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
    sample = kernel.gram(tuple(part[..., some, :] for part in embedded), embedded).to(torch.float64)  # R x k x rows x N
    level = sample.mean(dim=-2)
    level -= level.mean(dim=-1, keepdim=True) / 2  # R x k x N
    largest = sample.abs().amax(dim=(-2, -1))
    chosen, back = _independent(sample, level[..., some, None] + level[..., None, :])
    if not bool(chosen.all()):
        kernel, level = kernel.some(chosen), level[:, chosen]
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

        def own(z: Tensor) -> Tensor:
            products = (z[..., start:] @ upper.flatten(1, 2).mT).unflatten(-1, (-1, stop - start))  # R x P x r x rows
            return torch.linalg.vecdot(z[..., None, start:stop], products).mT  # R x r x P

        return pieces.map(own), total, squares

    form, total, squares = (torch.zeros((), dtype=torch.float64, device=pooled.device) for _ in range(3))
    starts = range(0, size, FAMILY_ROWS)
    for start, (within, every, found) in zip(starts, map_threads(block, starts), strict=True):
        form, total, squares = form + within.double(), total + every.double(), squares + found.double()
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


def _joined(first: Kernel, second: Kernel) -> Kernel | None:
    """One family of the kernels of two, (R, k₁) and (R, k₂), if they are functions of the same distance."""
    if not (type(first) is type(second) is GaussianKernel and min(first.log_width.ndim, second.log_width.ndim) > 1):
        return None
    return GaussianKernel(torch.cat([first.width, second.width], dim=-1))


def _strips(kernel: Kernel, rows: Rows, dtype: torch.dtype) -> Callable[[int, int], Tensor]:
    """Strips of the upper triangle: (start, stop) → values of these rows with those from start on, (R, k, rows, rest).

    Of Gaussian kernels, rows are extended by their lengths once.
    """
    kernel = innermost(kernel)
    if not isinstance(kernel, GaussianKernel):
        return lambda start, stop: kernel.gram(take(rows, start, stop), take(rows, start), dtype)
    left, right = distance_factors(rows[0], rows[0])
    ratios = width_ratios(kernel.log_width, left).to(dtype)

    def strip(start: int, stop: int) -> Tensor:
        squares = (left[..., start:stop, :] @ right[..., start:, :].mT).to(dtype).clamp_(max=0)
        return (squares * ratios).clamp_(min=SMALLEST_EXPONENT).exp_()

    return strip


def _independent(values: Tensor, level: Tensor) -> tuple[Tensor, Tensor]:
    """Which r kernels of a family are enough, (k,), and all kernels as combinations of 1 and these: (R, k, 1+r).

    Of the kernels' values (R, k, rows, N), what varies beside a level (R, k, rows, N) must be explained. The next
    kernel is always that which those chosen before explain least, as far as needed in every run.
    """
    length = torch.linalg.vector_norm((values - level).flatten(-2), dim=-1, keepdim=True)
    length = length.clamp(min=torch.finfo(torch.float32).tiny)
    means = values.mean(dim=(-2, -1))[..., None]
    flat = (values.flatten(-2) - means) / length  # R x k x pairs
    alike = rest = (flat @ flat.mT).nan_to_num()  # R x k x k
    chosen = torch.zeros(alike.shape[-1], dtype=torch.bool, device=values.device)
    for _ in range(len(chosen)):
        missed = rest.diagonal(dim1=-2, dim2=-1).amax(dim=0)
        place = int(missed.argmax())
        if bool(chosen.any()) and float(missed[place]) <= INDEPENDENT**2:
            break
        chosen[place] = True
        column = rest[..., place : place + 1]
        rest = rest - column * column.mT / column[:, place : place + 1].clamp(min=torch.finfo(rest.dtype).tiny)
    own = torch.eye(int(chosen.sum())).to(alike)
    back = torch.linalg.solve(alike[:, chosen][..., chosen] + RIDGE * own, alike[:, chosen]).mT
    back = back * (length / length[:, chosen].mT)
    back[:, chosen] = own
    return chosen, torch.cat([means - back @ means[:, chosen], back], dim=-1)


def _as_form(n: int, m: int) -> tuple[float, float, float]:
    """α, A and C with MMD²_u = A·(z−α)ᵀK₀(z−α) + C·1ᵀK₀1; α and 1−α are exact in float32."""
    sums = torch.tensor([[1.0, 1.0, -1.0], [0.0, -2.0, 1.0], [0.0, 1.0, 0.0]], dtype=torch.float64)
    coefficients = mmd2_from_sums(sums[:, 0], sums[:, 1], sums[:, 2], n, m)
    a, zr, total = coefficients.tolist()  # of zᵀK₀z, zᵀK₀1 and 1ᵀK₀1
    shift = round(-zr / (2 * a) * 2**24) / 2**24
    return shift, a, total - a * shift**2
