"""A ZIP of tables, unpacked in memory within bounds, or refused in one sentence."""

from __future__ import annotations

import hashlib
import io
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date, time
from typing import Any

import numpy as np
import pandas as pd

from m2st_core.data.arrays import LARGEST_WHOLE
from m2st_core.data.tables.cells import (
    LOOKED_AT,
    Rows,
    clean_names,
    columns_of,
    decimal_commas,
    is_header,
    numbers,
    take_chunk,
)
from m2st_core.data.tables.limits import Limits, TableError
from m2st_core.data.tables.text import SEPARATORS, decode, find_separator, read_rows

MOST_PARTS = 1_000
MOST_BLANK = 2_000_000
LAST_ROW = 2**20  # of an Excel sheet


def read_workbook(name: str, data: bytes, limits: Limits) -> Iterator[tuple[int, list[str]]]:
    """Rows of the first sheet of an Excel workbook as text cells; formulas count by the value they last had."""
    from openpyxl import load_workbook

    try:
        with zipfile.ZipFile(io.BytesIO(data)) as parts:
            infos = parts.infolist()
    except (zipfile.BadZipFile, ValueError, OSError):
        raise TableError(f"{name}: it begins like a packed file but is damaged. Save it again.") from None
    if not any(info.filename == "xl/workbook.xml" for info in infos):
        raise TableError(f"{name}: this is a ZIP archive, not a table. Bring archives as related tasks.")
    size = sum(info.file_size for info in infos)
    if size > limits.unpacked or len(infos) > MOST_PARTS:
        raise TableError(
            f"{name}: the workbook unpacks to {size:,} bytes in {len(infos):,} parts, more than is read. "
            "Save the sheet as CSV."
        )
    try:
        book = load_workbook(io.BytesIO(data), read_only=True, data_only=True, keep_links=False)
        sheet = book.worksheets[0]
        sheet.reset_dimensions()  # what the sheet says of its size need not be so
        looked_at = 0
        for number, row in enumerate(sheet.iter_rows(values_only=True), start=1):
            looked_at += len(row)
            if looked_at > MOST_BLANK + limits.cells or number > LAST_ROW:
                raise TableError(f"{name}: row {number}: the sheet is mostly blank cells. Save the used part as CSV.")
            cells = [_cell(value) for value in row]
            while cells and not cells[-1]:
                del cells[-1]
            if any(cell.strip() for cell in cells):
                limits.check_size(f"{name}: row {number}", 1, len(cells))
                yield number, cells
    except TableError:
        raise
    except Exception as error:  # whatever a damaged workbook makes the reader stumble over
        raise TableError(f"{name}: the workbook is damaged ({type(error).__name__}). Save the sheet as CSV.") from None


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return repr(int(value)) if value.is_integer() and abs(value) < LARGEST_WHOLE else repr(value)
    return value.isoformat() if isinstance(value, (date, time)) else str(value)


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


ENDINGS = (".csv", ".tsv", ".txt", ".tab", ".xlsx")
PACKED = (".zip", ".gz", ".bz2", ".xz", ".7z", ".rar", ".tar", ".tgz")
CHUNK = 2**16
ENTRY = b"PK\x01\x02"  # begins every line of the archive's directory


def is_archive(data: bytes) -> bool:
    """Whether these bytes are a ZIP that is not an Excel workbook."""
    return data[:4] in (b"PK\x03\x04", b"PK\x05\x06") and b"xl/workbook.xml" not in data


def read_tables(name: str, data: bytes, limits: Limits | None = None) -> tuple[Table, ...]:
    """The tables in a file: all of a ZIP, else the one it is."""
    limits = limits or Limits.from_environment()
    limits.check_bytes(name, len(data))
    return _read_archive(name, data, limits) if is_archive(data) else (read_table(name, data, limits),)


def _read_archive(name: str, data: bytes, limits: Limits) -> tuple[Table, ...]:
    """Every table in the archive, each called by the archive's name and its own."""
    most = 2 * limits.tasks  # a task may be a pair of files
    if data.count(ENTRY) > 2 * most + 100:
        raise TableError(
            f"{name}: the archive holds more than {most:,} files. Bring fewer, or one file with all tasks."
        )
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = [info for info in archive.infolist() if _wanted(name, info)]
            if not members:
                raise TableError(f"{name}: the archive holds no table. Put CSV files into it.")
            if len(members) > most:
                raise TableError(
                    f"{name}: the archive holds {len(members):,} files, and {most:,} is the most that is read. "
                    "Bring fewer, or one file with all tasks."
                )
            if sum(info.file_size for info in members) > limits.unpacked:
                raise _too_large(name, limits)
            tables, size, cells = [], 0, 0
            for info in members:
                content = _unpack(name, archive, info, limits.unpacked - size, limits)
                size += len(content)
                if content[:2] == b"PK" and is_archive(content):
                    raise TableError(f"{name}: {info.filename} is itself an archive. Unpack it and bring its files.")
                tables.append(read_table(f"{name}/{info.filename}", content, limits))
                cells += tables[-1].frame.size
                if cells > limits.cells:
                    raise TableError(f"{name}: its tables hold more than {limits.cells:,} cells. Bring fewer rows.")
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, OSError, RuntimeError) as error:
        raise TableError(f"{name}: the archive is damaged ({type(error).__name__}). Pack the files again.") from None
    return tuple(tables)


def _wanted(name: str, info: zipfile.ZipInfo) -> bool:
    """Whether a member is a table; names that point outside, passwords and archives are refused."""
    path = info.filename.replace("\\", "/")
    if path.startswith("/") or path[1:2] == ":" or ".." in path.split("/"):
        raise TableError(f"{name}: {info.filename!r} points outside the archive. Pack the files again, by plain names.")
    if info.flag_bits & 1:
        raise TableError(f"{name}: {info.filename} is locked by a password. Pack the files again without one.")
    if path.lower().endswith(PACKED):
        raise TableError(f"{name}: {info.filename} is itself an archive. Unpack it and bring its files.")
    hidden = path.startswith("__MACOSX/") or path.split("/")[-1].startswith(".")
    return not info.is_dir() and not hidden and path.lower().endswith(ENDINGS)


def _unpack(name: str, archive: zipfile.ZipFile, info: zipfile.ZipInfo, left: int, limits: Limits) -> bytes:
    """The bytes of one member; it stops as soon as there are more than may be left."""
    parts, size = [], 0
    with archive.open(info) as stream:
        while part := stream.read(CHUNK):
            parts.append(part)
            size += len(part)
            if size > left:
                raise _too_large(name, limits)
    return b"".join(parts)


def _too_large(name: str, limits: Limits) -> TableError:
    return TableError(
        f"{name}: the archive unpacks to more than {limits.unpacked / 2**20:,.0f} MB, the most that is read. "
        "Bring fewer or smaller files."
    )
