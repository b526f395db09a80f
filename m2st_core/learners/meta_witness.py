"""What learned features give a target: a kernel, a bank of kernels, or, with training rows, a direction."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from m2st_core.data.related import RelatedTasks
from m2st_core.kernels.base import Kernel
from m2st_core.kernels.features import ComposedKernel, LinearKernel
from m2st_core.learners.bank import Family, KernelBank
from m2st_core.learners.companions import beside_generic, generic_families
from m2st_core.learners.feature_mkl import AGGREGATE
from m2st_core.learners.features import fit_features
from m2st_core.learners.knowledge import Knowledge
from m2st_core.learners.meta_features import MetaFeatures, prior_weights, view_target
from m2st_core.presets import Preset
from m2st_core.rng import Streams
from m2st_core.types import Progress, TwoSample

META_SHARE = 0.5  # of Meta-FUSE's weight; the generic kernels have the rest


def learn_features(
    meta: RelatedTasks, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> Knowledge:
    """ψ alone: what Meta-Witness, Meta-WiTS and Meta-FUSE need."""
    assert preset.features is not None
    features, choices = fit_features(meta, preset.features, streams, progress)
    return Knowledge(features=features, choices=choices)


def witness_kernel(
    known: Knowledge,
    pooled: Tensor,
    preset: Preset,
    streams: Sequence[Streams],
    progress: Progress | None = None,
) -> Kernel:
    """Meta-Witness: the aggregate kernel with a little Gaussian, whose width comes from pooled rows (R, N, d)."""
    features = _features(known)
    return beside_generic(features, _aggregate(features, pooled), pooled, streams)


def _features(known: Knowledge) -> MetaFeatures:
    assert known.features is not None
    return known.features


def _aggregate(features: MetaFeatures, pooled: Tensor) -> Kernel:
    """Σ_q w_q ψ_q(x)ψ_q(y)/Σ_q w_q of the features: batch (R, 1)."""
    return LinearKernel(torch.diag_embed(prior_weights(features, pooled.shape[-2]).sqrt())[:, None])


def meta_bank(
    known: Knowledge,
    pooled: Tensor,
    preset: Preset,
    streams: Sequence[Streams],
    progress: Progress | None = None,
) -> KernelBank:
    """Meta-FUSE: the aggregate kernel with half of π, beside generic kernels."""
    features = _features(known)
    meta = Family(ComposedKernel(features, _aggregate(features, pooled)), (AGGREGATE,), META_SHARE)
    return KernelBank((meta, *generic_families(features, pooled, 1 - META_SHARE, streams)))


class Witness(nn.Module):
    """f(x) = ψ(x)·w: (R, n, d) → (R, n), and what the training rows say of the difference of its means.

    ``surety`` (R,) is the difference expected, in standard deviations of what is left unknown of it.
    """

    direction: Tensor
    surety: Tensor

    def __init__(self, features: MetaFeatures, direction: Tensor, surety: Tensor) -> None:
        super().__init__()
        self.features = features
        self.register_buffer("direction", direction)
        self.register_buffer("surety", surety)

    def forward(self, x: Tensor) -> Tensor:
        """f of each row."""
        return (self.features(x) @ self.direction[..., None])[..., 0]


@torch.no_grad()
def fit_witness(
    known: Knowledge,
    train: TwoSample,
    preset: Preset,
    streams: Sequence[Streams],
    progress: Progress | None = None,
) -> Witness:
    """Meta-WiTS: the direction and the sign of the difference, from the target's training rows and the prior.

    The discriminant w_q = E[δ_q | d_q]/v_q, E[δ | d] = s/(s+τ)·d, with d the difference of means of ψ on the training
    rows, v its variance within samples and τ its noise; Var[δ | d] = s/(s+τ)·τ.
    """
    features = _features(known)
    difference, variance, noise = view_target(features, train)
    share = features.prior / (features.prior + noise)
    direction = share * difference / variance
    expected = (direction * share * difference).sum(dim=-1)
    unknown = (direction.square() * share * noise).sum(dim=-1).sqrt()
    return Witness(features, direction, expected / unknown.clamp(min=torch.finfo(unknown.dtype).tiny))
