"""What was found in an upload, column by column, before anything is changed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from m2st_core.data.tables.assembled import NUMERIC, Assembled

FAR = 3.0  # interquartile ranges beyond the quartiles
TOP_LEVELS = 5
NO_LEVELS = pd.Series(dtype=int)


@dataclass(frozen=True)
class ColumnReport:
    """One column: its kind, whether and why it is set aside, what is missing and what stands out.

    ``missing`` counts cells of (P, Q, related tasks), ``odd`` the cells that are no numbers in a column of numbers,
    ``outliers`` values more than three interquartile ranges outside the quartiles; they are shown, never removed.
    """

    name: str
    kind: str
    used: bool
    why: str
    missing: tuple[int, int, int]
    odd: int
    odd_example: str
    levels: int
    top_levels: tuple[tuple[str, int], ...]
    outliers: int
    minimum: float | None
    median: float | None
    maximum: float | None


@dataclass(frozen=True)
class Duplicates:
    """Rows whose used columns are all alike: repeats within P, within Q, rows of P in Q."""

    within_p: int
    within_q: int
    between: int

    @property
    def notes(self) -> tuple[str, ...]:
        """What to tell."""
        found = []
        if self.within_p or self.within_q:
            found.append(f"Rows that repeat an earlier one: {self.within_p:,} in P, {self.within_q:,} in Q.")
        if self.between:
            found.append(f"{self.between:,} rows of P and Q are in both. Rows of one unit must not be in both samples.")
        return tuple(found)


@dataclass(frozen=True)
class Check:
    """The whole report: sizes, columns, duplicates, and notes on what differs between the files."""

    rows: tuple[int, int, int]  # of P, of Q, of all related tasks
    tasks: tuple[tuple[str, int, int], ...]
    columns: tuple[ColumnReport, ...]
    duplicates: Duplicates
    notes: tuple[str, ...]

    @property
    def frame(self) -> pd.DataFrame:
        """The columns as a table to show."""
        return pd.DataFrame([asdict(column) for column in self.columns])

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)


def check(made: Assembled) -> Check:
    """Look at everything, change nothing."""
    spans = made.spans
    p, q = spans[0] if made.target else (slice(0, 0), slice(0, 0))
    parts = (p, q, slice(made.target_rows, None))
    fingerprint = np.zeros(len(made.rows), dtype=np.uint64)
    columns, telling = [], []
    for column in made.columns.values():
        numeric = column.kind == NUMERIC
        values = made.numbers(column.name) if numeric else np.zeros(0)
        gone = np.isnan(values)
        found, odd, counts = values[~gone], np.zeros(0, dtype=int), NO_LEVELS
        if not numeric or gone.any():
            words = made.words(column.name)
            unfilled = words.isna().to_numpy()
            odd = np.flatnonzero(gone & ~unfilled) if numeric else odd
            counts = counts if numeric else words.value_counts()
            gone = unfilled
        if column.used:
            key = np.where(np.isnan(values), np.inf, values) + 0.0 if numeric else pd.factorize(words)[0]
            fingerprint = fingerprint * np.uint64(1_000_003) + pd.util.hash_array(key, categorize=False)
            if _names_the_sample(key[p], key[q]):
                telling.append(column.name)
        columns.append(
            ColumnReport(
                name=column.name,
                kind=column.kind,
                used=column.used,
                why=column.why,
                missing=(int(gone[parts[0]].sum()), int(gone[parts[1]].sum()), int(gone[parts[2]].sum())),
                odd=len(odd),
                odd_example=f"{made.where(int(odd[0]))}: {str(words.iloc[odd[0]])[:40]!r}" if len(odd) else "",
                levels=len(counts),
                top_levels=tuple((str(level), int(count)) for level, count in counts.head(TOP_LEVELS).items()),
                outliers=_outliers(found),
                minimum=float(found.min()) if found.size else None,
                median=float(np.median(found)) if found.size else None,
                maximum=float(found.max()) if found.size else None,
            )
        )
    duplicates = _duplicates(fingerprint, parts[:2])
    tasks = [(pair.name, len(pair.p.positions), len(pair.q.positions)) for pair in made.related]
    sizes = (p.stop - p.start, q.stop - q.start, len(made.rows) - made.target_rows)
    said = [
        f"{name!r} has one value in P and another in Q. If it only names the sample, leave it out." for name in telling
    ]
    return Check(sizes, tuple(tasks), tuple(columns), duplicates, (*made.notes, *duplicates.notes, *said))


def _names_the_sample(p: np.ndarray, q: np.ndarray) -> bool:
    """Whether a column is constant in P and constant in Q, but not the same."""
    return bool(p.size > 1 and q.size > 1 and p[0] != q[0] and (p == p[0]).all() and (q == q[0]).all())


def _outliers(values: np.ndarray) -> int:
    """How many values lie far outside the quartiles; none if half of them are alike."""
    if values.size < 4:
        return 0
    low, high = np.quantile(values, [0.25, 0.75])
    reach = FAR * (high - low)
    return int(((values < low - reach) | (values > high + reach)).sum()) if reach > 0 else 0


def _duplicates(rows: np.ndarray, parts: Sequence[slice]) -> Duplicates:
    """By a 64-bit fingerprint of each row."""
    p, q = (rows[part] for part in parts)
    between = int(np.isin(p, q).sum() + np.isin(q, p).sum())
    return Duplicates(
        within_p=len(p) - len(np.unique(p)),
        within_q=len(q) - len(np.unique(q)),
        between=between,
    )
