"""Columns of cells: their names, their numbers with a decimal point or comma, and their kinds."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from m2st_core.data.arrays import LARGEST_WHOLE
from m2st_core.data.tables.limits import Limits
from m2st_core.data.tables.text import MISSING

SPACED = re.compile(r"[+-]?\d{1,3}([ \u00a0\u202f'’]\d{3})+([.,]\d*)?")
SPACES = re.compile(r"[ \u00a0\u202f'’]")
STYLES = {
    mark: re.compile(rf"[+-]?(\d{{1,3}}([{group}]\d{{3}})+|\d+)?([{mark}]\d*)?([eE][+-]?\d+)?")
    for mark, group in ((".", ","), (",", "."))
}
GROUPED = {",": re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+"), ".": re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})+")}
LONGEST_NAME = 100
MOST_NOTES = 3
MOST_CELLS = 1_000  # different cells that are read to decide how a column is written
NUMERIC, CATEGORICAL, DATE, TEXT = "numeric", "categorical", "date", "free text"
CONSTANT, EMPTY, RUNNING = "constant", "all missing", "row number"
RUNNING_NAMES = re.compile(r"column \d+|unnamed: \d+|__index_level_\d+__|index|id|row|nr|no|number", re.IGNORECASE)
MOSTLY = 0.8  # share of its cells that makes a column numeric, or one of dates
DATES = re.compile(
    r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}([T ].*)?|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}([T ].*)?|\d{1,2}:\d{2}(:\d{2}.*)?"
    r"|\d{1,2}[. -]+[^\W\d]{3,9}[., -]+\d{2,4}|[^\W\d]{3,9} \d{1,2},? \d{4}",
)
LONG_NUMBER = re.compile(r"[+-]?\d{16,}")
FEW_WORDS = 5


def parse(cell: str, mark: str) -> float:
    """Read the number in a cell with this decimal mark; NaN if there is none.

    >>> parse("1.234,5", ","), parse("1,234.5", "."), parse("1 234", "."), parse("dog", ".")
    (1234.5, 1234.5, 1234.0, nan)
    """
    text = cell.strip().replace("−", "-")
    if SPACED.fullmatch(text):
        text = SPACES.sub("", text)
    if not STYLES[mark].fullmatch(text):
        return np.nan
    try:
        return float(text.replace("." if mark == "," else ",", "").replace(",", "."))
    except ValueError:
        return np.nan


def decimal_mark(cells: Iterable[str]) -> str | None:
    """The decimal mark that these cells must have been written with, "," or "."; None if both are possible.

    >>> decimal_mark(["1,5", "2"]), decimal_mark(["1,234"]), decimal_mark(["1,234,567"])
    (',', None, '.')
    """
    votes = {".": 0, ",": 0}
    for cell in cells:
        text = SPACES.sub("", cell)
        points, commas = text.count("."), text.count(",")
        if not points and not commas:
            continue
        for mark, marks, others in ((".", points, commas), (",", commas, points)):
            written = marks == 1 and not GROUPED[mark].fullmatch(text) or others > 1
            votes[mark] += written and np.isfinite(parse(text, mark))
    if votes["."] == votes[","]:
        return None
    return "." if votes["."] > votes[","] else ","


def numbers(cells: pd.Series, mark: str = ".") -> np.ndarray:
    """One float64 per cell: NaN if it is missing, infinite or not a number."""
    if pd.api.types.is_numeric_dtype(cells.dtype):
        values = cells.to_numpy(dtype=np.float64, na_value=np.nan)
    elif pd.api.types.is_datetime64_any_dtype(cells.dtype):
        return np.full(len(cells), np.nan)
    elif mark == ".":
        values = pd.to_numeric(cells, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
        left = np.isnan(values) & cells.notna().to_numpy()
        if left.any():
            values = values.copy()
            values[left] = _by_unique(cells[left], mark)
    else:
        values = _by_unique(cells, mark)
    return np.where(np.isfinite(values), values, np.nan)


def _by_unique(cells: pd.Series, mark: str) -> np.ndarray:
    """Parse each different cell once."""
    codes, different = pd.factorize(cells)
    values = np.array([*(parse(str(cell), mark) for cell in different), np.nan])
    return values[codes]


def is_header(first: Sequence[str], below: Sequence[list[str]]) -> bool:
    """Whether a row has words other than the values of its columns."""
    filled = [i for i, cell in enumerate(first) if cell]
    words = [i for i in filled if first[i] not in MISSING and all(np.isnan(parse(first[i], mark)) for mark in ".,")]
    if len(words) == len(filled):
        return bool(words)
    return bool(words) and not any(first[i] == row[i].strip() for i in words for row in below if i < len(row))


def clean_names(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Names on one line, none blank and none twice, and notes on what was changed."""
    clean: list[str] = []
    notes = []
    lines = [" ".join(name.split()) for name in names]
    wanted = [name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…" for name in lines]
    taken, used = set(wanted), set()
    for position, short in enumerate(wanted, start=1):
        base = short or f"column {position}"
        unique, count = base, 1
        while unique in used or (unique != short and unique in taken):
            count += 1
            unique = f"{base} ({count})"
        if short and unique != short:
            notes.append(f"Two columns are called {short!r}: the one at position {position} is now {unique!r}.")
        used.add(unique)
        clean.append(unique)
    more = len(notes) - MOST_NOTES
    return clean, notes if more <= 0 else [*notes[:MOST_NOTES], f"{more:,} more columns were renamed like this."]


def decimal_commas(frame: pd.DataFrame, separator: str) -> tuple[frozenset[str], list[str]]:
    """The columns whose decimal mark is a comma, and notes.

    A column's own cells decide if they can. Otherwise 1,234 is a decimal number if the file has semicolons or another
    column has a decimal comma, and a thousand if not.
    """
    marks: dict[str, str | None] = {}
    unsure: list[str] = []
    for column in frame.columns:
        cells = frame[column].dropna()
        odd = cells[pd.to_numeric(cells, errors="coerce").isna().to_numpy()].unique()[:MOST_CELLS]
        marks[column] = decimal_mark(odd) if len(odd) else None
        if len(odd) and marks[column] is None and any(GROUPED[","].fullmatch(cell) for cell in odd):
            unsure.append(column)
    if "," not in marks.values() and not (separator == ";" and unsure):
        notes = [f"1,234 in {unsure[0]!r} is read as 1234: commas are thousands separators."] if unsure else []
        return frozenset(), notes
    for column in frame.columns:
        if marks[column] is None and column not in unsure:
            cells = frame[column].dropna()
            points = cells[cells.str.contains(".", regex=False)].unique()[:MOST_CELLS]
            if len(points) and not all(GROUPED["."].fullmatch(cell) for cell in points):
                marks[column] = "."
    comma = frozenset(str(column) for column, mark in marks.items() if mark != ".")
    return comma, ["Numbers have a decimal comma: 1,5 is read as 1.5, and 1.234 as 1234."]


@dataclass(frozen=True)
class Column:
    """The kind of a column over all rows, and ``why`` it is set aside if it is."""

    name: str
    kind: str
    why: str = ""

    @property
    def used(self) -> bool:
        """Whether a test can use the column."""
        return self.kind in (NUMERIC, CATEGORICAL)


def is_running(name: str, pieces: Iterable[np.ndarray]) -> bool:
    """Whether a column only counts the rows of each table. Order of entry would look like a difference."""
    return bool(RUNNING_NAMES.fullmatch(name)) and all(len(v) > 1 and bool((np.diff(v) == 1).all()) for v in pieces)


def classify(name: str, cells: pd.Series, values: np.ndarray, limits: Limits) -> Column:
    """Classify a column by its cells, whose numbers are ``values``. Labels of rows are not used."""
    count = int(cells.notna().sum())
    numeric = values[~np.isnan(values)]
    if not count:
        return Column(name, EMPTY, "it has no value")
    if len(numeric) >= MOSTLY * count:
        if np.abs(numeric).max() > LARGEST_WHOLE and any(LONG_NUMBER.fullmatch(str(cell)) for cell in cells.dropna()):
            return Column(name, TEXT, "its whole numbers have too many digits, as identifiers do")
        if numeric.min() == numeric.max():
            return Column(name, CONSTANT, f"it is always {numeric[0]:g}")
        return Column(name, NUMERIC)
    levels = [str(level) for level in cells.dropna().unique()]
    if len(levels) == 1:
        return Column(name, CONSTANT, f"it is always {levels[0][:40]!r}")
    if sum(bool(DATES.fullmatch(level)) for level in levels) >= MOSTLY * len(levels):
        return Column(name, DATE, "dates and times are not compared; bring them as numbers, such as days since a start")
    if len(levels) > limits.levels:
        return Column(name, TEXT, f"it has {len(levels):,} different words, more than {limits.levels:,}")
    if len(levels) > max(FEW_WORDS, count / 2):
        return Column(name, TEXT, f"{len(levels):,} of its {count:,} cells are different words")
    return Column(name, CATEGORICAL)
