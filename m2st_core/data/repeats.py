"""Rows that repeat far more often than their columns allow: copies, or several measurements of one unit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

FEWEST = 12  # rows, or values of a column, below which repeats, or one column that follows another, may be chance
FEWER = 0.6  # different rows, as a share of those that the columns let expect
RARE = 1e-4  # chance that all rows repeat in multiples of one number
EVEN = 0.5  # of the values that draws from its places would have are in a column such as 1 to 5
DEPENDENT = 0.5  # share of its information that such a column adds to the others
MOST_PLACES = 10_000  # of such a column
TOLERANCE = 1e-6  # of a step, for values that were scaled
SUPPOSES = "The p-value supposes that repeated rows are independent observations."


class Column(NamedTuple):
    """The code of each row's value, how often each value is there, and the number of even steps they lie on, or 0."""

    codes: np.ndarray
    counts: np.ndarray
    places: int

    @property
    def even(self) -> bool:
        """Whether repeats come from the column's precision."""
        return self.places > 0

    @property
    def log_tie(self) -> float:
        """The logarithm of the chance that two rows agree."""
        pairs = float((self.counts * (self.counts - 1.0)).sum())
        return float(np.log(max(pairs, 1e-300) / (len(self.codes) * (len(self.codes) - 1.0))))

    @property
    def designed(self) -> bool:
        """Whether all its values, or those of the factor that it indicates, are there equally often."""
        indicates = self.places == 2 and len(self.codes) % int(self.counts.min()) == 0
        return self.places == len(self.counts) and (indicates or bool(np.ptp(self.counts) == 0))


def repeated_rows_note(rows: np.ndarray) -> tuple[str, ...]:
    """Note that few of the pooled rows (N, d) are different, if far fewer are than their columns let expect.

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
        columns.append(Column(codes, np.bincount(codes), _places(np.sort(different), len(rows))))
    counts = np.unique(_joint(columns), return_counts=True)[1]
    if not _repeat(columns, counts):
        return ()
    return (
        f"{len(rows):,} rows, only {len(counts):,} different. {SUPPOSES} If they are copies, or come from one unit, "
        "keep one of each, or it is too small.",
    )


def repeats_in(notes: Iterable[str]) -> str:
    """The note on repeated rows among others; empty if there is none."""
    return next((note for note in notes if SUPPOSES in note), "")


def _repeat(columns: Sequence[Column], counts: np.ndarray) -> bool:
    """Whether rows that are there so many times repeat too often, by the columns that others do not determine.

    They do if all are there k, 2k, 3k … times, which rarely happens to independent draws; a design in which each value
    is there equally often is no surprise. They also do if far fewer are different than expected.
    """
    copied = _are_multiples(counts)
    if not copied and not _too_few(columns, len(counts)):
        return False
    even = sorted((c for c in columns if c.even), key=lambda c: -len(c.counts))
    kept: list[Column] = []
    for column in even:
        if not any(len(other.counts) >= FEWEST and _determine([other], column) for other in kept):
            kept.append(column)
    kept += [c for c in columns if not c.even and not (even and _determine(even, c))]
    return (copied and not all(c.designed for c in kept)) or _too_few(kept, len(counts))


def _are_multiples(counts: np.ndarray) -> bool:
    """Whether counts have a common divisor k > 1 though they are many: each has it with a chance of about 1/k."""
    divisor = int(np.gcd.reduce(counts))
    return divisor > 1 and min(divisor, 3.0) ** (1 - len(counts)) < RARE


def _too_few(columns: Sequence[Column], different: int) -> bool:
    """Whether far fewer rows are different than if the columns were independent, those with even steps about half.

    If two rows agree with probability S, they are drawn from about 1/S equally likely ones. S is the product of the
    columns' chances of a tie. Columns of answers, counts and indicators go together, so each counts by a root.
    """
    log_tie = sum(column.log_tie * (DEPENDENT if column.even else 1.0) for column in columns)
    return different <= FEWER * _expected(len(columns[0].codes), float(np.exp(min(-log_tie, 50.0))))


def _expected(draws: int, places: float) -> float:
    """How many draws from equally likely places are different."""
    return float(-places * np.expm1(draws * np.log1p(-1 / places))) if places > 1 else 1.0


def _determine(columns: Sequence[Column], other: Column) -> bool:
    """Whether rows that agree in these columns agree in the other one."""
    known = pd.factorize(_joint(columns))[0]
    return len(np.unique(known * len(other.counts) + other.codes)) == known.max() + 1


def _joint(columns: Sequence[Column]) -> np.ndarray:
    """One number per row, equal if all columns are."""
    hashes = np.zeros(len(columns[0].codes), dtype=np.uint64)
    for column in columns:
        hashes = hashes * np.uint64(1_000_003) + pd.util.hash_array(column.codes, categorize=False)
    return hashes


def _places(different: np.ndarray, rows: int) -> int:
    """How many even steps these sorted values lie on, if on at least half as many as draws from all; otherwise 0."""
    if len(different) < 3:
        return len(different)
    steps = (different - different[0]) / np.diff(different).min()
    if steps[-1] > MOST_PLACES or (np.abs(steps - steps.round()) > TOLERANCE * steps[-1]).any():
        return 0
    places = round(steps[-1]) + 1
    return places if len(different) >= EVEN * _expected(rows, places) else 0
