"""One file to one table: text in any usual dialect, or the first sheet of an Excel workbook."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from m2st_core.tasks.tables.cells import LOOKED_AT, Rows, clean_names, columns_of, decimal_commas, is_header, take_chunk
from m2st_core.tasks.tables.limits import Limits, TableError
from m2st_core.tasks.tables.numbers import numbers
from m2st_core.tasks.tables.text import SEPARATORS, decode, find_separator, read_rows
from m2st_core.tasks.tables.workbooks import read_workbook


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
    limits = limits or Limits.from_environment()
    limits.check_bytes(name, len(data))
    digest = hashlib.sha256(data).hexdigest()
    if data[:4] == b"PAR1":
        raise TableError(f"{name}: Parquet is not read: what it unpacks to is not known. Save it as CSV.")
    if data[:2] == b"PK":
        return _table(name, read_workbook(name, data, limits), digest, [], "", limits)
    text, notes = decode(name, data)
    separator, start = find_separator(name, text)
    if separator != ",":
        notes.append(f"Cells are separated by {SEPARATORS.get(separator, repr(separator))}.")
    commas = "," in text if separator != "," else '"' in text
    return _table(name, read_rows(name, text, separator, start, limits), digest, notes, separator, limits, commas)


def _table(
    name: str, rows: Rows, digest: str, notes: list[str], separator: str, limits: Limits, commas: bool = True
) -> Table:
    """Rows of text cells to a table; ``commas`` says whether a cell can have one."""
    number, first = next(rows, (0, []))
    width = len(first)
    if not width:
        raise TableError(f"{name}: the table is empty. Bring a header and at least 2 rows.")
    limits.check_size(name, 1, width)
    head = take_chunk(rows, width)
    header = [cell.strip() for cell in first]
    named = is_header(header, [row for _, row in head[:LOOKED_AT]])
    if not named:
        header, head = [""] * width, [(number, first), *head]
    frame, more = columns_of(name, head, rows, header, width, limits)
    if frame.empty:
        raise TableError(f"{name}: there is a header but no row of data. Bring at least 2 rows.")
    names, renamed = clean_names(header)
    frame.columns = pd.Index(names)
    blank = [column for column, said in zip(names, header, strict=True) if not said and frame[column].isna().all()]
    if blank:
        frame = frame.drop(columns=blank)
        more.append(f"{len(blank)} blank columns were left out.")
    if frame.shape[1] == 0:
        raise TableError(f"{name}: every cell is missing. Bring a header and at least 2 rows.")
    if not named:
        renamed = [
            f"There is no header: columns are called {frame.columns[0]!r} to {frame.columns[-1]!r}, by position."
        ]
    comma, said = decimal_commas(frame, separator) if commas else (frozenset(), [])
    return Table(name, frame, digest, comma, (*notes, *renamed, *more, *said), named)
