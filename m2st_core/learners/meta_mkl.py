"""The paper's tests with related tasks: deep kernels adapted to the target's training rows, or mixed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from m2st_core.kernels.base import Family, Kernel, KernelBank, Rows, take
from m2st_core.learners.adaptation import adapt_to_target
from m2st_core.learners.knowledge import Knowledge, needed
from m2st_core.learners.mixtures import kernel_terms, mixture_test, paired_rows, solve_weights
from m2st_core.learners.target_kernels import fit_deep
from m2st_core.permutation.fitted import AsymptoticTest, KernelTest
from m2st_core.presets import Preset
from m2st_core.rng import Streams
from m2st_core.types import Progress, TwoSample

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


def base_kernels(known: Knowledge) -> KernelBank:
    """The related tasks' base kernels, batch (R, K)."""
    return KernelBank((Family(needed(known.base, "base kernels"), known.base_names, 1 / len(known.base_names)),))


def fit_selective(
    known: Knowledge, pooled: Tensor, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> SelectiveTest:
    """Meta-MKL-SI: weigh the base kernels on the test rows themselves, by selective inference."""
    return SelectiveTest(base_kernels(known), preset.embedding.reference)


def fit_mixture(
    known: Knowledge, train: TwoSample, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> KernelTest:
    """Meta-MKL, AGT-MKL: β ≥ 0 that maximises Ĵ on the training rows (R, n, d), (R, m, d), partly made uniform."""
    bank = base_kernels(known)
    terms = kernel_terms(bank, paired_rows(train, streams))
    settings = preset.base_kernels
    ridge = settings.relative_ridge * terms.sigma.diagonal(dim1=-2, dim2=-1).mean(dim=-1)
    weights = solve_weights(terms.eta, terms.sigma, settings.ridge + ridge.cpu())
    weights = torch.lerp(weights, torch.full_like(weights, 1 / len(bank.names)), settings.uniform_share)
    return mixture_test(bank, weights, terms, known)


def fit_best(
    known: Knowledge, train: TwoSample, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> KernelTest:
    """Meta-Best1: the base kernel with the highest Ĵ on the training rows."""
    bank = base_kernels(known)
    terms = kernel_terms(bank, paired_rows(train, streams))
    best = terms.criterion(preset.meta_kl.regularisation).argmax(dim=-1)
    return mixture_test(bank, torch.nn.functional.one_hot(best, len(bank.names)).to(terms.eta), terms, known)


def uniform_mixture(
    known: Knowledge, pooled: Tensor, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> KernelTest:
    """Meta-MKL-A, AGT-MKL-A: β=1/K; nothing is split off."""
    bank = base_kernels(known)
    count = len(bank.names)
    weights = torch.full((pooled.shape[0], count), 1 / count, dtype=pooled.dtype, device=pooled.device)
    return mixture_test(bank, weights, None, known)


def fit_adapted(
    known: Knowledge, train: TwoSample, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> KernelTest:
    """Meta-KL, AGT-KL: the kernel after its steps on the training rows; ‖ω−θ‖/‖θ‖ is in the diagnostics."""
    steps = int(known.choices["adaptation_steps"])
    kernel, moved = adapt_to_target(
        needed(known.kernel, "kernel"), train, preset.meta_kl, preset.adaptation, steps, streams, progress
    )
    runs = [dict(known.choices) | {"moved": float(distance)} for distance in moved]
    return KernelTest(kernel, diagnostics=runs)


def fit_deep_with_rows(
    known: Knowledge, train: TwoSample, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> KernelTest:
    """MMD-D w/ AC: MMD-D with the related tasks' rows added to the training rows of x, which is P."""
    more = needed(known.rows, "rows").expand(train.x.shape[0], -1, -1)
    return fit_deep(TwoSample(torch.cat([train.x, more], dim=1), train.y), preset, streams, progress)
