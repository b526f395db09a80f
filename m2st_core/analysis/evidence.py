"""The witness of a finished test: a function of a row that shows what the test compared.

A test with a kernel has the kernel's witness function, a classifier its score. A test that fuses many kernels is
represented by the mixture in which each has its weight in the fused statistic.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from m2st_core.kernels.base import Kernel
from m2st_core.learners.target_kernels import fit_median
from m2st_core.permutation.fitted import KernelTest, PermutationTest, ScoreTest, ShownTest
from m2st_core.permutation.labellings import memberships_within, random_memberships
from m2st_core.presets import TUNED
from m2st_core.rng import Streams
from m2st_core.testing.run import FinishedTest
from m2st_core.types import TwoSample

ROWS = 500  # of each sample; more would not change what is shown
PERMUTATIONS = 499


@dataclass(frozen=True)
class Evidence:
    """A finished test with a witness, and the rows on which it is evaluated: x (1, n, d), y (1, m, d).

    ``threshold`` is what the comparison must reach at these sizes, ``null`` its values under random labellings; both
    are MMD² for a kernel and a difference of mean scores otherwise. ``rows`` are positions in the samples as given.
    ``swapped``: the test's first sample is y.
    """

    test: ShownTest = field(repr=False)
    sample: TwoSample
    rows: tuple[np.ndarray, np.ndarray] = field(repr=False)
    threshold: float
    null: np.ndarray = field(repr=False)
    swapped: bool
    how: str

    @property
    def kernel(self) -> Kernel | None:
        """The kernel, if the test has one."""
        return self.test.kernel if isinstance(self.test, KernelTest) else None

    @property
    def by_column(self) -> bool:
        """Whether the kernel is a mixture of products over columns."""
        return isinstance(self.test, KernelTest) and self.test.by_column

    @torch.no_grad()
    def score_variances(self) -> tuple[float, float]:
        """The variance of the scores of x's and of y's rows, for tests of scores."""
        if not isinstance(self.test, ScoreTest):
            raise TypeError("This test has no scores.")
        x, y = (self.test.score(rows)[0].double().var().item() for rows in self.sample)
        return x, y

    def statistic(self, pooled: Tensor, n: int) -> Tensor:
        """MMD²_u, or the difference of mean scores, of pooled rows (S, N, d) whose first n are x's: (S,)."""
        difference = self.test.difference(pooled, n)
        return -difference if self._turned and not self.test.two_sided else difference

    def witness(self, at: Tensor) -> np.ndarray:
        """Positive where the test sees more of x, negative where more of y, at places (g, d): (g,)."""
        values = self.test.witness(self.sample, at)
        return -values if self._turned else values

    def at_rows(self) -> tuple[np.ndarray, np.ndarray]:
        """The witness at the sample's own rows, each left out of its own value: (n,), (m,)."""
        values = self.test.witness_at_rows(self.sample)
        values = -values if self._turned else values
        return values[: self.sample.sizes[0]], values[self.sample.sizes[0] :]

    @property
    def _turned(self) -> bool:
        """Whether the score is large for y. A kernel's witness is always that of the samples as named."""
        return self.swapped and isinstance(self.test, ScoreTest)


@torch.no_grad()
def evidence_of(examined: FinishedTest) -> Evidence:
    """The witness of a finished test, on at most 500 of its test rows of each sample."""
    result, streams = examined.result, Streams(examined.result.seed).child("what was seen")
    kept = [
        np.sort(streams.numpy(f"rows of {side}").permutation(len(rows))[:ROWS])
        for side, rows in zip("xy", examined.rows, strict=True)
    ]
    x, y = (part[:, torch.from_numpy(rows)] for part, rows in zip(examined.test, kept, strict=True))
    blocks = examined.test.blocks
    sample = replace(examined.test, x=x, y=y, blocks=blocks and (blocks[0][:, kept[0]], blocks[1][:, kept[1]]))
    n, m = sample.sizes
    generator = [streams.numpy("permutations")]
    if sample.blocks is None:
        members = random_memberships(n, m, PERMUTATIONS, generator)
    else:
        members = memberships_within(torch.cat(sample.blocks, dim=-1), n, PERMUTATIONS, generator)
    members = members.to(sample.x.device)
    test: ShownTest
    if isinstance(examined.fitted, PermutationTest):
        test, threshold = examined.fitted.shown_by(sample, members, result.alpha)
        how = f"what {result.method} compared"
        if test is not examined.fitted:
            how = f"the kernels of {result.method}, each with its weight in the fused statistic"
    else:
        test, threshold = fit_median(sample.pooled, TUNED, [streams]), None
        how = f"the kernel of MMD-M, since {result.method} has none that can be shown"
    null = test.null(sample, members)
    if examined.swapped and isinstance(test, ScoreTest) and not test.two_sided:
        null = -null
    if threshold is None:
        threshold = float(np.quantile(null, 1 - result.alpha))
    rows = examined.rows[0][kept[0]], examined.rows[1][kept[1]]
    return Evidence(test, sample, rows, threshold, null, examined.swapped, how)
