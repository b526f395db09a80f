"""What each exact test permutes: (what was learned, pooled rows, memberships, n) → statistics and their rounding."""

from __future__ import annotations

import torch
from torch import Tensor

from m2st_core.kernels import Kernel
from m2st_core.learners import KernelBank, RowClassifier
from m2st_core.learners.meta_witness import Witness
from m2st_core.testing.permutation import permuted_fuse, permuted_mean_difference, permuted_mmd2
from m2st_core.types import Progress

TIE_BREAK = 1e-8


def mmd2(kernel: Kernel, pooled: Tensor, members: Tensor, n: int, progress: Progress | None) -> tuple[Tensor, Tensor]:
    """MMD²_u of a kernel."""
    return permuted_mmd2(kernel, pooled, members, n, progress=progress)


def fuse(bank: KernelBank, pooled: Tensor, members: Tensor, n: int, progress: Progress | None) -> tuple[Tensor, Tensor]:
    """MMD-FUSE of a bank of kernels."""
    families = [(family.kernel, family.share) for family in bank.families]
    return permuted_fuse(families, pooled, members, n, progress)


def fuse_by_rank(
    bank: KernelBank, pooled: Tensor, members: Tensor, n: int, progress: Progress | None
) -> tuple[Tensor, Tensor]:
    """The larger of two FUSE statistics, of the first family and of all others, each by its rank among the labellings.

    Kernels of few learned directions have a null distribution with a longer tail than generic ones; in one sum their
    noise would drown the others. By rank, neither side costs the other more than half of the level. Their mean rank
    breaks ties. Ranks treat all labellings alike, so the permutation test stays exact.
    """
    ranks = []
    for part in (bank.families[:1], bank.families[1:]):
        families = [(family.kernel, family.share) for family in part]
        statistics, rounding = permuted_fuse(families, pooled, members, n, progress)
        rounded = (statistics / rounding[..., None].clamp(min=torch.finfo(torch.float64).tiny)).round()
        ordered = rounded.sort(dim=-1).values
        ranks.append(torch.searchsorted(ordered, rounded, right=True).to(statistics))
    larger, mean = torch.maximum(*ranks), 0.5 * (ranks[0] + ranks[1])
    count = members.shape[-2]
    return larger + mean / (2 * count), torch.full_like(larger[..., 0], 1e-9)


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
    """Difference of the mean witness, one-sided: the training rows have told its sign."""
    return permuted_mean_difference(witness(pooled), members, n, two_sided=False)
