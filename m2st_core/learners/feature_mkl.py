"""Feature-MKL: a mixture of kernels on learned features, one for all tasks and one for each of a few, and Gaussians.

The weights β come from the target's training rows and from the related tasks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from m2st_core.criterion import criterion_ratio
from m2st_core.data.related import RelatedTasks
from m2st_core.kernels.base import Family, KernelBank
from m2st_core.kernels.features import ComposedKernel, LinearKernel
from m2st_core.learners.bank import generic_families
from m2st_core.learners.image_features import part_images
from m2st_core.learners.knowledge import Knowledge, learned_spaces, needed
from m2st_core.learners.meta_features import MetaFeatures, TargetView, in_common_units, view_target
from m2st_core.learners.meta_witness import learn_spaces
from m2st_core.learners.mixtures import KernelTerms, kernel_terms, mixture_test, paired_rows, solve_weights
from m2st_core.permutation.fitted import KernelTest
from m2st_core.presets import Preset
from m2st_core.progress import part_of
from m2st_core.rng import Streams
from m2st_core.types import Progress, TwoSample

AGGREGATE = "all tasks"
LEAST_SHARE = 0.2  # the least weight of the aggregate among the related tasks' kernels
TASK_THRESHOLD = 2.0  # null deviations that a single task's MMD² must exceed: the aggregate has their common part
JUDGES = 500  # largest number of tasks on which λ is chosen
JUDGED_WITH = 1e-3  # λ in the score by which the candidates are compared
RELATED_ODDS = 2.0  # prior odds that a target is like its related tasks


def prior_weights(features: MetaFeatures, rows: int) -> Tensor:
    """s_q/(s_q + τ), with τ = 4/rows the noise of two halves of that many pooled rows: (R, Q).

    The likelihood ratio of N(0, s + τ) to N(0, τ) weighs the squared difference d_q² by this, up to a constant.
    """
    noise = 4 / rows
    return features.prior / (features.prior + noise)


@torch.no_grad()
def shrunk_heads(features: MetaFeatures, related: RelatedTasks) -> Tensor:
    """E[δ_i | d_i] = s/(s+τ_i)·d_i of every task, from all its rows: (R, T, Q)."""
    psi = related.with_rows(features(related.rows)).take(related.where)
    d = torch.einsum("rtl,rtlq->rtq", related.x_weight - related.y_weight, psi)
    noise = (related.x_weight.square() + related.y_weight.square()).sum(dim=-1)[..., None]
    prior = features.prior[:, None]
    return prior / (prior + noise) * d


def evidence_related(features: MetaFeatures, target: TargetView) -> Tensor:
    """log N(d; 0, s + τ)/N(d; 0, τ): evidence that the target differs as the related tasks do: (R,)."""
    ratio = features.prior / target.noise
    return 0.5 * (target.difference.square() / target.noise * ratio / (1 + ratio) - ratio.log1p()).sum(dim=-1)


def learn_feature_mixture(
    meta: RelatedTasks, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> Knowledge:
    """Features ψ, the kernel of all tasks Σ_q w_q ψ_q(x)ψ_q(y)/Σ_q w_q, that of each of a few tasks, and λ of β."""
    settings = preset.feature_learning
    meta = in_common_units(meta)
    learned = learn_spaces(meta, preset, streams, part_of(progress, 0, 0.9))
    features = learned_spaces(learned)[0]
    fresh = part_images(meta, settings, streams).fresh
    count = min(settings.mixed_tasks, len(meta.names))
    orders = [torch.randperm(len(meta.names), generator=stream.torch("base tasks"))[:count] for stream in streams]
    which = torch.stack(orders).to(meta.rows.device)  # R x K
    heads = shrunk_heads(features, fresh).take_along_dim(which[..., None], dim=1)  # R x K x Q
    rows = int(meta.sizes.double().mean())
    matrix = torch.diag_embed(prior_weights(features, rows).sqrt())[:, None]  # R x 1 x Q x Q
    padded = torch.zeros_like(matrix).repeat(1, count, 1, 1)
    padded[..., 0] = heads
    known = Knowledge(
        spaces=learned_spaces(learned),
        base=LinearKernel(torch.cat([matrix, padded], dim=1)).requires_grad_(False),
        base_names=(AGGREGATE, *(meta.names[int(task)] for task in which[0])),
        senses=learned.senses,
        choices=learned.choices,
    )
    return choose_regularisation(known, meta, preset, streams)


def feature_bank(known: Knowledge, pooled: Tensor, streams: Sequence[Streams]) -> KernelBank:
    """The features' kernels, batch (R, K), and generic ones for pooled rows (R, N, d)."""
    features, base, names = learned_spaces(known)[0], needed(known.base, "base kernels"), known.base_names
    own = Family(ComposedKernel(features, base), names, 0.5 / len(names))
    return KernelBank((own, *generic_families(features, pooled, 0.5, streams)))


def find_weights(terms: KernelTerms, names: Sequence[str], regularisation: float) -> Tensor:
    """β of each run: (R, k).

    Kernels are measured in null deviations, a single task's must exceed a threshold to join, λ is relative to the mean
    variance, and the aggregate, which needs no adaptation, keeps a fifth: a training sample that happens not to show
    the difference does not outweigh the related tasks.
    """
    known = torch.tensor([name == AGGREGATE for name in names], device=terms.eta.device)
    scaled = terms.in_null_deviations()
    effect = scaled.eta - TASK_THRESHOLD * ~known
    ridge = regularisation * scaled.sigma.diagonal(dim1=-2, dim2=-1).mean(dim=-1)
    weights = solve_weights(effect, scaled.sigma, ridge.cpu())
    others = weights.where(~known & (effect > 0), 0.0)
    most = others.sum(dim=-1, keepdim=True).clamp(min=1 - LEAST_SHARE)  # the others have at most 1 − LEAST_SHARE
    others = others * (1 - LEAST_SHARE) / most
    aggregate = 1 - others.sum(dim=-1, keepdim=True)
    weights = torch.where(known, aggregate, others) / terms.null_deviation
    return weights / weights.sum(dim=-1, keepdim=True)


def aggregate_alone(names: Sequence[str]) -> Tensor:
    """β of the aggregate and nothing else, which needs no training rows: (k,)."""
    return torch.tensor([float(name == AGGREGATE) for name in names])


def with_generic(meta_weights: Tensor, terms: KernelTerms, related: Tensor) -> tuple[Tensor, Tensor]:
    """β of the meta kernels, which are first in ``terms``, and the generic ones (R, k); and the former's share (R,).

    The training rows favour the related tasks with odds RELATED_ODDS·exp(``related``), and for each generic kernel
    with exp(z)/3, z its MMD² in null deviations: where they show a difference unlike those seen before, or none where
    the related tasks predict a large one, the general-purpose kernels take over. Shares are of null deviations.
    """
    count = meta_weights.shape[-1]
    z = terms.eta[:, count:] / terms.null_deviation[:, count:]
    evidence = torch.cat([related[:, None] + math.log(RELATED_ODDS), z - math.log(z.shape[-1])], dim=-1)
    shares = evidence.softmax(dim=-1)
    deviation = (meta_weights * terms.null_deviation[:, :count]).sum(dim=-1, keepdim=True)
    meta = shares[:, :1] * meta_weights / deviation
    weights = torch.cat([meta, shares[:, 1:] / terms.null_deviation[:, count:]], dim=-1)
    weights = weights / weights.sum(dim=-1, keepdim=True)
    finite = weights.isfinite().all(dim=-1)  # otherwise numbers overflowed, and all weights are equal
    weights = weights.where(finite[:, None], 1 / weights.shape[-1])
    return weights, shares[:, 0].where(finite, count / weights.shape[-1])


def fit_feature_mixture(
    known: Knowledge, train: TwoSample, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> KernelTest:
    """β on the training rows (R, n, d), (R, m, d), and the odds that they are like the related tasks."""
    features = learned_spaces(known)[0]
    bank = feature_bank(known, train.pooled, streams)
    terms = kernel_terms(bank, paired_rows(train, streams))
    count = len(known.base_names)
    if known.choices["beta_is_learned"]:
        weights = find_weights(terms.first(count), known.base_names, known.choices["beta_regularisation"])
    else:
        weights = aggregate_alone(known.base_names).to(terms.eta).expand(len(terms.eta), -1)
    related = evidence_related(features, view_target(features, train))
    weights, share = with_generic(weights, terms, related)
    adapted = mixture_test(bank, weights, terms, known)
    for entry, value, part in zip(adapted.diagnostics, related.tolist(), share.tolist(), strict=True):
        entry |= {"log_odds_related": value, "related_share": part}
    return adapted


def choose_regularisation(
    known: Knowledge, meta: RelatedTasks, preset: Preset, streams: Sequence[Streams]
) -> Knowledge:
    """λ of β: the one whose mixtures, learned on the tasks' training rows, do best on their held-out rows.

    The score is the ratio of means, mean MMD²/√(mean σ̂²), over at most 500 tasks, each a target of its own. If the
    aggregate alone does better than any, β is not learned.
    """
    settings, base = preset.feature_learning, needed(known.base, "base kernels")
    candidates = settings.regularisations
    meta = part_images(meta, settings, streams).fresh
    kept, aside = learned_spaces(known)[0].view(meta, settings, streams)
    orders = [torch.randperm(len(meta.names), generator=stream.torch("tasks that choose λ")) for stream in streams]
    which = torch.stack(orders)[:, :JUDGES].sort(dim=1).values.to(meta.rows.device)
    generators = [stream.torch("choice of λ") for stream in streams]
    learning, _ = kept.draw_pairs(which, 1.0, generators)
    _, judging = aside.draw_pairs(which, 0.0, generators)
    bank = KernelBank((Family(base, known.base_names, 1 / len(known.base_names)),))
    seen, fresh = (kernel_terms(bank, rows) for rows in (learning, judging))
    complete = judging.inside.sum(dim=-1) > 1
    if not bool(complete.any()):  # too few rows to judge by
        known.choices |= {"beta_regularisation": candidates[0], "beta_is_learned": 0.0}
        return known

    def score(weights: Tensor) -> float:
        effect = (fresh.eta * weights).sum(dim=-1)[complete]
        variance = torch.einsum("tk,tkl,tl->t", weights, fresh.sigma, weights)[complete]
        return float(criterion_ratio(effect.mean(), variance.mean(), JUDGED_WITH))

    scores = {value: score(find_weights(seen, bank.names, value)) for value in candidates}
    alone = score(aggregate_alone(bank.names).to(seen.eta).expand_as(seen.eta))
    best = max(scores, key=lambda value: scores[value])
    known.choices |= {"beta_regularisation": best, "beta_is_learned": float(scores[best] > alone)}
    known.choices |= {f"held_out_criterion_{value:g}": score for value, score in scores.items()}
    known.choices["held_out_criterion_unadapted"] = alone
    return known
