"""Where the samples differ, as the test saw it. Exploratory: it suggests, it does not prove."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from m2st_core.analysis.evidence import Seen
from m2st_core.kernels.base import Kernel, MixtureKernel
from m2st_core.kernels.gaussian import GaussianKernel, LaplaceKernel
from m2st_core.rng import Streams
from m2st_core.types import Progress, TwoSample

MOST_COLUMNS = 200  # columns whose importance is found; of more, those whose own distributions differ most
MOST_COLUMNS_AGAIN = 50  # the same where every shuffle asks a learned kernel about more than 500 columns
ROWS = 150  # of each sample
SHUFFLES = 5


@dataclass(frozen=True)
class Importance:
    """How much of the statistic is lost when one column is shuffled among the test rows, in null deviations.

    A null deviation is how far chance alone moves the statistic. The loss is not a test of the column: among many
    columns some lose much by chance. A loss around 0 says nothing, a negative one that the column only adds noise.
    ``columns`` are positions, most important first; ``loss`` is the mean over shuffles, ``spread`` their standard
    deviation.
    """

    columns: np.ndarray
    loss: np.ndarray
    spread: np.ndarray
    notes: tuple[str, ...]


@torch.no_grad()
def column_importance(seen: Seen, *, seed: int = 0, progress: Progress | None = None) -> Importance:
    """Shuffle one column at a time among test rows of both samples, at most 150 of each, in five ways."""
    streams = Streams(seed).child("column importance")
    x, y = (
        rows[:, torch.from_numpy(streams.numpy(f"rows of {side}").permutation(rows.shape[1])[:ROWS])]
        for side, rows in zip("xy", seen.sample, strict=True)
    )
    some = TwoSample(x, y, seen.sample.shape)
    n, m = some.sizes
    pooled = some.pooled[0]
    chosen, notes = _chosen(pooled.cpu().numpy(), n, MOST_COLUMNS_AGAIN if _slow(seen, pooled) else MOST_COLUMNS)
    generator = streams.numpy("shuffles")
    orders = torch.from_numpy(np.stack([generator.permutation(n + m) for _ in range(SHUFFLES)])).to(pooled.device)
    whole = float(seen.statistic(pooled[None], n)[0])
    left_without = _by_products(seen.kernel, pooled, n) if seen.by_column else _by_asking(seen, pooled, n)
    left = []
    for index, column in enumerate(chosen):
        left.append(left_without(int(column), orders).cpu().numpy())
        if progress is not None:
            progress(index + 1, len(chosen), whole - float(left[-1].mean()))
    order_of_null = 1.0 if seen.kernel is not None else 0.5
    sizes = seen.sample.sizes
    fewer = (1 / n + 1 / m) / (1 / sizes[0] + 1 / sizes[1])
    deviation = float(np.std(seen.null)) * fewer**order_of_null or 1.0
    lost = (whole - np.stack(left)) / deviation
    loss, spread = lost.mean(axis=1), lost.std(axis=1, ddof=1)
    best = np.argsort(-loss, kind="stable")
    return Importance(chosen[best], loss[best], spread[best], notes)


def _slow(seen: Seen, pooled: Tensor) -> bool:
    return not seen.by_column and pooled.shape[1] > 500


def _chosen(values: np.ndarray, n: int, most: int) -> tuple[np.ndarray, tuple[str, ...]]:
    """The columns to shuffle: those that vary, at most so many, by the distance of Kolmogorov and Smirnov."""
    varying = np.flatnonzero(np.ptp(values, axis=0) > 0)
    if len(varying) <= most:
        return varying, ()
    first = np.argsort(values[:, varying], axis=0, kind="stable") < n
    gaps = np.abs(np.where(first, 1 / n, -1 / (len(values) - n)).cumsum(axis=0)).max(axis=0)
    kept = np.sort(varying[np.argsort(-gaps, kind="stable")[:most]])
    return kept, (
        f"Importance was found for {most} of {values.shape[1]} columns: those whose own distributions differ most. "
        "Others may matter together.",
    )


def _by_asking(seen: Seen, pooled: Tensor, n: int) -> Callable[[int, Tensor], Tensor]:
    """The statistic after shuffles (S, N) of a column, from changed rows: → (S,)."""

    def left(column: int, orders: Tensor) -> Tensor:
        changed = pooled.repeat(len(orders), 1, 1)
        changed[:, :, column] = pooled[orders, column]
        return seen.statistic(changed, n)

    return left


def _by_products(kernel: Kernel | None, pooled: Tensor, n: int) -> Callable[[int, Tensor], Tensor]:
    """The same for mixtures of products over columns, exp(−Σ_c distance_c): only one column's distances change."""
    assert kernel is not None
    families, weights = [kernel], [torch.ones(1)]
    if isinstance(kernel, MixtureKernel):
        families = [family for family in kernel.families if isinstance(family, Kernel)]
        weights = list(kernel.weights[0].split(kernel.sizes))
    parts = []
    for family, weight in zip(families, weights, strict=True):
        assert isinstance(family, GaussianKernel | LaplaceKernel)
        norm = 2.0 if isinstance(family, GaussianKernel) else 1.0
        rows = pooled * torch.exp(-family.log_width.detach() / norm).reshape(-1, 1, 1)  # k x N x d
        parts.append((rows, norm, torch.cdist(rows, rows, p=norm) ** norm, weight.to(pooled)))
    size = len(pooled)
    first = (torch.arange(size, device=pooled.device) < n).to(pooled)
    signs = first / n - (1 - first) / (size - n)
    unbiased = signs[:, None] * signs
    unbiased[:n, :n] *= n / (n - 1)
    unbiased[n:, n:] *= (size - n) / (size - n - 1)
    unbiased.fill_diagonal_(0)

    def left(column: int, orders: Tensor) -> Tensor:
        found = torch.zeros(len(orders)).to(pooled)
        for rows, norm, distances, weight in parts:
            own = rows[..., column]  # k x N
            before = (own[..., None] - own[..., None, :]).abs() ** norm
            for shuffle, order in enumerate(orders):
                other = own[:, order]
                after = (other[..., None] - other[..., None, :]).abs() ** norm
                gram = torch.exp(before - distances - after)
                found[shuffle] += (weight[:, None, None] * gram * unbiased).sum()
        return found

    return left


GRID = 40
TYPICAL = 5


@dataclass(frozen=True)
class Explanation:
    """What the test saw, on its test rows.

    ``pair``: the two columns of ``importance`` that tell most (one if there is only one). ``axes``: places along each.
    ``witness`` (places of the second, places of the first; or places of the only one): positive where the test saw more
    of x. ``typical_x`` and ``typical_y``: positions, in the samples as given, of the rows most unlike the other sample,
    with their witness values. ``at``: where the other columns stand.
    """

    importance: Importance
    pair: tuple[int, ...]
    axes: tuple[np.ndarray, ...]
    witness: np.ndarray
    typical_x: tuple[np.ndarray, np.ndarray]
    typical_y: tuple[np.ndarray, np.ndarray]
    how: str
    at: str
    notes: tuple[str, ...]


def explain(seen: Seen, *, seed: int = 0, progress: Progress | None = None) -> Explanation:
    """Column importance, the witness over the most telling pair of columns, and the most typical rows.

    >>> import m2st_core as m2st
    >>> x, y = m2st.make_task("mean_shift", shift=2.0, dimension=4).sample(50, seed=1)
    >>> m2st.explain(m2st.analyse(x, y).seen).importance.columns[0]
    np.int64(0)
    """
    importance = column_importance(seen, seed=seed, progress=progress)
    pair = tuple(int(column) for column in importance.columns[:2])
    pooled = seen.sample.pooled[0]
    centre = pooled.median(dim=0).values
    axes = tuple(_axis(pooled[:, column].cpu().numpy()) for column in pair)
    mesh = np.stack(np.meshgrid(*axes), axis=-1) if len(pair) == 2 else axes[0][:, None]
    places = centre.repeat(mesh[..., 0].size, 1)
    for index, column in enumerate(pair):
        places[:, column] = torch.from_numpy(mesh[..., index].ravel()).to(places)
    of_x, of_y = seen.at_rows()
    top_x, top_y = np.argsort(-of_x, kind="stable")[:TYPICAL], np.argsort(of_y, kind="stable")[:TYPICAL]
    others = pooled.shape[1] - len(pair)
    return Explanation(
        importance=importance,
        pair=pair,
        axes=axes,
        witness=seen.witness(places).reshape(mesh.shape[:-1]),
        typical_x=(seen.rows[0][top_x], of_x[top_x]),
        typical_y=(seen.rows[1][top_y], of_y[top_y]),
        how=f"Exploratory, by {seen.how}, on the {sum(seen.sample.sizes)} test rows looked at.",
        at="" if not others else f"The other {others} columns stand at their medians over both samples.",
        notes=importance.notes,
    )


def _axis(values: np.ndarray) -> np.ndarray:
    low, high = np.quantile(values, [0.01, 0.99])
    if low == high:
        low, high = values.min(), values.max()
    margin = 0.05 * (high - low)
    return np.linspace(low - margin, high + margin, GRID)
