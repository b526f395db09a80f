"""Tests on learned spaces: Meta-Witness, Meta-FUSE beside Omnibus, Meta-WiTS with training rows, and Feature-MKL."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from m2st_core.criterion import criterion_ratio
from m2st_core.data.related import RelatedTasks
from m2st_core.kernels.base import ComposedKernel, InnerProductKernel, Kernel, LinearKernel, Rows
from m2st_core.kernels.mixtures import Family
from m2st_core.learners.generic import generic_families, network_families, omnibus_beside
from m2st_core.learners.image_features import fit_image_features, part_images
from m2st_core.learners.knowledge import Knowledge, learned_spaces
from m2st_core.learners.mixtures import (
    KernelTerms,
    base_families,
    kernel_terms,
    mixture_test,
    paired_rows,
    solve_weights,
)
from m2st_core.learners.raw_features import ImageFeatures, MetaFeatures, TargetView, in_spaces, view_target
from m2st_core.learners.spaces import fit_row_features
from m2st_core.learners.units import in_common_units
from m2st_core.permutation.combined import RankFuseTest
from m2st_core.permutation.fitted import KernelTest, Permuted, ScoreTest
from m2st_core.permutation.labellings import Pieces
from m2st_core.presets import Preset
from m2st_core.progress import part_of
from m2st_core.rng import Streams, random_orders
from m2st_core.types import Progress, TwoSample

ROW_SHARE, IMAGE_SHARE = 1 / 2, 1 / 3  # of Meta-FUSE's weight on the learned kernels; the generic ones have the rest
NETWORK_SHARE = 0.5  # share of Meta-Witness's weight, for images, on Gaussian kernels of the network's features
DETECTABLE = 4.0  # squared difference at the edge of detection, in noise variances times the root of its dimensions
LEARNED = "learned features"
DOUBLES = 6  # float32 numbers that a labelling's product with ψ, its square and its size take as float64
AGGREGATE = "all tasks"
LEAST_SHARE = 0.2  # the least weight of the aggregate among the related tasks' kernels
TASK_THRESHOLD = 2.0  # null deviations that a single task's MMD² must exceed: the aggregate has their common part
JUDGES = 500  # largest number of tasks on which λ is chosen
JUDGED_WITH = 1e-3  # λ in the score by which the candidates are compared
RELATED_ODDS = 2.0  # prior odds that a target is like its related tasks


def learn_features(
    meta: RelatedTasks, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> Knowledge:
    """Convert the tasks to common units, and learn the spaces ψ of Meta-Witness, Meta-WiTS and Meta-FUSE."""
    return learn_spaces(in_common_units(meta), preset, streams, progress)


def learn_spaces(
    meta: RelatedTasks, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> Knowledge:
    """Learn the spaces ψ from tasks in common units."""
    settings = preset.features
    fit = fit_row_features if settings.convolutions is None else fit_image_features
    spaces, choices, senses = fit(meta, settings, streams, progress)
    return Knowledge(spaces=spaces, choices=choices, senses=senses)


class _SpacesKernel(InnerProductKernel):
    """k_c(x, y) = Σ_q (a_cq)²ψ_cq(x)ψ_cq(y), one kernel for each space c: batch (R, M).

    ``amplitudes`` a (R, Q_c), one tensor for each space.
    """

    def __init__(
        self,
        spaces: Sequence[MetaFeatures],
        amplitudes: Sequence[Tensor],
        cached: tuple[Tensor, Sequence[Tensor]] | None = None,
    ) -> None:
        super().__init__()
        self.spaces = nn.ModuleList(spaces)
        self.amplitudes = nn.ParameterList(amplitudes)
        self.amplitudes.requires_grad_(False)
        self._cached = cached  # rows (R, n, d) and their ψ

    def embed(self, x: Tensor) -> Rows:
        """a·ψ of every space, padded to the largest: (R, 1, n, d) → (R, M, n, Q)."""
        rows = x[:, 0]
        if self._cached is not None and torch.equal(self._cached[0], rows):
            psi = self._cached[1]
        else:
            psi = in_spaces([space for space in self.spaces if isinstance(space, MetaFeatures)], rows)
        widest = max(values.shape[-1] for values in psi)
        scaled = [
            values * amplitude[:, None].to(values) for values, amplitude in zip(psi, self.amplitudes, strict=True)
        ]
        return (torch.stack([functional.pad(values, (0, widest - values.shape[-1])) for values in scaled], dim=1),)

    def some(self, which: Tensor) -> Kernel:
        """The kernels of the chosen spaces."""
        indices = which.nonzero()[:, 0].tolist()
        return _SpacesKernel([self.spaces[index] for index in indices], [self.amplitudes[index] for index in indices])


def detectable(prior: Tensor) -> Tensor:
    """r, the squared difference at the edge of detection in noise variances, in proportion to the prior s: (R, Q).

    Σ_q r_q = 4√D, with D = (Σs)²/Σs² the number of dimensions that count.
    """
    return DETECTABLE * prior / prior.norm(dim=-1, keepdim=True)


@torch.no_grad()
def learned_family(knowledge: Knowledge, pooled: Tensor, share: float) -> Family:
    """One kernel for each space, for pooled rows (R, N, d), weighted by how likely the space is.

    A kernel is the log-likelihood ratio of differences N(0, r·τ) in each coordinate to noise N(0, τ), which weighs
    d_q² by r_q/(1+r_q). The shape of r is the prior's. Its size is that of a difference at the edge of detection.
    """
    spaces = learned_spaces(knowledge)
    psi, amplitudes = in_spaces(spaces, pooled), []
    for space, values in zip(spaces, psi, strict=True):
        ratio = detectable(space.prior)
        centred = values - values.mean(dim=-2, keepdim=True)
        variance = centred.square_().sum(dim=-2, dtype=torch.float64) / (pooled.shape[-2] - 1)
        deviation = variance.sqrt().clamp(min=torch.finfo(torch.float32).eps)
        amplitudes.append((ratio / (1 + ratio)).sqrt() / deviation)
    weights = torch.stack([space.log_weight for space in spaces], dim=-1).softmax(dim=-1)
    names = tuple(f"{LEARNED} {index + 1}" for index in range(len(spaces)))
    return Family(_SpacesKernel(spaces, amplitudes, (pooled, psi)), names, share / len(names), weights)


def fit_learned(
    knowledge: Knowledge, pooled: Tensor, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> RankFuseTest:
    """Meta-Witness: the learned spaces; for images, with half of π on Gaussian kernels of the network's features."""
    beside = network_families(learned_spaces(knowledge)[0], pooled, NETWORK_SHARE, streams)
    share = 1 - NETWORK_SHARE if beside else 1.0
    return RankFuseTest((learned_family(knowledge, pooled, share), *beside))


def meta_bank(
    knowledge: Knowledge, pooled: Tensor, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> RankFuseTest:
    """Meta-FUSE: the learned kernels with half of π beside those of Omnibus; for images a third, beside Gaussians."""
    features = learned_spaces(knowledge)[0]
    if isinstance(features, ImageFeatures):
        others = generic_families(features, pooled, 1 - IMAGE_SHARE, streams)
        return RankFuseTest((learned_family(knowledge, pooled, IMAGE_SHARE), *others))
    return omnibus_beside((learned_family(knowledge, pooled, ROW_SHARE),), pooled, 1 - ROW_SHARE, streams)


@dataclass(frozen=True)
class Posterior:
    """A target's difference in a space after its training rows, N(``mean``, ``spread``), and the variance within.

    All are (R, Q). ``log_weight`` (R,) is the log-probability of the space, up to a constant.
    """

    space: MetaFeatures
    mean: Tensor
    spread: Tensor
    variance: Tensor
    log_weight: Tensor

    def curve(self, noise: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The log-likelihood ratio as a quadratic of d with this noise: bend and slope (R, Q), and level (R,)."""
        spread = self.spread + noise
        slope = self.mean / spread
        level = 0.5 * ((noise / spread).log() - self.mean * slope).sum(dim=-1) + self.log_weight
        return 0.5 * (1 / noise - 1 / spread), slope, level


@dataclass(frozen=True)
class WitnessTest(ScoreTest):
    """Meta-WiTS: log Σ_c w_c·N(d_c; mean_c, spread_c+τ_c)/N(d_c; 0, τ_c), d_c the difference of the means of ψ_c.

    This is the likelihood ratio of the difference that the training rows and the related tasks predict, over all
    spaces c, to no difference. The more certain the prediction, the closer it is to a one-sided test along a witness.
    """

    posteriors: tuple[Posterior, ...]
    two_sided = False

    def score(self, rows: Tensor) -> Tensor:
        """The discriminant of the likeliest space: f(x) = Σ_q mean_q·ψ_q(x)/variance_q."""
        weights = torch.stack([posterior.log_weight for posterior in self.posteriors], dim=-1)
        best = weights.argmax(dim=-1)
        scores = [(p.space(rows) @ (p.mean / p.variance)[..., None])[..., 0] for p in self.posteriors]
        return torch.stack(scores, dim=1).take_along_dim(best[:, None, None], dim=1)[:, 0]

    @torch.no_grad()
    def statistics(self, pooled: Tensor, members: Tensor, n: int, progress: Progress | None = None) -> Permuted:
        """The log-likelihood ratio under every labelling: per space, quadratic in sums of ψ over the first sample."""
        unit = 1 / n + 1 / (pooled.shape[-2] - n)
        psi = torch.cat(in_spaces([p.space for p in self.posteriors], pooled), dim=-1)
        psi -= psi.mean(dim=-2, keepdim=True, dtype=torch.float64).float()
        error = 2 * torch.finfo(torch.float32).eps * unit * psi.abs().sum(dim=-2, dtype=torch.float64)
        sizes, farthest = [p.mean.shape[-1] for p in self.posteriors], torch.zeros_like(error)
        curves = [p.curve(p.variance * unit) for p in self.posteriors]

        def ratios(z: Tensor) -> Tensor:
            d = (z @ psi).double().mul_(unit)  # R x P x all coordinates
            torch.maximum(farthest, d.abs().amax(dim=-2), out=farthest)
            by_space = zip(curves, d.split(sizes, dim=-1), d.square().split(sizes, dim=-1), strict=True)
            terms = [
                (square @ bend[..., None] + difference @ slope[..., None])[..., 0] + level[:, None]
                for (bend, slope, level), difference, square in by_space
            ]
            return torch.stack(terms).logsumexp(dim=0)

        statistics = Pieces(members, torch.float32, DOUBLES * psi[..., 0, :].numel()).map(ratios)
        limits = zip(curves, farthest.split(sizes, dim=-1), error.split(sizes, dim=-1), strict=True)
        rounding = [
            torch.linalg.vector_norm((2 * far * bend + slope.abs()) * wrong, dim=-1)
            for (bend, slope, _), far, wrong in limits
        ]
        return statistics, torch.stack(rounding).amax(dim=0), None


@torch.no_grad()
def fit_witness(
    knowledge: Knowledge, train: TwoSample, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> WitnessTest:
    """Meta-WiTS: the posterior of the target's difference in each space, from its training rows and the prior.

    With r as for Meta-Witness and τ the noise of d, the difference of means of ψ on the training rows, the prior is
    N(0, rτ): E[δ | d] = r/(1+r)·d, Var[δ | d] = r/(1+r)·τ, and d speaks for the space by its likelihood ratio
    ½·Σ_q[d²/τ·r/(1+r) − log(1+r)].
    """
    posteriors = []
    for space in learned_spaces(knowledge):
        difference, variance, noise = view_target(space, train)
        ratio = detectable(space.prior)
        share = ratio / (1 + ratio)
        evidence = 0.5 * (difference.square() / noise * share - ratio.log1p()).sum(dim=-1)
        posteriors.append(Posterior(space, share * difference, share * noise, variance, space.log_weight + evidence))
    return WitnessTest(tuple(posteriors))


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
    settings = preset.features
    meta = in_common_units(meta)
    learned = learn_spaces(meta, preset, streams, part_of(progress, 0, 0.9))
    features = learned_spaces(learned)[0]
    fresh = part_images(meta, settings, streams).fresh
    count = min(settings.mixed_tasks, len(meta.names))
    orders = random_orders(len(meta.names), [stream.torch("base tasks") for stream in streams])
    which = orders[:, :count].to(meta.rows.device)  # R x K
    heads = shrunk_heads(features, fresh).take_along_dim(which[..., None], dim=1)  # R x K x Q
    rows = int(meta.sizes.double().mean())
    matrix = torch.diag_embed(prior_weights(features, rows).sqrt())[:, None]  # R x 1 x Q x Q
    padded = torch.zeros_like(matrix).repeat(1, count, 1, 1)
    padded[..., 0] = heads
    knowledge = Knowledge(
        spaces=learned_spaces(learned),
        base=LinearKernel(torch.cat([matrix, padded], dim=1)).requires_grad_(False),
        base_names=(AGGREGATE, *(meta.names[int(task)] for task in which[0])),
        senses=learned.senses,
        choices=learned.choices,
    )
    return _choose_regularisation(knowledge, meta, preset, streams)


def feature_families(knowledge: Knowledge, pooled: Tensor, streams: Sequence[Streams]) -> tuple[Family, ...]:
    """The features' kernels, batch (R, K), and generic ones for pooled rows (R, N, d)."""
    features, (base,) = learned_spaces(knowledge)[0], base_families(knowledge)
    learned = Family(ComposedKernel(features, base.kernel), base.names, 0.5 * base.share)
    return (learned, *generic_families(features, pooled, 0.5, streams))


def find_weights(terms: KernelTerms, names: Sequence[str], regularisation: float) -> Tensor:
    """β of each run: (R, k).

    Kernels are scaled to null deviations. The kernel of a single task joins if it exceeds a threshold. λ is relative to
    the mean variance. The aggregate, which needs no adaptation, keeps at least a fifth, so that a training sample that
    happens not to show the difference does not outweigh the related tasks.
    """
    aggregates = torch.tensor([name == AGGREGATE for name in names], device=terms.eta.device)
    scaled = terms.in_null_deviations()
    effect = scaled.eta - TASK_THRESHOLD * ~aggregates
    ridge = regularisation * scaled.sigma.diagonal(dim1=-2, dim2=-1).mean(dim=-1)
    weights = solve_weights(effect, scaled.sigma, ridge.cpu())
    others = weights.where(~aggregates & (effect > 0), 0.0)
    most = others.sum(dim=-1, keepdim=True).clamp(min=1 - LEAST_SHARE)  # the others have at most 1 − LEAST_SHARE
    others = others * (1 - LEAST_SHARE) / most
    aggregate = 1 - others.sum(dim=-1, keepdim=True)
    weights = torch.where(aggregates, aggregate, others) / terms.null_deviation
    return weights / weights.sum(dim=-1, keepdim=True)


def _aggregate_alone(names: Sequence[str]) -> Tensor:
    """β with all weight on the aggregate, which needs no training rows: (k,)."""
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
    knowledge: Knowledge, train: TwoSample, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> KernelTest:
    """Feature-MKL: β from the training rows (R, n, d), (R, m, d), and the odds that they are like the related tasks."""
    features = learned_spaces(knowledge)[0]
    families = feature_families(knowledge, train.pooled, streams)
    terms = kernel_terms(families, paired_rows(train, streams))
    count = len(knowledge.base_names)
    if knowledge.choices["beta_is_learned"]:
        weights = find_weights(terms.first(count), knowledge.base_names, knowledge.choices["beta_regularisation"])
    else:
        weights = _aggregate_alone(knowledge.base_names).to(terms.eta).expand(len(terms.eta), -1)
    related = evidence_related(features, view_target(features, train))
    weights, share = with_generic(weights, terms, related)
    adapted = mixture_test(families, weights, terms, knowledge)
    for entry, log_odds, related_share in zip(adapted.diagnostics, related.tolist(), share.tolist(), strict=True):
        entry |= {"log_odds_related": log_odds, "related_share": related_share}
    return adapted


def _choose_regularisation(
    knowledge: Knowledge, meta: RelatedTasks, preset: Preset, streams: Sequence[Streams]
) -> Knowledge:
    """Choose λ of β: its mixtures, learned on the tasks' training rows, score best on their held-out rows.

    The score is the ratio of means, mean MMD²/√(mean σ̂²), over at most 500 tasks, each treated as a target. If the
    aggregate alone scores better than all, β is not learned.
    """
    settings, families, names = preset.features, base_families(knowledge), knowledge.base_names
    candidates = settings.regularisations
    meta = part_images(meta, settings, streams).fresh
    training, held_out = learned_spaces(knowledge)[0].view(meta, settings, streams)
    orders = random_orders(len(meta.names), [stream.torch("tasks that choose λ") for stream in streams])
    which = orders[:, :JUDGES].sort(dim=1).values.to(meta.rows.device)
    generators = [stream.torch("choice of λ") for stream in streams]
    learning, _ = training.draw_pairs(which, 1.0, generators)
    _, judging = held_out.draw_pairs(which, 0.0, generators)
    seen, fresh = (kernel_terms(families, rows) for rows in (learning, judging))
    complete = judging.inside.sum(dim=-1) > 1
    if not bool(complete.any()):  # too few rows to judge by
        knowledge.choices |= {"beta_regularisation": candidates[0], "beta_is_learned": 0.0}
        return knowledge

    def score(weights: Tensor) -> float:
        effect = (fresh.eta * weights).sum(dim=-1)[complete]
        variance = torch.einsum("tk,tkl,tl->t", weights, fresh.sigma, weights)[complete]
        return float(criterion_ratio(effect.mean(), variance.mean(), JUDGED_WITH))

    scores = {value: score(find_weights(seen, names, value)) for value in candidates}
    alone = score(_aggregate_alone(names).to(seen.eta).expand_as(seen.eta))
    best = max(scores, key=lambda value: scores[value])
    knowledge.choices |= {"beta_regularisation": best, "beta_is_learned": float(scores[best] > alone)}
    knowledge.choices |= {f"held_out_criterion_{value:g}": score for value, score in scores.items()}
    knowledge.choices["held_out_criterion_unadapted"] = alone
    return knowledge
