"""Tests that fuse many kernels into one statistic: MMD-FUSE, and Meta-FUSE by ranks."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from m2st_core.kernels.base import Family, KernelBank
from m2st_core.permutation.fitted import KernelTest, PermutationTest, Permuted, ShownTest
from m2st_core.permutation.statistics import mean_square, permuted_mmd2
from m2st_core.types import Progress, TwoSample

RANK_ROUNDING = 1e-9
GROUPS = 25  # of labellings, each left out once, for the standard error of a p-value that is not binomial
HEAVIEST = 6  # kernels of a bank that represent it
TINY = torch.finfo(torch.float32).tiny


def fuse_scale(count: int) -> int:
    """λ of MMD-FUSE, for a smaller sample of ``count`` rows."""
    return count * (count - 1)


@dataclass(frozen=True)
class Scores:
    """MMD² of a family's k kernels in units of their spread, for one run: (k, P), with MMD² (k,) as observed."""

    family: Family
    values: Tensor
    spread: Tensor
    observed: Tensor


@dataclass(frozen=True)
class FuseTest(PermutationTest):
    """MMD-FUSE: (1/λ)·log Σ_k π_k·exp(λ·MMD²_u,k/√N_k), λ = c(c−1), c = min(n, m).

    N_k = Σ_{i≠j}k(z_i,z_j)²/(c(c−1)) makes kernels of different widths comparable. λ is what the authors' code
    computes; its description names the square root.
    """

    bank: KernelBank

    @torch.no_grad()
    def statistics(self, pooled: Tensor, members: Tensor, n: int, progress: Progress | None = None) -> Permuted:
        """The fused statistic under every labelling."""
        count = min(n, pooled.shape[-2] - n)
        scale = fuse_scale(count)
        scores, errors = [], []
        for family in self.bank.families:
            mmd2, rounding = permuted_mmd2(family.kernel, pooled[:, None], members[:, None], n, progress=progress)
            spread = mean_square(family.kernel, pooled[:, None], count).sqrt().clamp(min=TINY)
            scores.append(scale * mmd2 / spread[..., None] + math.log(family.share))  # R x kernels x P
            errors.append(rounding / spread)
        statistics = torch.cat(scores, dim=1).logsumexp(dim=1) / scale
        return Permuted(statistics, torch.cat(errors, dim=1).amax(dim=1))

    def shown_by(self, sample: TwoSample, members: Tensor, alpha: float) -> tuple[ShownTest, float | None]:
        """The mixture in which each kernel has its weight in the fused statistic, and its critical value."""
        (n, m), pooled = sample.sizes, sample.pooled
        count, families = min(n, m), []
        for family in self.bank.families:
            mmd2 = permuted_mmd2(family.kernel, pooled[:, None], members[:, None], n)[0][0]  # k x P
            spread = mean_square(family.kernel, pooled[:, None], count)[0].sqrt() / fuse_scale(count)
            spread = spread.clamp(min=TINY)
            values = mmd2 / spread[:, None] + math.log(family.share)
            families.append(Scores(family, values, spread, mmd2[:, 0]))
        return _mixture(families, alpha)


@dataclass(frozen=True)
class RankFuseTest(PermutationTest):
    """Meta-FUSE: Σ_f π_f/p_f over the families, p_f their own p-values under the labelling.

    This is 1 over the harmonic mean of p_f. Within a family, log Σ_k exp(z_k), z_k the kernel's MMD² in standard
    deviations over all labellings. Kernels of few learned directions have a null distribution with a longer tail than
    general-purpose ones; in one sum their noise would drown the others. By rank, no family costs another more than its
    share of the level. Scaling and ranks treat all labellings alike, so the permutation test stays exact. The ranks
    depend on the labellings drawn, so the p-value has a standard error of its own.
    """

    bank: KernelBank

    @torch.no_grad()
    def statistics(self, pooled: Tensor, members: Tensor, n: int, progress: Progress | None = None) -> Permuted:
        """The evidence under every labelling."""
        evidence, left_out = (torch.zeros((), dtype=torch.float64, device=pooled.device) for _ in range(2))
        for family in self.bank.families:
            mmd2, error = permuted_mmd2(family.kernel, pooled[:, None], members[:, None], n, progress=progress)
            weight, (fused, tolerance) = family.share * len(family.names), _fused(mmd2, error)
            evidence = evidence + weight / _share_reaching(fused, tolerance)
            left_out = left_out + weight / _share_without_groups(fused, tolerance)
        rounding = torch.full_like(evidence[..., 0], RANK_ROUNDING)
        return Permuted(evidence, rounding, _jackknife_error(left_out))

    def shown_by(self, sample: TwoSample, members: Tensor, alpha: float) -> tuple[ShownTest, float | None]:
        """The mixture of the family with the most evidence, and the critical value it needs beside the others."""
        pooled, families, p_values = sample.pooled, [], []
        for family in self.bank.families:
            mmd2, error = permuted_mmd2(family.kernel, pooled[:, None], members[:, None], sample.sizes[0])
            p_values.append(_share_reaching(*_fused(mmd2, error))[0])
            spread = mmd2[0].std(dim=-1).clamp(min=TINY)
            families.append(Scores(family, mmd2[0] / spread[:, None], spread, mmd2[0, :, 0]))
        shares = torch.tensor([family.share * len(family.names) for family in self.bank.families])
        evidence = shares[:, None].to(p_values[0]) / torch.stack(p_values)  # families x P
        best = int(evidence[:, 0].argmax())
        others = float(evidence[:, 0].sum() - evidence[best, 0])
        needed = float(evidence.sum(dim=0).quantile(1 - alpha)) - others
        level = float(shares[best]) / max(needed, 2 * float(shares[best]))
        return _mixture([families[best]], level)


def _mixture(families: list[Scores], level: float) -> tuple[KernelTest, float]:
    """The mixture that stands for a fused statistic near the observed one, and what its MMD² must reach.

    log Σ exp(s_k) is close to Σ w_k s_k plus a constant, w the softmax of the scores s; a score is MMD² in units of its
    kernel's spread. So the mixture has the weights w_k/spread_k, and the threshold moves with the constant.
    """
    score = torch.cat([family.values for family in families])
    total = score.logsumexp(dim=0)
    weights = score[:, 0].softmax(dim=0)
    weights = weights.where(weights >= weights.topk(min(HEAVIEST, len(weights))).values[-1], 0.0)
    parts = weights / weights.sum() / torch.cat([family.spread for family in families])
    constant = float(total[0] - (parts * torch.cat([family.observed for family in families])).sum())
    threshold = (float(total[1:].quantile(1 - level)) - constant) / float(parts.sum())
    bank = KernelBank(tuple(family.family for family in families))
    return KernelTest(bank.mixture((parts / parts.sum())[None])), threshold


def _fused(mmd2: Tensor, error: Tensor) -> tuple[Tensor, Tensor]:
    """log Σ_k exp(z_k) under each labelling, (R, P), and the rounding error within which two are equal, (R, 1).

    Where numbers overflowed, all labellings are equal.
    """
    spread = mmd2.std(dim=-1, keepdim=True).clamp(min=TINY)
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
    """The number of groups of drawn labellings, and the size of each."""
    groups = min(GROUPS, labellings - 1)
    return groups, (labellings - 1) // max(groups, 1)
