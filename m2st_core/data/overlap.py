"""Recognise rows of a target among the rows of its related tasks: copied, rounded, jittered or in other units.

Rows are compared by the largest difference over their columns, in units of each column's spread. Each sample of the
target is compared with each sample of the related tasks. If far more of its rows have a near row there than chance
allows, these are the same rows. Chance is estimated from samples of different units: the two samples of the target, the
two samples of each task, and samples on the same side of different tasks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist
from scipy.stats import binom

UNIT_RATIO = 1.5  # spreads of a column that differ by more may be in different units
UNIT_WINDOWS = (1e-6, 1e-4, 3e-3)  # relative errors within which ratios of cells are one factor
UNIT_CELLS = 400  # cells of each side that vote on a factor
FEWEST_VOTES = 4
OTHER_UNITS = (60.0, 3600.0, 24.0, 7.0, 12.0, 2.54, 25.4, 0.3048, 0.4536, 1.609, 4.184, 1.8)
UNITS = np.array([*(10.0 ** np.arange(-9, 10)), *OTHER_UNITS, *(1 / unit for unit in OTHER_UNITS)])
RADII = np.concatenate([[0.0], np.geomspace(1e-9, 0.3, 35)])  # in spreads of a column
WITHIN = RADII * (1 + 1e-9)
SURE = 1e-6  # probability that chance explains the matches of one pair of samples at one radius
COMMON = 50  # smallest distances from which the density of near pairs is extrapolated to smaller radii
LESS = 0.8  # factor on the estimated exponent
DENSER = 2.0  # how much nearer two samples may be than those from which chance is estimated
ALIKE = 0.3  # distance of two samples' quantiles, times √n, below which they may be one sample
NEARER = 3.0  # how much nearer they must be than in any random split of their rows
RESPLITS = 499
ASSIGNED = 2000  # rows up to which a repeated sample is matched row by row
MOST_PAIRS = 200  # pairs of samples from which chance is estimated


@dataclass(frozen=True)
class KnownRows:
    """Rows of related tasks (M, k), images projected, and the number of a sample that holds each row (M,)."""

    rows: np.ndarray = field(repr=False)
    sample: np.ndarray = field(repr=False)

    @cached_property
    def distinct(self) -> np.ndarray:
        """The distinct rows."""
        return np.unique(self.rows, axis=0)


@dataclass(frozen=True)
class Overlap:
    """Pairs of the same row, by their positions in the pooled target and among the known rows."""

    target: np.ndarray
    known: np.ndarray
    chance: float  # probability that a row meets an equal row of another sample by chance

    def __len__(self) -> int:
        return len(np.unique(self.target))


def same_rows(target: tuple[np.ndarray, np.ndarray], known: KnownRows) -> Overlap:
    """Find rows of the target's x (n, k) and y (m, k) among the known rows.

    Rows with very few different values meet by chance too often to be recognised one by one. There a whole sample is
    recognised if it appears again with the same values.
    """
    if not len(known.rows):
        return Overlap(np.zeros(0, dtype=int), np.zeros(0, dtype=int), 0.0)
    matches, chance = _matches(target, known)
    factors = unit_factors(np.concatenate(target), known.distinct)
    if (factors != 1).any():
        matches += _matches((target[0] * factors, target[1] * factors), known)[0]
    pairs = np.unique(np.concatenate([np.zeros((0, 2), dtype=int), *matches]), axis=0)
    return Overlap(pairs[:, 0], pairs[:, 1], chance)


def spread(rows: np.ndarray) -> np.ndarray:
    """The spread of each column: its interquartile range, or its standard deviation where that is 0; 1 if constant."""
    low, high = np.quantile(rows, [0.25, 0.75], axis=0)
    with np.errstate(over="ignore", invalid="ignore"):
        spread = np.where(high > low, (high - low) / 1.349, rows.std(axis=0))
    return np.where(np.isfinite(spread) & (spread > 0), spread, 1.0)


def unit_factors(rows: np.ndarray, known: np.ndarray) -> np.ndarray:
    """The factor that turns each column of the target into the units of the known rows: (k,).

    It is a ratio of cells that is far more frequent than others. If rounding hides it and the spreads differ clearly,
    it is the usual factor between units that is nearest to the ratio of the spreads.
    """
    ratio = spread(known) / spread(rows)
    factors = np.ones(rows.shape[1])
    generator = np.random.default_rng(0)
    for column in range(rows.shape[1]):
        own, other = (
            cells if len(cells) <= UNIT_CELLS else generator.choice(cells, UNIT_CELLS, replace=False)
            for cells in (np.unique(rows[:, column]), np.unique(known[:, column]))
        )
        ratios = (other[other != 0] / own[own != 0][:, None]).ravel()
        differs = not 1 / UNIT_RATIO < ratio[column] < UNIT_RATIO
        usual = UNITS[np.abs(np.log(UNITS / ratio[column])).argmin()] if differs else 1.0
        factors[column] = _most_frequent(np.sort(np.log(ratios[ratios > 0]))) or usual
    return factors


def _most_frequent(logs: np.ndarray) -> float | None:
    """The factor around which sorted log-ratios gather far beyond chance, if there is one."""
    for window in UNIT_WINDOWS if logs.size else ():
        counts = np.searchsorted(logs, logs + window, side="right") - np.arange(len(logs))
        best = int(counts.argmax())
        low, high = np.searchsorted(logs, [logs[best] - 50 * window, logs[best] + 50 * window])
        expected = max((high - low - counts[best]) / 100, 0.0)  # per window, from its surroundings
        if counts[best] >= FEWEST_VOTES + 3 * expected + 4 * expected**0.5:
            factor = float(np.exp(np.median(logs[best : best + counts[best]])))
            rounded = 10.0 ** round(np.log10(factor))
            return rounded if abs(np.log(factor / rounded)) < window else factor
    return None


def _matches(target: tuple[np.ndarray, np.ndarray], known: KnownRows) -> tuple[list[np.ndarray], float]:
    """Pairs (pooled target row, known row) of the same row in the units as given: (·, 2). Also chance at r = 0.

    O(r) rows have a near row within r, and chance F(r) per pair of rows gives E(r) of them. A radius counts if chance
    explains O(r) with probability below 1e−6. The radius with the largest O(r) − 2·E(r) is used.
    """
    scale = spread(np.concatenate([*target, known.distinct]))
    numbers, counts = np.unique(known.sample, return_counts=True)
    wheres = np.split(np.argsort(known.sample, kind="stable"), np.cumsum(counts)[:-1])
    samples = {int(number): known.rows[where] / scale for number, where in zip(numbers, wheres, strict=True)}
    sides = [rows / scale for rows in target]
    share = chance_of_pairs(sides, samples)
    matches = []
    for sample, where in zip(samples.values(), wheres, strict=True):
        tree, begin = cKDTree(sample), 0
        for raw, rows in zip(target, sides, strict=True):
            nearest, _ = tree.query(rows, p=np.inf, distance_upper_bound=WITHIN[-1])
            reached = (nearest[:, None] <= WITHIN).sum(axis=0)
            chance = 1 - (1 - np.minimum(DENSER * share, 1.0)) ** len(where)
            sure = (reached > 0) & (binom.sf(reached - 1, len(rows), chance) < SURE)
            gain = np.where(sure, reached - 2 * len(rows) * chance, 0.0)
            if gain.max() > 0:
                close = tree.query_ball_point(rows, WITHIN[np.flatnonzero(gain == gain.max())[-1]], p=np.inf)
                pairs = [(begin + row, where[other]) for row, near in enumerate(close) for other in near]
                matches.append(np.array(pairs, dtype=int).reshape(-1, 2))
            if len(where) == len(rows) and gain.max() < len(rows):
                matches.append(_repeated(raw, begin, known.rows[where], where, scale))
            begin += len(rows)
    return matches, float(1 - (1 - share[0]) ** min(map(len, target)))


def chance_of_pairs(target: Sequence[np.ndarray], samples: Mapping[int, np.ndarray]) -> np.ndarray:
    """F(r), the share of pairs of different units within r, for every radius: (radii,).

    ``samples`` are numbered 2i and 2i+1 for task i. One side of all tasks may be one control group, so the side with
    fewer near pairs between tasks is used. Equality too rare to be observed is the product of the columns' own ties.
    """
    across = [(target[0], target[1])]
    across += [(samples[k], samples[k + 1]) for k in samples if k % 2 == 0 and k + 1 in samples]
    sides = [[samples[k] for k in samples if k % 2 == side] for side in (0, 1)]
    between = [_share_of_near_pairs(list(zip(own, own[1:], strict=False))) for own in sides]
    rows = np.unique(np.concatenate([*target, *samples.values()]), axis=0)
    ties = [(np.unique(column, return_counts=True)[1] ** 2).sum() - len(rows) for column in rows.T]
    equal = np.exp(np.log(np.maximum(ties, 1e-300)).sum() - rows.shape[1] * np.log(max(len(rows), 2) * (len(rows) - 1)))
    unseen = 1 / sum(len(a) * len(b) for a, b in across)
    return np.maximum(np.maximum(_share_of_near_pairs(across), np.minimum(*between)), min(equal, unseen))


def _share_of_near_pairs(pairs: Sequence[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """The share of row pairs of two samples within r, by nearest neighbours; 0 without samples: (radii,).

    Below the smallest 50 distances it follows their power law, by Hill's estimate of the exponent, lowered by a fifth.
    """
    pairs = pairs[:MOST_PAIRS]
    if not pairs:
        return np.zeros(len(RADII))
    nearest = np.sort(np.concatenate([cKDTree(b).query(a, p=np.inf)[0] for a, b in pairs]))
    count = sum(len(a) * len(b) for a, b in pairs)
    few = nearest[:COMMON]
    last = max(float(few[-1]), RADII[1])
    order = LESS * len(few) / np.log(last / few.clip(RADII[1], last)).sum().clip(min=1e-9)
    tail = len(few) / count * (RADII / last).clip(max=1) ** order.clip(max=pairs[0][0].shape[1])
    return np.maximum(np.searchsorted(nearest, WITHIN, side="right") / count, tail)


def _repeated(own: np.ndarray, begin: int, other: np.ndarray, where: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Pairs of rows of two samples (n, k) of equal size if one repeats the other as a whole, else none: (·, 2).

    Both are rounded to the coarser precision first. They are one sample if their quantiles are much nearer, column by
    column, than in any of 499 random splits of their rows.
    """
    decimals = [min(_decimals(a), _decimals(b)) for a, b in zip(own.T, other.T, strict=True)]
    a, b = (
        np.stack([np.round(c, p) for c, p in zip(rows.T, decimals, strict=True)], axis=1) / scale
        for rows in (own, other)
    )
    distance, n, generator = _quantile_distance(a, b), len(own), np.random.default_rng(0)
    pooled, splits = np.concatenate([a, b]), (generator.permutation(2 * n) for _ in range(RESPLITS))
    if distance * n**0.5 > ALIKE or not all(
        _quantile_distance(pooled[order[:n]], pooled[order[n:]]) > NEARER * distance + 1e-12 for order in splits
    ):
        return np.zeros((0, 2), dtype=int)
    if n <= ASSIGNED:
        first, second = linear_sum_assignment(cdist(a, b, "chebyshev"))
    else:
        first, second = np.lexsort(a.T), np.lexsort(b.T)
    return np.stack([begin + first, where[second]], axis=1)


def _decimals(column: np.ndarray, most: int = 12) -> int:
    """How many decimals the cells of a column have."""
    return next((p for p in range(most) if np.abs(np.round(column, p) - column).max() <= 1e-12), most)


def _quantile_distance(own: np.ndarray, other: np.ndarray) -> float:
    """Mean difference of the sorted cells, in the column where it is largest; rows (n, k)."""
    return float(np.abs(np.sort(own, axis=0) - np.sort(other, axis=0)).mean(axis=0).max())
