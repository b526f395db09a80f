"""Tests that combine many kernels in one statistic: MMD-FUSE, and the mixture of kernels that stands for it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from m2st_core.kernels.mixtures import Family, KernelBank
from m2st_core.permutation.families import Found, permuted_families
from m2st_core.permutation.fitted import KernelTest, PermutationTest, Permuted, ShownTest
from m2st_core.types import Progress, TwoSample

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
        found = permuted_families(self.bank.families, pooled, members, n, progress)
        return self.combined(found, n, pooled.shape[-2] - n)

    def combined(self, found: Sequence[Found], n: int, m: int) -> Permuted:
        """The fused statistic from MMD² of each family."""
        scale = fuse_scale(min(n, m))
        scores, errors = [], []
        for family, (mmd2, rounding, squares) in zip(self.bank.families, found, strict=True):
            spread = (squares / scale).sqrt().clamp(min=TINY)
            scores.append(scale * mmd2 / spread[..., None] + math.log(family.share))  # R x kernels x P
            errors.append(rounding / spread)
        statistics = torch.cat(scores, dim=1).logsumexp(dim=1) / scale
        return Permuted(statistics, torch.cat(errors, dim=1).amax(dim=1))

    def shown_by(self, sample: TwoSample, members: Tensor, alpha: float) -> tuple[ShownTest, float | None]:
        """The mixture in which each kernel has its weight in the fused statistic, and its critical value."""
        (n, m), pooled = sample.sizes, sample.pooled
        scale, families = fuse_scale(min(n, m)), []
        every = permuted_families(self.bank.families, pooled, members, n)
        for family, found in zip(self.bank.families, every, strict=True):
            mmd2, _, squares = (part[0] for part in found)  # k x P
            spread = ((squares / scale).sqrt() / scale).clamp(min=TINY)
            values = mmd2 / spread[:, None] + math.log(family.share)
            families.append(Scores(family, values, spread, mmd2[:, 0]))
        return mixture_of(families, alpha)


def mixture_of(families: list[Scores], level: float) -> tuple[KernelTest, float]:
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
