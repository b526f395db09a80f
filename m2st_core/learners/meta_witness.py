"""What the warm start gives a target: a kernel, a bank of kernels, or, with training rows, a direction."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from m2st_core.kernels import GaussianKernel, Kernel, MixtureKernel
from m2st_core.kernels.linear import FeatureKernel
from m2st_core.learners.bank import KernelBank, fit_bank
from m2st_core.learners.kernels import median_width
from m2st_core.learners.warm_start import MetaFeatures
from m2st_core.presets import Preset
from m2st_core.rng import Streams
from m2st_core.types import Progress, TwoSample

GAUSSIAN_SHARE = 0.05  # of a generic kernel, so that differences unlike those seen before are not invisible
LEADING = 2  # single directions in Meta-FUSE's bank, beside all together


def prior_weights(features: MetaFeatures, rows: int) -> Tensor:
    """s_q/(s_q + τ), τ = 4/rows: (R, Q).

    For a difference of means d ~ N(0, s + τ) against N(0, τ), with τ the noise of two halves of that many pooled
    rows, the likelihood ratio weighs d_q² by this (up to a constant).
    """
    noise = 4 / rows
    return features.prior / (features.prior + noise)


def witness_kernel(
    features: MetaFeatures,
    pooled: Tensor,
    preset: Preset,
    streams: Sequence[Streams],
    progress: Progress | None = None,
) -> Kernel:
    """Meta-Witness: the aggregate kernel Σ_q w_q ψ_q(x)ψ_q(y) with a little Gaussian, from pooled rows (R, N, d)."""
    generic = GaussianKernel(median_width(pooled, streams))
    aggregate = FeatureKernel(features, prior_weights(features, pooled.shape[-2]))
    shares = torch.tensor([1 - GAUSSIAN_SHARE, GAUSSIAN_SHARE], dtype=pooled.dtype, device=pooled.device)
    return MixtureKernel([aggregate, generic], shares)


def meta_bank(
    features: MetaFeatures,
    pooled: Tensor,
    preset: Preset,
    streams: Sequence[Streams],
    progress: Progress | None = None,
) -> KernelBank:
    """Meta-FUSE: the aggregate and its leading directions beside the generic kernels, half of π on each side."""
    weights = prior_weights(features, pooled.shape[-2])  # R x Q, in rising order of the prior
    single = torch.eye(weights.shape[-1], dtype=weights.dtype, device=weights.device)[-LEADING:]
    learned = torch.cat([weights[:, None], single.expand(weights.shape[0], -1, -1)], dim=1)  # R x (1+2) x Q
    generic = fit_bank(pooled, preset, streams)
    families = {name: (kernel, weight / 2) for name, (kernel, weight) in generic.families.items()}
    return KernelBank({"meta": (FeatureKernel(features, learned), 0.5 / learned.shape[1]), **families})


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
    features: MetaFeatures,
    train: TwoSample,
    preset: Preset,
    streams: Sequence[Streams],
    progress: Progress | None = None,
) -> Witness:
    """Meta-WiTS: the direction and the sign of the difference, from the target's training rows and the prior.

    w = E[δ | d] = s/(s+τ)·d, with d the difference of means of ψ on the training rows and τ = 1/n + 1/m its noise.
    """
    difference = features(train.x).mean(dim=-2) - features(train.y).mean(dim=-2)
    n, m = train.sizes
    return Witness(features, features.prior / (features.prior + 1 / n + 1 / m) * difference)
