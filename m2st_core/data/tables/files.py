"""From files to tables: text files, Excel workbooks, and ZIP archives of both, unpacked in memory within bounds."""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from m2st_core.data.tables import cells as forms
from m2st_core.data.tables.columns import clean_names, is_header
from m2st_core.data.tables.limits import Limits, TableError
from m2st_core.data.tables.profiles import Piece, forms_of, numbers
from m2st_core.data.tables.readings import Reading, settle
from m2st_core.data.tables.text import (
    SEPARATORS,
    Rows,
    columns_of,
    decode,
    find_separator,
    read_rows,
    take_chunk,
)
from m2st_core.data.tables.text_encodings import possible_encodings
from m2st_core.data.tables.workbooks import UNREADABLE, read_workbook

ENDINGS = (".csv", ".tsv", ".txt", ".tab", ".xlsx")
PACKED = (".zip", ".gz", ".bz2", ".xz", ".7z", ".rar", ".tar", ".tgz")
HEADER_ROWS = 1_000  # that the first row is compared with
ENTRY = b"PK\x01\x02"  # begins every entry of an archive's directory


@dataclass(frozen=True)
class Table:
    """The content of a file: ``frame`` has its raw cells (empty ones as NA) under clean, unique names.

    The index of ``frame`` is the number of each row in the file, from 1, the header included. ``separator`` stands
    between its cells. ``readings`` say how columns are read; those that other files of an upload have no say in are
    decided by this file alone. ``notes`` say what else reading had to decide, ``digest`` is the file's SHA-256.
    ``encoding`` is that of its text. If it is a guess, ``raw`` has the file's bytes, which can be decoded anew.
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

    def numbers(self, column: str) -> np.ndarray:
        """A column as float64, NaN where a cell is missing or not a number."""
        return numbers(self.frame[column], self.reading(column).mark)

    def words(self, column: str) -> pd.Series:
        """A column as words, NA where a cell is missing."""
        return self.reading(column).words(self.frame[column])

    def reading(self, column: str) -> Reading:
        """How a column is read."""
        return self.readings.get(column) or self._alone[column]

    @cached_property
    def _alone(self) -> Mapping[str, Reading]:
        pieces = {str(name): (Piece(self.name, self.frame[name]),) for name in self.frame.columns}
        return {name: readings[0] for name, readings in settle(pieces, [self.separator]).columns.items()}

    @cached_property
    def encodings(self) -> tuple[str, ...]:
        """The encodings that the file may have, if its encoding is a guess."""
        return possible_encodings(self.raw)

    @property
    def stem(self) -> str:
        """The file's name without folders and ending."""
        return self.name.replace("\\", "/").rsplit("/", 1)[-1].rsplit(".", 1)[0]


def read_files(paths: Iterable[str | os.PathLike[str]], limits: Limits | None = None) -> tuple[Table, ...]:
    """Read the tables in these files, those in ZIP archives included."""
    limits = limits or Limits.from_environment()
    tables: list[Table] = []
    for path in map(Path, paths):
        if not path.is_file():
            raise TableError(f"{path}: there is no such file.")
        try:
            limits.check_bytes(str(path), path.stat().st_size)
            data = path.read_bytes()
        except OSError as error:
            raise TableError(f"{path} cannot be read: {error.strerror}.") from None
        tables += read_tables(str(path), data, limits)
    return tuple(tables)


def read_tables(name: str, data: bytes, limits: Limits | None = None) -> tuple[Table, ...]:
    """Read all tables of a ZIP archive, or the one table of another file."""
    limits = limits or Limits.from_environment()
    limits.check_bytes(name, len(data))
    return _read_archive(name, data, limits) if _is_archive(data) else (read_table(name, data, limits),)


def read_table(name: str, data: bytes, limits: Limits | None = None, encoding: str = "") -> Table:
    r"""Read the table in these bytes. The format is recognised by the bytes, not by the name.

    ``encoding`` is that of a text file that is not UTF-8.

    >>> read_table("p.csv", b"height;weight\n1,5;2\n3;4,25\n").numbers("height")
    array([1.5, 3. ])
    """
    limits = limits or Limits.from_environment()
    limits.check_bytes(name, len(data))
    digest = hashlib.sha256(data).hexdigest()
    if data[:4] == b"PAR1":
        raise TableError(f"{name}: Parquet is not read, because its unpacked size is unknown. Save it as CSV.")
    if data[:2] == b"PK":
        return _table(name, read_workbook(name, data, limits), digest, [], "", limits)
    text, codec, guessed, notes = decode(name, data, encoding)
    separator, start = find_separator(name, text)
    if separator != ",":
        notes.append(f"Cells are separated by {SEPARATORS.get(separator, repr(separator))}.")
    table = _table(name, read_rows(name, text, separator, start, limits), digest, notes, separator, limits)
    return replace(table, encoding=codec, raw=data if guessed else b"")


def _table(name: str, rows: Rows, digest: str, notes: list[str], separator: str, limits: Limits) -> Table:
    """Make a table of rows of text cells."""
    number, first = next(rows, (0, []))
    width = len(first)
    if not width:
        raise TableError(f"{name}: the table is empty. Bring a header and at least 2 rows.")
    limits.check_size(name, 1, width)
    head = take_chunk(rows, width)
    header = [cell.strip() for cell in first]
    named = is_header(header, [row for _, row in head[:HEADER_ROWS]])
    if not named:
        header, head = [""] * width, [(number, first), *head]
    frame, cell_notes = columns_of(name, head, rows, header, limits)
    if frame.empty:
        raise TableError(f"{name}: there is a header but no row of data. Bring at least 2 rows.")
    names, name_notes = clean_names(header)
    frame.columns = pd.Index(names)
    blank = [column for column, word in zip(names, header, strict=True) if not word and frame[column].isna().all()]
    if blank:
        frame = frame.drop(columns=blank)
        cell_notes.append(f"{len(blank)} blank columns were left out.")
    if frame.shape[1] == 0 or (
        not named and all(forms_of(frame[column])[0].max() <= forms.VALUE_OR_MISSING for column in frame.columns)
    ):
        raise TableError(f"{name}: every cell is missing. Bring a header and at least 2 rows.")
    if not named:
        first_name, last_name = frame.columns[0], frame.columns[-1]
        name_notes = [f"There is no header: columns are called {first_name!r} to {last_name!r}, by position."]
        if separator == "," and width == 2 and "".join(first).isdecimal():
            one = ",".join(first)
            name_notes.append(f"{one!r} is read as two cells. If it is one number, write {'.'.join(first)} instead.")
    return Table(name, frame, digest, separator, (*notes, *name_notes, *cell_notes), named)


def _is_archive(data: bytes) -> bool:
    """Whether these bytes are a ZIP that is not an Excel workbook."""
    return data[:4] in (b"PK\x03\x04", b"PK\x05\x06") and b"xl/workbook.xml" not in data


def _read_archive(name: str, data: bytes, limits: Limits) -> tuple[Table, ...]:
    """Read every table in the archive, each under the archive's name and its own."""
    most = 2 * limits.tasks  # a task may be a pair of files
    too_large = TableError(
        f"{name}: the archive unpacks to more than {limits.unpacked / 2**20:,.0f} MB, the most that is read. "
        "Bring fewer or smaller files."
    )
    too_many = TableError(f"{name}: the archive holds more than {most:,} files. Bring fewer, or all tasks in one file.")
    if data.count(ENTRY) > 2 * most + 100:
        raise too_many
    tables, size, cells = [], 0, 0
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = [info for info in archive.infolist() if _is_table(name, info)]
            if not members:
                raise TableError(f"{name}: the archive holds no table. Put CSV files into it.")
            if len(members) > most:
                raise too_many
            if sum(info.file_size for info in members) > limits.unpacked:
                raise too_large
            for info in members:
                with archive.open(info) as stream:
                    content = stream.read(limits.unpacked - size + 1)  # an archive may state wrong sizes
                size += len(content)
                if size > limits.unpacked:
                    raise too_large
                if _is_archive(content):
                    raise TableError(f"{name}: {info.filename} is itself an archive. Unpack it and bring its files.")
                tables.append(read_table(f"{name}/{info.filename}", content, limits))
                cells += tables[-1].frame.size
                if cells > limits.cells:
                    raise TableError(f"{name}: its tables hold more than {limits.cells:,} cells. Bring fewer rows.")
    except TableError:
        raise
    except (zlib.error, *UNREADABLE):
        raise TableError(f"{name}: the archive is damaged. Pack the files again.") from None
    return tuple(tables)


def _is_table(name: str, info: zipfile.ZipInfo) -> bool:
    """Whether a member is a table. Names that point outside, passwords and archives are refused."""
    path = info.filename.replace("\\", "/")
    if not path:
        raise TableError(f"{name}: a file in the archive has no name. Pack the files again.")
    if path.startswith("/") or path[1:2] == ":" or ".." in path.split("/"):
        raise TableError(f"{name}: {info.filename!r} points outside the archive. Pack the files again, by plain names.")
    if info.flag_bits & 1:
        raise TableError(f"{name}: {info.filename} is locked by a password. Pack the files again without one.")
    if path.lower().endswith(PACKED):
        raise TableError(f"{name}: {info.filename} is itself an archive. Unpack it and bring its files.")
    hidden = path.startswith("__MACOSX/") or path.split("/")[-1].startswith(".")
    return not info.is_dir() and not hidden and path.lower().endswith(ENDINGS)
