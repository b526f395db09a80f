"""Tests on learned spaces: Meta-Witness alone, Meta-FUSE beside Omnibus, Meta-WiTS with what training rows predict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from m2st_core.data.related import RelatedTasks
from m2st_core.kernels.base import Family, Kernel, KernelBank, Rows
from m2st_core.kernels.features import InnerProductKernel
from m2st_core.learners.bank import generic_families, network_families, omnibus_beside
from m2st_core.learners.features import fit_row_features
from m2st_core.learners.image_features import fit_image_features
from m2st_core.learners.knowledge import Knowledge, learned_spaces
from m2st_core.learners.meta_features import ImageFeatures, MetaFeatures, in_common_units, in_spaces, view_target
from m2st_core.permutation.blocks import Pieces
from m2st_core.permutation.fitted import Permuted, ScoreTest
from m2st_core.permutation.ranked import RankFuseTest
from m2st_core.presets import Preset
from m2st_core.rng import Streams
from m2st_core.types import Progress, TwoSample

ROW_SHARE, IMAGE_SHARE = 1 / 2, 1 / 3  # of Meta-FUSE's weight on the learned kernels; the generic ones have the rest
NETWORK_SHARE = 0.5  # share of Meta-Witness's weight, for images, on Gaussian kernels of the network's features
DETECTABLE = 4.0  # squared difference at the edge of detection, in noise variances times the root of its dimensions
LEARNED = "learned features"
DOUBLES = 6  # float32 numbers that a labelling's product with ψ, its square and its size take as float64


def learn_features(
    meta: RelatedTasks, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> Knowledge:
    """Learn the spaces ψ, which are all that Meta-Witness, Meta-WiTS and Meta-FUSE need."""
    return learn_spaces(in_common_units(meta), preset, streams, progress)


def learn_spaces(
    meta: RelatedTasks, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> Knowledge:
    """The same for tasks that are in common units."""
    settings = preset.feature_learning
    fit = fit_row_features if settings.convolutions is None else fit_image_features
    spaces, choices, senses = fit(meta, settings, streams, progress)
    return Knowledge(spaces=spaces, choices=choices, senses=senses)


class SpacesKernel(InnerProductKernel):
    """k_c(x, y) = Σ_q (a_cq)²ψ_cq(x)ψ_cq(y), one kernel for each space c: batch (R, M).

    ``amplitudes`` a (R, Q_c), one tensor for each space.
    """

    def __init__(
        self,
        spaces: Sequence[MetaFeatures],
        amplitudes: Sequence[Tensor],
        known: tuple[Tensor, Sequence[Tensor]] | None = None,
    ) -> None:
        super().__init__()
        self.spaces = nn.ModuleList(spaces)
        self.amplitudes = nn.ParameterList(amplitudes)
        self.amplitudes.requires_grad_(False)
        self._known = known  # rows (R, n, d) and their ψ, not computed again

    def embed(self, x: Tensor) -> Rows:
        """a·ψ of every space, padded to the largest: (R, 1, n, d) → (R, M, n, Q)."""
        rows = x[:, 0]
        if self._known is not None and torch.equal(self._known[0], rows):
            psi = self._known[1]
        else:
            psi = in_spaces([space for space in self.spaces if isinstance(space, MetaFeatures)], rows)
        widest = max(part.shape[-1] for part in psi)
        scaled = [part * amplitude[:, None].to(part) for part, amplitude in zip(psi, self.amplitudes, strict=True)]
        return (torch.stack([functional.pad(part, (0, widest - part.shape[-1])) for part in scaled], dim=1),)

    def some(self, which: Tensor) -> Kernel:
        """The kernels of the chosen spaces."""
        chosen = which.nonzero()[:, 0].tolist()
        return SpacesKernel([self.spaces[place] for place in chosen], [self.amplitudes[place] for place in chosen])


def detectable(prior: Tensor) -> Tensor:
    """r, in proportion to the prior s (R, Q), of a difference at the edge of detection, in noise variances: (R, Q).

    Σ_q r_q = 4√D, with D = (Σs)²/Σs² the number of dimensions that count.
    """
    return DETECTABLE * prior / prior.norm(dim=-1, keepdim=True)


@torch.no_grad()
def learned_family(known: Knowledge, pooled: Tensor, share: float) -> Family:
    """One kernel for each space, for pooled rows (R, N, d), weighted by how likely the space is.

    A kernel is the log-likelihood ratio of differences N(0, r·τ) in each coordinate to noise N(0, τ), which weighs
    d_q² by r_q/(1+r_q). The shape of r is the prior's. Its size is that of a difference at the edge of detection.
    """
    spaces = learned_spaces(known)
    psi, amplitudes = in_spaces(spaces, pooled), []
    for space, values in zip(spaces, psi, strict=True):
        ratio = detectable(space.prior)
        centred = values - values.mean(dim=-2, keepdim=True)
        variance = centred.square_().sum(dim=-2, dtype=torch.float64) / (pooled.shape[-2] - 1)
        deviation = variance.sqrt().clamp(min=torch.finfo(torch.float32).eps)
        amplitudes.append((ratio / (1 + ratio)).sqrt() / deviation)
    weights = torch.stack([space.log_weight for space in spaces], dim=-1).softmax(dim=-1)
    names = tuple(f"{LEARNED} {place + 1}" for place in range(len(spaces)))
    return Family(SpacesKernel(spaces, amplitudes, (pooled, psi)), names, share / len(names), weights)


def fit_learned(
    known: Knowledge, pooled: Tensor, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> RankFuseTest:
    """Meta-Witness: the learned spaces; for images, with half of π on Gaussian kernels of the network's features."""
    beside = network_families(learned_spaces(known)[0], pooled, NETWORK_SHARE, streams)
    share = 1 - NETWORK_SHARE if beside else 1.0
    return RankFuseTest(KernelBank((learned_family(known, pooled, share), *beside)))


def meta_bank(
    known: Knowledge, pooled: Tensor, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> RankFuseTest:
    """Meta-FUSE: the learned kernels with half of π beside those of Omnibus; for images a third, beside Gaussians."""
    features = learned_spaces(known)[0]
    if isinstance(features, ImageFeatures):
        others = generic_families(features, pooled, 1 - IMAGE_SHARE, streams)
        return RankFuseTest(KernelBank((learned_family(known, pooled, IMAGE_SHARE), *others)))
    return omnibus_beside((learned_family(known, pooled, ROW_SHARE),), pooled, 1 - ROW_SHARE, streams)


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
            parts = zip(curves, d.split(sizes, dim=-1), d.square().split(sizes, dim=-1), strict=True)
            terms = [
                (square @ bend[..., None] + own @ slope[..., None])[..., 0] + level[:, None]
                for (bend, slope, level), own, square in parts
            ]
            return torch.stack(terms).logsumexp(dim=0)

        statistics = Pieces(members, torch.float32, DOUBLES * psi[..., 0, :].numel()).map(ratios)
        limits = zip(curves, farthest.split(sizes, dim=-1), error.split(sizes, dim=-1), strict=True)
        rounding = [
            torch.linalg.vector_norm((2 * far * bend + slope.abs()) * wrong, dim=-1)
            for (bend, slope, _), far, wrong in limits
        ]
        return Permuted(statistics, torch.stack(rounding).amax(dim=0))


@torch.no_grad()
def fit_witness(
    known: Knowledge, train: TwoSample, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> WitnessTest:
    """Meta-WiTS: the posterior of the target's difference in every space, from its training rows and the prior.

    With r as for Meta-Witness and τ the noise of d, the difference of means of ψ on the training rows, the prior is
    N(0, rτ): E[δ | d] = r/(1+r)·d, Var[δ | d] = r/(1+r)·τ, and d speaks for the space by its likelihood ratio
    ½·Σ_q[d²/τ·r/(1+r) − log(1+r)].
    """
    posteriors = []
    for space in learned_spaces(known):
        difference, variance, noise = view_target(space, train)
        ratio = detectable(space.prior)
        share = ratio / (1 + ratio)
        evidence = 0.5 * (difference.square() / noise * share - ratio.log1p()).sum(dim=-1)
        posteriors.append(Posterior(space, share * difference, share * noise, variance, space.log_weight + evidence))
    return WitnessTest(tuple(posteriors))
