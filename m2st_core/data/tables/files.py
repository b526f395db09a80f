"""From files to tables: text files, Excel workbooks, and ZIP archives of both, unpacked in memory within bounds."""

from __future__ import annotations

import hashlib
import io
import os
import re
import time
import unicodedata
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from datetime import time as time_of_day
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from m2st_core.data.arrays import LARGEST_WHOLE, as_named_rows, in_memory, names_of
from m2st_core.data.tables import cells as forms
from m2st_core.data.tables.cells import read_cell
from m2st_core.data.tables.columns import OPEN, Piece, column_forms, numbers
from m2st_core.data.tables.limits import Limits, TableError
from m2st_core.data.tables.readings import Reading, settle_readings
from m2st_core.data.tables.text import (
    SEPARATORS,
    TextRows,
    columns_of,
    decode_text,
    find_separator,
    possible_encodings,
    read_rows,
    take_chunk,
)

ENDINGS = (".csv", ".tsv", ".txt", ".tab", ".xlsx")
PACKED = (".zip", ".gz", ".bz2", ".xz", ".7z", ".rar", ".tar", ".tgz")
HEADER_ROWS = 1_000  # that the first row is compared with
ENTRY = b"PK\x01\x02"  # begins every entry of an archive's directory
LONGEST_NAME = 100
MOST_NOTES = 3
MOST_PARTS, MOST_BLANK = 1_000, 2_000_000  # parts of a workbook, blank cells of a sheet
LAST_ROW = 2**20  # of an Excel sheet
LARGEST_READ = 2**16  # bytes between two checks of the time
UNREADABLE = (zipfile.BadZipFile, ValueError, OSError, NotImplementedError, RuntimeError, IndexError, EOFError)


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
        return numbers(self.frame[column], self.reading(column).mark)

    def words(self, column: str) -> pd.Series:
        """A column as words, NA where a cell is missing."""
        return self.reading(column).words(self.frame[column])

    def reading(self, column: str) -> Reading:
        """The reading of a column."""
        return self.readings.get(column) or self._alone[column]

    @cached_property
    def _alone(self) -> Mapping[str, Reading]:
        pieces = {str(name): (Piece(self.name, self.frame[name]),) for name in self.frame.columns}
        return {name: readings[0] for name, readings in settle_readings(pieces, [self.separator]).columns.items()}

    @cached_property
    def encodings(self) -> tuple[str, ...]:
        """The encodings that the file may have, if its encoding is a guess."""
        return possible_encodings(self.raw)

    @property
    def stem(self) -> str:
        """The file's name, composed, without folders and ending."""
        return unicodedata.normalize("NFC", self.name).replace("\\", "/").rsplit("/", 1)[-1].rsplit(".", 1)[0]


def read_files(paths: Iterable[str | os.PathLike[str]]) -> tuple[Table, ...]:
    """Read the tables in these files, those in ZIP archives included."""
    limits = Limits.from_environment()
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
        return _table(name, _read_workbook(name, data, limits), digest, [], "", limits)
    text, codec, guessed, notes = decode_text(name, data, encoding)
    separator, start = find_separator(name, text)
    if separator != ",":
        notes.append(f"Cells are separated by {SEPARATORS.get(separator, repr(separator))}.")
    table = _table(name, read_rows(name, text, separator, start, limits), digest, notes, separator, limits)
    return replace(table, encoding=codec, raw=data if guessed else b"")


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
        ["" if gap else _cell(value) for value, gap in zip(column.tolist(), column.isna(), strict=True)]
        for _, column in rows.items()
    ]
    numbered = list(enumerate(map(list, zip(*columns, strict=True)), start=1))
    frame, _ = columns_of(name, numbered, iter(()), names, limits)
    frame.columns = pd.Index(names)
    digest = hashlib.sha256(repr((names, columns)).encode()).hexdigest()
    return Table(name, frame, digest, "", tuple(notes), bool(labels), half=half)


def _table(name: str, rows: TextRows, digest: str, notes: list[str], separator: str, limits: Limits) -> Table:
    """Make a table of rows of text cells."""
    number, first = next(rows, (0, []))
    width = len(first)
    if not width:
        raise TableError(f"{name}: the table is empty. Bring a header and at least 2 rows.")
    limits.check_size(name, 1, width)
    head = take_chunk(rows, width)
    header = [cell.strip() for cell in first]
    named = _is_header(header, [row for _, row in head[:HEADER_ROWS]])
    if not named:
        header, head = [""] * width, [(number, first), *head]
    frame, cell_notes = columns_of(name, head, rows, header, limits)
    if frame.empty:
        raise TableError(f"{name}: there is a header but no row of data. Bring at least 2 rows.")
    names, name_notes = _clean_names(header)
    frame.columns = pd.Index(names)
    blank = [column for column, word in zip(names, header, strict=True) if not word and frame[column].isna().all()]
    if blank:
        frame = frame.drop(columns=blank)
        cell_notes.append(f"{len(blank)} blank columns were left out.")
    if frame.shape[1] == 0 or (
        not named and all(column_forms(frame[column])[0].max() <= forms.VALUE_OR_MISSING for column in frame.columns)
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
    """Whether a member is a table. Paths that point outside, passwords and archives are refused."""
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


class _TimedParts(zipfile.ZipFile):
    """The parts of a workbook, with a time limit on reading."""

    def __init__(self, name: str, data: bytes, seconds: float) -> None:
        super().__init__(io.BytesIO(data))
        self._name, self._seconds, self._began = name, seconds, time.thread_time()

    def check(self) -> None:
        """Refuse the workbook if reading it has taken too long."""
        if time.thread_time() - self._began > self._seconds:
            raise TableError(
                f"{self._name}: reading the workbook takes more than {self._seconds:g} seconds, the most that is "
                "allowed. Save the sheet as CSV, which is read much faster."
            )

    def open(self, *arguments: Any, **settings: Any) -> Any:
        """Open a part, each read of which checks the time."""
        self.check()
        stream = super().open(*arguments, **settings)
        read = stream.read

        def timed_read(size: int = -1) -> bytes:
            self.check()
            return read(min(size, LARGEST_READ) if size and size > 0 else size)

        stream.read = timed_read  # type: ignore[method-assign]
        return stream


def _read_workbook(name: str, data: bytes, limits: Limits) -> TextRows:
    """Yield the rows of the first sheet of an Excel workbook. A formula counts as its last value."""
    try:
        parts = _TimedParts(name, data, limits.seconds)
        infos = parts.infolist()
    except UNREADABLE:
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
        yield from _rows(name, parts, data, limits)
    except TableError:
        raise
    except Exception:  # a damaged workbook can make the reader raise anything
        parts.check()  # the reader may have wrapped the time-out
        raise TableError(f"{name}: the workbook is damaged. Save the sheet as CSV.") from None


def _rows(name: str, parts: _TimedParts, data: bytes, limits: Limits) -> Iterator[tuple[int, list[str]]]:
    from openpyxl.reader.excel import ExcelReader

    reader = ExcelReader(io.BytesIO(data), read_only=True, data_only=True, keep_links=False)
    reader.archive = parts
    reader.read()
    sheet = reader.wb.worksheets[0]
    sheet.reset_dimensions()  # the size that a sheet states may be wrong
    total = 0
    for number, row in enumerate(sheet.iter_rows(values_only=True), start=1):
        parts.check()
        total += len(row)
        if total > MOST_BLANK + limits.cells or number > LAST_ROW:
            raise TableError(f"{name}: row {number}: the sheet is mostly blank cells. Save the used part as CSV.")
        cells = [_cell(value) for value in row]
        while cells and not cells[-1]:
            del cells[-1]
        if any(cell.strip() for cell in cells):
            limits.check_size(f"{name}: row {number}", 1, len(cells))
            yield number, cells


def _cell(value: object) -> str:
    """A cell as text. Numbers are written so that a decimal comma in other files does not change them."""
    if value is None:
        return ""
    if isinstance(value, float):
        text = repr(int(value)) if value.is_integer() and abs(value) < LARGEST_WHOLE else repr(value)
        return f"{text}0" if re.fullmatch(OPEN, text) else text  # 8.654 could be thousands, 8.6540 cannot
    return value.isoformat() if isinstance(value, (date, time_of_day)) else str(value)
