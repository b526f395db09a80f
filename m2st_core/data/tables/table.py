"""A table of text cells with clean names, made of rows of cells or of a frame, and the limits of its size."""

from __future__ import annotations

import hashlib
import os
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import date
from datetime import time as time_of_day
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from m2st_core.data.arrays import LARGEST_WHOLE, as_named_rows, in_memory, names_of
from m2st_core.data.tables import cells as forms
from m2st_core.data.tables.cells import read_cell
from m2st_core.data.tables.columns import OPEN, Profile
from m2st_core.data.tables.questions import TableError
from m2st_core.data.tables.readings import Reading, settle_readings
from m2st_core.data.tables.text_encoding import possible_encodings
from m2st_core.environment import limits_of

CHUNK_CELLS = 200_000
HEADER_ROWS = 1_000  # that the first row is compared with
LONGEST_NAME = 100
MOST_NOTES = 3
TextRows = Iterator[tuple[int, list[str]]]
"""Rows of text cells, each with its number in the file (from 1)."""


@dataclass(frozen=True)
class Limits:
    """Limits of an upload. Each has an environment variable, ``M2ST_MOST_BYTES`` and so on.

    ``bytes`` limits the size of a file, ``unpacked`` that of everything in a packed file. ``rows`` and ``cells`` limit
    the whole upload, ``cells`` also after categories have become columns. A column of words with more than ``levels``
    different values is free text. ``seconds`` is the processor time for one workbook.
    """

    bytes: int = 20 * 2**20
    unpacked: int = 60 * 2**20
    rows: int = 300_000
    columns: int = 5_000
    cells: int = 6_000_000
    tasks: int = 200
    levels: int = 200
    seconds: int = 8

    def __post_init__(self) -> None:
        for limit in fields(self):
            value = getattr(self, limit.name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise TableError(f"The limit {limit.name!r} must be a whole number ≥ 1. Got {value!r}.")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Limits:
        """The defaults, changed by the environment.

        >>> Limits.from_environment({"M2ST_MOST_ROWS": "1000"}).rows
        1000
        """
        return limits_of(cls, TableError, environment)

    @property
    def words(self) -> str:
        """The limits in a sentence."""
        return (
            f"At most {_megabytes(self.bytes)} per file ({_megabytes(self.unpacked)} unpacked), {self.rows:,} rows, "
            f"{self.columns:,} columns, {self.cells:,} cells and {self.tasks:,} related tasks in all."
        )

    def check_bytes(self, name: str, size: int) -> None:
        """Refuse a file that is too large."""
        if size > self.bytes:
            raise TableError(
                f"{name}: the file has {_megabytes(size)}, and {_megabytes(self.bytes)} is the most that is read. "
                "Leave out rows or columns that are not needed."
            )

    def check_size(self, name: str, rows: int, columns: int) -> None:
        """Refuse a table with too many rows, columns or cells."""
        for what, count, most in (
            ("columns", columns, self.columns),
            ("rows", rows, self.rows),
            ("cells", rows * columns, self.cells),
        ):
            if count > most:
                raise TableError(
                    f"{name}: there are {count:,} {what}, and {most:,} is the most that is read. "
                    f"Leave out {'columns' if what == 'columns' else 'rows or columns'} that are not needed."
                )


def _megabytes(size: int) -> str:
    return f"{size / 2**20:,.0f} MB" if size >= 2**20 else f"{size / 2**10:,.0f} kB"


@dataclass(frozen=True)
class Table:
    """The content of a file: ``frame`` has its raw cells (empty ones as NA) under clean, unique names.

    The index of ``frame`` is the number of each row in the file, from 1, the header included. ``separator`` is that of
    its cells. ``readings`` are those of the columns, decided with the other files of an upload; all others are decided
    by this file alone. ``notes`` say what else reading had to decide, ``digest`` is the file's SHA-256. ``encoding`` is
    that of its text. If it is a guess, ``raw`` has the file's bytes, to be decoded again.
    ``half`` is a task and a side, P or Q, if the table is known to be that sample of a related task.
    """

    name: str
    frame: pd.DataFrame = field(repr=False, compare=False)
    digest: str
    separator: str = ""
    notes: tuple[str, ...] = ()
    named: bool = True  # whether the file has column names
    readings: Mapping[str, Reading] = field(default_factory=dict, repr=False, compare=False)
    encoding: str = ""
    raw: bytes = field(default=b"", repr=False, compare=False)
    half: tuple[str, str] | None = None

    def numbers(self, column: str) -> np.ndarray:
        """A column as float64, NaN where a cell is missing or not a number."""
        return Profile(column, [self.name], [self.frame[column]]).numbers([self.reading(column).mark])

    def words(self, column: str) -> pd.Series:
        """A column as words, NA where a cell is missing."""
        return self.reading(column).words(self.frame[column])

    def reading(self, column: str) -> Reading:
        """The reading of a column."""
        return self.readings.get(column) or self._alone[column]

    @cached_property
    def _alone(self) -> Mapping[str, Reading]:
        profiles = {str(name): Profile(str(name), [self.name], [self.frame[name]]) for name in self.frame.columns}
        return {name: readings[0] for name, readings in settle_readings(profiles, [self.separator]).columns.items()}

    @cached_property
    def encodings(self) -> tuple[str, ...]:
        """The encodings that the file may have, if its encoding is a guess."""
        return possible_encodings(self.raw)

    def find(self, name: str) -> str | None:
        """The column of this name, in any case of letters if that is unique."""
        if name in self.frame.columns:
            return name
        alike = [str(column) for column in self.frame.columns if str(column).lower() == name.lower()]
        return alike[0] if len(alike) == 1 else None

    @property
    def stem(self) -> str:
        """The file's name, composed, without folders and ending."""
        return unicodedata.normalize("NFC", self.name).replace("\\", "/").rsplit("/", 1)[-1].rsplit(".", 1)[0]


def as_table(name: str, values: Any, half: tuple[str, str] | None = None) -> Table:
    """Make a table of a frame of any library, or of rows of numbers. Its cells are read as those of a workbook.

    >>> as_table("x", pd.DataFrame({"age": [30, None], "sex": ["f", "m"]})).numbers("age")
    array([30., nan])
    """
    limits = Limits.from_environment()
    if isinstance(values, str | Path):
        raise ValueError(f"{name} is the name of a file. Read files first: Upload(read_files(['P.csv', 'Q.csv'])).")
    rows = in_memory(values, name)
    labels = names_of(rows)
    if not isinstance(rows, pd.DataFrame):
        rows = pd.DataFrame(as_named_rows(rows, name)[0])
    limits.check_size(name, *rows.shape)
    if not rows.size:
        raise TableError(f"{name}: the frame is empty. Bring at least 2 rows and a column.")
    names, notes = _clean_names(labels or [""] * rows.shape[1])
    for column, dtype in zip(names, rows.dtypes, strict=True):
        if getattr(dtype, "kind", "") in "mc":
            raise TableError(f"{name}: column {column!r} is {dtype}. Convert it to real numbers, such as seconds.")
    columns = [
        ["" if gap else cell_text(value) for value, gap in zip(column.tolist(), column.isna(), strict=True)]
        for _, column in rows.items()
    ]
    numbered = list(enumerate(map(list, zip(*columns, strict=True)), start=1))
    frame, _ = _columns_of(name, numbered, iter(()), names, limits)
    frame.columns = pd.Index(names)
    digest = hashlib.sha256(repr((names, columns)).encode()).hexdigest()
    return Table(name, frame, digest, "", tuple(notes), bool(labels), half=half)


def table_of_rows(name: str, rows: TextRows, digest: str, notes: list[str], separator: str, limits: Limits) -> Table:
    """Make a table of rows of text cells."""
    number, first = next(rows, (0, []))
    width = len(first)
    if not width:
        raise TableError(f"{name}: the table is empty. Bring a header and at least 2 rows.")
    limits.check_size(name, 1, width)
    head = _take_chunk(rows, width)
    header = [cell.strip() for cell in first]
    named = _is_header(header, [row for _, row in head[:HEADER_ROWS]])
    if not named:
        header, head = [""] * width, [(number, first), *head]
    frame, cell_notes = _columns_of(name, head, rows, header, limits)
    if frame.empty:
        raise TableError(f"{name}: there is a header but no row of data. Bring at least 2 rows.")
    names, name_notes = _clean_names(header)
    frame.columns = pd.Index(names)
    blank = [column for column, word in zip(names, header, strict=True) if not word and frame[column].isna().all()]
    if blank:
        frame = frame.drop(columns=blank)
        cell_notes.append(f"{len(blank)} blank columns were left out.")
    if frame.shape[1] == 0 or (
        not named and all(Profile("", [name], [frame[c]]).forms.max() <= forms.VALUE_OR_MISSING for c in frame.columns)
    ):
        raise TableError(f"{name}: every cell is missing. Bring a header and at least 2 rows.")
    if not named:
        first_name, last_name = frame.columns[0], frame.columns[-1]
        name_notes = [f"There is no header: columns are called {first_name!r} to {last_name!r}, by position."]
        if separator == "," and width == 2 and "".join(first).isdecimal():
            row = ",".join(first)
            name_notes.append(f"{row!r} is read as two cells. If it is one number, write {'.'.join(first)} instead.")
    return Table(name, frame, digest, separator, (*notes, *name_notes, *cell_notes), named)


def _is_header(first: Sequence[str], below: Sequence[list[str]]) -> bool:
    """Whether a row has names, which are not among the values below them."""
    filled = [i for i, cell in enumerate(first) if cell]
    words = [i for i in filled if _is_name(first[i], [row[i].strip() for row in below if i < len(row)])]
    if len(words) == len(filled):
        return bool(words)
    return bool(words) and not any(first[i] == row[i].strip() for i in words for row in below if i < len(row))


def _is_name(cell: str, below: Sequence[str]) -> bool:
    """Whether a cell can be a name: it is neither missing nor a number, even with a unit that cells below have."""
    read = read_cell(cell)
    if read.form in (forms.MISSING, forms.VALUE_OR_MISSING):
        return False
    if not forms.NUMBERS.start <= read.form < forms.NUMBERS.stop:
        return True
    return bool(read.unit) and not any(read_cell(other).unit == read.unit for other in below)


def _clean_names(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Names on one line, in NFC, none blank and none repeated, and notes on the changes."""
    clean: list[str] = []
    notes = []
    lines = [" ".join(unicodedata.normalize("NFC", name).split()) for name in names]
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


def _take_chunk(rows: TextRows, width: int) -> list[tuple[int, list[str]]]:
    """Take the next rows, as many as may be held as Python strings."""
    return list(islice(rows, max(CHUNK_CELLS // width, 1)))


def _columns_of(
    name: str, body: list[tuple[int, list[str]]], rest: TextRows, header: Sequence[str], limits: Limits
) -> tuple[pd.DataFrame, list[str]]:
    """Text cells by column, in NFC, NA if empty, and notes. The index is the row's number in the file."""
    width = len(header)
    index: list[int] = []
    chunks: list[list[pd.api.extensions.ExtensionArray]] = []
    short: list[int] = []
    needed = max((i for i, cell in enumerate(header, start=1) if cell), default=width)
    while body:
        limits.check_size(name, len(index) + len(body), width)
        for number, row in body:
            if len(row) == width:
                continue
            if len(row) < needed:
                short.append(number)
            if any(cell.strip() for cell in row[width:]):
                raise TableError(
                    f"{name}: row {number} has {len(row)} cells and the first row has {width}. Correct that row, "
                    "or put quotation marks around a cell that contains the separator."
                )
            row[width:] = [""] * (width - len(row))
        index += [number for number, _ in body]
        chunk = []
        for column in zip(*[row for _, row in body], strict=True):
            cells = [cell.strip() for cell in column]
            if not "".join(cells).isascii():
                cells = [unicodedata.normalize("NFC", cell) for cell in cells]
            chunk.append(pd.array([cell or None for cell in cells] if "" in cells else cells, dtype="str"))
        chunks.append(chunk)
        body = _take_chunk(rest, width)
    notes = []
    if short:
        notes.append(f"{len(short):,} rows end early (the first is row {short[0]}): their last cells count as missing.")
    if not chunks:
        return pd.DataFrame({position: pd.array([], dtype="str") for position in range(width)}), notes
    join = type(chunks[0][0])._concat_same_type
    columns = {position: join([chunk[position] for chunk in chunks]) for position in range(width)}
    return pd.DataFrame(columns, index=np.array(index), copy=False), notes


def cell_text(value: object) -> str:
    """A cell as text. Numbers are written so that a decimal comma in other files does not change them."""
    if value is None:
        return ""
    if isinstance(value, float):
        text = repr(int(value)) if value.is_integer() and abs(value) < LARGEST_WHOLE else repr(value)
        return f"{text}0" if re.fullmatch(OPEN, text) else text  # 8.654 could be thousands, 8.6540 cannot
    return value.isoformat() if isinstance(value, (date, time_of_day)) else str(value)
