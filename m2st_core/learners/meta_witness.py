"""Tests on learned features: Meta-Witness (a kernel), Meta-FUSE (a bank of kernels) and Meta-WiTS (a direction)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from m2st_core.data.related import RelatedTasks
from m2st_core.kernels.base import Family, Kernel, KernelBank
from m2st_core.kernels.features import ComposedKernel, LinearKernel
from m2st_core.learners.bank import beside_generic, generic_families
from m2st_core.learners.feature_mkl import AGGREGATE
from m2st_core.learners.features import fit_features
from m2st_core.learners.knowledge import Knowledge, needed
from m2st_core.learners.meta_features import MetaFeatures, prior_weights, view_target
from m2st_core.permutation.fitted import KernelTest, Permuted, ScoreTest
from m2st_core.permutation.fused import RankFuseTest
from m2st_core.permutation.statistics import permuted_mean_difference
from m2st_core.preset import Preset
from m2st_core.rng import Streams
from m2st_core.types import Progress, TwoSample

META_SHARE = 0.5  # share of Meta-FUSE's weight on the learned kernel; the generic kernels have the rest


def learn_features(
    meta: RelatedTasks, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> Knowledge:
    """Learn ψ, which is all that Meta-Witness, Meta-WiTS and Meta-FUSE need."""
    features, choices = fit_features(meta, preset.feature_learning, streams, progress)
    return Knowledge(features=features, choices=choices)


def witness_kernel(
    known: Knowledge,
    pooled: Tensor,
    preset: Preset,
    streams: Sequence[Streams],
    progress: Progress | None = None,
) -> KernelTest:
    """Meta-Witness: the aggregate kernel with a little Gaussian, whose width comes from pooled rows (R, N, d)."""
    features = needed(known.features, "features")
    return KernelTest(beside_generic(features, _aggregate(features, pooled), pooled, streams))


def _aggregate(features: MetaFeatures, pooled: Tensor) -> Kernel:
    """Σ_q w_q ψ_q(x)ψ_q(y)/Σ_q w_q of the features: batch (R, 1)."""
    return LinearKernel(torch.diag_embed(prior_weights(features, pooled.shape[-2]).sqrt())[:, None])


def meta_bank(
    known: Knowledge,
    pooled: Tensor,
    preset: Preset,
    streams: Sequence[Streams],
    progress: Progress | None = None,
) -> RankFuseTest:
    """Meta-FUSE: the aggregate kernel with half of π, beside generic kernels."""
    features = needed(known.features, "features")
    meta = Family(ComposedKernel(features, _aggregate(features, pooled)), (AGGREGATE,), META_SHARE)
    return RankFuseTest(KernelBank((meta, *generic_families(features, pooled, 1 - META_SHARE, streams))))


@dataclass(frozen=True)
class WitnessTest(ScoreTest):
    """Meta-WiTS: log[π·exp(a) + (1−π)·exp(−a)], a = t/(1/n+1/m), t the difference of the means of f(x) = ψ(x)·w.

    The discriminant's scale makes a the log-likelihood ratio of t under the expected difference and under none, up to a
    constant. The training rows give the sign with probability π = Φ(``surety``), mostly near 1: then the test is
    one-sided in t. A large t of the other sign counts too, so that a wrong sign costs some power and not all of it.
    ``surety`` (R,) is the expected difference divided by its posterior standard deviation.
    """

    features: MetaFeatures
    direction: Tensor
    surety: Tensor
    two_sided = False

    def score(self, rows: Tensor) -> Tensor:
        """f of each row."""
        return (self.features(rows) @ self.direction[..., None])[..., 0]

    @torch.no_grad()
    def statistics(self, pooled: Tensor, members: Tensor, n: int, progress: Progress | None = None) -> Permuted:
        """The log-likelihood ratio under every labelling."""
        scores = self.score(pooled)
        noise = 1 / n + 1 / (scores.shape[-1] - n)
        t, error = permuted_mean_difference(scores, members, n, two_sided=False)
        right, wrong = (torch.special.log_ndtr(sign * self.surety)[..., None] for sign in (1, -1))
        return Permuted(torch.logaddexp(right + t / noise, wrong - t / noise), error / noise)


@torch.no_grad()
def fit_witness(
    known: Knowledge,
    train: TwoSample,
    preset: Preset,
    streams: Sequence[Streams],
    progress: Progress | None = None,
) -> WitnessTest:
    """Meta-WiTS: the direction and the sign of the difference, from the target's training rows and the prior.

    The discriminant w_q = E[δ_q | d_q]/v_q, E[δ | d] = s/(s+τ)·d, with d the difference of means of ψ on the training
    rows, v its variance within samples and τ its noise; Var[δ | d] = s/(s+τ)·τ.
    """
    features = needed(known.features, "features")
    difference, variance, noise = view_target(features, train)
    share = features.prior / (features.prior + noise)
    direction = share * difference / variance
    expected = (direction * share * difference).sum(dim=-1)
    unknown = (direction.square() * share * noise).sum(dim=-1).sqrt()
    return WitnessTest(features, direction, expected / unknown.clamp(min=torch.finfo(unknown.dtype).tiny))
