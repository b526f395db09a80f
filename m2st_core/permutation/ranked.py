"""Tests that combine statistics by their ranks over all labellings: MMDAgg, Omnibus, Meta-Witness and Meta-FUSE."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from m2st_core.kernels.mixtures import Family, KernelBank, summands
from m2st_core.permutation.families import Found, permuted_families
from m2st_core.permutation.fitted import PermutationTest, Permuted, ShownTest
from m2st_core.permutation.fused import TINY, FuseTest, Scores, mixture_of
from m2st_core.permutation.statistics import permuted_mmd2
from m2st_core.types import Progress, TwoSample

RANK_ROUNDING = 1e-9
LARGEST = 0.1  # share of the labellings, those in which a statistic is largest, that show what others add beside it
GROUPS = 25  # of labellings, each left out once, for the standard error of a p-value that is not binomial
TIE_BREAK = 1e-6


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

    bank: KernelBank
    fuse: FuseTest | None = None

    @torch.no_grad()
    def statistics(self, pooled: Tensor, members: Tensor, n: int, progress: Progress | None = None) -> Permuted:
        """The evidence under every labelling."""
        evidence, left_out = [], []
        own, of_fuse = self._permuted(pooled, members, n, progress)
        for family, (mmd2, error) in zip(self.bank.families, own, strict=True):
            for weight, scores, tolerance, _ in self._scores(family, mmd2, error):
                evidence.append(weight / _share_reaching(scores, tolerance))
                left_out.append(weight / _share_without_groups(scores, tolerance))
        if self.fuse is not None:
            scores, tolerance = _finite(self.fuse.combined(of_fuse, n, pooled.shape[-2] - n))
            evidence.append(self._rest / _share_reaching(scores, tolerance))
            left_out.append(self._rest / _share_without_groups(scores, tolerance))
        total = self._combined(evidence)
        rounding = torch.full_like(total[..., 0], RANK_ROUNDING)
        return Permuted(total, rounding, _jackknife_error(self._combined(left_out)))

    def _permuted(
        self, pooled: Tensor, members: Tensor, n: int, progress: Progress | None = None
    ) -> tuple[list[tuple[Tensor, Tensor]], list[Found]]:
        """MMD² of each family under every labelling, (R, k, P), and rounding error (R, k); then those of ``fuse``."""
        fused = self.fuse.bank.families if self.fuse is not None else ()
        single = [len(summands(f.kernel)) == 1 and not f.kernel.inner_product for f in self.bank.families]
        through_gram = [family for family, alone in zip(self.bank.families, single, strict=True) if alone]
        found = iter(permuted_families((*through_gram, *fused), pooled, members, n, progress))
        own = [
            next(found)[:2]
            if alone
            else permuted_mmd2(family.kernel, pooled[:, None], members[:, None], n, progress=progress)
            for family, alone in zip(self.bank.families, single, strict=True)
        ]
        return own, list(found)

    @property
    def _rest(self) -> float:
        """The weight that the families leave."""
        return 1 - sum(family.share * len(family.names) for family in self.bank.families)

    def _scores(self, family: Family, mmd2: Tensor, error: Tensor) -> Iterator[tuple[float, Tensor, Tensor, slice]]:
        """Each statistic that is ranked, from MMD² (R, k, P): its weight, values (R, P), tolerance (R, 1), kernels."""
        yield family.share * len(family.names), *_fused(mmd2, error, family.weights), slice(None)

    def _combined(self, evidence: list[Tensor]) -> Tensor:
        """The evidence of all families together."""
        return torch.stack(evidence).sum(dim=0)

    def _usually_added(self, total: Tensor, own: Tensor) -> float:
        """The median of what the other statistics add where this one is largest: (P,), (P,) → a number."""
        return float((total - own)[own >= own.quantile(1 - LARGEST)].median())

    def shown_by(self, sample: TwoSample, members: Tensor, alpha: float) -> tuple[ShownTest, float | None]:
        """The mixture of the family with the most evidence, and the critical value it needs beside the others.

        The others are taken to add what they usually add where this one is large, not what they happened to add here:
        of several statistics, the one with the most evidence was lucky, and a new study cannot count on the others.
        """
        shown: list[Callable[[float], tuple[ShownTest, float | None]]] = []  # of each statistic, at a level
        evidence, shares = [], []
        found, of_fuse = self._permuted(sample.pooled, members, sample.sizes[0])
        for family, (mmd2, error) in zip(self.bank.families, found, strict=True):
            for weight, scores, tolerance, which in self._scores(family, mmd2, error):
                own, chosen = mmd2[0, which], torch.zeros(len(family.names), dtype=torch.bool)
                chosen[which] = True
                part = Family(family.kernel.some(chosen), family.names[which], family.share)
                spread = own.std(dim=-1).clamp(min=TINY)
                values = own / spread[:, None]
                values = values if family.weights is None else values + family.weights[0, which, None].log()
                shown.append(partial(mixture_of, [Scores(part, values, spread, own[:, 0])]))
                evidence.append(weight / _share_reaching(scores, tolerance)[0])
                shares.append(weight)
        if self.fuse is not None:
            scores, tolerance = _finite(self.fuse.combined(of_fuse, *sample.sizes))
            shown.append(partial(self.fuse.shown_by, sample, members))
            evidence.append(self._rest / _share_reaching(scores, tolerance)[0])
            shares.append(self._rest)
        total, best = self._combined(evidence), int(torch.stack(evidence)[:, 0].argmax())
        needed = float(total.quantile(1 - alpha)) - self._usually_added(total, evidence[best])
        return shown[best](shares[best] / max(needed, 2 * shares[best]))


class AggregateTest(RankFuseTest):
    """MMDAgg: the largest w_k/p_k over the kernels, p_k the kernel's own p-value under the labelling.

    This rejects if any p_k is at most u·w_k, for the largest u that keeps the level over the labellings. The authors
    find u by bisection from a second set of labellings. Here one set serves both purposes, and its ranks give an exact
    p-value. Equal ranks are told apart by the sum of all w_k/p_k.
    """

    def _scores(self, family: Family, mmd2: Tensor, error: Tensor) -> Iterator[tuple[float, Tensor, Tensor, slice]]:
        """Every kernel's own MMD²."""
        for kernel in range(len(family.names)):
            yield family.share, mmd2[:, kernel].contiguous(), error[:, kernel, None], slice(kernel, kernel + 1)

    def _combined(self, evidence: list[Tensor]) -> Tensor:
        """The largest evidence."""
        every = torch.stack(evidence)
        return every.amax(dim=0) + TIE_BREAK * every.sum(dim=0)

    def _usually_added(self, total: Tensor, own: Tensor) -> float:
        """Nothing: only the largest counts."""
        return 0.0


def _fused(mmd2: Tensor, error: Tensor, weights: Tensor | None) -> tuple[Tensor, Tensor]:
    """log Σ_k w_k·exp(z_k) under each labelling, (R, P), and the rounding error within which two are equal, (R, 1).

    Where numbers overflowed, all labellings are equal.
    """
    spread = mmd2.std(dim=-1, keepdim=True).clamp(min=TINY)
    scores = mmd2 / spread
    fused = (scores if weights is None else scores + weights.log()[..., None]).logsumexp(dim=1)
    fused = fused.where(fused.isfinite().all(dim=-1, keepdim=True), 0.0)
    return fused, (error / spread[..., 0]).amax(dim=1, keepdim=True).nan_to_num(nan=0.0)


def _finite(permuted: Permuted) -> tuple[Tensor, Tensor]:
    """Values (R, P) and rounding (R, 1). Where numbers overflowed, all labellings are equal."""
    values = permuted.values.where(permuted.values.isfinite().all(dim=-1, keepdim=True), 0.0)
    return values, permuted.rounding[:, None].nan_to_num(nan=0.0)


def _share_reaching(fused: Tensor, tolerance: Tensor) -> Tensor:
    """The share of all labellings whose value reaches that of each: (R, P), (R, 1) → (R, P)."""
    return 1 - _below(fused, tolerance).double() / fused.shape[-1]


def _below(fused: Tensor, tolerance: Tensor) -> Tensor:
    """How many labellings lie clearly below each: (R, P), (R, 1) → (R, P)."""
    return torch.searchsorted(fused.sort(dim=-1).values, fused - tolerance)


def _share_without_groups(fused: Tensor, tolerance: Tensor) -> Tensor:
    """The same with each group of drawn labellings left out: (R, P), (R, 1) → (R, G, P). Row 0, observed, stays."""
    groups, size = _groups(fused.shape[-1])
    ordered, order = fused.sort(dim=-1)
    below = torch.searchsorted(ordered, fused - tolerance)
    group = (order - 1).div(size, rounding_mode="floor")
    of_group = group[:, None] == torch.arange(groups, device=fused.device)[:, None]  # R x G x P, in order of size
    smaller = functional.pad(of_group.cumsum(dim=-1, dtype=torch.int32), (1, 0))
    below = below[:, None] - smaller.take_along_dim(below[:, None], dim=-1)
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
