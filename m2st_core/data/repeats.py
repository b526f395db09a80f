"""Recognise rows that repeat more often than their columns let expect: copies, or repeated measurements of a unit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

FEWEST = 12  # rows, or values of a column, from which on repeats, or one column that determines another, are evidence
FEWER = 0.6  # share of the expected number of different rows, below which rows repeat too often
RARE = 1e-4  # probability that all rows repeat in multiples of one number by chance
EVEN = 0.5  # share of the expected number of values that an evenly spaced column must have
DEPENDENT = 0.5  # share of its information that an evenly spaced column adds to the others
LONGEST_GRID = 10_000
TOLERANCE = 1e-6  # of a step, for values that were scaled
SUPPOSES = "The p-value supposes that repeated rows are independent observations."


class Values(NamedTuple):
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
    columns = []
    for values in rows.T:
        codes, different = pd.factorize(values)
        if len(different) > FEWER * len(rows):
            return ()
        columns.append(Values(codes, np.bincount(codes), _grid(np.sort(different), len(rows))))
    counts = np.unique(_joint(columns), return_counts=True)[1]
    if not _repeat_too_often(columns, counts):
        return ()
    return (
        f"{len(rows):,} rows, only {len(counts):,} different. {SUPPOSES} If they are copies, or come from one unit, "
        "keep one of each: otherwise the p-value is too small.",
    )


def repeats_in(notes: Iterable[str]) -> str:
    """The note on repeated rows among these notes; empty if there is none."""
    return next((note for note in notes if SUPPOSES in note), "")


def _repeat_too_often(columns: Sequence[Values], counts: np.ndarray) -> bool:
    """Whether rows with these frequencies repeat too often, by the columns that others do not determine.

    They do if all frequencies are multiples of one number, which is rare for independent draws, unless a design makes
    all values equally frequent. They also do if far fewer rows are different than expected.
    """
    divisor = int(np.gcd.reduce(counts))  # of each frequency with a probability of about 1/divisor
    copied = divisor > 1 and min(divisor, 3.0) ** (1 - len(counts)) < RARE
    if not copied and not _too_few(columns, len(counts)):
        return False
    even = sorted((c for c in columns if c.grid), key=lambda c: -len(c.counts))
    free: list[Values] = []
    for column in even:
        if not any(len(before.counts) >= FEWEST and _determine([before], column) for before in free):
            free.append(column)
    free += [c for c in columns if not c.grid and not (even and _determine(even, c))]
    return (copied and not all(c.designed for c in free)) or _too_few(free, len(counts))


def _too_few(columns: Sequence[Values], different: int) -> bool:
    """Whether far fewer rows are different than if the columns were independent, evenly spaced ones about half.

    If two rows agree with probability S, they are drawn from about 1/S equally likely ones. S is the product of the
    columns' probabilities of a tie. Answers, counts and indicators depend on each other, so their root is taken.
    """
    log_tie = sum(column.log_tie * (DEPENDENT if column.grid else 1.0) for column in columns)
    return different <= FEWER * _expected(len(columns[0].codes), float(np.exp(min(-log_tie, 50.0))))


def _expected(draws: int, values: float) -> float:
    """The expected number of different values among draws from equally likely ones."""
    return float(-values * np.expm1(draws * np.log1p(-1 / values))) if values > 1 else 1.0


def _determine(columns: Sequence[Values], column: Values) -> bool:
    """Whether rows that agree in these columns agree in another one."""
    joint = pd.factorize(_joint(columns))[0]
    return len(np.unique(joint * len(column.counts) + column.codes)) == joint.max() + 1


def _joint(columns: Sequence[Values]) -> np.ndarray:
    """One number per row, equal if all columns are."""
    hashes = np.zeros(len(columns[0].codes), dtype=np.uint64)
    for column in columns:
        hashes = hashes * np.uint64(1_000_003) + pd.util.hash_array(column.codes, categorize=False)
    return hashes


def _grid(different: np.ndarray, rows: int) -> int:
    """The length of the even grid of sorted values; 0 if they are not even, or fewer than half of those expected."""
    if len(different) < 3:
        return len(different)
    steps = (different - different[0]) / np.diff(different).min()
    if steps[-1] > LONGEST_GRID or (np.abs(steps - steps.round()) > TOLERANCE * steps[-1]).any():
        return 0
    length = round(steps[-1]) + 1
    return length if len(different) >= EVEN * _expected(rows, length) else 0
