"""The paper's tests with related tasks: deep kernels adapted to the target's training rows, or mixed."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from m2st_core.kernels.base import Kernel
from m2st_core.learners.adaptation import adapt_to_target
from m2st_core.learners.bank import Family, KernelBank
from m2st_core.learners.knowledge import Knowledge
from m2st_core.learners.mixtures import Adapted, explained, kernel_terms, paired_rows, solve_weights
from m2st_core.learners.target_kernels import fit_deep
from m2st_core.presets import Preset
from m2st_core.rng import Streams
from m2st_core.types import Progress, TwoSample


def base_kernels(
    known: Knowledge, pooled: Tensor, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> KernelBank:
    """The base kernels of the meta-tasks, batch (R, K), as they are; Meta-MKL-SI uses them so."""
    assert known.base is not None
    return KernelBank((Family(known.base, known.base_names, 1 / len(known.base_names)),))


def fit_mixture(
    known: Knowledge, train: TwoSample, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> Adapted:
    """Meta-MKL, AGT-MKL: β ≥ 0 that maximises Ĵ on the training rows (R, n, d), (R, m, d), partly made uniform."""
    bank = base_kernels(known, train.pooled, preset, streams)
    terms = kernel_terms(bank, paired_rows(train, streams))
    settings = preset.base_kernels
    ridge = settings.relative_ridge * terms.sigma.diagonal(dim1=-2, dim2=-1).mean(dim=-1)
    weights = solve_weights(terms.eta, terms.sigma, settings.ridge + ridge.cpu())
    weights = torch.lerp(weights, torch.full_like(weights, 1 / len(bank.names)), settings.uniform_share)
    return explained(bank, weights, terms, known)


def fit_best(
    known: Knowledge, train: TwoSample, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> Adapted:
    """Meta-Best1: the base kernel with the highest Ĵ on the training rows."""
    bank = base_kernels(known, train.pooled, preset, streams)
    terms = kernel_terms(bank, paired_rows(train, streams))
    best = terms.criterion(preset.meta_kl.regularisation).argmax(dim=-1)
    return explained(bank, torch.nn.functional.one_hot(best, len(bank.names)).to(terms.eta), terms, known)


def uniform_mixture(
    known: Knowledge, pooled: Tensor, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> Adapted:
    """Meta-MKL-A, AGT-MKL-A: β=1/K; nothing is split off."""
    bank = base_kernels(known, pooled, preset, streams)
    count = len(bank.names)
    weights = torch.full((pooled.shape[0], count), 1 / count, dtype=pooled.dtype, device=pooled.device)
    return explained(bank, weights, None, known)


def fit_adapted(
    known: Knowledge, train: TwoSample, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> Adapted:
    """Meta-KL, AGT-KL: the kernel after its steps on the training rows; ‖ω−θ‖/‖θ‖ is in the diagnostics."""
    assert known.kernel is not None
    steps = int(known.choices["adaptation steps"])
    kernel, moved = adapt_to_target(known.kernel, train, preset.meta_kl, preset.adaptation, steps, streams, progress)
    runs = [dict(known.choices) | {"moved": float(distance)} for distance in moved]
    return Adapted(kernel, [{} for _ in runs], runs)


def fit_deep_with_rows(
    known: Knowledge, train: TwoSample, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> Kernel:
    """MMD-D w/ AC: MMD-D whose P training rows, those of x, also include the meta-tasks' rows."""
    assert known.rows is not None
    more = known.rows.expand(train.x.shape[0], -1, -1)
    return fit_deep(TwoSample(torch.cat([train.x, more], dim=1), train.y), preset, streams, progress)
