"""Recognise rows of a target among the rows of its related tasks: copied, rounded, jittered or in other units.

Rows are compared by the largest difference over their columns, in units of each column's spread. Two rows count as the
same one where target rows lie nearer to the related tasks' rows than chance allows. Chance is what rows of one sample
show among each other, since these are different units by design.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist
from scipy.stats import binom
from torch import Tensor

from m2st_core.tasks.units import spread, unit_factors

PROJECTIONS = 16  # numbers that stand for an image
RADII = np.concatenate([[0.0], np.geomspace(1e-9, 0.3, 35)])  # in spreads of a column
SURE = 1e-5  # probability that chance explains the matches of a radius
COMMON = 50  # smallest distances from which the density of near pairs is extrapolated to smaller radii
LESS = 0.8  # of the exponent found
SELDOM = 0.2  # share of the samples that may hold a row twice by mistake
DENSER = 2.0  # by how much related tasks may be denser around the target's rows than these are among themselves
ALIKE = 0.1  # distance of two samples' quantiles, times √n, below which they may be one sample
RESPLITS = 199
ASSIGNED = 2000  # rows up to which a repeated sample is matched row by row


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

    ``chance`` is the probability that a target row meets an equal known row by chance.
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

    A radius r is believed if the number O(r) of target rows with a known row within r is far beyond the number E(r)
    that chance gives; the one with the largest O(r) − 2·E(r) is used. Rows of few different values meet by chance too
    often for that. There a whole sample is recognised if it appears again with the same values.
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
    """Pairs (pooled target row, known row) that are the same row, in the units as given: (·, 2); chance at r = 0."""
    pooled, n = np.concatenate(target), len(target[0])
    scale = spread(np.concatenate([pooled, known.distinct]))
    rows, others = pooled / scale, known.rows / scale
    numbers = [np.flatnonzero(known.sample == number) for number in np.unique(known.sample)]
    tree = cKDTree(others)
    nearest, _ = tree.query(rows, p=np.inf, distance_upper_bound=RADII[-1] * (1 + 1e-9))
    radii = RADII * (1 + 1e-9)
    reached = (nearest[:, None] <= radii).sum(axis=0)
    samples = [rows[:n], rows[n:], *(others[where] for where in numbers)]
    steps = [10.0 ** -max(_decimals(a), _decimals(b)) for a, b in zip(pooled.T, known.distinct.T, strict=True)]
    chance = chance_of_a_match(samples, len(others), float(np.exp(np.log(steps / scale).mean())) / 2)
    sure = (reached > 0) & (binom.sf(reached - 1, len(rows), chance) < SURE)
    gain = np.where(sure, reached - 2 * len(rows) * chance, 0.0)
    found = [
        _pairs(own, begin, known.rows[where], where, scale)
        for own, begin in zip(target, (0, n), strict=True)
        for where in numbers
        if len(where) == len(own)
    ]
    if gain.max() > 0:
        close = tree.query_ball_point(rows, radii[np.flatnonzero(gain == gain.max())[-1]], p=np.inf)
        found += [
            np.stack([np.full(len(matches), row), matches], axis=1) for row, matches in enumerate(close) if matches
        ]
    return found, float(chance[0])


def chance_of_a_match(samples: Sequence[np.ndarray], count: int, least: float = 0.0) -> np.ndarray:
    """P(one of ``count`` independent rows lies within r of a given row), for every radius: (radii,).

    F(r), the share of pairs within r, is counted by nearest neighbours within the samples. Below the smallest 50 of
    their distances it follows the power law that these show (Hill's estimate of its exponent, lowered by a fifth).
    Where few samples have two equal rows, these were entered twice and count once. ``least`` is half the step between
    values that can occur: rows nearer than that are equal.
    """
    distinct = [np.unique(sample, axis=0) for sample in samples]
    repeats = [len(s) - len(d) for d, s in zip(distinct, samples, strict=True)]
    used = [s for s in (distinct if np.mean(np.array(repeats) > 0) < SELDOM else samples) if len(s) > 1]
    if not used:
        return np.ones(len(RADII))
    nearest = np.sort(np.concatenate([cKDTree(s).query(s, k=2, p=np.inf)[0][:, 1] for s in used]))
    pairs = sum(len(s) * (len(s) - 1) for s in used)
    few = nearest[: min(COMMON, len(nearest))]
    last = max(float(few[-1]), RADII[1])
    order = LESS * len(few) / np.log(last / few.clip(RADII[1], last)).sum().clip(min=1e-9)
    share = np.searchsorted(nearest, RADII * (1 + 1e-9), side="right") / pairs
    tail = len(few) / pairs * (RADII.clip(min=least) / last).clip(max=1) ** order.clip(max=samples[0].shape[1])
    return 1 - (1 - np.minimum(DENSER * np.maximum(share, tail), 1.0)) ** count


def _pairs(own: np.ndarray, begin: int, other: np.ndarray, where: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Pairs of rows of two samples (n, k) of equal size if one repeats the other as a whole, else none: (·, 2).

    Both are rounded to the coarser precision first. They are one sample if their quantiles are much nearer, column by
    column, than in any of 199 random splits of their rows.
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
    """Whether the samples are five times nearer than any random split of their pooled rows makes them."""
    pooled, n, generator = np.concatenate([own, other]), len(own), np.random.default_rng(0)
    limit = 5 * _quantile_distance(own, other) + 1e-12
    return all(
        _quantile_distance(pooled[order[:n]], pooled[order[n:]]) > limit
        for order in (generator.permutation(2 * n) for _ in range(RESPLITS))
    )
