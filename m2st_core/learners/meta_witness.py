"""What the warm start gives a target: a kernel, a bank of kernels, or, with training rows, a direction."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from m2st_core.kernels import ComposedKernel, Kernel, LinearKernel
from m2st_core.learners.bank import Family, KernelBank
from m2st_core.learners.companions import beside_generic, generic_families
from m2st_core.learners.knowledge import AGGREGATE, Knowledge
from m2st_core.learners.meta_features import MetaFeatures, prior_weights, view_target
from m2st_core.presets import Preset
from m2st_core.rng import Streams
from m2st_core.types import Progress, TwoSample

META_SHARE = 0.4  # of Meta-FUSE's weight; the generic kernels have the rest
LEADING = 2  # single directions in Meta-FUSE's bank, beside all together


def witness_kernel(
    known: Knowledge,
    pooled: Tensor,
    preset: Preset,
    streams: Sequence[Streams],
    progress: Progress | None = None,
) -> Kernel:
    """Meta-Witness: the aggregate kernel Σ_q w_q ψ_q(x)ψ_q(y) with a little Gaussian, from pooled rows (R, N, d)."""
    features = _features(known)
    aggregate = LinearKernel(torch.diag_embed(prior_weights(features, pooled.shape[-2]).sqrt())[:, None])
    return beside_generic(features, aggregate, pooled, streams)


def _features(known: Knowledge) -> MetaFeatures:
    assert known.features is not None
    return known.features


def meta_bank(
    known: Knowledge,
    pooled: Tensor,
    preset: Preset,
    streams: Sequence[Streams],
    progress: Progress | None = None,
) -> KernelBank:
    """Meta-FUSE: the aggregate and its leading directions, with 0.4 of π, beside generic kernels."""
    features = _features(known)
    weights = prior_weights(features, pooled.shape[-2])  # R x Q, in rising order of the prior
    single = torch.eye(weights.shape[-1], dtype=weights.dtype, device=weights.device)[-LEADING:]
    learned = torch.cat([weights[:, None], single.expand(weights.shape[0], -1, -1)], dim=1)  # R x (1+2) x Q
    kernel = ComposedKernel(features, LinearKernel(torch.diag_embed(learned.sqrt())))
    names = (AGGREGATE, *(f"direction {index + 1}" for index in reversed(range(LEADING))))
    meta = Family(kernel, names, META_SHARE / len(names))
    return KernelBank((meta, *generic_families(features, pooled, 1 - META_SHARE, streams)))


class Witness(nn.Module):
    """f(x) = ψ(x)·w: (R, n, d) → (R, n)."""

    direction: Tensor

    def __init__(self, features: MetaFeatures, direction: Tensor) -> None:
        super().__init__()
        self.features = features
        self.register_buffer("direction", direction)

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
    rows, v its variance within samples and τ its noise.
    """
    features = _features(known)
    difference, variance, noise = view_target(features, train)
    return Witness(features, features.prior / (features.prior + noise) * difference / variance)
