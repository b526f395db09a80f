"""Recognise rows of a target among the rows of its related tasks: copied, rounded, jittered or in other units.

Rows are compared by the largest difference over their columns, in units of each column's spread. Each sample of the
target is compared with each sample of the related tasks. Where far more of its rows have a near row there than chance
allows, these are the same rows. Chance is what samples of different units show: the two samples of the target, the two
samples of each task, and samples on the same side of different tasks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist
from scipy.stats import binom
from torch import Tensor

UNIT_RATIO = 1.5  # spreads of a column that differ by more may be in different units
UNIT_WINDOWS = (1e-6, 1e-4, 3e-3)  # relative errors within which ratios of cells are one factor
UNIT_CELLS = 400  # of each side that vote on a factor
FEWEST_VOTES = 4
OTHER_UNITS = (60.0, 3600.0, 24.0, 7.0, 12.0, 2.54, 25.4, 0.3048, 0.4536, 1.609, 4.184, 1.8)
UNITS = np.array([*(10.0 ** np.arange(-9, 10)), *OTHER_UNITS, *(1 / unit for unit in OTHER_UNITS)])


def spread(rows: np.ndarray) -> np.ndarray:
    """The spread of each column: its interquartile range, or its standard deviation where that is 0; 1 if constant."""
    low, high = np.quantile(rows, [0.25, 0.75], axis=0)
    with np.errstate(over="ignore", invalid="ignore"):
        spread = np.where(high > low, (high - low) / 1.349, rows.std(axis=0))
    return np.where(np.isfinite(spread) & (spread > 0), spread, 1.0)


def unit_factors(rows: np.ndarray, known: np.ndarray) -> np.ndarray:
    """The factor by which each column of the target has to be multiplied to be in the known rows' units: (k,).

    It is the ratio of cells that is far more frequent than others. Where rounding hides that and spreads differ
    clearly, it is the usual factor between units that is nearest to the ratio of the spreads.
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
        expected = max((high - low - counts[best]) / 100, 0.0)  # in such a window, as its surroundings have them
        if counts[best] >= FEWEST_VOTES + 3 * expected + 4 * expected**0.5:
            factor = float(np.exp(np.median(logs[best : best + counts[best]])))
            rounded = 10.0 ** round(np.log10(factor))
            return rounded if abs(np.log(factor / rounded)) < window else factor
    return None


PROJECTIONS = 16  # numbers that stand for an image
RADII = np.concatenate([[0.0], np.geomspace(1e-9, 0.3, 35)])  # in spreads of a column
WITHIN = RADII * (1 + 1e-9)
SURE = 1e-6  # probability that chance explains the matches of one pair of samples at one radius
COMMON = 50  # smallest distances from which the density of near pairs is extrapolated to smaller radii
LESS = 0.8  # of the exponent found
DENSER = 2.0  # by how much two samples may be nearer to each other than those that chance was taken from
ALIKE = 0.3  # distance of two samples' quantiles, times √n, below which they may be one sample
NEARER = 3.0  # times, than in any random split of their rows
RESPLITS = 499
ASSIGNED = 2000  # rows up to which a repeated sample is matched row by row
MOST_PAIRS = 200  # of samples that chance is taken from


@dataclass(frozen=True)
class KnownRows:
    """Rows that taught, (M, k), and the number of a sample that each is in, (M,). Images are projected."""

    rows: np.ndarray
    sample: np.ndarray

    @cached_property
    def distinct(self) -> np.ndarray:
        """The distinct rows."""
        return np.unique(self.rows, axis=0)

    def at(self, positions: np.ndarray) -> KnownRows:
        """The rows at these positions only."""
        return KnownRows(self.rows[positions], self.sample[positions])


@dataclass(frozen=True)
class Overlap:
    """Pairs of the same row: positions in the pooled target and among the known rows.

    ``chance`` is the probability that a row meets an equal row of another sample by chance.
    """

    target: np.ndarray
    known: np.ndarray
    chance: float

    def __len__(self) -> int:
        return len(np.unique(self.target))


def fingerprints(rows: Tensor, images: bool) -> np.ndarray:
    """What is compared: the rows (n, d) themselves, or for images a fixed random projection of each to 16 numbers."""
    values = rows.double().cpu().numpy()
    if not images:
        return values
    directions = np.random.default_rng(0).standard_normal((values.shape[1], PROJECTIONS))
    return values @ directions / values.shape[1] ** 0.5


def same_rows(target: tuple[np.ndarray, np.ndarray], known: KnownRows) -> Overlap:
    """Rows of the target's x (n, k) and y (m, k) among the known rows.

    Rows of very few different values meet by chance too often to be recognised one by one. There a whole sample is
    recognised if it appears again with the same values.
    """
    if not len(known.rows):
        return Overlap(np.zeros(0, dtype=int), np.zeros(0, dtype=int), 0.0)
    found, chance = _matches(target, known)
    factors = unit_factors(np.concatenate(target), known.distinct)
    if (factors != 1).any():
        found += _matches((target[0] * factors, target[1] * factors), known)[0]
    pairs = np.unique(np.concatenate([np.zeros((0, 2), dtype=int), *found]), axis=0)
    return Overlap(pairs[:, 0], pairs[:, 1], chance)


def _matches(target: tuple[np.ndarray, np.ndarray], known: KnownRows) -> tuple[list[np.ndarray], float]:
    """Pairs (pooled target row, known row) that are the same row, in the units as given: (·, 2); chance at r = 0.

    A radius r counts if chance, F(r) per pair of rows, explains the number O(r) of rows with a near one with
    probability below 1e−6. The radius with the largest O(r) − 2·E(r) is used, E(r) what chance gives.
    """
    scale = spread(np.concatenate([*target, known.distinct]))
    numbers = np.unique(known.sample)
    order = np.argsort(known.sample, kind="stable")
    wheres = np.split(order, np.cumsum(np.bincount(known.sample)[numbers])[:-1])
    samples = {int(number): known.rows[where] / scale for number, where in zip(numbers, wheres, strict=True)}
    sides = [rows / scale for rows in target]
    share = chance_of_pairs(sides, samples)
    found = []
    for number, where in zip(numbers, wheres, strict=True):
        tree, begin = cKDTree(samples[int(number)]), 0
        for raw, rows in zip(target, sides, strict=True):
            nearest, _ = tree.query(rows, p=np.inf, distance_upper_bound=WITHIN[-1])
            reached = (nearest[:, None] <= WITHIN).sum(axis=0)
            chance = 1 - (1 - np.minimum(DENSER * share, 1.0)) ** len(where)
            sure = (reached > 0) & (binom.sf(reached - 1, len(rows), chance) < SURE)
            gain = np.where(sure, reached - 2 * len(rows) * chance, 0.0)
            if gain.max() > 0:
                close = tree.query_ball_point(rows, WITHIN[np.flatnonzero(gain == gain.max())[-1]], p=np.inf)
                found += [
                    np.stack([np.full(len(near), begin + row), where[near]], axis=1)
                    for row, near in enumerate(close)
                    if near
                ]
            if len(where) == len(rows) and gain.max() < len(rows):
                found.append(_pairs(raw, begin, known.rows[where], where, scale))
            begin += len(rows)
    return found, float(1 - (1 - share[0]) ** min(map(len, target)))


def chance_of_pairs(target: Sequence[np.ndarray], samples: Mapping[int, np.ndarray]) -> np.ndarray:
    """F(r), the share of pairs of different units within r, for every radius: (radii,).

    ``samples`` are numbered 2i and 2i+1 for the two samples of task i. One side of all tasks may be one control group,
    so of the two sides the one with fewer near pairs between tasks is believed. What is too rare to be seen between the
    samples is the product of the columns' own ties.
    """
    across = [
        (target[0], target[1]),
        *((samples[k], samples[k + 1]) for k in samples if k % 2 == 0 and k + 1 in samples),
    ]
    share = _share_of_near_pairs(across)
    sides = []
    for side in (0, 1):
        own = [samples[k] for k in samples if k % 2 == side]
        sides.append(_share_of_near_pairs(list(zip(own, own[1:], strict=False))))
    rows = np.unique(np.concatenate([*target, *samples.values()]), axis=0)
    ties = [(np.unique(column, return_counts=True)[1] ** 2).sum() - len(rows) for column in rows.T]
    equal = np.exp(np.log(np.maximum(ties, 1e-300)).sum() - rows.shape[1] * np.log(max(len(rows), 2) * (len(rows) - 1)))
    unseen = 1 / sum(len(a) * len(b) for a, b in across)
    return np.maximum(np.maximum(share, np.minimum(*sides)), min(equal, unseen))


def _share_of_near_pairs(pairs: Sequence[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """The share of row pairs of two samples within r, by nearest neighbours; 0 without samples: (radii,).

    Below the smallest 50 distances it follows the power law that these show (Hill's estimate of its exponent, lowered
    by a fifth).
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


def _pairs(own: np.ndarray, begin: int, other: np.ndarray, where: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Pairs of rows of two samples (n, k) of equal size if one repeats the other as a whole, else none: (·, 2).

    Both are rounded to the coarser precision first. They are one sample if their quantiles are much nearer, column by
    column, than in any of 499 random splits of their rows.
    """
    decimals = [min(_decimals(a), _decimals(b)) for a, b in zip(own.T, other.T, strict=True)]
    a, b = (
        np.stack([np.round(c, p) for c, p in zip(part.T, decimals, strict=True)], axis=1) / scale
        for part in (own, other)
    )
    if _quantile_distance(a, b) * len(own) ** 0.5 > ALIKE or not _is_repeat(a, b):
        return np.zeros((0, 2), dtype=int)
    if len(own) <= ASSIGNED:
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


def _is_repeat(own: np.ndarray, other: np.ndarray) -> bool:
    """Whether the samples are three times nearer than any random split of their pooled rows makes them."""
    pooled, n, generator = np.concatenate([own, other]), len(own), np.random.default_rng(0)
    limit = NEARER * _quantile_distance(own, other) + 1e-12
    return all(
        _quantile_distance(pooled[order[:n]], pooled[order[n:]]) > limit
        for order in (generator.permutation(2 * n) for _ in range(RESPLITS))
    )
