"""Recognise rows of a target among the rows of its related tasks: copied, rounded, jittered or in other units.

Rows are compared by the largest difference over their columns, in units of each column's spread. Each sample of the
target is compared with each sample of the related tasks. If far more of its rows have a near row there than chance
allows, these are the same rows. Chance is estimated from samples of different units: the two samples of the target, the
two samples of each task, and samples on the same side of different tasks. Equality is also estimated within samples,
because two samples may be written with different precision.

Matches that chance explains are not recognised, so the search also gives the number of shared rows that could have
escaped it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from scipy.spatial import cKDTree
from scipy.spatial.distance import cdist
from torch import Tensor

from m2st_core.data.related import RelatedTasks
from m2st_core.numbers import NORMAL_QUARTILES
from m2st_core.types import TwoSample

UNIT_RATIO = 1.5  # spreads of a column that differ by more may be in different units
UNIT_WINDOWS = (1e-6, 1e-4, 3e-3)  # relative errors within which ratios of cells are one factor
UNIT_CELLS = 400  # cells of each side whose ratios are compared
FEWEST_VOTES = 4
OTHER_UNITS = (60.0, 3600.0, 24.0, 7.0, 12.0, 2.54, 25.4, 0.3048, 0.4536, 1.609, 4.184, 1.8)
UNITS = np.array([*(10.0 ** np.arange(-9, 10)), *OTHER_UNITS, *(1 / unit for unit in OTHER_UNITS)])
RADII = np.concatenate([[0.0], np.geomspace(1e-9, 0.3, 35)])  # in spreads of a column
WITHIN = RADII * (1 + 1e-9)
ROUNDING = 1e-14  # relative error of values that were scaled and scaled back
SURE = 1e-6  # probability that chance explains the matches of one pair of samples at one radius
COMMON = 50  # smallest distances from which the density of near pairs is extrapolated to smaller radii
LESS = 0.8  # factor on the estimated exponent
DENSER = 2.0  # factor by which chance may exceed its estimate
ALIKE = 0.3  # distance of two samples' quantiles, times √n, below which one may repeat the other
NEARER = 3.0  # factor by which random splits of their rows must be farther apart
RESPLITS = 499
ASSIGNED = 2000  # rows up to which a repeated sample is matched row by row
MOST_PAIRS = 200  # pairs of samples from which chance is estimated
HABITUAL = 0.05  # probability of a tie from which on columns may repeat together, like the answers of a person
DEPENDENT = 20.0  # factor by which rows may be equal more often than if columns were independent
ESCAPED = 0.05  # probability of escaping the search, above which shared rows count as possible
PROJECTIONS = 16  # numbers that represent an image
ColumnUnits = tuple[np.ndarray, np.ndarray]
"""Centre and scale of every column (d,), which turn rows back into the units of their files."""


@dataclass(frozen=True)
class KnownRows:
    """Rows of related tasks (M, k), images projected, the number of a sample that holds each row, and ids: (M,)."""

    rows: np.ndarray = field(repr=False)
    sample: np.ndarray = field(repr=False)
    ids: np.ndarray | None = field(default=None, repr=False)

    def only(self, positions: np.ndarray) -> KnownRows:
        """The rows at these positions."""
        ids = None if self.ids is None else self.ids[positions]
        return KnownRows(self.rows[positions], self.sample[positions], ids)

    @cached_property
    def distinct(self) -> np.ndarray:
        """The distinct rows."""
        return np.unique(self.rows, axis=0)

    @cached_property
    def places(self) -> dict[int, np.ndarray]:
        """The positions of each sample's rows, by its number."""
        numbers, counts = np.unique(self.sample, return_counts=True)
        places = np.split(np.argsort(self.sample, kind="stable"), np.cumsum(counts)[:-1])
        return dict(zip(numbers.tolist(), places, strict=True))

    @cached_property
    def equal_by_chance(self) -> np.ndarray:
        """F(0), the probability that two units are equal, for each side of the tasks: (2, 1). Units do not matter."""
        sides = [[self.rows[place] for number, place in self.places.items() if number % 2 == side] for side in (0, 1)]
        return np.array([[_chance_of_equal_rows(side)] for side in sides])


@dataclass(frozen=True)
class Overlap:
    """Pairs of the same row, by their positions in the pooled target and among the known rows.

    ``unseen`` is the largest number of a sample's rows that could be shared and yet escape the search with probability
    above .05. ``changed``: whether rows with unequal values were recognised. Where ids decide, ``unlike_ids`` counts
    the target's rows that are recognised by their values although their ids differ.
    """

    target: np.ndarray
    known: np.ndarray
    unseen: int = 0
    changed: bool = False
    unlike_ids: int = 0

    def __len__(self) -> int:
        return len(np.unique(self.target))


def known_rows(related: RelatedTasks) -> tuple[KnownRows, np.ndarray]:
    """The rows that the tasks of one repeat use, and their positions in ``related.rows``.

    An image that several samples share belongs to the first of them.
    """
    sides = torch.stack([related.x_weight[0] > 0, related.y_weight[0] > 0], dim=1).flatten(0, 1)  # 2T x L
    sample, entry = torch.nonzero(sides, as_tuple=True)
    positions, first = np.unique(related.where[0][sample // 2, entry].cpu().numpy(), return_index=True)
    rows = _fingerprints(related.rows[0][torch.from_numpy(positions)], related.shape is not None)
    ids = None if related.ids is None else related.ids.numpy()[positions]
    return KnownRows(rows, sample.cpu().numpy()[first], ids), positions


def _fingerprints(rows: Tensor, images: bool) -> np.ndarray:
    """The rows (n, d) to compare; for images a fixed random projection of each to 16 numbers."""
    values = rows.double().cpu().numpy()
    if not images:
        return values
    directions = np.random.default_rng(0).standard_normal((values.shape[1], PROJECTIONS))
    return values @ directions / values.shape[1] ** 0.5


def find_overlap(target: TwoSample, known: KnownRows, units: ColumnUnits | None = None) -> Overlap:
    """Find rows of the target among the known rows: by ids if it has them, else by values in the units of the files."""
    if target.ids is not None:
        if known.ids is None:
            raise ValueError("x and y have an id column and the related tasks have none. Name one that both have.")
        for name, ids in zip("xy", target.ids, strict=True):
            if len(ids) > 1 and bool((ids == ids[0]).all()):
                raise ValueError(f"All rows of {name} have one id, so it identifies no rows. Name another id column.")
        by_ids = _same_ids(torch.cat(target.ids).numpy(), known.ids)
        by_values = _same_values(target, known, units)
        return replace(by_ids, unlike_ids=len(np.setdiff1d(by_values.target, by_ids.target)))
    return _same_values(target, known, units)


def _same_values(target: TwoSample, known: KnownRows, units: ColumnUnits | None) -> Overlap:
    """Find rows of the target among the known rows by their values, in the units of the files."""
    x, y = (_fingerprints(rows, target.shape is not None) for rows in target)
    if units is None:
        return same_rows((x, y), known)
    centre, scale = units
    return same_rows((x * scale + centre, y * scale + centre), KnownRows(known.rows * scale + centre, known.sample))


def _same_ids(target: np.ndarray, known: np.ndarray) -> Overlap:
    """Find the pairs of target rows (N,) and known rows (M,) that have the same id. Nothing escapes."""
    order = np.argsort(known, kind="stable")
    first, last = (np.searchsorted(known[order], target, side=side) for side in ("left", "right"))
    matches = [order[begin:end] for begin, end in zip(first, last, strict=True)]
    return Overlap(np.repeat(np.arange(len(target)), last - first), np.concatenate([order[:0], *matches]))


def same_rows(target: tuple[np.ndarray, np.ndarray], known: KnownRows) -> Overlap:
    """Find rows of the target's x (n, k) and y (m, k) among the known rows.

    Rows of very few different values are too often equal by chance to be recognised one by one. There a whole sample is
    recognised if all its values appear again.
    """
    if not len(known.rows):
        return Overlap(np.zeros(0, dtype=int), np.zeros(0, dtype=int))
    matches, unseen = _matches(target, known)
    matches, pooled = [np.zeros((0, 2), dtype=int), *matches], np.concatenate(target)
    equal = _equal_pairs(pooled, known.rows, np.concatenate(matches))
    factors = _unit_factors(pooled, known.distinct)
    if (factors != 1).any():
        matches += _matches((target[0] * factors, target[1] * factors), known)[0]
        equal |= _equal_pairs(pooled * factors, known.rows, np.concatenate(matches))
    pairs = np.unique(np.concatenate(matches), axis=0)
    return Overlap(pairs[:, 0], pairs[:, 1], unseen, changed=bool(set(pairs[:, 0].tolist()) - equal))


def _equal_pairs(target: np.ndarray, known: np.ndarray, pairs: np.ndarray) -> set[int]:
    """The rows of the target (N, k) that are equal to their match among known rows (M, k), but for rounding errors."""
    a, b = target[pairs[:, 0]], known[pairs[:, 1]]
    tolerance = RADII[1] * _column_spread(known) + ROUNDING * np.maximum(np.abs(a), np.abs(b)) if len(pairs) else 0.0
    return set(pairs[(np.abs(a - b) <= tolerance).all(axis=1), 0].tolist())


def _column_spread(rows: np.ndarray) -> np.ndarray:
    """The spread of each column: its interquartile range, or its standard deviation where that is 0; 1 if constant."""
    low, high = np.quantile(rows, [0.25, 0.75], axis=0)
    with np.errstate(over="ignore", invalid="ignore"):
        spread = np.where(high > low, (high - low) / NORMAL_QUARTILES, rows.std(axis=0))
    return np.where(np.isfinite(spread) & (spread > 0), spread, 1.0)


def _unit_factors(rows: np.ndarray, known: np.ndarray) -> np.ndarray:
    """The factor that turns each column of the target into the units of the known rows: (k,).

    It is a ratio of cells that is far more frequent than others. If rounding hides it and the spreads differ clearly,
    it is the usual factor between units that is nearest to the ratio of the spreads.
    """
    ratio = _column_spread(known) / _column_spread(rows)
    factors = np.ones(rows.shape[1])
    generator = np.random.default_rng(0)
    for column in range(rows.shape[1]):
        of_target, of_tasks = (
            cells if len(cells) <= UNIT_CELLS else generator.choice(cells, UNIT_CELLS, replace=False)
            for cells in (np.unique(rows[:, column]), np.unique(known[:, column]))
        )
        ratios = (of_tasks[of_tasks != 0] / of_target[of_target != 0][:, None]).ravel()
        differs = not 1 / UNIT_RATIO < ratio[column] < UNIT_RATIO
        usual = UNITS[np.abs(np.log(UNITS / ratio[column])).argmin()] if differs else 1.0
        factors[column] = _most_frequent(np.sort(np.log(ratios[ratios > 0]))) or usual
    return factors


def _most_frequent(logs: np.ndarray) -> float | None:
    """The factor around which sorted log-ratios cluster far beyond chance, if there is one."""
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


def _matches(target: tuple[np.ndarray, np.ndarray], known: KnownRows) -> tuple[list[np.ndarray], int]:
    """Pairs (pooled target row, known row) of equal rows in the units as given, (·, 2), and how many could be unseen.

    O(r) rows of each have a row of the other within r, and chance F(r) per pair of rows gives E(r) of them. A radius
    counts if chance explains O(r) with probability below 1e−6. The radius with the largest O(r) − 2·E(r) is used.
    """
    from scipy import stats  # slow to import

    scale = _column_spread(np.concatenate([*target, known.distinct]))
    samples = {number: known.rows[where] / scale for number, where in known.places.items()}
    sides = [rows / scale for rows in target]
    shares = np.maximum(_chance_of_pairs(sides, samples), known.equal_by_chance)
    trees, matches, unseen = [cKDTree(rows) for rows in sides], [], 0
    for (number, sample), where in zip(samples.items(), known.places.values(), strict=True):
        sample_tree, begin, share = cKDTree(sample), 0, shares[number % 2]
        for unscaled, rows, tree in zip(target, sides, trees, strict=True):
            # the smaller of both directions, because many rows near a single one are no copies
            reached = np.minimum(_reached(sample_tree, rows), _reached(tree, sample))
            chance = 1 - (1 - np.minimum(DENSER * share, 1.0)) ** len(where)
            sure = (reached > 0) & (stats.binom.sf(reached - 1, len(rows), chance) < SURE)
            gain = np.where(sure, reached - 2 * len(rows) * chance, 0.0)
            unseen = max(unseen, may_escape(len(rows), chance[0], 1 - (1 - share[0]) ** len(where)))
            if gain.max() > 0:
                near = sample_tree.query_ball_point(rows, WITHIN[np.flatnonzero(gain == gain.max())[-1]], p=np.inf)
                pairs = [(begin + row, where[match]) for row, matching in enumerate(near) for match in matching]
                matches.append(np.array(pairs, dtype=int).reshape(-1, 2))
            if len(where) == len(rows) and gain.max() < len(rows):
                matches.append(_repeated(unscaled, begin, known.rows[where], where, scale))
            begin += len(rows)
    return matches, unseen


def _reached(tree: cKDTree, rows: np.ndarray) -> np.ndarray:
    """The number of rows that have a row of the tree within each radius: (radii,)."""
    nearest, _ = tree.query(rows, p=np.inf, distance_upper_bound=WITHIN[-1])
    return (nearest[:, None] <= WITHIN).sum(axis=0)


@lru_cache(maxsize=1024)
def may_escape(rows: int, assumed: float, expected: float) -> int:
    """The largest number of n rows that could be copies of known rows and escape the search with probability above .05.

    The search needs k matches, the fewest that chance explains with probability below 1e−6 if each row has a match with
    probability ``assumed``. Copies have one for certain, and each other row with probability ``expected``.

    >>> may_escape(40, 0.0, 0.0), may_escape(40, 0.08, 0.04)
    (0, 14)
    """
    from scipy import stats  # slow to import

    counts = np.arange(rows + 1)
    enough = np.flatnonzero((stats.binom.sf(counts - 1, rows, assumed) < SURE) & (counts > 0))
    needed = int(enough[0]) if enough.size else rows + 1
    return int(np.flatnonzero(stats.binom.cdf(needed - 1 - counts, rows - counts, expected) > ESCAPED)[-1:].sum())


def _chance_of_pairs(target: Sequence[np.ndarray], samples: Mapping[int, np.ndarray]) -> np.ndarray:
    """F(r), the share of pairs of different units within r, for each side of the tasks and every radius: (2, radii).

    ``samples`` are numbered 2i and 2i+1 for task i. One side of all tasks may be one control group, and rows of one
    sample may be replicates, so on each side the smaller share counts: between tasks, or within samples.
    """
    sides = [[samples[k] for k in samples if k % 2 == side] for side in (0, 1)]
    across = _share_of_near_pairs([(target[0], target[1]), *zip(*sides, strict=False)])
    shares = []
    for side in sides:
        within = _share_of_near_pairs([(np.unique(rows, axis=0), None) for rows in side])
        between = _share_of_near_pairs(list(zip(side, side[1:], strict=False))) if len(side) > 1 else 1.0
        shares.append(np.maximum(across, np.minimum(within, between)))
    return np.stack(shares)


def _chance_of_equal_rows(samples: Sequence[np.ndarray]) -> float:
    """F(0), the probability that two units of one side are equal, from pairs within each of its samples.

    Σ_v p_v q_v ≤ √(Σ_v p_v² · Σ_v q_v²): two samples meet no more often than rows within them do. Rows that are
    repeated in all columns may be one unit, so the share of equal rows counts up to twenty times what the columns would
    give: the product of their ties over distinct rows. Columns with few values count as one, because the answers of one
    person can repeat together. If no rows are equal, their chance is at most that of one pair among all pairs.
    """
    if not samples:
        return 0.0
    pairs = max(sum(len(rows) * (len(rows) - 1) for rows in samples), 1)
    equal = sum(map(_number_of_equal_pairs, samples)) / pairs
    distinct = np.unique(np.concatenate(samples), axis=0)
    pairs_of_distinct = max(len(distinct) * (len(distinct) - 1), 1)
    ties = np.array([_number_of_equal_pairs(column) for column in distinct.T]) / pairs_of_distinct
    habitual = ties > HABITUAL
    by_columns = np.exp(np.log(ties[~habitual].clip(1e-300)).sum())
    if habitual.any():
        by_columns *= max(sum(_number_of_equal_pairs(rows[:, habitual]) for rows in samples), 2) / pairs
    return float(max(min(equal, DEPENDENT * by_columns), min(by_columns, 2 / pairs)))


def _number_of_equal_pairs(rows: np.ndarray) -> int:
    """The ordered pairs of equal rows (n, k), or of equal cells (n,)."""
    counts = np.unique(rows, axis=0, return_counts=True)[1]
    return int((counts * (counts - 1)).sum())


def _share_of_near_pairs(pairs: Sequence[tuple[np.ndarray, np.ndarray | None]]) -> np.ndarray:
    """The share of row pairs of two samples, or of one, within r, by nearest neighbours; 0 without samples: (radii,).

    Below the smallest 50 distances it follows their power law, by Hill's estimate of the exponent, lowered by a fifth.
    """
    pairs = [(a, b) for a, b in pairs if len(a) > 1][:MOST_PAIRS]
    if not pairs:
        return np.zeros(len(RADII))
    nearest = [
        cKDTree(a).query(a, k=[2], p=np.inf)[0][:, 0] if b is None else cKDTree(b).query(a, p=np.inf)[0]
        for a, b in pairs
    ]
    ordered = np.sort(np.concatenate(nearest))
    count = sum(len(a) * (len(a) - 1 if b is None else len(b)) for a, b in pairs)
    few = ordered[:COMMON]
    last = max(float(few[-1]), RADII[1])
    order = LESS * len(few) / np.log(last / few.clip(RADII[1], last)).sum().clip(min=1e-9)
    tail = len(few) / count * (RADII / last).clip(max=1) ** order.clip(max=pairs[0][0].shape[1])
    return np.maximum(np.searchsorted(ordered, WITHIN, side="right") / count, tail)


def _repeated(sample: np.ndarray, begin: int, known: np.ndarray, where: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Pairs of rows of two samples (n, k) of equal size if one repeats the other as a whole, else none: (·, 2).

    Both are rounded to the coarser precision first. They are one sample if their quantiles are much nearer, column by
    column, than in any of 499 random splits of their rows.
    """
    decimals = np.minimum(_decimals(sample), _decimals(known)).tolist()
    a, b = (
        np.stack([np.round(c, p) for c, p in zip(rows.T, decimals, strict=True)], axis=1) / scale
        for rows in (sample, known)
    )
    distance, n, generator = _quantile_distance(a, b), len(a), np.random.default_rng(0)
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


def _decimals(rows: np.ndarray) -> np.ndarray:
    """The number of decimals of each column's cells, at most 12: (n, k) → (k,)."""
    exact = [np.abs(np.round(rows, decimals) - rows).max(axis=0) <= 1e-12 for decimals in range(12)]
    return np.argmax([*exact, np.ones(rows.shape[1], dtype=bool)], axis=0)


def _quantile_distance(a: np.ndarray, b: np.ndarray) -> float:
    """The mean difference of the sorted cells, in the column where it is largest, of rows (n, k)."""
    return float(np.abs(np.sort(a, axis=0) - np.sort(b, axis=0)).mean(axis=0).max())
