"""Where the samples differ according to the test: its witness, important columns, typical rows. All is exploratory.

The witness is a function of a row that shows what the test compared. A test with a kernel has the kernel's witness
function, a classifier its score. A test that fuses many kernels is represented by the mixture in which each has its
weight in the fused statistic.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from m2st_core.kernels.base import Kernel
from m2st_core.kernels.distance import GaussianKernel, LaplaceKernel
from m2st_core.kernels.mixtures import MixtureKernel
from m2st_core.learners.target_kernels import fit_median
from m2st_core.permutation.fitted import KernelTest, PermutationTest, ScoreTest, ShownTest
from m2st_core.permutation.labellings import random_memberships
from m2st_core.presets import TUNED
from m2st_core.rng import Streams
from m2st_core.testing.run import FinishedTest
from m2st_core.types import Progress, TwoSample

WITNESS_ROWS = 500  # of each sample; more would not change what is shown
PERMUTATIONS = 499
MOST_COLUMNS = 200  # largest number of columns whose importance is computed
MANY_COLUMNS, MOST_SLOW_COLUMNS = 500, 50  # beyond the first, a learned kernel is evaluated for the second only
SHUFFLED_ROWS = 150  # of each sample
SHUFFLES = 5
GRID = 40  # points along each column
TYPICAL_ROWS = 5  # of each sample


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
        np.sort(streams.numpy(f"rows of {side}").permutation(len(rows))[:WITNESS_ROWS])
        for side, rows in zip("xy", examined.rows, strict=True)
    ]
    x, y = (part[:, torch.from_numpy(rows)] for part, rows in zip(examined.test, kept, strict=True))
    blocks = examined.test.blocks
    sample = replace(examined.test, x=x, y=y, blocks=blocks and (blocks[0][:, kept[0]], blocks[1][:, kept[1]]))
    n, m = sample.sizes
    generator = [streams.numpy("permutations")]
    within = sample.blocks and torch.cat(sample.blocks, dim=-1)
    members = random_memberships(n, m, PERMUTATIONS, generator, within).to(sample.x.device)
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


@dataclass(frozen=True)
class Importance:
    """The loss in the statistic when one column is shuffled among the test rows, in null standard deviations.

    The loss is not a test of the column: among many columns, some lose much by chance. A loss near 0 shows nothing, and
    a negative loss means that the column only adds noise. ``columns`` are positions, most important first, and
    ``names`` their names, if they have names. ``loss`` is the mean over shuffles and ``spread`` their standard
    deviation.
    """

    columns: np.ndarray
    loss: np.ndarray
    spread: np.ndarray
    notes: tuple[str, ...]
    names: tuple[str, ...] = ()


@torch.no_grad()
def column_importance(
    evidence: Evidence, *, seed: int = 0, progress: Progress | None = None, last: Collection[int] = ()
) -> Importance:
    """Shuffle one column at a time, five times, among at most 150 test rows of each sample; rank these ``last``."""
    streams = Streams(seed).child("column importance")
    x, y = (
        rows[:, torch.from_numpy(streams.numpy(f"rows of {side}").permutation(rows.shape[1])[:SHUFFLED_ROWS])]
        for side, rows in zip("xy", evidence.sample, strict=True)
    )
    sample = TwoSample(x, y, evidence.sample.shape)
    n, m = sample.sizes
    pooled = sample.pooled[0]
    if evidence.kernel is not None and evidence.by_column:
        shuffled_statistics, most = _from_columns(evidence.kernel, pooled, n), MOST_COLUMNS
    else:
        shuffled_statistics = _from_rows(evidence, pooled, n)
        most = MOST_SLOW_COLUMNS if pooled.shape[1] > MANY_COLUMNS else MOST_COLUMNS
    columns, notes = _choose_columns(pooled.cpu().numpy(), n, most)
    generator = streams.numpy("shuffles")
    orders = torch.from_numpy(np.stack([generator.permutation(n + m) for _ in range(SHUFFLES)])).to(pooled.device)
    whole = float(evidence.statistic(pooled[None], n)[0])
    statistics = []
    for index, column in enumerate(columns):
        statistics.append(shuffled_statistics(int(column), orders).cpu().numpy())
        if progress is not None:
            progress(index + 1, len(columns), whole - float(statistics[-1].mean()))
    null_order = 1.0 if evidence.kernel is not None else 0.5
    sizes = evidence.sample.sizes
    fewer_rows = (1 / n + 1 / m) / (1 / sizes[0] + 1 / sizes[1])
    deviation = float(np.std(evidence.null)) * fewer_rows**null_order or 1.0
    losses = (whole - np.stack(statistics)) / deviation
    loss, spread = losses.mean(axis=1), losses.std(axis=1, ddof=1)
    best = np.lexsort((-loss, np.isin(columns, list(last))))
    names = tuple(evidence.sample.columns[column] for column in columns[best]) if evidence.sample.columns else ()
    return Importance(columns[best], loss[best], spread[best], notes, names)


def _choose_columns(values: np.ndarray, n: int, most: int) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return the columns that vary, at most ``most`` of them by their Kolmogorov–Smirnov distance, and notes."""
    varying = np.flatnonzero(np.ptp(values, axis=0) > 0)
    if len(varying) <= most:
        return varying, ()
    from scipy import stats  # slow to import

    distances = stats.ks_2samp(values[:n, varying], values[n:, varying], axis=0, method="asymp").statistic
    chosen = np.sort(varying[np.argsort(-distances, kind="stable")[:most]])
    return chosen, (
        f"Importance was computed for {most} of {values.shape[1]} columns: those whose marginal distributions differ "
        "most. Others may matter jointly.",
    )


def _from_rows(evidence: Evidence, pooled: Tensor, n: int) -> Callable[[int, Tensor], Tensor]:
    """Return a function that recomputes the statistic after shuffles (S, N) of a column: → (S,)."""

    def statistics(column: int, orders: Tensor) -> Tensor:
        changed = pooled.repeat(len(orders), 1, 1)
        changed[:, :, column] = pooled[orders, column]
        return evidence.statistic(changed, n)

    return statistics


def _from_columns(kernel: Kernel, pooled: Tensor, n: int) -> Callable[[int, Tensor], Tensor]:
    """Return the same for mixtures of products over columns, exp(−Σ_c distance_c), of which one factor changes."""
    families: list[torch.nn.Module] = [kernel]
    weights = [torch.ones(1)]
    if isinstance(kernel, MixtureKernel):
        families, weights = list(kernel.families), list(kernel.weights[0].split(kernel.sizes))
    products = [family for family in families if isinstance(family, GaussianKernel | LaplaceKernel)]
    factors = []
    for family, weight in zip(products, weights, strict=True):
        norm = 2.0 if isinstance(family, GaussianKernel) else 1.0
        rows = pooled * torch.exp(-family.log_width.detach() / norm).reshape(-1, 1, 1)  # k x N x d
        factors.append((rows, norm, torch.cdist(rows, rows, p=norm) ** norm, weight.to(pooled)))
    size = len(pooled)
    is_x = (torch.arange(size, device=pooled.device) < n).to(pooled)
    signs = is_x / n - (1 - is_x) / (size - n)
    unbiased = signs[:, None] * signs
    unbiased[:n, :n] *= n / (n - 1)
    unbiased[n:, n:] *= (size - n) / (size - n - 1)
    unbiased.fill_diagonal_(0)

    def statistics(column: int, orders: Tensor) -> Tensor:
        mmd2 = torch.zeros(len(orders)).to(pooled)
        for rows, norm, distances, weight in factors:
            values = rows[..., column]  # k x N
            before = (values[..., None] - values[..., None, :]).abs() ** norm
            for shuffle, order in enumerate(orders):
                shuffled = values[:, order]
                after = (shuffled[..., None] - shuffled[..., None, :]).abs() ** norm
                gram = torch.exp(before - distances - after)
                mmd2[shuffle] += (weight[:, None, None] * gram * unbiased).sum()
        return mmd2

    return statistics


@dataclass(frozen=True)
class Explanation:
    """Column importance, the witness over two columns, and typical rows, all computed on the test rows.

    ``pair`` holds the two most important columns, or the only one, and ``axes`` the points along each. ``witness``,
    (points of the second, points of the first) or (points,), is positive where the test finds more of x; ``at`` tells
    where the other columns are held. ``typical_x`` and ``typical_y`` are the positions, in the samples as given, of the
    rows most unlike the other sample, and their witness values.
    """

    importance: Importance
    pair: tuple[int, ...]
    axes: tuple[np.ndarray, ...]
    witness: np.ndarray
    typical_x: tuple[np.ndarray, np.ndarray]
    typical_y: tuple[np.ndarray, np.ndarray]
    how: str
    at: str


def explain(
    evidence: Evidence, *, seed: int = 0, progress: Progress | None = None, last: Collection[int] = ()
) -> Explanation:
    """Compute column importance, the witness over the two most important columns, and the most typical rows.

    The columns at the positions ``last``, those of identifiers, come after all others.

    >>> import m2st_core as m2st
    >>> x, y = m2st.make_task("mean_shift", shift=2.0, dimension=4).sample(50, seed=1)
    >>> m2st.explain(m2st.analyse(x, y).evidence).importance.columns[0]
    np.int64(0)
    """
    importance = column_importance(evidence, seed=seed, progress=progress, last=last)
    pair = tuple(int(column) for column in importance.columns[:2])
    pooled = evidence.sample.pooled[0]
    axes = tuple(_axis(pooled[:, column].cpu().numpy()) for column in pair)
    mesh = np.stack(np.meshgrid(*axes), axis=-1) if len(pair) == 2 else axes[0][:, None]
    points = pooled.median(dim=0).values.repeat(mesh[..., 0].size, 1)
    for index, column in enumerate(pair):
        points[:, column] = torch.from_numpy(mesh[..., index].ravel()).to(points)
    at_x, at_y = evidence.at_rows()
    top_x, top_y = np.argsort(-at_x, kind="stable")[:TYPICAL_ROWS], np.argsort(at_y, kind="stable")[:TYPICAL_ROWS]
    return Explanation(
        importance=importance,
        pair=pair,
        axes=axes,
        witness=evidence.witness(points).reshape(mesh.shape[:-1]),
        typical_x=(evidence.rows[0][top_x], at_x[top_x]),
        typical_y=(evidence.rows[1][top_y], at_y[top_y]),
        how=f"Exploratory, by {evidence.how}, on {sum(evidence.sample.sizes)} test rows.",
        at="All other columns are held at their medians over both samples." if pooled.shape[1] > len(pair) else "",
    )


def _axis(values: np.ndarray) -> np.ndarray:
    low, high = np.quantile(values, [0.01, 0.99])
    if low == high:
        low, high = values.min(), values.max()
    margin = 0.05 * (high - low)
    return np.linspace(low - margin, high + margin, GRID)
