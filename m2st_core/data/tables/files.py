"""From files to tables: text files, Excel workbooks, and ZIP archives of both, unpacked in memory within bounds."""

from __future__ import annotations

import csv
import hashlib
import io
import os
import time
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from m2st_core.data.tables.questions import TableError
from m2st_core.data.tables.table import Limits, Table, TextRows, cell_text, table_of_rows
from m2st_core.data.tables.text_encoding import check_text, decode_text

SEPARATORS = {"\t": "tab", ";": "semicolon", "|": "pipe", ",": "comma"}  # by priority if several fit
SAMPLE_LINES, SAMPLE_CHARACTERS = 100, 2**18
LONGEST_LINE = 2**20
ENDINGS = (".csv", ".tsv", ".txt", ".tab", ".xlsx")
PACKED = (".zip", ".gz", ".bz2", ".xz", ".7z", ".rar", ".tar", ".tgz")
ENTRY = b"PK\x01\x02"  # begins every entry of an archive's directory
MOST_PARTS, MOST_BLANK = 1_000, 2_000_000  # parts of a workbook, blank cells of a sheet
LAST_ROW = 2**20  # of an Excel sheet
LARGEST_READ = 2**16  # bytes between two checks of the time
UNREADABLE = (zipfile.BadZipFile, ValueError, OSError, NotImplementedError, RuntimeError, IndexError, EOFError)


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
        return table_of_rows(name, _read_workbook(name, data, limits), digest, [], "", limits)
    text, codec, guessed, notes = decode_text(name, data, encoding)
    check_text(name, text)
    separator, start = _find_separator(name, text)
    if separator != ",":
        notes.append(f"Cells are separated by {SEPARATORS.get(separator, repr(separator))}.")
    table = table_of_rows(name, _read_rows(name, text, separator, start, limits), digest, notes, separator, limits)
    return replace(table, encoding=codec, raw=data if guessed else b"")


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
        cells = [cell_text(value) for value in row]
        while cells and not cells[-1]:
            del cells[-1]
        if any(cell.strip() for cell in cells):
            limits.check_size(f"{name}: row {number}", 1, len(cells))
            yield number, cells


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
