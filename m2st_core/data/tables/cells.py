"""From rows of text cells to columns: the header, the width, missing cells, the decimal mark."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import numpy as np
import pandas as pd

from m2st_core.data.tables.limits import Limits, TableError

SPACED = re.compile(r"[+-]?\d{1,3}([ \u00a0\u202f'’]\d{3})+([.,]\d*)?")
SPACES = re.compile(r"[ \u00a0\u202f'’]")
STYLES = {
    mark: re.compile(rf"[+-]?(\d{{1,3}}([{group}]\d{{3}})+|\d+)?([{mark}]\d*)?([eE][+-]?\d+)?")
    for mark, group in ((".", ","), (",", "."))
}
GROUPED = {",": re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+"), ".": re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})+")}


def parse(cell: str, mark: str) -> float:
    """The number in a cell whose decimal mark is this one, or NaN.

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
    """The mark that these cells can only have been written with, "," or "."; None if both would do.

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
    """One float64 per cell: NaN where it is missing, infinite or no number."""
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
    """Each different cell is parsed once."""
    codes, different = pd.factorize(cells)
    values = np.array([*(parse(str(cell), mark) for cell in different), np.nan])
    return values[codes]


WORDS_FOR_MISSING = ("na", "n/a", "nan", "null", "none", "nil", "missing", "<na>", "#n/a")
SIGNS_FOR_MISSING = {"?", "-", "--", ".", "..", "#DIV/0!", "#REF!", "#VALUE!", "#NAME?", "#NUM!", "#NULL!"}
MISSING = {"", "NaN", *SIGNS_FOR_MISSING, *(f(word) for word in WORDS_FOR_MISSING for f in (str, str.upper, str.title))}
CHUNK_CELLS = 200_000
LONGEST_NAME = 100
LOOKED_AT = 1_000
SAID = 3

Rows = Iterator[tuple[int, list[str]]]


def is_header(first: Sequence[str], below: Sequence[list[str]]) -> bool:
    """Whether a row has words, and not only words that are values of their columns beside numbers."""
    filled = [i for i, cell in enumerate(first) if cell]
    words = [i for i in filled if first[i] not in MISSING and all(np.isnan(parse(first[i], mark)) for mark in ".,")]
    if len(words) == len(filled):
        return bool(words)
    return bool(words) and not any(first[i] == row[i].strip() for i in words for row in below if i < len(row))


def take_chunk(rows: Rows, width: int) -> list[tuple[int, list[str]]]:
    """The next rows, few enough to be held as Python strings."""
    return list(islice(rows, max(CHUNK_CELLS // width, 1)))


def columns_of(
    name: str, body: list[tuple[int, list[str]]], rest: Rows, header: Sequence[str], width: int, limits: Limits
) -> tuple[pd.DataFrame, list[str]]:
    """Text cells by column, missing ones as NA, and notes; the index is the number of the row in the file."""
    index: list[int] = []
    chunks: list[list[pd.api.extensions.ExtensionArray]] = []
    short: list[int] = []
    signs: set[str] = set()
    needed = max((i for i, cell in enumerate(header, start=1) if cell), default=width)
    while body:
        limits.check_size(name, len(index) + len(body), width)
        for number, row in body:
            if len(row) != width:
                if len(row) < needed:
                    short.append(number)
                if any(cell.strip() for cell in row[width:]):
                    raise TableError(
                        f"{name}: row {number} has {len(row)} cells and the first row has {width}. Correct that row, "
                        "or put quotation marks around a cell that contains the separator."
                    )
                row[width:] = [""] * max(width - len(row), 0)
        index += [number for number, _ in body]
        part = []
        for column in zip(*[row for _, row in body], strict=True):
            cells = [cell.strip() for cell in column]
            gone = MISSING.intersection(cells)
            signs |= gone & SIGNS_FOR_MISSING
            part.append(pd.array([None if cell in gone else cell for cell in cells] if gone else cells, dtype="str"))
        chunks.append(part)
        body = take_chunk(rest, width)
    notes = []
    if short:
        notes.append(f"{len(short):,} rows end early (the first is row {short[0]}): their last cells count as missing.")
    if signs:
        notes.append(f"Cells with {' '.join(sorted(signs))} count as missing.")
    if not chunks:
        return pd.DataFrame({position: pd.array([], dtype="str") for position in range(width)}), notes
    join = type(chunks[0][0])._concat_same_type
    columns = {position: join([part[position] for part in chunks]) for position in range(width)}
    return pd.DataFrame(columns, index=np.array(index), copy=False), notes


def clean_names(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Names on one line, none blank and none twice, and what had to be changed."""
    clean: list[str] = []
    notes = []
    wanted = [_short(name) for name in names]
    taken, seen = set(wanted), set()
    for position, short in enumerate(wanted, start=1):
        base = short or f"column {position}"
        unique, count = base, 1
        while unique in seen or (unique != short and unique in taken):
            count += 1
            unique = f"{base} ({count})"
        if short and unique != short:
            notes.append(f"Two columns are called {short!r}: the one at position {position} is now {unique!r}.")
        seen.add(unique)
        clean.append(unique)
    more = len(notes) - SAID
    return clean, notes if more <= 0 else [*notes[:SAID], f"{more:,} more columns with names taken were renamed so."]


def _short(name: str) -> str:
    short = " ".join(name.split())
    return short if len(short) <= LONGEST_NAME else short[: LONGEST_NAME - 1] + "…"


def decimal_commas(frame: pd.DataFrame, separator: str) -> tuple[frozenset[str], list[str]]:
    """The columns whose decimal mark is a comma, and what to say about it.

    A column's own cells decide where they can; 1,234 alone is a decimal number in a file of semicolons, or where
    another column has a decimal comma, and a thousand elsewhere.
    """
    marks: dict[str, str | None] = {}
    unsure: list[str] = []
    for column in frame.columns:
        cells = frame[column].dropna()
        odd = cells[pd.to_numeric(cells, errors="coerce").isna().to_numpy()].unique()[:LOOKED_AT]
        marks[column] = decimal_mark(odd) if len(odd) else None
        if len(odd) and marks[column] is None and any(GROUPED[","].fullmatch(cell) for cell in odd):
            unsure.append(column)
    if "," not in marks.values() and not (separator == ";" and unsure):
        said = [f"1,234 in {unsure[0]!r} is read as 1234: commas are thousands separators."] if unsure else []
        return frozenset(), said
    for column in frame.columns:
        if marks[column] is None and column not in unsure:
            cells = frame[column].dropna()
            points = cells[cells.str.contains(".", regex=False)].unique()[:LOOKED_AT]
            if len(points) and not all(GROUPED["."].fullmatch(cell) for cell in points):
                marks[column] = "."
    comma = frozenset(str(column) for column, mark in marks.items() if mark != ".")
    return comma, ["Numbers have a decimal comma: 1,5 is read as 1.5, and 1.234 as 1234."]
