"""MMD², its variance σ̂², the power criterion Ĵ_λ and the witness function: each formula is written here, once."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from m2st_core.kernels.base import Kernel, take

BLOCK_ROWS = 512


def _off_diagonal_sum(gram: Tensor) -> Tensor:
    """Σ_{i≠j} K_ij: (…, n, n) → (…)."""
    return gram.sum(dim=(-2, -1)) - gram.diagonal(dim1=-2, dim2=-1).sum(dim=-1)


def mmd2_unbiased(kxx: Tensor, kyy: Tensor, kxy: Tensor) -> Tensor:
    """The full two-sample U-statistic, n ≠ m allowed: (…, n, n), (…, m, m), (…, n, m) → (…).

    MMD²_u = Σ_{i≠j}k(x_i,x_j)/(n(n−1)) + Σ_{i≠j}k(y_i,y_j)/(m(m−1)) − 2·Σ_{ij}k(x_i,y_j)/(nm).
    """
    n, m = kxy.shape[-2:]
    return mmd2_from_sums(_off_diagonal_sum(kxx), _off_diagonal_sum(kyy), kxy.sum(dim=(-2, -1)), n, m)


def mmd2_from_sums(within_x: Tensor, within_y: Tensor, between: Tensor, n: int, m: int) -> Tensor:
    """MMD²_u from Σ_{i≠j}k(x_i,x_j), Σ_{i≠j}k(y_i,y_j) and Σ_{ij}k(x_i,y_j)."""
    return within_x / (n * (n - 1)) + within_y / (m * (m - 1)) - 2 * between / (n * m)


def h_matrix(kernel: Kernel, x: Tensor, y: Tensor) -> Tensor:
    """H_ij = k(x_i,x_j) + k(y_i,y_j) − k(x_i,y_j) − k(y_i,x_j), the paper's eq. (3); needs n=m: → (…, n, n)."""
    n = x.shape[-2]
    if y.shape[-2] != n:
        raise ValueError(f"The one-sample form pairs rows and needs n=m. Got {x.shape=} and {y.shape=}.")
    if kernel.inner_product:  # H_ij = (x_i − y_i)·(x_j − y_j)
        differences = tuple(a - b for a, b in zip(kernel.embed(x), kernel.embed(y), strict=True))
        return kernel.gram(differences, differences)
    rows = kernel.embed(torch.cat([x, y], dim=-2))
    gram = kernel.gram(rows, rows)
    kxy = gram[..., :n, n:]
    return gram[..., :n, :n] + gram[..., n:, n:] - kxy - kxy.mT


def paired_terms(h: Tensor) -> tuple[Tensor, Tensor]:
    """MMD² in the paper's one-sample form, eq. (2), and its variance σ̂², eq. (6): (…, n, n) → (…), (…).

    MMD² = Σ_{i≠j}H_ij/(n(n−1)) omits k(x_i, y_i), so it depends on how rows are paired. It serves Ĵ and must not be
    permuted. σ̂² = 4/n³·Σ_i(Σ_jH_ij)² − 4/n⁴·(Σ_ijH_ij)².
    """
    n = h.shape[-1]
    mmd2 = _off_diagonal_sum(h) / (n * (n - 1))
    return mmd2, 4 * h.mean(dim=-1).var(dim=-1, correction=0)


def masked_terms(h: Tensor, inside: Tensor) -> tuple[Tensor, Tensor]:
    """The ``paired_terms`` of the rows that ``inside`` (…, m) marks with 1, from a padded H: (…, m, m) → (…), (…)."""
    count = inside.sum(dim=-1)
    h = h * inside[..., :, None] * inside[..., None, :]
    mmd2 = _off_diagonal_sum(h) / (count * (count - 1)).clamp(min=1)
    means = h.sum(dim=-1) / count.clamp(min=1)[..., None]
    square, mean = ((means**power).sum(dim=-1) / count.clamp(min=1) for power in (2, 1))
    return mmd2, 4 * (square - mean.square()).clamp(min=0)


def criterion_ratio(mmd2: Tensor, variance: Tensor, regularisation: float) -> Tensor:
    """Ĵ_λ = MMD²/√(σ̂²+λ), the paper's eq. (5), elementwise."""
    return mmd2 / (variance + regularisation).sqrt()


def power_criterion(h: Tensor, regularisation: float) -> Tensor:
    """Ĵ_λ of the matrix H: (…, m, m) → (…)."""
    return criterion_ratio(*paired_terms(h), regularisation)


@torch.no_grad()
def full_criterion(kernel: Kernel, x: Tensor, y: Tensor, regularisation: float) -> float:
    """Ĵ_λ of a kernel with batch size 1 on rows (n, d), (m, d), of which the first min(n, m) are paired.

    A large H is computed in blocks of rows, of which only the sums are kept.
    """
    n = min(len(x), len(y))
    x, y = x[:n], y[:n]
    if n <= BLOCK_ROWS:
        return float(power_criterion(h_matrix(kernel, x[None], y[None]), regularisation))
    pooled = kernel.embed(torch.cat([x, y])[None])  # together, because a network may use batch statistics
    x_rows, y_rows = take(pooled, 0, n), take(pooled, n)
    sums, trace = [], 0.0
    for start in range(0, n, BLOCK_ROWS):
        x_part, y_part = (take(rows, start, start + BLOCK_ROWS) for rows in (x_rows, y_rows))
        h = kernel.gram(x_part, x_rows, torch.float32) + kernel.gram(y_part, y_rows, torch.float32)
        h -= kernel.gram(x_part, y_rows, torch.float32) + kernel.gram(y_part, x_rows, torch.float32)
        sums.append(h[0].sum(dim=-1, dtype=torch.float64))
        trace += float(h[0].diagonal(offset=start).sum())
    total = torch.cat(sums)
    mmd2, spread = (total.sum() - trace) / (n * (n - 1)), 4 * (total / n).var(correction=0)
    return float(criterion_ratio(mmd2, spread, regularisation))


def criterion_slopes(mmd2: Tensor, variance: Tensor, regularisation: float) -> tuple[Tensor, Tensor]:
    """∂Ĵ_λ/∂MMD² and ∂Ĵ_λ/∂σ̂², elementwise."""
    noise = variance + regularisation
    return noise.rsqrt(), -0.5 * mmd2 * noise**-1.5


def criterion_bends(
    mmd2: Tensor, variance: Tensor, mmd2_change: Tensor, variance_change: Tensor, regularisation: float
) -> tuple[Tensor, Tensor]:
    """Changes of ``criterion_slopes`` to first order when MMD² and σ̂² change, elementwise."""
    noise = variance + regularisation
    by_variance = -0.5 * noise**-1.5 * (mmd2_change - 1.5 * mmd2 * variance_change / noise)
    return -0.5 * variance_change * noise**-1.5, by_variance


TaskObjective = Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]
"""MMD² and σ̂² of R·T runs → the value of each repeat (R,), and the derivatives of their sum by both, (R·T,)."""


def mean_criterion(repeats: int, regularisation: float, ratio_of_means: bool) -> TaskObjective:
    """The mean of the tasks' Ĵ_λ, or the ratio of means mean MMD²/√(mean σ̂²+λ), of each repeat."""

    def objective(mmd2: Tensor, variance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mmd2, noise = mmd2.unflatten(0, (repeats, -1)), variance.unflatten(0, (repeats, -1))
        if ratio_of_means:
            mmd2, noise = (part.mean(dim=1, keepdim=True).expand_as(part) for part in (mmd2, noise))
        noise = noise + regularisation
        slope = noise.rsqrt()
        ratios = mmd2 * slope
        by_mmd2, by_variance = (part.flatten() / mmd2.shape[1] for part in (slope, -0.5 * ratios / noise))
        return ratios.mean(dim=1), by_mmd2, by_variance

    return objective


@torch.no_grad()
def witness(kernel: Kernel, x: Tensor, y: Tensor, at: Tensor) -> Tensor:
    """f(t) = mean_i k(t, x_i) − mean_j k(t, y_j) for rows (…, n, d), (…, m, d) at points (…, g, d) → (…, g).

    f is positive where the kernel places more of P, and negative where it places more of Q. The biased MMD² is the mean
    of f over the rows of x minus that over the rows of y.
    """
    points = kernel.embed(at)
    to_x, to_y = (kernel.gram(points, kernel.embed(rows)) for rows in (x, y))
    return _mean_difference(to_x, to_y, x.shape[-2], y.shape[-2])


def witness_of_rows(gram: Tensor, n: int) -> Tensor:
    """f at each pooled row, from the other rows: Gram matrix (…, N, N), whose first n rows are x's → (…, N).

    k(z_i, z_i) is omitted from the mean over row i's own sample; otherwise every row would look typical of its sample.
    """
    m = gram.shape[-1] - n
    others = gram - torch.diag_embed(gram.diagonal(dim1=-2, dim2=-1))
    own_x = torch.arange(n + m, device=gram.device) < n
    return _mean_difference(
        others[..., :n], others[..., n:], torch.where(own_x, n - 1, n), torch.where(own_x, m, m - 1)
    )


def _mean_difference(to_x: Tensor, to_y: Tensor, n: Tensor | int, m: Tensor | int) -> Tensor:
    """Σ_i k(t, x_i)/n − Σ_j k(t, y_j)/m: (…, g, n), (…, g, m) → (…, g)."""
    return to_x.sum(dim=-1) / n - to_y.sum(dim=-1) / m
