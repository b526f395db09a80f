"""Mixtures Σ_i β_i k_i of base kernels: Meta-MKL (Algorithm 3 of the paper), its variants, and the weights β."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor

from m2st_core.criterion import criterion_ratio, h_matrix
from m2st_core.data.related import PairedRows
from m2st_core.kernels.base import Kernel, Rows, take
from m2st_core.kernels.mixtures import Family, kernel_names, mixture_of
from m2st_core.learners.knowledge import Knowledge, needed_knowledge
from m2st_core.permutation.fitted import AsymptoticTest, KernelTest, Reference, refer
from m2st_core.presets import Preset
from m2st_core.rng import Streams, draw_rows, random_orders
from m2st_core.types import Progress, TwoSample

SMALLEST_VARIANCE = 1e-10  # of a kernel that takes part in Meta-MKL-SI
CONDITION = 1e-6  # relative to the largest eigenvalue or weight, below which values count as 0
BLOCK = 256  # rows
CRITERION_BY_KERNEL, WEIGHTS_USED = "criterion_by_kernel", "weights_used"  # diagnostics


@dataclass(frozen=True)
class KernelTerms:
    """Estimates for k kernels in each run: η (R, k), Σ (R, k, k), and the null standard deviation of each η.

    η_i = MMD²_i and Σ_ij = 4[m⁻³Σ_aH^i_a·H^j_a· − m⁻⁴H^i··H^j··], so that Ĵ(β) = ηᵀβ/√(βᵀ(Σ+λI)β).
    """

    eta: Tensor
    sigma: Tensor
    null_deviation: Tensor

    def criterion(self, regularisation: float) -> Tensor:
        """Ĵ_λ of each kernel alone: (R, k)."""
        return criterion_ratio(self.eta, self.sigma.diagonal(dim1=-2, dim2=-1), regularisation)

    def first(self, count: int) -> KernelTerms:
        """The terms of the first kernels."""
        return KernelTerms(self.eta[:, :count], self.sigma[:, :count, :count], self.null_deviation[:, :count])

    def in_null_deviations(self) -> KernelTerms:
        """The terms of the kernels scaled so that MMD² has null standard deviation 1."""
        scale = self.null_deviation
        return KernelTerms(
            self.eta / scale, self.sigma / (scale[..., :, None] * scale[..., None, :]), torch.ones_like(scale)
        )


@torch.no_grad()
def kernel_terms(families: Sequence[Family], rows: PairedRows) -> KernelTerms:
    """η, Σ and null deviations of all kernels on padded rows: x, y (R, c, d)."""
    inside = rows.inside[:, None]
    count = inside.sum(dim=-1)  # R x 1
    eta, means, squares = [], [], []
    for family in families:
        h = h_matrix(family.kernel, rows.x[:, None], rows.y[:, None])
        h = h * inside[..., :, None] * inside[..., None, :]  # R x k x c x c
        means.append(h.sum(dim=-1) / count[..., None])
        h.diagonal(dim1=-2, dim2=-1).zero_()
        pairs = count * (count - 1)
        eta.append(h.sum(dim=(-2, -1)) / pairs)
        squares.append(2 * h.square().sum(dim=(-2, -1)) / pairs**2)
    row_means = torch.cat(means, dim=1)  # R x k x c
    centred = (row_means - row_means.sum(dim=-1, keepdim=True) / count[..., None]) * inside
    sigma = 4 * centred @ centred.mT / count[..., None]
    tiny = torch.finfo(torch.float32).tiny
    return KernelTerms(torch.cat(eta, dim=1), sigma, torch.cat(squares, dim=1).sqrt().clamp(min=tiny))


def solve_weights(eta: Tensor, sigma: Tensor, regularisation: Tensor | float) -> Tensor:
    """β ≥ 0, Σβ = 1, that maximises ηᵀβ/√(βᵀ(Σ+λI)β): (R, k), (R, k, k), (R,) → (R, k).

    The direction solves min βᵀ(Σ+λI)β s.t. ηᵀβ=1, β≥0, which is a non-negative least-squares problem. If no kernel has
    η > 0, the best single kernel, by Ĵ, takes all the weight; where numbers overflowed, weights are equal.
    """
    runs, kernels = eta.shape
    ridge = torch.as_tensor(regularisation, dtype=torch.float64).expand(runs).numpy()
    weights = np.zeros((runs, kernels))
    for run, (h, s, r) in enumerate(zip(eta.double().cpu().numpy(), sigma.double().cpu().numpy(), ridge, strict=True)):
        total = s + r * np.eye(kernels)
        if not (np.isfinite(h).all() and np.isfinite(total).all()):
            weights[run] = 1 / kernels
            continue
        deviation = np.sqrt(np.diag(total))
        deviation = np.where(deviation > 0, deviation, 1.0)  # a kernel that is constant: its η is 0
        h, total = h / deviation, total / np.outer(deviation, deviation)  # kernels of unit variance: well conditioned
        if h.max() <= 0 or not total.any():  # no kernel varies: all rows of a sample are equal
            weights[run, np.argmax(h)] = 1
            continue
        values, vectors = np.linalg.eigh(total)
        root = np.sqrt(np.maximum(values, 1e-12 * values[-1]))
        beta, _ = nnls(root[:, None] * vectors.T, (vectors.T @ h) / root, maxiter=100 * kernels)
        beta = beta / deviation
        if beta.sum() > 0:
            weights[run] = beta / beta.sum()
        else:
            weights[run, np.argmax(h)] = 1
    return torch.from_numpy(weights).to(eta)


def paired_rows(train: TwoSample, streams: Sequence[Streams]) -> PairedRows:
    """Draw min(n, m) rows of each sample."""
    generators = [stream.torch("rows for the weights") for stream in streams]
    x, y = (draw_rows(rows, min(train.sizes), generators) for rows in train)
    return PairedRows(x, y, torch.ones_like(x[..., 0]))


def mixture_test(
    families: Sequence[Family],
    weights: Tensor,
    terms: KernelTerms | None,
    knowledge: Knowledge,
    uniform_share: float = 0.0,
) -> KernelTest:
    """The test of the mixture, with β as learned and, if ``terms`` are given, each kernel's Ĵ on the training rows.

    Where a share of β is spread evenly, the diagnostics have the β used as well.
    """
    names = kernel_names(families)

    def by_kernel(values: Tensor) -> list[dict[str, float]]:
        return [dict(zip(names, row.tolist(), strict=True)) for row in values]

    about: list[dict[str, Any]] = [dict(knowledge.choices) for _ in weights]
    if terms is not None:
        for entry, criterion in zip(about, by_kernel(terms.criterion(1e-8)), strict=True):
            entry[CRITERION_BY_KERNEL] = criterion
    used = weights
    if uniform_share:
        used = torch.lerp(weights, torch.full_like(weights, 1 / len(names)), uniform_share)
        for entry, beta in zip(about, by_kernel(used), strict=True):
            entry[WEIGHTS_USED] = beta
    return KernelTest(mixture_of(families, used), weights=by_kernel(weights), diagnostics=about)


@torch.no_grad()
def linear_time_terms(families: Sequence[Family], sample: TwoSample, streams: Sequence[Streams]) -> torch.Tensor:
    """h_i = k(x_i,x'_i) + k(y_i,y'_i) − k(x_i,y'_i) − k(x'_i,y_i) of every kernel: (R, k, n/2).

    Rows are shuffled first, then the first half is paired with the second.
    """
    half = sample.x.shape[-2] // 2
    halves = []
    for side, rows in (("x", sample.x), ("y", sample.y)):
        order = random_orders(rows.shape[-2], [stream.torch(f"pairing of {side}") for stream in streams])
        rows = rows.take_along_dim(order[..., None].to(rows.device), dim=-2)[:, None]
        halves.append((rows[..., :half, :], rows[..., half : 2 * half, :]))
    (x, x_other), (y, y_other) = halves
    h = []
    for family in families:
        a, b, c, d = (family.kernel.embed(rows) for rows in (x, x_other, y, y_other))
        pairs = ((a, b), (c, d), (a, d), (b, c))
        k = [_between(family.kernel, first, second, half) for first, second in pairs]
        h.append(k[0] + k[1] - k[2] - k[3])
    return torch.cat(h, dim=1)


def _between(kernel: Kernel, first: Rows, second: Rows, count: int) -> torch.Tensor:
    """k(a_i, b_i): (R, k, count), walking the diagonal of the Gram matrix in blocks."""
    blocks = [
        kernel.gram(take(first, start, start + BLOCK), take(second, start, start + BLOCK)).diagonal(dim1=-2, dim2=-1)
        for start in range(0, count, BLOCK)
    ]
    return torch.cat(blocks, dim=-1)


@dataclass(frozen=True)
class SelectiveTest(AsymptoticTest):
    """Learn the weights of kernels and test on the same rows.

    τ = √n·h̄ and Σ = cov(h) are turned into Σ⁺τ and Σ⁺; β solves min βᵀΣβ s.t. βᵀτ=1, β≥0; with l the rank of Σ on
    β's support, βᵀτ/√(βᵀΣβ) is compared with χ_l. For l=1 that is the normal truncated to the positive numbers,
    where it must lie to be selected; if no kernel has τ > 0, p = 1. The reference "F" for the square accounts for the
    estimate of Σ, see :func:`refer`.
    """

    families: tuple[Family, ...]
    reference: Reference

    def p_values(
        self, sample: TwoSample, n_quantiles: int, streams: Sequence[Streams]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Statistics (R,), p-values (R,) and quantiles of the reference (R, n_quantiles)."""
        h = linear_time_terms(self.families, sample, streams).double().cpu().numpy()
        statistic, rank = (np.array(values) for values in zip(*(selective_statistic(run) for run in h), strict=True))
        p_value, squares = refer(statistic**2, rank, h.shape[-1], self.reference, n_quantiles)
        return statistic, p_value, np.sqrt(squares)


def selective_statistic(h: np.ndarray) -> tuple[float, int]:
    """βᵀτ/√(βᵀΣβ) and the rank of Σ on β's support, from h (k, n)."""
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


def base_families(knowledge: Knowledge) -> tuple[Family, ...]:
    """The related tasks' base kernels, batch (R, K), as one family."""
    names = knowledge.base_names
    return (Family(needed_knowledge(knowledge.base, "base kernels"), names, 1 / len(names)),)


def fit_selective(
    knowledge: Knowledge, pooled: Tensor, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> SelectiveTest:
    """Meta-MKL-SI: weigh the base kernels on the test rows, with selective inference."""
    return SelectiveTest(base_families(knowledge), preset.embedding.reference)


def fit_mixture(
    knowledge: Knowledge, train: TwoSample, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> KernelTest:
    """Meta-MKL, AGT-MKL: β ≥ 0 that maximises Ĵ on the training rows (R, n, d), (R, m, d); tuned, β is shrunk."""
    families = base_families(knowledge)
    terms = kernel_terms(families, paired_rows(train, streams))
    settings = preset.base_kernels
    ridge = settings.relative_ridge * terms.sigma.diagonal(dim1=-2, dim2=-1).mean(dim=-1)
    weights = solve_weights(terms.eta, terms.sigma, settings.ridge + ridge.cpu())
    return mixture_test(families, weights, terms, knowledge, settings.uniform_share)


def fit_best(
    knowledge: Knowledge, train: TwoSample, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> KernelTest:
    """Meta-Best1: the base kernel with the highest Ĵ on the training rows."""
    families = base_families(knowledge)
    terms = kernel_terms(families, paired_rows(train, streams))
    best = terms.criterion(preset.meta_kl.regularisation).argmax(dim=-1)
    weights = torch.nn.functional.one_hot(best, terms.eta.shape[-1]).to(terms.eta)
    return mixture_test(families, weights, terms, knowledge)


def uniform_mixture(
    knowledge: Knowledge, pooled: Tensor, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> KernelTest:
    """Meta-MKL-A, AGT-MKL-A: β=1/K; nothing is split off."""
    count = len(knowledge.base_names)
    weights = torch.full((pooled.shape[0], count), 1 / count, dtype=pooled.dtype, device=pooled.device)
    return mixture_test(base_families(knowledge), weights, None, knowledge)
