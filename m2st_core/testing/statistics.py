"""Tests whose statistic is compared with a known distribution instead of with permutations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from m2st_core.kernels.base import Kernel
from m2st_core.learners.bank import KernelBank
from m2st_core.learners.classifier import RowClassifier
from m2st_core.learners.embeddings import PointFeatures, hotelling
from m2st_core.learners.meta_witness import Witness
from m2st_core.permutation.statistics import permuted_fuse, permuted_mean_difference, permuted_mmd2
from m2st_core.presets import Preset
from m2st_core.rng import Streams
from m2st_core.types import Progress, TwoSample

TIE_BREAK = 1e-8
RANK_ROUNDING = 1e-9
GROUPS = 25  # of labellings, each left out once, for the standard error of a p-value that is not binomial


def mmd2(kernel: Kernel, pooled: Tensor, members: Tensor, n: int, progress: Progress | None) -> tuple[Tensor, Tensor]:
    """MMD²_u of a kernel."""
    return permuted_mmd2(kernel, pooled, members, n, progress=progress)


def fuse(bank: KernelBank, pooled: Tensor, members: Tensor, n: int, progress: Progress | None) -> tuple[Tensor, Tensor]:
    """MMD-FUSE of a bank of kernels."""
    families = [(family.kernel, family.share) for family in bank.families]
    return permuted_fuse(families, pooled, members, n, progress)


@torch.no_grad()
def fuse_by_rank(
    bank: KernelBank, pooled: Tensor, members: Tensor, n: int, progress: Progress | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Σ_f π_f/p_f over the families, p_f their own p-values under this labelling: 1 over their harmonic mean.

    Within a family, log Σ_k exp(z_k), z_k the kernel's MMD² in standard deviations over all labellings. Kernels of few
    learned directions have a null distribution with a longer tail than generic ones; in one sum their noise would drown
    the others. By rank, no family costs another more than its share of the level. Scaling and ranks treat all
    labellings alike, so the permutation test stays exact. The ranks move with the labellings that were drawn, so the
    p-value has a standard error of its own.
    """
    evidence, left_out = (torch.zeros((), dtype=torch.float64, device=pooled.device) for _ in range(2))
    for family in bank.families:
        mmd2, error = permuted_mmd2(family.kernel, pooled[:, None], members[:, None], n, progress=progress)
        weight, (fused, tolerance) = family.share * len(family.names), _fused(mmd2, error)
        evidence = evidence + weight / _share_reaching(fused, tolerance)
        left_out = left_out + weight / _share_without_groups(fused, tolerance)
    rounding = torch.full_like(evidence[..., 0], RANK_ROUNDING)
    return evidence, rounding, _jackknife_error(left_out)


def family_p_values(mmd2: Tensor, error: Tensor) -> Tensor:
    """A family's own p-value under each labelling: MMD² (R, k, P) and its rounding error (R, k) → (R, P).

    Values that are equal but for rounding are equal; where numbers overflowed, all are.
    """
    return _share_reaching(*_fused(mmd2, error))


def _fused(mmd2: Tensor, error: Tensor) -> tuple[Tensor, Tensor]:
    """log Σ_k exp(z_k) under each labelling, (R, P), and the rounding error within which two are equal, (R, 1)."""
    spread = mmd2.std(dim=-1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny)
    fused = (mmd2 / spread).logsumexp(dim=1)
    fused = fused.where(fused.isfinite().all(dim=-1, keepdim=True), 0.0)
    return fused, (error / spread[..., 0]).amax(dim=1, keepdim=True).nan_to_num(nan=0.0)


def _share_reaching(fused: Tensor, tolerance: Tensor) -> Tensor:
    """The share of all labellings whose value reaches that of each: (R, P), (R, 1) → (R, P)."""
    return 1 - _below(fused, tolerance).double() / fused.shape[-1]


def _below(fused: Tensor, tolerance: Tensor) -> Tensor:
    """How many labellings lie clearly below each: (R, P), (R, 1) → (R, P)."""
    return torch.searchsorted(fused.sort(dim=-1).values, fused - tolerance)


def _share_without_groups(fused: Tensor, tolerance: Tensor) -> Tensor:
    """The same with each group of drawn labellings left out: (R, P), (R, 1) → (R, G, P). Row 0, observed, stays."""
    groups, size = _groups(fused.shape[-1])
    drawn = fused[:, 1 : 1 + groups * size].unflatten(1, (groups, size)).sort(dim=-1).values
    limits = (fused - tolerance)[:, None].expand(-1, groups, -1).contiguous()
    below = _below(fused, tolerance)[:, None] - torch.searchsorted(drawn, limits)
    return 1 - below.double() / (fused.shape[-1] - size)


def _jackknife_error(evidence: Tensor) -> Tensor:
    """√((G−1)/G·Σ_g(p_g − p̄)²), p_g the p-value without the labellings of group g: (R, G, P) → (R,)."""
    labellings = evidence.shape[-1]
    groups, size = _groups(labellings)
    group = (torch.arange(labellings, device=evidence.device) - 1).div(size, rounding_mode="floor")
    kept = group != torch.arange(groups, device=evidence.device)[:, None]  # G x P
    reached = ~(evidence < evidence[..., :1] - RANK_ROUNDING) & kept
    p_values = reached.sum(dim=-1, dtype=torch.float64) / (labellings - size)
    return ((groups - 1) / groups**0.5 * p_values.std(dim=-1)).nan_to_num(nan=0.0)


def _groups(labellings: int) -> tuple[int, int]:
    """How many groups of drawn labellings are left out in turn, and how many labellings each has."""
    groups = min(GROUPS, labellings - 1)
    return groups, (labellings - 1) // max(groups, 1)


@torch.no_grad()
def label_difference(
    classifier: RowClassifier, pooled: Tensor, members: Tensor, n: int, progress: Progress | None
) -> tuple[Tensor, Tensor]:
    """|Difference of the mean predicted label|: the MMD of k(x, y) = 1[f(x)>0]·1[f(y)>0].

    Counts of labels tie often, which would make the test conservative; C2ST-L's statistic breaks the ties.
    """
    logits = classifier(pooled)
    return permuted_mean_difference(torch.lerp((logits > 0).to(logits), logits.sigmoid(), TIE_BREAK), members, n)


@torch.no_grad()
def probability_difference(
    classifier: RowClassifier, pooled: Tensor, members: Tensor, n: int, progress: Progress | None
) -> tuple[Tensor, Tensor]:
    """|Difference of the mean class probability|: the MMD of k(x, y) = p(x)·p(y), p the classifier's probability."""
    return permuted_mean_difference(classifier(pooled).sigmoid(), members, n)


@torch.no_grad()
def witness_difference(
    witness: Witness, pooled: Tensor, members: Tensor, n: int, progress: Progress | None
) -> tuple[Tensor, Tensor]:
    """log[π·exp(a) + (1−π)·exp(−a)], a = t/(1/n+1/m) for a difference t of the witness's means.

    The discriminant's scale makes a the log-likelihood ratio of t under the difference expected and under none, up to a
    constant. The training rows have told the sign with probability π = Φ(surety), mostly near 1: then the test is
    one-sided in t. But a large t of the other sign is believed too, so that a wrong sign costs power and not all of it.
    """
    scores = witness(pooled)
    noise = 1 / n + 1 / (scores.shape[-1] - n)
    t, error = permuted_mean_difference(scores, members, n, two_sided=False)
    right, wrong = (torch.special.log_ndtr(sign * witness.surety)[..., None] for sign in (1, -1))
    return torch.logaddexp(right + t / noise, wrong - t / noise), error / noise


ALIVE_VARIANCE = 1e-4  # below it, a direction is non-zero for a few rows only and its mean is far from normal


@torch.no_grad()
def hotelling_test(
    features: PointFeatures, sample: TwoSample, n_quantiles: int, preset: Preset, streams: Sequence[Streams]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Statistic n·WᵀΣ⁻¹W of J features, its p-value, and quantiles of the reference: → (R,), (R,), (R, n_quantiles).

    "chi2" is the limit χ²_J of the papers. "F" is Hotelling's J(n−1)/(n−J)·F(J, n−J), which has the same limit and is
    right for Gaussian features at every n: it takes the uncertainty of Σ into account. J counts the directions in which
    the pooled, unlabelled features vary: points far from all rows, or features that repeat each other, add none.
    Needs n=m.
    """
    from scipy import stats  # slow to import

    n = sample.sizes[0]
    pooled = features(sample.pooled)
    values, directions = torch.linalg.eigh(_covariance(pooled))
    alive = values > ALIVE_VARIANCE  # R x J
    aligned = (pooled @ directions) * alive[:, None]
    statistic = hotelling(aligned[:, :n], aligned[:, n:]).cpu().numpy()
    count = alive.sum(dim=-1, keepdim=True).clamp(min=1).cpu().numpy()  # R x 1
    if preset.embedding.reference == "chi2":
        reference, scale = stats.chi2(count), np.ones_like(count)
    else:
        reference, scale = stats.f(count, n - count), count * (n - 1) / (n - count)
    levels = (np.arange(n_quantiles) + 0.5) / n_quantiles
    p_value = reference.sf(statistic[:, None] / scale)[:, 0]
    return statistic, p_value, scale * reference.ppf(levels)


def _covariance(rows: Tensor) -> Tensor:
    """(R, N, J) → (R, J, J)."""
    centred = rows - rows.mean(dim=-2, keepdim=True)
    return centred.mT @ centred / (rows.shape[-2] - 1)
