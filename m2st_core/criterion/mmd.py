"""The maximum mean discrepancy, estimated from Gram matrices."""

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
