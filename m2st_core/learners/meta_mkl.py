"""Mixtures of kernels learned from meta-tasks: weights β from the target's training rows, uniform, or one best."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from m2st_core.kernels import ComposedKernel, Kernel, MixtureKernel
from m2st_core.learners.ascent import draw_rows
from m2st_core.learners.bank import Family, KernelBank
from m2st_core.learners.companions import beside_generic, generic_families
from m2st_core.learners.image_features import part_images
from m2st_core.learners.kernels import fit_deep
from m2st_core.learners.knowledge import AGGREGATE, Knowledge, learn_agt_mkl, learn_meta_mkl
from m2st_core.learners.meta_features import evidence_related, view_target
from m2st_core.learners.meta_kl import adapt_to_target, reshape_runs
from m2st_core.learners.weights import KernelTerms, kernel_terms, solve_weights
from m2st_core.presets import Preset
from m2st_core.rng import Streams
from m2st_core.tasks.meta import MetaSample, PairedRows
from m2st_core.types import Progress, TwoSample

LEAST_SHARE = 0.2  # of the aggregate, among the meta-tasks' kernels
TASK_THRESHOLD = 2.0  # null deviations that a single task's MMD² must exceed: the aggregate has their common part
JUDGES = 500  # tasks that choose λ
RELATED_ODDS = 2.0  # that a target is like its meta-tasks, before any of its rows is seen


@dataclass(frozen=True)
class Adapted:
    """A kernel for R runs, and what each run has to say about it."""

    kernel: Kernel
    weights: list[dict[str, float]]  # β by kernel
    diagnostics: list[dict[str, Any]]


def base_bank(
    known: Knowledge, pooled: Tensor, preset: Preset, streams: Sequence[Streams], generic: bool
) -> KernelBank:
    """The base kernels, batch (R, K), and generic ones for pooled rows (R, N, d) where the preset wants them."""
    assert known.base is not None
    kernel = known.base if known.features is None else ComposedKernel(known.features, known.base)
    names = known.base_names
    if not (generic and preset.base_kernels.generic):
        return KernelBank((Family(kernel, names, 1 / len(names)),))
    generic_ones = generic_families(known.features, pooled, 0.5, streams)
    return KernelBank((Family(kernel, names, 0.5 / len(names)), *generic_ones))


def mixture(bank: KernelBank, weights: Tensor) -> Kernel:
    """Σ β_i k_i, weights (R, k)."""
    return MixtureKernel([f.kernel for f in bank.families], [len(f.names) for f in bank.families], weights)


def find_weights(terms: KernelTerms, names: Sequence[str], regularisation: float) -> Tensor:
    """β of each run: (R, k).

    Without an aggregate, the QP of the paper. With one, kernels are measured in null deviations, a single task's must
    exceed a threshold to join, λ is relative to the mean variance, and the aggregate, which needs no adaptation, keeps
    a fifth: a training sample that happens not to show the difference does not undo what the meta-tasks taught.
    """
    if AGGREGATE not in names:
        return solve_weights(terms.eta, terms.sigma, regularisation)
    known = torch.tensor([name == AGGREGATE for name in names], device=terms.eta.device)
    scaled = terms.in_null_deviations()
    effect = scaled.eta - TASK_THRESHOLD * ~known
    ridge = regularisation * scaled.sigma.diagonal(dim1=-2, dim2=-1).mean(dim=-1)
    weights = solve_weights(effect, scaled.sigma, ridge.cpu())
    others = weights.where(~known & (effect > 0), 0.0)
    most = others.sum(dim=-1, keepdim=True).clamp(min=1 - LEAST_SHARE)  # of 1: the others may take 1 − LEAST_SHARE
    others = others * (1 - LEAST_SHARE) / most
    aggregate = 1 - others.sum(dim=-1, keepdim=True)
    weights = torch.where(known, aggregate, others) / terms.null_deviation
    return weights / weights.sum(dim=-1, keepdim=True)


def aggregate_alone(names: Sequence[str]) -> Tensor:
    """β of the aggregate and nothing else, which needs no training rows: (k,)."""
    return torch.tensor([float(name == AGGREGATE) for name in names])


def with_generic(meta_weights: Tensor, terms: KernelTerms, related: Tensor) -> tuple[Tensor, Tensor]:
    """β of the meta kernels, which are first in ``terms``, and the generic ones (R, k); and the former's share (R,).

    The training rows speak for the meta-tasks with odds RELATED_ODDS·exp(``related``), and for each generic kernel
    with exp(z)/3, z its MMD² in null deviations: where they show a difference unlike those seen before, or none where
    the meta-tasks promise a large one, the generic kernels take over. Shares are of null deviations.
    """
    count = meta_weights.shape[-1]
    z = terms.eta[:, count:] / terms.null_deviation[:, count:]
    evidence = torch.cat([related[:, None] + math.log(RELATED_ODDS), z - math.log(z.shape[-1])], dim=-1)
    shares = evidence.softmax(dim=-1)
    deviation = (meta_weights * terms.null_deviation[:, :count]).sum(dim=-1, keepdim=True)
    meta = shares[:, :1] * meta_weights / deviation
    weights = torch.cat([meta, shares[:, 1:] / terms.null_deviation[:, count:]], dim=-1)
    weights = weights / weights.sum(dim=-1, keepdim=True)
    finite = weights.isfinite().all(dim=-1)  # otherwise numbers overflowed: all weigh the same
    weights = weights.where(finite[:, None], 1 / weights.shape[-1])
    return weights, shares[:, 0].where(finite, count / weights.shape[-1])


def _paired(train: TwoSample, streams: Sequence[Streams]) -> PairedRows:
    """As many rows of x as of y, at random."""
    generators = [stream.torch("rows for the weights") for stream in streams]
    x, y = (draw_rows(rows, min(train.sizes), generators) for rows in train)
    return PairedRows(x, y, torch.ones_like(x[..., 0]))


def _explained(bank: KernelBank, weights: Tensor, terms: KernelTerms | None, known: Knowledge) -> Adapted:
    """The mixture with β, each kernel's Ĵ on the training rows, and what was decided before the target came."""
    names = bank.names
    betas = [dict(zip(names, row.tolist(), strict=True)) for row in weights]
    about: list[dict[str, Any]] = [dict(known.choices) for _ in betas]
    if terms is not None:
        for entry, row in zip(about, terms.criterion(1e-8), strict=True):
            entry["criterion by kernel"] = dict(zip(names, row.tolist(), strict=True))
    return Adapted(mixture(bank, weights), betas, about)


def fit_mixture(
    known: Knowledge, train: TwoSample, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> Adapted:
    """Meta-MKL, AGT-MKL: β that maximises Ĵ on the training rows (R, n, d), (R, m, d)."""
    bank = base_bank(known, train.pooled, preset, streams, generic=True)
    terms = kernel_terms(bank, _paired(train, streams))
    count = len(known.base_names)
    if known.choices["β is learned"]:
        weights = find_weights(terms.first(count), known.base_names, known.choices["λ of β"])
    else:
        weights = aggregate_alone(known.base_names).to(terms.eta).expand(len(terms.eta), -1)
    if known.features is None:
        return _explained(bank, weights, terms, known)
    related = evidence_related(known.features, view_target(known.features, train))
    weights, share = with_generic(weights, terms, related)
    adapted = _explained(bank, weights, terms, known)
    for entry, value, part in zip(adapted.diagnostics, related.tolist(), share.tolist(), strict=True):
        entry |= {"evidence that the target is related, in nats": value, "share of the meta-tasks' kernels": part}
    return adapted


def fit_best(
    known: Knowledge, train: TwoSample, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> Adapted:
    """Meta-Best1: the base kernel with the highest Ĵ on the training rows."""
    bank = base_bank(known, train.pooled, preset, streams, generic=True)
    terms = kernel_terms(bank, _paired(train, streams))
    best = terms.criterion(preset.meta_kl.regularisation).argmax(dim=-1)
    weights = torch.nn.functional.one_hot(best, len(bank.names)).to(terms.eta)
    return _explained(bank, weights, terms, known)


def uniform_mixture(
    known: Knowledge, pooled: Tensor, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> Adapted:
    """Meta-MKL-A, AGT-MKL-A: β=1/K over the meta-tasks' kernels; nothing is split off."""
    bank = base_bank(known, pooled, preset, streams, generic=False)
    count = len(bank.names)
    weights = torch.full((pooled.shape[0], count), 1 / count, dtype=pooled.dtype, device=pooled.device)
    return _explained(bank, weights, None, known)


def base_kernels(
    known: Knowledge, pooled: Tensor, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> KernelBank:
    """Meta-MKL-SI: the meta-tasks' kernels as they are."""
    return base_bank(known, pooled, preset, streams, generic=False)


def fit_adapted(
    known: Knowledge, train: TwoSample, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> Adapted:
    """Meta-KL, AGT-KL: the kernel after its steps on the training rows; ‖ω−θ‖/‖θ‖ is in the diagnostics."""
    assert known.kernel is not None
    steps = int(known.choices["adaptation steps"])
    kernel, moved = adapt_to_target(
        known.kernel, known.view(train), preset.meta_kl, preset.adaptation, steps, streams, progress
    )
    if known.features is not None:
        reshape_runs(kernel, train.x.shape[0], 1)
        kernel = beside_generic(known.features, kernel, train.pooled, streams)
    runs = [dict(known.choices) | {"moved": float(distance)} for distance in moved]
    return Adapted(kernel, [{} for _ in runs], runs)


def fit_deep_with_rows(
    known: Knowledge, train: TwoSample, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> Kernel:
    """MMD-D w/ AC: MMD-D whose P training rows, those of x, also include the meta-tasks' rows."""
    assert known.rows is not None
    more = known.rows.expand(train.x.shape[0], -1, -1)
    return fit_deep(TwoSample(torch.cat([train.x, more], dim=1), train.y), preset, streams, progress)


def choose_regularisation(known: Knowledge, meta: MetaSample, preset: Preset, streams: Sequence[Streams]) -> Knowledge:
    """λ of β: the one whose mixtures, learned on the tasks' training rows, do best on their held-out rows.

    The score is the ratio of means, mean MMD²/√(mean σ̂²), over at most 500 tasks, each a target of its own. If the
    aggregate alone does better than any, β is not learned.
    """
    candidates = preset.base_kernels.regularisations
    known.choices |= {"λ of β": candidates[0], "β is learned": 1.0}
    if len(candidates) == 1 or preset.warm_start is None:
        return known
    assert known.features is not None and known.base is not None
    meta = part_images(meta, preset.warm_start, streams).fresh
    kept, aside = known.features.view(meta, preset.warm_start, streams)
    orders = [torch.randperm(len(meta.names), generator=stream.torch("tasks that choose λ")) for stream in streams]
    which = torch.stack(orders)[:, :JUDGES].sort(dim=1).values.to(meta.rows.device)
    generators = [stream.torch("choice of λ") for stream in streams]
    learning, _ = kept.draw_pairs(which, 1.0, generators)
    _, judging = aside.draw_pairs(which, 0.0, generators)
    bank = KernelBank((Family(known.base, known.base_names, 1 / len(known.base_names)),))
    seen, fresh = (kernel_terms(bank, rows) for rows in (learning, judging))
    complete = judging.inside.sum(dim=-1) > 1
    if not bool(complete.any()):  # too few rows to judge by
        known.choices["β is learned"] = 0.0
        return known

    def score(weights: Tensor) -> float:
        effect = (fresh.eta * weights).sum(dim=-1)[complete]
        variance = torch.einsum("tk,tkl,tl->t", weights, fresh.sigma, weights)[complete]
        return float(effect.mean() / (variance.mean() + preset.meta_kl.regularisation).sqrt())

    scores = {value: score(find_weights(seen, bank.names, value)) for value in candidates}
    alone = score(aggregate_alone(bank.names).to(seen.eta).expand_as(seen.eta))
    best = max(scores, key=lambda value: scores[value])
    known.choices |= {"λ of β": best, "β is learned": float(scores[best] > alone)}
    known.choices |= {f"held-out criterion, λ={value:g}": score for value, score in scores.items()}
    known.choices["held-out criterion, no adaptation"] = alone
    return known


def learn_meta_mixture(
    meta: MetaSample, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> Knowledge:
    """Meta-MKL's base kernels and λ."""
    return choose_regularisation(learn_meta_mkl(meta, preset, streams, progress), meta, preset, streams)


def learn_agt_mixture(
    meta: MetaSample, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> Knowledge:
    """AGT-MKL's base kernels and λ."""
    return choose_regularisation(learn_agt_mkl(meta, preset, streams, progress), meta, preset, streams)
