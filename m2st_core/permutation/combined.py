"""Tests that combine many kernels: MMD-FUSE in one sum; MMDAgg, Omnibus, Meta-Witness and Meta-FUSE by rank."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from m2st_core.kernels.mixtures import Family, mixture_of
from m2st_core.permutation.engine import FamilyStatistics, permuted_families, permuted_mmd2
from m2st_core.permutation.fitted import KernelTest, PermutationTest, Permuted, Representative
from m2st_core.types import Progress, TwoSample

HEAVIEST = 6  # kernels that represent a test
TINY = torch.finfo(torch.float32).tiny
RANK_ROUNDING = 1e-9
LARGEST = 0.1  # share of the labellings, with the largest values of a statistic, from which the others' is estimated
GROUPS = 25  # of labellings, each left out once, for the standard error of a p-value that is not binomial
TIE_BREAK = 1e-6


@dataclass(frozen=True)
class _Scores:
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

    families: tuple[Family, ...]

    @torch.no_grad()
    def statistics(self, pooled: Tensor, members: Tensor, n: int, progress: Progress | None = None) -> Permuted:
        """The fused statistic under every labelling."""
        statistics = permuted_families(self.families, pooled, members, n, progress)
        return self.combined(statistics, n, pooled.shape[-2] - n)

    def combined(self, statistics: Sequence[FamilyStatistics], n: int, m: int) -> Permuted:
        """The fused statistic from those of each family."""
        scale = min(n, m) * (min(n, m) - 1)
        scores, errors = [], []
        for family, (mmd2, rounding, squares) in zip(self.families, statistics, strict=True):
            spread = (squares / scale).sqrt().clamp(min=TINY)
            scores.append(scale * mmd2 / spread[..., None] + math.log(family.share))  # R x kernels x P
            errors.append(rounding / spread)
        fused = torch.cat(scores, dim=1).logsumexp(dim=1) / scale
        return fused, torch.cat(errors, dim=1).amax(dim=1), None

    def shown_by(self, sample: TwoSample, members: Tensor, alpha: float) -> Representative:
        """The mixture in which each kernel has its weight in the fused statistic, and its critical value."""
        (n, m), pooled = sample.sizes, sample.pooled
        scale, families = min(n, m) * (min(n, m) - 1), []
        for family, statistics in zip(self.families, permuted_families(self.families, pooled, members, n), strict=True):
            mmd2, _, squares = (tensor[0] for tensor in statistics)  # k x P
            spread = ((squares / scale).sqrt() / scale).clamp(min=TINY)
            values = mmd2 / spread[:, None] + math.log(family.share)
            families.append(_Scores(family, values, spread, mmd2[:, 0]))
        return _mixture_of(families, alpha)


def _mixture_of(families: list[_Scores], level: float) -> tuple[KernelTest, float]:
    """The mixture that approximates a fused statistic near the observed one, and the critical value of its MMD².

    log Σ exp(s_k) is close to Σ w_k s_k plus a constant, w the softmax of the scores s; a score is MMD² in units of its
    kernel's spread. So the mixture has the weights w_k/spread_k, and the threshold moves with the constant.
    """
    score = torch.cat([family.values for family in families])
    total = score.logsumexp(dim=0)
    weights = score[:, 0].softmax(dim=0)
    weights = weights.where(weights >= weights.topk(min(HEAVIEST, len(weights))).values[-1], 0.0)
    weights = weights / weights.sum() / torch.cat([family.spread for family in families])
    constant = float(total[0] - (weights * torch.cat([family.observed for family in families])).sum())
    threshold = (float(total[1:].quantile(1 - level)) - constant) / float(weights.sum())
    mixture = mixture_of([family.family for family in families], (weights / weights.sum())[None])
    return KernelTest(mixture), threshold


class _Ranked(NamedTuple):
    """A statistic to be ranked: its weight, its values (R, P), and the tolerance (R, 1) within which they are equal.

    ``shown`` gives the test that represents it at a level.
    """

    weight: float
    values: Tensor
    tolerance: Tensor
    shown: Callable[[float], Representative]


@dataclass(frozen=True)
class RankFuseTest(PermutationTest):
    """Meta-FUSE and Omnibus: Σ_f π_f/p_f over the families, p_f their own p-values under the labelling.

    ``fuse``, if there is one, is a further statistic: it has the weight that the families leave.

    The sum is 1 over the harmonic mean of p_f. Within a family, log Σ_k exp(z_k), z_k the kernel's MMD² in standard
    deviations over all labellings. Kernels of few learned directions have a null distribution with a longer tail than
    general-purpose ones; in one sum their noise would drown the others. By rank, no family costs another more than its
    share of the level. Scaling and ranks treat all labellings alike, so the permutation test stays exact. The ranks
    depend on the labellings drawn, so the p-value has a standard error of its own.
    """

    families: tuple[Family, ...]
    fuse: FuseTest | None = None

    @torch.no_grad()
    def statistics(self, pooled: Tensor, members: Tensor, n: int, progress: Progress | None = None) -> Permuted:
        """The evidence under every labelling."""
        evidence, left_out = [], []
        for ranked in self._ranked(pooled, members, n, progress):
            p_values, without_groups = _own_p_values(ranked)
            evidence.append(ranked.weight / p_values)
            left_out.append(ranked.weight / without_groups)
        total = self._combined(evidence)
        rounding = torch.full_like(total[..., 0], RANK_ROUNDING)
        return total, rounding, _jackknife_error(self._combined(left_out))

    def _ranked(self, pooled: Tensor, members: Tensor, n: int, progress: Progress | None = None) -> Iterator[_Ranked]:
        """The statistics of the families, then that of ``fuse``."""
        fused = self.fuse.families if self.fuse is not None else ()
        by_gram = [family for family in self.families if not family.kernel.inner_product]
        statistics = iter(permuted_families((*by_gram, *fused), pooled, members, n, progress))
        for family in self.families:
            mmd2, error = (
                permuted_mmd2(family.kernel, pooled[:, None], members[:, None], n)
                if family.kernel.inner_product
                else next(statistics)[:2]
            )
            yield from self._of_family(family, mmd2, error)
        if self.fuse is not None:
            values, rounding, _ = self.fuse.combined(list(statistics), n, pooled.shape[-2] - n)
            values = values.where(values.isfinite().all(dim=-1, keepdim=True), 0.0)  # overflow makes labellings equal
            rest = 1 - sum(family.share * len(family.names) for family in self.families)
            sample = TwoSample(pooled[..., :n, :], pooled[..., n:, :])
            shown = partial(self.fuse.shown_by, sample, members)
            yield _Ranked(rest, values, rounding[:, None].nan_to_num(nan=0.0), shown)

    def _of_family(self, family: Family, mmd2: Tensor, error: Tensor) -> Iterator[_Ranked]:
        """log Σ_k w_k·exp(z_k), from the kernels' MMD² (R, k, P) and rounding error (R, k)."""
        spread = mmd2.std(dim=-1, keepdim=True).clamp(min=TINY)
        scores = mmd2 / spread
        values = (scores if family.weights is None else scores + family.weights.log()[..., None]).logsumexp(dim=1)
        values = values.where(values.isfinite().all(dim=-1, keepdim=True), 0.0)  # overflow makes labellings equal
        tolerance = (error / spread[..., 0]).amax(dim=1, keepdim=True).nan_to_num(nan=0.0)
        yield _Ranked(family.share * len(family.names), values, tolerance, partial(_mixture, family, mmd2, slice(None)))

    def _combined(self, evidence: list[Tensor]) -> Tensor:
        """The evidence of all statistics together."""
        return torch.stack(evidence).sum(dim=0)

    def _usually_added(self, total: Tensor, evidence: Tensor) -> float:
        """The median evidence of the other statistics where that of this one is largest: (P,), (P,) → a number."""
        return float((total - evidence)[evidence >= evidence.quantile(1 - LARGEST)].median())

    def shown_by(self, sample: TwoSample, members: Tensor, alpha: float) -> Representative:
        """The test that represents the statistic with the most evidence, and its critical value given the others.

        The others are assumed to add their median evidence where this one is large, not the evidence observed here:
        the statistic with the most evidence was selected for it, and a new study cannot count on the others.
        """
        ranked = list(self._ranked(sample.pooled, members, sample.sizes[0]))
        evidence = [single.weight / _own_p_values(single)[0][0] for single in ranked]
        total, best = self._combined(evidence), int(torch.stack(evidence)[:, 0].argmax())
        needed = float(total.quantile(1 - alpha)) - self._usually_added(total, evidence[best])
        weight = ranked[best].weight
        return ranked[best].shown(weight / max(needed, 2 * weight))


class AggregateTest(RankFuseTest):
    """MMDAgg: the largest w_k/p_k over the kernels, p_k the kernel's own p-value under the labelling.

    This rejects if any p_k is at most u·w_k, for the largest u that keeps the level over the labellings. The authors
    find u by bisection from a second set of labellings. Here one set serves both purposes, and its ranks give an exact
    p-value. Equal ranks are told apart by the sum of all w_k/p_k.
    """

    def _of_family(self, family: Family, mmd2: Tensor, error: Tensor) -> Iterator[_Ranked]:
        """Every kernel's own MMD²."""
        for kernel in range(len(family.names)):
            shown = partial(_mixture, family, mmd2, slice(kernel, kernel + 1))
            yield _Ranked(family.share, mmd2[:, kernel].contiguous(), error[:, kernel, None], shown)

    def _combined(self, evidence: list[Tensor]) -> Tensor:
        """The largest evidence."""
        every = torch.stack(evidence)
        return every.amax(dim=0) + TIE_BREAK * every.sum(dim=0)

    def _usually_added(self, total: Tensor, evidence: Tensor) -> float:
        """Nothing: only the largest counts."""
        return 0.0


def _mixture(family: Family, mmd2: Tensor, which: slice, level: float) -> Representative:
    """The mixture of some of a family's kernels, from their MMD² (1, k, P), and its critical value at this level."""
    mask = torch.zeros(len(family.names), dtype=torch.bool)
    mask[which] = True
    kernels = Family(family.kernel.some(mask), family.names[which], family.share)
    spread = mmd2[0, which].std(dim=-1).clamp(min=TINY)
    values = mmd2[0, which] / spread[:, None]
    values = values if family.weights is None else values + family.weights[0, which, None].log()
    return _mixture_of([_Scores(kernels, values, spread, mmd2[0, which, 0])], level)


def _own_p_values(ranked: _Ranked) -> tuple[Tensor, Tensor]:
    """The share of labellings whose value reaches that of each: (R, P); without each group of them: (R, G, P).

    Row 0, the observed labelling, is in no group.
    """
    groups, size = _groups(ranked.values.shape[-1])
    ordered, order = ranked.values.sort(dim=-1)
    below = torch.searchsorted(ordered, ranked.values - ranked.tolerance)  # labellings clearly below each
    group = (order - 1).div(size, rounding_mode="floor")
    of_group = group[:, None] == torch.arange(groups, device=group.device)[:, None]  # R x G x P, in order of size
    smaller = functional.pad(of_group.cumsum(dim=-1, dtype=torch.int32), (1, 0))
    outside = below[:, None] - smaller.take_along_dim(below[:, None], dim=-1)
    count = ordered.shape[-1]
    return 1 - below.double() / count, 1 - outside.double() / (count - size)


def _jackknife_error(evidence: Tensor) -> Tensor:
    """√((G−1)/G·Σ_g(p_g − p̄)²), p_g the p-value without the labellings of group g: (R, G, P) → (R,)."""
    labellings = evidence.shape[-1]
    groups, size = _groups(labellings)
    group = (torch.arange(labellings, device=evidence.device) - 1).div(size, rounding_mode="floor")
    outside = group != torch.arange(groups, device=evidence.device)[:, None]  # G x P
    reached = ~(evidence < evidence[..., :1] - RANK_ROUNDING) & outside
    p_values = reached.sum(dim=-1, dtype=torch.float64) / (labellings - size)
    return ((groups - 1) / groups**0.5 * p_values.std(dim=-1)).nan_to_num(nan=0.0)


def _groups(labellings: int) -> tuple[int, int]:
    """The number of groups of drawn labellings, and the size of each."""
    groups = min(GROUPS, labellings - 1)
    return groups, (labellings - 1) // max(groups, 1)
