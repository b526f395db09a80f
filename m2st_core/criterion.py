"""The witness function: where a kernel sees more of one sample than of the other."""

from __future__ import annotations

import torch
from torch import Tensor

from m2st_core.kernels.base import Kernel


def off_diagonal_sum(gram: Tensor) -> Tensor:
    """Σ_{i≠j} K_ij: (…, n, n) → (…)."""
    return gram.sum(dim=(-2, -1)) - gram.diagonal(dim1=-2, dim2=-1).sum(dim=-1)


def mmd2_unbiased(kxx: Tensor, kyy: Tensor, kxy: Tensor) -> Tensor:
    """The full two-sample U-statistic, n ≠ m allowed: (…, n, n), (…, m, m), (…, n, m) → (…).

    MMD²_u = Σ_{i≠j}k(x_i,x_j)/(n(n−1)) + Σ_{i≠j}k(y_i,y_j)/(m(m−1)) − 2·Σ_{ij}k(x_i,y_j)/(nm).
    """
    n, m = kxy.shape[-2:]
    return mmd2_from_sums(off_diagonal_sum(kxx), off_diagonal_sum(kyy), kxy.sum(dim=(-2, -1)), n, m)


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


def mmd2_paired(h: Tensor) -> Tensor:
    """The paper's one-sample form, eq. (2): Σ_{i≠j}H_ij/(n(n−1)), (…, n, n) → (…).

    It leaves k(x_i, y_i) out and so depends on how rows are paired: right for Ĵ, not a statistic to permute.
    """
    n = h.shape[-1]
    return off_diagonal_sum(h) / (n * (n - 1))


def variance(h: Tensor) -> Tensor:
    """σ̂² = 4/m³·Σ_i(Σ_jH_ij)² − 4/m⁴·(Σ_ijH_ij)², the paper's eq. (6): (…, m, m) → (…)."""
    means = h.mean(dim=-1)  # over j
    return 4 * means.var(dim=-1, correction=0)


def power_criterion(h: Tensor, regularisation: float) -> Tensor:
    """Ĵ_λ = MMD²/√(σ̂²+λ), the paper's eq. (5): (…, m, m) → (…)."""
    return mmd2_paired(h) / (variance(h) + regularisation).sqrt()


def masked_terms(h: Tensor, inside: Tensor) -> tuple[Tensor, Tensor]:
    """MMD² and σ̂² of the rows marked by ``inside`` (…, m), 0 or 1, of a padded H (…, m, m) → (…), (…)."""
    count = inside.sum(dim=-1)
    h = h * inside[..., :, None] * inside[..., None, :]
    mmd2 = off_diagonal_sum(h) / (count * (count - 1)).clamp(min=1)
    means = h.sum(dim=-1) / count.clamp(min=1)[..., None]
    square, mean = ((means**power).sum(dim=-1) / count.clamp(min=1) for power in (2, 1))
    return mmd2, 4 * (square - mean.square()).clamp(min=0)


@torch.no_grad()
def witness(kernel: Kernel, x: Tensor, y: Tensor, at: Tensor) -> Tensor:
    """f(t) = mean_i k(t, x_i) − mean_j k(t, y_j), of rows (…, n, d), (…, m, d) at places (…, g, d) → (…, g).

    f is positive where the kernel sees more of P and negative where it sees more of Q; the (biased) MMD² is the mean of
    f over the rows of x minus that over the rows of y.
    """
    places = kernel.embed(at)
    more, less = (kernel.gram(places, kernel.embed(rows)).mean(dim=-1) for rows in (x, y))
    return more - less


def witness_of_rows(gram: Tensor, n: int) -> Tensor:
    """f at each pooled row, of which the first n are x's, from the others: Gram matrix (…, N, N) → (…, N).

    A row's kernel value with itself is left out of the mean over its own sample, or each would look typical of it.
    """
    m = gram.shape[-1] - n
    others = gram - torch.diag_embed(gram.diagonal(dim1=-2, dim2=-1))
    own_x = torch.arange(n + m, device=gram.device) < n
    x = others[..., :n].sum(dim=-1) / torch.where(own_x, n - 1, n)
    y = others[..., n:].sum(dim=-1) / torch.where(own_x, m, m - 1)
    return x - y
