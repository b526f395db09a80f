"""What a finished test looked at, as one function of a row: large where its test saw more of x than of y.

Tests with a kernel have the kernel's witness function. Tests that fuse many kernels are represented by the mixture in
which each has the weight that it had in the fused statistic. Witnesses and classifiers speak for themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from m2st_core.criterion import mmd2_unbiased, witness, witness_of_rows
from m2st_core.kernels.base import Kernel, MixtureKernel
from m2st_core.kernels.gaussian import GaussianKernel, LaplaceKernel
from m2st_core.learners.bank import KernelBank
from m2st_core.learners.classifier import RowClassifier
from m2st_core.learners.meta_witness import Witness
from m2st_core.learners.target_kernels import fit_median
from m2st_core.permutation.blocks import memberships_within
from m2st_core.permutation.statistics import (
    fuse_scale,
    mean_square,
    permuted_mean_difference,
    permuted_mmd2,
    random_memberships,
)
from m2st_core.presets import PRESETS
from m2st_core.rng import Streams
from m2st_core.testing.examined import Examined
from m2st_core.testing.methods import METHODS
from m2st_core.testing.statistics import family_p_values, fuse_by_rank
from m2st_core.types import TwoSample

ROWS = 500  # of each sample; more would not change what is seen
PERMUTATIONS = 499
HEAVIEST = 6  # kernels of a bank that represent it


@dataclass(frozen=True)
class Seen:
    """A kernel, or scores of single rows, with the rows it was asked about: x (1, n, d), y (1, m, d).

    ``threshold`` is what the statistic must reach at these sizes, ``null`` its values under random labellings; both are
    MMD² for a kernel and a difference of mean scores otherwise. ``rows`` are the positions in the samples as given.
    """

    kernel: Kernel | None
    scorer: Any
    sample: TwoSample
    rows: tuple[np.ndarray, np.ndarray]
    threshold: float
    null: np.ndarray
    two_sided: bool
    how: str

    @torch.no_grad()
    def statistic(self, pooled: Tensor, n: int) -> Tensor:
        """MMD²_u, or the difference of mean scores, of pooled rows (S, N, d), the first n of which are x's → (S,)."""
        if self.kernel is not None:
            rows = self.kernel.embed(pooled)
            gram = self.kernel.gram(rows, rows)
            gram = gram.reshape(-1, *gram.shape[-2:])
            return mmd2_unbiased(gram[..., :n, :n], gram[..., n:, n:], gram[..., :n, n:])
        scores = self.scorer(pooled)
        difference = scores[..., :n].mean(dim=-1) - scores[..., n:].mean(dim=-1)
        return difference.abs() if self.two_sided else difference

    @property
    def by_column(self) -> bool:
        """Whether the kernel is a mixture of products over columns, k(x, y) = Π_c k_c(x_c, y_c)."""
        parts = self.kernel.families if isinstance(self.kernel, MixtureKernel) else [self.kernel]
        return all(isinstance(part, GaussianKernel | LaplaceKernel) for part in parts)

    @torch.no_grad()
    def witness(self, at: Tensor) -> np.ndarray:
        """Where the test sees more of x (positive) than of y, at places (g, d) → (g,)."""
        x, y = self.sample
        if self.kernel is None:
            scores = [self.scorer(rows)[0] for rows in (at[None], x, y)]
            return (scores[0] - (scores[1].mean() + scores[2].mean()) / 2).cpu().numpy()
        return witness(self.kernel, x, y, at[None].to(x)).flatten().cpu().numpy()

    @torch.no_grad()
    def at_rows(self) -> tuple[np.ndarray, np.ndarray]:
        """The witness at the sample's own rows, each left out of its own: (n,), (m,)."""
        n, m = self.sample.sizes
        if self.kernel is None:
            scores = self.witness(self.sample.pooled[0])
            return scores[:n], scores[n:]
        rows = self.kernel.embed(self.sample.pooled)
        values = witness_of_rows(self.kernel.gram(rows, rows).reshape(n + m, n + m).double(), n)
        return values[:n].cpu().numpy(), values[n:].cpu().numpy()


@torch.no_grad()
def what_was_seen(examined: Examined) -> Seen:
    """The kernel or score behind a test, on at most 500 of its test rows of each sample."""
    result, streams = examined.result, Streams(examined.result.seed).child("what was seen")
    kept = [
        np.sort(streams.numpy(f"rows of {side}").permutation(len(rows))[:ROWS])
        for side, rows in zip("xy", examined.rows, strict=True)
    ]
    x, y = (part[:, torch.from_numpy(rows)] for part, rows in zip(examined.test, kept, strict=True))
    sample = TwoSample(x, y, examined.test.shape)
    n, m = sample.sizes
    generator = [streams.numpy("permutations")]
    if examined.codes is None:
        members = random_memberships(n, m, PERMUTATIONS, generator)
    else:
        codes = np.concatenate([part[rows] for part, rows in zip(examined.codes, kept, strict=True)])
        members = memberships_within(torch.from_numpy(codes)[None], n, PERMUTATIONS, generator)
    members = members.to(sample.x.device)
    learned, how = examined.learned, f"what {result.method} compared"
    if METHODS[result.method].asymptotic is not None:
        learned = fit_median(sample.pooled, PRESETS["recommended"], [streams])
        how = f"the kernel of MMD-M, since {result.method} has none that can be shown"
    kernel: Kernel | None = None
    scorer: Callable[[Tensor], Tensor] | None = None
    threshold: float | None = None
    two_sided = True
    if isinstance(learned, KernelBank):
        kernel, threshold = _mixture(learned, sample, members, result.alpha, METHODS[result.method].statistics)
        how = f"the kernels of {result.method}, each with its weight in the fused statistic"
    elif isinstance(learned, Kernel):
        kernel = learned
    else:
        sign = -1.0 if examined.swapped else 1.0
        two_sided = not isinstance(learned, Witness)
        probability = isinstance(learned, RowClassifier)
        scorer = lambda rows: sign * (learned(rows).sigmoid() if probability else learned(rows))  # noqa: E731
    if kernel is not None:
        null = permuted_mmd2(kernel, sample.pooled, members, n)[0].reshape(-1)[1:].cpu().numpy()
    else:
        assert scorer is not None
        null = permuted_mean_difference(scorer(sample.pooled), members, n, two_sided)[0][0, 1:].cpu().numpy()
    if threshold is None:
        threshold = float(np.quantile(null, 1 - result.alpha))
    rows = examined.rows[0][kept[0]], examined.rows[1][kept[1]]
    return Seen(kernel, scorer, sample, rows, threshold, null, two_sided, how)


def _mixture(
    bank: KernelBank, sample: TwoSample, members: Tensor, alpha: float, statistics: Any
) -> tuple[Kernel, float]:
    """The mixture that stands for a fused statistic near the observed one, and what its MMD² must reach.

    log Σ exp(s_k) is close to Σ w_k s_k plus a constant, w the softmax of the scores s; a score is MMD² in units of its
    kernel's spread. So the mixture has the weights w_k/spread_k, and the threshold moves with the constant.
    """
    n, m = sample.sizes
    pooled = sample.pooled
    by_rank = statistics is fuse_by_rank
    found, scores, spreads, p_values, families = [], [], [], [], bank.families
    for family in families:
        both = permuted_mmd2(family.kernel, pooled[:, None], members[:, None], n)
        mmd2 = both[0][0]  # k x P
        p_values.append(family_p_values(*both)[0])
        if by_rank:
            spread = mmd2.std(dim=-1)
            prior = 0.0
        else:
            count = min(n, m)
            spread = mean_square(family.kernel, pooled[:, None], count)[0].sqrt() / fuse_scale(count)
            prior = float(np.log(family.share))
        spreads.append(spread.clamp(min=torch.finfo(torch.float32).tiny))
        scores.append(mmd2 / spreads[-1][:, None] + prior)
        found.append(mmd2[:, 0])
    level = alpha
    if by_rank:  # the family that speaks, and the level it needs, the others being as they are
        shares = torch.tensor([family.share * len(family.names) for family in families])
        evidence = shares[:, None].to(p_values[0]) / torch.stack(p_values)  # families x P
        best = int(evidence[:, 0].argmax())
        others = float(evidence[:, 0].sum() - evidence[best, 0])
        needed = float(evidence.sum(dim=0).quantile(1 - alpha)) - others
        level = float(shares[best]) / max(needed, 2 * float(shares[best]))
        families, found, scores, spreads = (families[best],), [found[best]], [scores[best]], [spreads[best]]
    score, spread = torch.cat(scores), torch.cat(spreads)
    total = score.logsumexp(dim=0)
    weights = score[:, 0].softmax(dim=0)
    weights = weights.where(weights >= weights.topk(min(HEAVIEST, len(weights))).values[-1], 0.0)
    parts = weights / weights.sum() / spread
    constant = float(total[0] - (parts * torch.cat(found)).sum())
    threshold = (float(total[1:].quantile(1 - level)) - constant) / float(parts.sum())
    mixed = MixtureKernel([f.kernel for f in families], [len(f.names) for f in families], (parts / parts.sum())[None])
    return mixed, threshold
