"""Mixtures Σ β_i k_i of a bank of kernels, with weights β that maximise Ĵ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.optimize import nnls
from torch import Tensor

from m2st_core.criterion import criterion_ratio, h_matrix
from m2st_core.data.related import PairedRows
from m2st_core.kernels.base import KernelBank
from m2st_core.learners.ascent import draw_rows
from m2st_core.learners.knowledge import Knowledge
from m2st_core.permutation.fitted import KernelTest
from m2st_core.rng import Streams
from m2st_core.types import TwoSample


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
def kernel_terms(bank: KernelBank, rows: PairedRows) -> KernelTerms:
    """η, Σ and null deviations of all kernels of the bank on padded rows: x, y (R, c, d)."""
    inside = rows.inside[:, None]
    count = inside.sum(dim=-1)  # R x 1
    eta, means, squares = [], [], []
    for family in bank.families:
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
    η > 0, the best single one, by Ĵ, takes all the weight; where numbers overflowed, all weigh the same.
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
        found, _ = nnls(root[:, None] * vectors.T, (vectors.T @ h) / root, maxiter=100 * kernels)
        found = found / deviation
        if found.sum() > 0:
            weights[run] = found / found.sum()
        else:
            weights[run, np.argmax(h)] = 1
    return torch.from_numpy(weights).to(eta)


def paired_rows(train: TwoSample, streams: Sequence[Streams]) -> PairedRows:
    """As many rows of x as of y, at random."""
    generators = [stream.torch("rows for the weights") for stream in streams]
    x, y = (draw_rows(rows, min(train.sizes), generators) for rows in train)
    return PairedRows(x, y, torch.ones_like(x[..., 0]))


def mixture_test(bank: KernelBank, weights: Tensor, terms: KernelTerms | None, known: Knowledge) -> KernelTest:
    """The test of the mixture, with β and, if ``terms`` are given, each kernel's Ĵ on the training rows."""
    names = bank.names
    betas = [dict(zip(names, row.tolist(), strict=True)) for row in weights]
    about: list[dict[str, Any]] = [dict(known.choices) for _ in betas]
    if terms is not None:
        for entry, row in zip(about, terms.criterion(1e-8), strict=True):
            entry["criterion_by_kernel"] = dict(zip(names, row.tolist(), strict=True))
    return KernelTest(bank.mixture(weights), weights=betas, diagnostics=about)
