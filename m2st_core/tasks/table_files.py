"""One file to one table: text in any usual dialect, Parquet, or the first sheet of an Excel workbook."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import pandas as pd

from m2st_core.tasks.table_limits import Limits, TableError
from m2st_core.tasks.table_numbers import GROUPED, decimal_mark, numbers, parse
from m2st_core.tasks.table_text import SEPARATORS, decode, find_separator, read_rows

WORDS_FOR_MISSING = ("na", "n/a", "nan", "null", "none", "nil", "missing", "<na>", "#n/a")
SIGNS_FOR_MISSING = ("?", "-", "--", ".", "..", "#DIV/0!", "#REF!", "#VALUE!", "#NAME?", "#NUM!", "#NULL!")
MISSING = {"", *SIGNS_FOR_MISSING, *(way for w in WORDS_FOR_MISSING for way in (w, w.upper(), w.title(), "NaN", "N/a"))}
CHUNK_CELLS = 200_000
LONGEST_NAME = 100
ROWS_LOOKED_AT = 1_000


@dataclass(frozen=True)
class Table:
    """What a file says: ``frame`` has its raw cells (missing ones as NA) under clean, unique names.

    The index of ``frame`` is the number of each row in the file, from 1, the header included. ``comma`` names the
    columns whose decimal mark is a comma, ``notes`` is what reading had to decide, ``digest`` the file's SHA-256.
    """

    name: str
    frame: pd.DataFrame = field(repr=False, compare=False)
    digest: str
    comma: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()
    named: bool = True  # whether the file brought its column names

    def numbers(self, column: str) -> np.ndarray:
        """A column as float64, NaN where a cell is missing or no number."""
        return numbers(self.frame[column], "," if column in self.comma else ".")

    @property
    def stem(self) -> str:
        """The file's name without folders and ending."""
        return self.name.replace("\\", "/").rsplit("/", 1)[-1].rsplit(".", 1)[0]


def read_table(name: str, data: bytes, limits: Limits | None = None) -> Table:
    r"""The table in these bytes; what they hold is seen from the bytes, not from the name.

    >>> read_table("p.csv", b"height;weight\n1,5;2\n3;4,25\n").numbers("height")
    array([1.5, 3. ])
    """
    from m2st_core.tasks.table_packed import read_parquet, read_workbook

    limits = limits or Limits.from_environment()
    limits.check_bytes(name, len(data))
    digest = hashlib.sha256(data).hexdigest()
    if data[:4] == b"PAR1":
        frame = read_parquet(name, data, limits)
        names, renamed = _clean_names([str(column) for column in frame.columns])
        return Table(name, frame.set_axis(names, axis=1), digest, notes=tuple(renamed))
    if data[:2] == b"PK":
        return _table(name, read_workbook(name, data, limits), digest, [], "", limits)
    text, notes = decode(name, data)
    separator, start = find_separator(name, text)
    if separator != ",":
        notes.append(f"Cells are separated by {SEPARATORS.get(separator, repr(separator))}.")
    return _table(name, read_rows(name, text, separator, start, limits), digest, notes, separator, limits)


def _table(
    name: str, rows: Iterator[tuple[int, list[str]]], digest: str, notes: list[str], separator: str, limits: Limits
) -> Table:
    """Rows of text cells to a table: the header, the width, blank rows and columns, missing cells."""
    head = list(islice(rows, ROWS_LOOKED_AT))
    if not head:
        raise TableError(f"{name}: the table is empty. Bring a header and at least 2 rows.")
    first = [cell.strip() for cell in head[0][1]]
    named = _is_header(first, [row for _, row in head[1:]])
    while first and not first[-1]:
        del first[-1]
    width = len(first) if named else max(len(row) for _, row in head[:1])
    body = head[1:] if named else head
    frame, more = _columns(name, body, rows, width, named, limits)
    names, renamed = _clean_names(first if named else [""] * width)
    if not named:
        renamed = [f"There is no header: the columns are called {names[0]!r} to {names[-1]!r}, by their order."]
    frame.columns = pd.Index(names)
    blank = [column for column, said in zip(names, first if named else names, strict=False) if not said]
    blank = [column for column in blank if frame[column].isna().all()]
    if blank:
        frame = frame.drop(columns=blank)
        more.append(f"{len(blank)} blank columns were left out.")
    if frame.empty:
        what = "there is a header but no row of data" if named else "there is no data"
        raise TableError(f"{name}: {what}. Bring at least 2 rows.")
    comma, said = _decimal_commas(frame, separator)
    return Table(name, frame, digest, comma, (*notes, *renamed, *more, *said), named)


def _is_header(first: Sequence[str], below: Sequence[list[str]]) -> bool:
    """Whether the first row has words that are not simply values of their columns."""
    words = [i for i, cell in enumerate(first) if cell not in MISSING and np.isnan(_either(cell))]
    if len(words) == len([cell for cell in first if cell]):
        return bool(words)
    return bool(words) and not any(first[i] == row[i].strip() for i in words for row in below if i < len(row))


def _either(cell: str) -> float:
    value = parse(cell, ".")
    return parse(cell, ",") if np.isnan(value) else value


def _columns(
    name: str,
    body: list[tuple[int, list[str]]],
    rest: Iterator[tuple[int, list[str]]],
    width: int,
    named: bool,
    limits: Limits,
) -> tuple[pd.DataFrame, list[str]]:
    """Text cells by column, in chunks that keep the memory low; the index is the row in the file."""
    size = max(CHUNK_CELLS // width, 1)
    index: list[int] = []
    chunks: list[list[pd.api.extensions.ExtensionArray]] = []
    short: list[int] = []
    signs: set[str] = set()
    while body:
        limits.check_size(name, len(index) + len(body), width)
        for number, row in body:
            if len(row) < width:
                short.append(number)
                row.extend([""] * (width - len(row)))
            elif len(row) > width and any(cell.strip() for cell in row[width:]):
                header = "the header" if named else "the first row"
                raise TableError(
                    f"{name}: row {number} has {len(row)} cells and {header} has {width}. Correct that row, or put "
                    "quotation marks around a cell that contains the separator."
                )
        index.extend(number for number, _ in body)
        part = []
        for column in islice(zip(*(row[:width] for _, row in body), strict=True), width):
            cells = [cell.strip() for cell in column]
            gone = MISSING.intersection(cells)
            signs |= gone.intersection(SIGNS_FOR_MISSING)
            part.append(pd.array([None if cell in gone else cell for cell in cells] if gone else cells, dtype="str"))
        chunks.append(part)
        body = list(islice(rest, size))
    notes = []
    if short:
        notes.append(f"{len(short)} rows end early (the first is row {short[0]}): their last cells count as missing.")
    if signs:
        notes.append(f"Cells with {', '.join(sorted(signs))} count as missing.")
    if not chunks:
        return pd.DataFrame({i: pd.array([], dtype="str") for i in range(width)}), notes
    join = type(chunks[0][0])._concat_same_type
    columns = {i: join([part[i] for part in chunks]) for i in range(width)}
    return pd.DataFrame(columns, index=np.array(index), copy=False), notes


def _clean_names(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Names without line breaks, none blank and none twice, and what had to be changed."""
    clean: list[str] = []
    notes = []
    taken = {" ".join(name.split()) for name in names}
    seen: set[str] = set()
    for position, name in enumerate(names, start=1):
        short = " ".join(name.split())
        short = short if len(short) <= LONGEST_NAME else short[: LONGEST_NAME - 1] + "…"
        unique, count = short or f"column {position}", 1
        while unique in seen or (unique != short and unique in taken):
            count += 1
            unique = f"{short or f'column {position}'} ({count})"
        if short and unique != short:
            notes.append(f"Two columns are called {short!r}: the one at position {position} is now {unique!r}.")
        seen.add(unique)
        clean.append(unique)
    if len(notes) > 3:
        notes = [*notes[:3], f"{len(notes) - 3} more columns were renamed because their names occur twice."]
    return clean, notes


def _decimal_commas(frame: pd.DataFrame, separator: str) -> tuple[frozenset[str], list[str]]:
    """The columns whose decimal mark is a comma, and what to say about it."""
    marks: dict[str, str | None] = {}
    unsure: list[str] = []
    for column in frame.columns:
        cells = frame[column].dropna()
        plain = pd.to_numeric(cells, errors="coerce")
        odd = cells[plain.isna().to_numpy()].unique()[:ROWS_LOOKED_AT]
        marks[column] = decimal_mark(odd) if len(odd) else None
        if len(odd) and marks[column] is None and any(GROUPED[","].fullmatch(cell) for cell in odd):
            unsure.append(column)
    usual = "," if "," in marks.values() or (separator == ";" and unsure) else "."
    if usual == ".":
        grouped = f"1,234 is read as 1234 ({unsure[0]!r}): commas are thousands separators." if unsure else ""
        return frozenset(), [grouped] if grouped else []
    for column in frame.columns:
        if marks[column] is None and column not in unsure:
            points = frame[column].dropna()
            points = points[points.str.contains(".", regex=False)].unique()[:ROWS_LOOKED_AT]
            marks[column] = "." if len(points) and not all(GROUPED["."].fullmatch(cell) for cell in points) else None
    comma = frozenset(str(column) for column, mark in marks.items() if mark != ".")
    return comma, ["Numbers have a decimal comma: 1,5 is read as 1.5, and 1.234 as 1234."]
