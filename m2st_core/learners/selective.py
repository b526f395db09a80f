"""Selective inference: learn the weights of kernels and test on the same rows, with a p-value that accounts for it.

Kübler, Jitkrittum, Schölkopf, Muandet (2020). It needs the linear-time MMD, which spends many rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from m2st_core.kernels.bank import KernelBank
from m2st_core.kernels.base import Kernel, Rows, take
from m2st_core.learners.mixtures import solve_weights
from m2st_core.permutation.fitted import AsymptoticTest
from m2st_core.rng import Streams
from m2st_core.types import TwoSample

SMALLEST_VARIANCE = 1e-10
CONDITION = 1e-6
BLOCK = 256


@torch.no_grad()
def linear_time_terms(bank: KernelBank, sample: TwoSample, streams: Sequence[Streams]) -> torch.Tensor:
    """h_i = k(x_i,x'_i) + k(y_i,y'_i) − k(x_i,y'_i) − k(x'_i,y_i) of every kernel: (R, k, n/2).

    Rows are shuffled first, then the first half is paired with the second.
    """
    half = sample.x.shape[-2] // 2
    parts = []
    for side, rows in (("x", sample.x), ("y", sample.y)):
        order = torch.stack([torch.randperm(rows.shape[-2], generator=s.torch(f"pairing of {side}")) for s in streams])
        rows = rows.take_along_dim(order[..., None].to(rows.device), dim=-2)[:, None]
        parts.append((rows[..., :half, :], rows[..., half : 2 * half, :]))
    (x, x_other), (y, y_other) = parts
    found = []
    for family in bank.families:
        a, b, c, d = (family.kernel.embed(rows) for rows in (x, x_other, y, y_other))
        pairs = ((a, b), (c, d), (a, d), (b, c))
        k = [_between(family.kernel, first, second, half) for first, second in pairs]
        found.append(k[0] + k[1] - k[2] - k[3])
    return torch.cat(found, dim=1)


def _between(kernel: Kernel, first: Rows, second: Rows, count: int) -> torch.Tensor:
    """k(a_i, b_i): (R, k, count), walking the diagonal of the Gram matrix in blocks."""
    blocks = [
        kernel.gram(take(first, start, start + BLOCK), take(second, start, start + BLOCK)).diagonal(dim1=-2, dim2=-1)
        for start in range(0, count, BLOCK)
    ]
    return torch.cat(blocks, dim=-1)


@dataclass(frozen=True)
class SelectiveTest(AsymptoticTest):
    """Learn the weights of a bank's kernels and test on the same rows.

    τ = √n·h̄ and Σ = cov(h) are turned into Σ⁺τ and Σ⁺; β solves min βᵀΣβ s.t. βᵀτ=1, β≥0; with l the rank of Σ on
    β's support, βᵀτ/√(βᵀΣβ) is compared with χ_l. For l=1 that is the normal truncated to the positive numbers,
    where it must lie to be selected; if no kernel has τ > 0, p = 1. With the reference "F" the square is compared with
    Hotelling's l(n−1)/(n−l)·F(l, n−l) instead, which accounts for the estimate of Σ.
    """

    bank: KernelBank
    reference: Literal["chi2", "F"]

    def p_values(
        self, sample: TwoSample, n_quantiles: int, streams: Sequence[Streams]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Statistics (R,), p-values (R,) and quantiles of the reference (R, n_quantiles)."""
        from scipy import stats  # slow to import

        h = linear_time_terms(self.bank, sample, streams).double().cpu().numpy()
        statistic, rank = (np.array(values) for values in zip(*(_one(run) for run in h), strict=True))
        if self.reference == "chi2":
            reference, scale = stats.chi2(rank[:, None]), np.ones((len(rank), 1))
        else:
            free = h.shape[-1] - rank[:, None]
            reference, scale = stats.f(rank[:, None], free), rank[:, None] * (h.shape[-1] - 1) / free
        levels = (np.arange(n_quantiles) + 0.5) / n_quantiles
        p_value = reference.sf(statistic[:, None] ** 2 / scale)[:, 0]
        return statistic, p_value, np.sqrt(scale * reference.ppf(levels))


def _one(h: np.ndarray) -> tuple[float, int]:
    """Statistic and rank from h (k, n)."""
    h = h[h.var(axis=1) >= SMALLEST_VARIANCE]
    if not len(h):
        return 0.0, 1
    sigma = np.atleast_2d(np.cov(h))
    inverse = np.linalg.pinv(sigma, rcond=CONDITION, hermitian=True)
    tau = inverse @ (math.sqrt(h.shape[1]) * h.mean(axis=1))
    if tau.max() <= 0:
        return 0.0, 1
    beta = solve_weights(torch.from_numpy(tau)[None], torch.from_numpy(inverse)[None], 0.0)[0].numpy()
    active = beta > 1e-6 * beta.max()
    values = np.linalg.eigvalsh(inverse[np.ix_(active, active)])
    rank = int((values > CONDITION * values.max()).sum())
    beta = np.where(active, beta, 0.0)
    return float(beta @ tau / math.sqrt(beta @ inverse @ beta)), rank
