"""From files to tables: text files, Excel workbooks, and ZIP archives of both, unpacked in memory within bounds."""

from __future__ import annotations

import csv
import hashlib
import io
import os
import re
import time
import unicodedata
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import date
from datetime import time as time_of_day
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from m2st_core.data.arrays import LARGEST_WHOLE, as_named_rows, in_memory, names_of
from m2st_core.data.tables import cells as forms
from m2st_core.data.tables.cells import read_cell
from m2st_core.data.tables.columns import OPEN, column_forms
from m2st_core.data.tables.readings import TableError
from m2st_core.data.tables.table import Table, check_text, decode_text
from m2st_core.environment import limits_of

SEPARATORS = {"\t": "tab", ";": "semicolon", "|": "pipe", ",": "comma"}  # by priority if several fit
SAMPLE_LINES, SAMPLE_CHARACTERS = 100, 2**18
LONGEST_LINE = 2**20
CHUNK_CELLS = 200_000
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
    check_text(name, text)
    separator, start = _find_separator(name, text)
    if separator != ",":
        notes.append(f"Cells are separated by {SEPARATORS.get(separator, repr(separator))}.")
    table = _table(name, _read_rows(name, text, separator, start, limits), digest, notes, separator, limits)
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
    frame, _ = _columns_of(name, numbered, iter(()), names, limits)
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


def _find_separator(name: str, text: str) -> tuple[str, int]:
    """Find the separator of the cells, and the number of characters of an Excel ``sep=`` line before them."""
    first = text[:10].splitlines()[0] if text[:10].strip() else ""
    if first.lower().startswith("sep=") and len(first) == 5:
        return first[4], len(text) - len(text[5:].lstrip("\r\n"))
    sample = list(islice(_lines(name, text[:SAMPLE_CHARACTERS]), SAMPLE_LINES))
    if len(sample) > 1 and not sample[-1].endswith(("\n", "\r")):
        del sample[-1]  # it may be cut
    best, best_share = ",", 0.0
    for separator in SEPARATORS:
        try:
            widths = [len(row) for row in csv.reader(sample, delimiter=separator) if any(row)]
        except csv.Error:
            continue
        width, count = Counter(widths).most_common(1)[0] if widths else (1, 0)
        share = count / len(widths) if width > 1 else 0.0
        if share > best_share + 1e-9:
            best, best_share = separator, share
    return best, 0


def _read_rows(name: str, text: str, separator: str, start: int, limits: Limits) -> TextRows:
    """Yield each row that is not blank, with the number of its last line in the file."""
    reader = csv.reader(_lines(name, text, start), delimiter=separator, skipinitialspace=separator != "\t")
    before = 1 if start else 0
    try:
        for row in reader:
            if len(row) > limits.columns and any(cell.strip() for cell in row[limits.columns :]):
                limits.check_size(f"{name}: row {reader.line_num + before}", 1, len(row))
            if row and (row[0].strip() or "".join(row).strip()):
                yield reader.line_num + before, row
    except csv.Error:
        raise TableError(
            f"{name}: near row {reader.line_num + before} a cell is longer than {csv.field_size_limit():,} characters. "
            "Look for a quotation mark that is opened and never closed."
        ) from None


def _lines(name: str, text: str, start: int = 0) -> Iterator[str]:
    """Yield lines with their ends. Lines so long that their cells could fill the memory are refused."""
    stream = io.StringIO(text, newline="")
    stream.seek(start)
    for number, line in enumerate(stream, start=2 if start else 1):
        if len(line) > LONGEST_LINE:
            raise TableError(
                f"{name}: row {number} is {len(line):,} characters long, and {LONGEST_LINE:,} is the most that is "
                "read. Put every observation on a line of its own."
            )
        yield line


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
            cells = [unicodedata.normalize("NFC", cell.strip()) for cell in column]
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
