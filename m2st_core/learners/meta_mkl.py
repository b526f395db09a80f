"""The paper's tests with related tasks: deep kernels adapted to the target's training rows, or mixed."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from m2st_core.kernels.bank import Family, KernelBank
from m2st_core.learners.adaptation import adapt_to_target
from m2st_core.learners.knowledge import Knowledge, needed
from m2st_core.learners.mixtures import kernel_terms, mixture_test, paired_rows, solve_weights
from m2st_core.learners.selective import SelectiveTest
from m2st_core.learners.target_kernels import fit_deep
from m2st_core.permutation.fitted import KernelTest
from m2st_core.presets import Preset
from m2st_core.rng import Streams
from m2st_core.types import Progress, TwoSample


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
