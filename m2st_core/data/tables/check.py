"""The check of an upload: its sizes, its columns with missing cells and outliers, duplicates and identifiers."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from m2st_core.data.identifiers import names_unit
from m2st_core.data.tables.assemble import Assembled
from m2st_core.data.tables.columns import CATEGORICAL, IDENTIFIER, NUMERIC, TEXT, Column
from m2st_core.data.tables.encoding import Cleaning, compared
from m2st_core.data.tables.questions import Note

FAR = 3.0  # interquartile ranges beyond the quartiles
TOP_LEVELS = 5
PADDED = r"0\d+"  # a code such as 00501


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
        equal = "row of P and Q equals" if between == 1 else "rows of P and Q equal"
        notes.append(f"{between:,} {equal} one of the other sample. No unit may be in both samples.")
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


@dataclass(frozen=True)
class IdentifierReport:
    """A column that tells rows apart, or that names units, such as patients, some of which have several rows.

    ``why`` it was set aside, and whether it could be ``usable`` all the same; a column with repeated units that is
    compared like others has no ``why``. ``in_both`` counts the units with rows in both groups: only they make the
    column useful as a block.
    """

    column: str
    why: str
    usable: bool
    units: int
    repeated: int
    in_both: int

    @property
    def sentence(self) -> str:
        """What was found, and why it matters."""
        if not self.repeated:
            return f"{self.column!r} is not compared: {self.why}."
        both = f", {self.in_both:,} of them in both groups" if self.in_both else ", never in both groups"
        repeats = f"{self.column!r} repeats: {self.repeated:,} of its {self.units:,} values have several rows{both}."
        return f"{repeats} Rows of one unit are not independent."

    def note(self, cleaning: Cleaning, used: bool) -> str:
        """The sentence, with the option that compares the column if there is one; empty if all is settled."""
        settled = (*cleaning.left_out, cleaning.ids)
        if self.column == cleaning.block or (self.column in settled and not self.repeated):
            return ""
        if not self.why or self.column in settled:
            return self.sentence
        if used:
            repeats = f"{self.sentence} " if self.repeated else ""
            return f"{repeats}{self.column!r} is compared by choice, although {self.why}."
        aside = f" {self.column!r} is not compared: {self.why}." if self.repeated else ""
        option = f"--use {shlex.quote(self.column)} compares it all the same." if self.usable else ""
        return Note(f"{self.sentence}{aside}", option)


def check_identifiers(made: Assembled) -> list[IdentifierReport]:
    """Return the columns that were set aside as identifiers, and those whose units have several rows in the target."""
    aside = []
    for name, column in made.columns.items():
        if column.kind == NUMERIC and not names_unit(name):
            continue
        codes, levels = pd.factorize(made.words(name))
        padded = column.kind in (CATEGORICAL, TEXT) and levels.str.fullmatch(PADDED).any()
        names_units = names_unit(name) or padded
        p, q = (codes[span] for span in made.target_spans)
        units, counts = np.unique(codes[: made.target_rows][codes[: made.target_rows] >= 0], return_counts=True)
        repeated = int((counts > 1).sum()) if names_units and len(units) > 2 else 0
        if repeated or column.kind == IDENTIFIER:
            why = column.why if column.kind == IDENTIFIER else ""
            both = len(np.intersect1d(p[p >= 0], q[q >= 0]))
            aside.append(IdentifierReport(name, why, bool(column.holds), len(units), repeated, both))
    return aside


def incomplete_rows(made: Assembled, cleaning: Cleaning) -> int:
    """Count the rows with a missing cell, or one that is not a number, in a column that would be compared."""
    gone = np.zeros(len(made.rows), dtype=bool)
    for name, kind in compared(made, cleaning).items():
        gone |= made.gaps(name, kind)
    return int(gone.sum())
