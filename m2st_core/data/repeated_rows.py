"""Rows that repeat more often than chance allows.

They may be copies, or repeated measurements of a unit, and are not independent. Their order and labels are not used.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.special import pdtrc

RARE = 1e-4  # chance of as many repeats in independent draws, or that all rows repeat in multiples of one number

FEWEST = 12  # rows, or values of a column, from which on repeats, or one column that determines another, are evidence
FEWER = 0.6  # share of the expected number of different rows, below which rows repeat too often
EVEN = 0.5  # share of the expected number of values that an evenly spaced column must have
DEPENDENT = 0.5  # share of its information that an evenly spaced column adds to the others
LONGEST_GRID = 10_000
TOLERANCE = 1e-6  # of a step, for values that were scaled
SAME = 1e-7  # difference of copies, as a share of a column's spread
FINE = 0.05  # probability of a tie up to which a column is evidence of copies
TIES_ADDED = 3  # 95 % bound on equal pairs where none is observed
TOGETHER = 0.9  # rank correlation from which on columns tie together
MOST_COLUMNS = 30  # by which repeats are explained
SUPPOSES = "The p-value supposes that repeated rows are independent observations."


class _Values(NamedTuple):
    """The values of a column: the code of each row's, their frequencies, and the length of their even grid, or 0.

    The values 1, 2, 4 and 5 are on a grid of length 5.
    """

    codes: np.ndarray
    counts: np.ndarray
    grid: int

    @property
    def log_tie(self) -> float:
        """The log-probability that two rows agree."""
        pairs = float((self.counts * (self.counts - 1.0)).sum())
        return float(np.log(max(pairs, 1e-300) / (len(self.codes) * (len(self.codes) - 1.0))))

    @property
    def designed(self) -> bool:
        """Whether all values, or those of the factor of which this is an indicator, are equally frequent."""
        is_indicator = self.grid == 2 and len(self.codes) % int(self.counts.min()) == 0
        return self.grid == len(self.counts) and (is_indicator or bool(np.ptp(self.counts) == 0))


def repeated_rows_note(rows: np.ndarray) -> tuple[str, ...]:
    """Note how few of the pooled rows (N, d) are different, if far fewer are than their columns let expect.

    >>> repeated_rows_note(np.tile(np.random.default_rng(0).standard_normal((12, 3)), (5, 1)))[0].split(".")[0]
    '60 rows, only 12 different'
    >>> repeated_rows_note(np.random.default_rng(0).integers(1, 6, (200, 2)).astype(float))
    ()
    """
    if len(rows) < FEWEST:
        return ()
    groups, is_copy = _groups_of_equal_rows(rows)
    repeated = int(is_copy.sum())
    different = len(rows) - repeated
    if not repeated or not _beyond_chance(rows[~is_copy], len(rows), int(is_copy[~_at_an_end(rows)].sum())):
        columns = []
        for values in rows.T:
            codes, levels = pd.factorize(values)
            if len(levels) > FEWER * len(rows):
                return ()
            columns.append(_Values(codes, np.bincount(codes), _grid(np.sort(levels), len(rows))))
        if not _repeat_too_often(columns, np.bincount(groups)):
            return ()
    return (
        f"{len(rows):,} rows, only {different:,} different. {SUPPOSES} If they are copies, or come from one unit, "
        "keep one of each: otherwise the p-value is too small.",
    )


def repeats_in(notes: Iterable[str]) -> str:
    """The note on repeated rows among these notes; empty if there is none."""
    return next((note for note in notes if SUPPOSES in note), "")


def _groups_of_equal_rows(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The number of each row's group of equal rows, and whether the row repeats an earlier one: (N,) each."""
    groups = np.zeros(len(rows), dtype=np.int64)
    for values in rows.T:
        if groups.max() == len(rows) - 1:
            break
        low, high = np.quantile(values, [0.25, 0.75])
        codes = pd.factorize(np.round(values / (SAME * (high - low))) if high > low else values)[0]
        groups = pd.factorize(groups * len(rows) + codes)[0]
    return groups, pd.Series(groups).duplicated().to_numpy()


def _at_an_end(rows: np.ndarray) -> np.ndarray:
    """Mark the rows that are at an end of the range in all columns, such as rows of zeros: (N,)."""
    return ((rows == rows.min(axis=0)) | (rows == rows.max(axis=0))).all(axis=1)


def _beyond_chance(different: np.ndarray, rows: int, repeated: int) -> bool:
    """Whether the number of repeated rows among N has probability below 1e−4 by chance, by Poisson's law.

    Two rows are equal by chance with the probability that their columns tie, each as often as among the different rows
    (U, d): the product over columns, over √det R, where R are the correlations of their ranks. A column on a grid ties
    as often as draws from half of it. Of columns with nearly the same ranks, the one with most ties counts for all.
    Columns in which ties are frequent are no evidence.
    """
    pairs = max(len(different) * (len(different) - 1) / 2, 1.0)
    ties = np.zeros(different.shape[1])
    for column, values in enumerate(different.T):
        codes, levels = pd.factorize(values)
        counts, grid = np.bincount(codes), _grid_steps(np.sort(levels))
        equal = float((counts * (counts - 1.0)).sum() / 2)
        ties[column] = max((equal + TIES_ADDED) / pairs, 2 / grid if grid else 0.0)
    fine = np.argsort(ties, kind="stable")[:MOST_COLUMNS]
    fine = fine[ties[fine] <= FINE]
    if repeated < 2 or not len(fine):
        return False
    ranks = np.stack([pd.Series(different[:, column]).rank().to_numpy() for column in fine])
    correlations = np.atleast_2d(np.corrcoef(ranks))
    leaders: list[int] = []  # the first columns of those with nearly the same ranks
    largest = ties[fine]
    for index in range(len(fine)):
        leader = next((first for first in leaders if abs(correlations[index, first]) > TOGETHER), None)
        if leader is None:
            leaders.append(index)
        else:
            largest[leader] = max(largest[leader], largest[index])
    tied = np.log(largest[leaders]).sum() - np.linalg.slogdet(correlations[np.ix_(leaders, leaders)])[1] / 2
    return bool(pdtrc(repeated - 1, rows * (rows - 1) / 2 * np.exp(tied)) < RARE)


def _repeat_too_often(columns: Sequence[_Values], counts: np.ndarray) -> bool:
    """Whether rows with these frequencies repeat too often, by the columns that others do not determine.

    They do if all frequencies are multiples of one number, which is rare for independent draws, unless a design makes
    all values equally frequent. They also do if far fewer rows are different than expected.
    """
    divisor = int(np.gcd.reduce(counts))  # of each frequency with a probability of about 1/divisor
    copied = divisor > 1 and min(divisor, 3.0) ** (1 - len(counts)) < RARE
    if not copied and not _too_few(columns, len(counts)):
        return False
    even = sorted((c for c in columns if c.grid), key=lambda c: -len(c.counts))
    free: list[_Values] = []
    for column in even:
        if not any(len(before.counts) >= FEWEST and _determine([before], column) for before in free):
            free.append(column)
    free += [c for c in columns if not c.grid and not (even and _determine(even, c))]
    return (copied and not all(c.designed for c in free)) or _too_few(free, len(counts))


def _too_few(columns: Sequence[_Values], different: int) -> bool:
    """Whether far fewer rows are different than if the columns were independent, evenly spaced ones about half.

    If two rows agree with probability S, they are drawn from about 1/S equally likely ones. S is the product of the
    columns' probabilities of a tie. Answers, counts and indicators depend on each other, so their root is taken.
    """
    log_tie = sum(column.log_tie * (DEPENDENT if column.grid else 1.0) for column in columns)
    return different <= FEWER * _expected(len(columns[0].codes), float(np.exp(min(-log_tie, 50.0))))


def _expected(draws: int, values: float) -> float:
    """The expected number of different values among draws from equally likely ones."""
    return float(-values * np.expm1(draws * np.log1p(-1 / values))) if values > 1 else 1.0


def _determine(columns: Sequence[_Values], column: _Values) -> bool:
    """Whether rows that agree in these columns agree in another one."""
    joint = pd.factorize(_joint(columns))[0]
    return len(np.unique(joint * len(column.counts) + column.codes)) == joint.max() + 1


def _joint(columns: Sequence[_Values]) -> np.ndarray:
    """One number per row, equal if all columns are."""
    hashes = np.zeros(len(columns[0].codes), dtype=np.uint64)
    for column in columns:
        hashes = hashes * np.uint64(1_000_003) + pd.util.hash_array(column.codes, categorize=False)
    return hashes


def _grid_steps(different: np.ndarray) -> int:
    """The length of the even grid that sorted values lie on, with or without gaps; 0 if they lie on none."""
    if len(different) < 3:
        return len(different)
    steps = (different - different[0]) / np.diff(different).min()
    even = steps[-1] <= LONGEST_GRID and (np.abs(steps - steps.round()) <= TOLERANCE * steps[-1]).all()
    return round(steps[-1]) + 1 if even else 0


def _grid(different: np.ndarray, rows: int) -> int:
    """The length of the even grid of sorted values; 0 if they are not even, or fewer than half of those expected."""
    length = _grid_steps(different)
    return length if length < 3 or len(different) >= EVEN * _expected(rows, length) else 0
