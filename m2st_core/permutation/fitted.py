"""Fitted tests: what was learned is fixed, and only the labels of the test rows still change.

Every fit returns one of them. A fitted test serves R runs at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from m2st_core.criterion import h_matrix, mmd2_unbiased, power_criterion, witness, witness_of_rows
from m2st_core.kernels.base import Kernel
from m2st_core.kernels.distance import GaussianKernel, LaplaceKernel
from m2st_core.kernels.mixtures import MixtureKernel
from m2st_core.kernels.networks import FeatureNetwork
from m2st_core.permutation.engine import permuted_mean_difference, permuted_mmd2
from m2st_core.rng import Streams
from m2st_core.types import Progress, TwoSample

CRITERION_ROWS = 500
Reference = Literal["chi2", "F"]
TIE_BREAK = 1e-8


Permuted = tuple[Tensor, Tensor, Tensor | None]
"""A statistic under every labelling, (R, 1+B); the rounding error within which two values are equal, (R,); and the
Monte-Carlo standard error of the p-value, (R,), where it is not the binomial one."""


@dataclass(frozen=True)
class FittedTest:
    """R tests that are ready to be decided.

    ``weights`` are β of a mixture by kernel, ``diagnostics`` further results of the fit; one dict per run, or one for
    all runs.
    """

    weights: list[dict[str, float]] = field(default_factory=lambda: [{}], kw_only=True)
    diagnostics: list[dict[str, Any]] = field(default_factory=lambda: [{}], kw_only=True)

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on the networks in use, each once."""
        fields = [value for value in vars(self).values() if isinstance(value, nn.Module)]
        networks = [module for field in fields for module in field.modules() if isinstance(module, FeatureNetwork)]
        return tuple(dict.fromkeys(note for network in networks for note in network.notes))

    def criterion(self, test: TwoSample) -> list[float | None]:
        """Ĵ on the test rows of each run, where there is a kernel."""
        return [None] * test.x.shape[0]


class AsymptoticTest(FittedTest, ABC):
    """A test that refers its statistic to a known distribution."""

    @abstractmethod
    def p_values(
        self, sample: TwoSample, n_quantiles: int, streams: Sequence[Streams]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Statistics (R,), p-values (R,) and quantiles of the reference (R, n_quantiles), for paired test rows."""


def refer(
    statistics: np.ndarray, degrees: np.ndarray, n: int, reference: Reference, n_quantiles: int
) -> tuple[np.ndarray, np.ndarray]:
    """p-values (R,) of statistics n·WᵀΣ⁻¹W with J degrees of freedom, (R,) each, and quantiles of the reference (R, ·).

    "chi2" is the limit χ²_J. "F" is Hotelling's J(n−1)/(n−J)·F(J, n−J), which has the same limit and is right for
    Gaussian features at every n: it accounts for the estimate of Σ.
    """
    from scipy import stats  # slow to import

    degrees = degrees[:, None]
    distribution, scale = stats.chi2(degrees), np.ones(degrees.shape)
    if reference == "F":
        distribution, scale = stats.f(degrees, n - degrees), degrees * (n - 1) / (n - degrees)
    levels = (np.arange(n_quantiles) + 0.5) / n_quantiles
    return distribution.sf(statistics[:, None] / scale)[:, 0], scale * distribution.ppf(levels)


class PermutationTest(FittedTest, ABC):
    """A test that compares its statistic with those of other labellings."""

    @abstractmethod
    def statistics(self, pooled: Tensor, members: Tensor, n: int, progress: Progress | None = None) -> Permuted:
        """The statistic of pooled rows (R, N, d) under the labellings (R, 1+B, N), the observed one first."""

    @abstractmethod
    def shown_by(self, sample: TwoSample, members: Tensor, alpha: float) -> Representative:
        """The test with a witness that represents this one."""


class ShownTest(PermutationTest):
    """A test with a witness function: positive where the test sees more of x than of y."""

    two_sided = True

    def shown_by(self, sample: TwoSample, members: Tensor, alpha: float) -> Representative:
        """Return the test itself."""
        return self, None

    @abstractmethod
    def null(self, sample: TwoSample, members: Tensor) -> np.ndarray:
        """The comparison of ``difference`` under the labellings after the first, for one run: (B,)."""

    @abstractmethod
    def difference(self, pooled: Tensor, n: int) -> Tensor:
        """MMD²_u, or the difference of mean scores, of pooled rows (S, N, d) whose first n are x's: (S,)."""

    @abstractmethod
    def witness(self, sample: TwoSample, at: Tensor) -> np.ndarray:
        """The witness of one run's samples at points (g, d): (g,)."""

    @abstractmethod
    def witness_at_rows(self, sample: TwoSample) -> np.ndarray:
        """The witness at the pooled rows of one run, at each row without its own term: (N,)."""


Representative = tuple[ShownTest, float | None]
"""A test with a witness function, and its critical value if that is not its own quantile."""


@dataclass(frozen=True)
class KernelTest(ShownTest):
    """MMD²_u of a kernel of batch shape (R,)."""

    kernel: Kernel

    def statistics(self, pooled: Tensor, members: Tensor, n: int, progress: Progress | None = None) -> Permuted:
        """MMD²_u under every labelling."""
        return *permuted_mmd2(self.kernel, pooled, members, n, progress=progress), None

    @torch.no_grad()
    def criterion(self, test: TwoSample) -> list[float | None]:
        """Ĵ on at most 500 test rows of each sample."""
        count = min(*test.sizes, CRITERION_ROWS)
        h = h_matrix(self.kernel, test.x[:, :count], test.y[:, :count])
        return [float(value) for value in power_criterion(h, regularisation=1e-8)]

    @property
    def by_column(self) -> bool:
        """Whether the kernel is a mixture of products over columns, k(x, y) = Π_c k_c(x_c, y_c)."""
        kernels = self.kernel.families if isinstance(self.kernel, MixtureKernel) else [self.kernel]
        return all(isinstance(kernel, GaussianKernel | LaplaceKernel) for kernel in kernels)

    def null(self, sample: TwoSample, members: Tensor) -> np.ndarray:
        """MMD²_u under the labellings after the first."""
        values, _ = permuted_mmd2(self.kernel, sample.pooled, members, sample.sizes[0])
        return values.reshape(-1)[1:].cpu().numpy()

    @torch.no_grad()
    def difference(self, pooled: Tensor, n: int) -> Tensor:
        """MMD²_u of each set of pooled rows."""
        rows = self.kernel.embed(pooled)
        gram = self.kernel.gram(rows, rows)
        gram = gram.reshape(-1, *gram.shape[-2:])
        return mmd2_unbiased(gram[..., :n, :n], gram[..., n:, n:], gram[..., :n, n:])

    @torch.no_grad()
    def witness(self, sample: TwoSample, at: Tensor) -> np.ndarray:
        """Mean k(·, x) − mean k(·, y)."""
        return witness(self.kernel, sample.x, sample.y, at[None].to(sample.x)).flatten().cpu().numpy()

    @torch.no_grad()
    def witness_at_rows(self, sample: TwoSample) -> np.ndarray:
        """The witness at the pooled rows, without the row's own term."""
        n, m = sample.sizes
        rows = self.kernel.embed(sample.pooled)
        gram = self.kernel.gram(rows, rows).reshape(n + m, n + m).double()
        return witness_of_rows(gram, n).cpu().numpy()


class ScoreTest(ShownTest):
    """A test that compares the mean score of single rows."""

    @abstractmethod
    def score(self, rows: Tensor) -> Tensor:
        """The score of each row: (R, n, d) → (R, n)."""

    def null(self, sample: TwoSample, members: Tensor) -> np.ndarray:
        """The difference of mean scores under the labellings after the first."""
        scores = self.score(sample.pooled)
        return permuted_mean_difference(scores, members, sample.sizes[0], self.two_sided)[0][0, 1:].cpu().numpy()

    @torch.no_grad()
    def difference(self, pooled: Tensor, n: int) -> Tensor:
        """The difference of mean scores."""
        scores = self.score(pooled)
        difference = scores[..., :n].mean(dim=-1) - scores[..., n:].mean(dim=-1)
        return difference.abs() if self.two_sided else difference

    @torch.no_grad()
    def witness(self, sample: TwoSample, at: Tensor) -> np.ndarray:
        """The score, measured from the middle between the samples' means."""
        score, of_x, of_y = (self.score(rows)[0] for rows in (at[None], *sample))
        return (score - (of_x.mean() + of_y.mean()) / 2).cpu().numpy()

    def witness_at_rows(self, sample: TwoSample) -> np.ndarray:
        """The witness at the pooled rows."""
        return self.witness(sample, sample.pooled[0])


@dataclass(frozen=True)
class ProbabilityTest(ScoreTest):
    """C2ST-L: |difference of the mean probability p|, the MMD of k(x, y) = p(x)·p(y), for a logit of "from P"."""

    logit: Callable[[Tensor], Tensor]

    def score(self, rows: Tensor) -> Tensor:
        """p of each row."""
        return self.logit(rows).sigmoid()

    @torch.no_grad()
    def statistics(self, pooled: Tensor, members: Tensor, n: int, progress: Progress | None = None) -> Permuted:
        """The difference of mean probabilities under every labelling."""
        return *permuted_mean_difference(self.score(pooled), members, n), None


class LabelTest(ProbabilityTest):
    """C2ST-S: |difference of the mean predicted label|, the MMD of k(x, y) = 1[f(x)>0]·1[f(y)>0]."""

    @torch.no_grad()
    def statistics(self, pooled: Tensor, members: Tensor, n: int, progress: Progress | None = None) -> Permuted:
        """The difference of mean labels. Their many ties are broken by C2ST-L's statistic."""
        logits = self.logit(pooled)
        scores = torch.lerp((logits > 0).to(logits), logits.sigmoid(), TIE_BREAK)
        return *permuted_mean_difference(scores, members, n), None
