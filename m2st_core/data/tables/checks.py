"""A check of what an upload holds: its sizes, every column, and repeated rows. Nothing is changed."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from m2st_core.data.tables.assembled import Assembled
from m2st_core.data.tables.columns import NUMERIC, Column

FAR = 3.0  # interquartile ranges beyond the quartiles
TOP_LEVELS = 5


@dataclass(frozen=True)
class ColumnReport(Column):
    """A column with its missing cells and outliers.

    ``missing`` counts cells of (P, Q, related tasks), ``odd`` the cells of a numeric column that are not numbers.
    ``outliers`` are more than three interquartile ranges outside the quartiles. They are reported, never removed.
    """

    missing: tuple[int, int, int] = (0, 0, 0)
    odd: int = 0
    levels: int = 0
    top_levels: tuple[tuple[str, int], ...] = ()
    outliers: int = 0
    minimum: float | None = None
    median: float | None = None
    maximum: float | None = None


@dataclass(frozen=True)
class Check:
    """The report on an upload: sizes, columns, and notes on duplicates and on differences between the files."""

    rows: tuple[int, int, int]  # of P, of Q, of all related tasks
    related_tasks: int
    columns: tuple[ColumnReport, ...]
    notes: tuple[str, ...]


def check(made: Assembled) -> Check:
    """Report on every column and on duplicate rows. Nothing is changed."""
    p, q = made.target_spans
    hashes = np.zeros(len(made.rows), dtype=np.uint64)  # of the used columns of each row
    reports, telling = [], []
    for column in made.columns.values():
        report, codes = _report(made, column)
        reports.append(report)
        if column.used:
            hashes = hashes * np.uint64(1_000_003) + pd.util.hash_array(codes, categorize=False)
            constant = all(len(codes[side]) > 1 and (codes[side] == codes[side][0]).all() for side in (p, q))
            if constant and codes[p][0] != codes[q][0]:
                telling.append(column.name)
    duplicates = [len(hashes[side]) - len(np.unique(hashes[side])) for side in (p, q)]
    between = int(np.isin(hashes[p], hashes[q]).sum() + np.isin(hashes[q], hashes[p]).sum())
    notes = [*made.notes]
    if any(duplicates):
        notes.append(f"Rows that repeat an earlier one: {duplicates[0]:,} in P, {duplicates[1]:,} in Q.")
    if between:
        notes.append(f"{between:,} rows of P and Q are in both. Rows of one unit must not be in both samples.")
    for name in telling:
        notes.append(f"{name!r} has one value in P and another in Q. If it only names the sample, leave it out.")
    sizes = (p.stop, q.stop - q.start, len(made.rows) - made.target_rows)
    return Check(sizes, len(made.related), tuple(reports), tuple(notes))


def _report(made: Assembled, column: Column) -> tuple[ColumnReport, np.ndarray]:
    """The report on a column, and numbers (N,) that are equal where its cells are."""
    p, q = made.target_spans
    report = ColumnReport(column.name, column.kind, column.why, column.unit)
    if column.kind == NUMERIC:
        values = made.numbers(column.name)
        gaps = np.isnan(values)
        missing = made.words(column.name).isna().to_numpy() if gaps.any() else gaps
        low, middle, high = np.quantile(values[~gaps], [0.25, 0.5, 0.75])
        reach = FAR * (high - low)
        codes = np.where(gaps, np.inf, values) + 0.0
        report = replace(
            report,
            odd=int((gaps & ~missing).sum()),
            outliers=int(((values < low - reach) | (values > high + reach)).sum()) if reach > 0 else 0,
            minimum=float(np.nanmin(values)),
            median=float(middle),
            maximum=float(np.nanmax(values)),
        )
    else:
        words = made.words(column.name)
        counts = words.value_counts()
        missing, codes = words.isna().to_numpy(), pd.factorize(words)[0]
        top = tuple((str(level), int(count)) for level, count in counts.head(TOP_LEVELS).items())
        report = replace(report, levels=len(counts), top_levels=top)
    return replace(report, missing=(missing[p].sum(), missing[q].sum(), missing[made.target_rows :].sum())), codes
