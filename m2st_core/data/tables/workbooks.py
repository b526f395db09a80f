"""From the bytes of an Excel workbook to rows of text cells, within a bounded time."""

from __future__ import annotations

import io
import re
import time
import zipfile
from collections.abc import Iterator
from datetime import date
from datetime import time as time_of_day
from typing import Any

from m2st_core.data.arrays import LARGEST_WHOLE
from m2st_core.data.tables.limits import Limits, TableError
from m2st_core.data.tables.profiles import OPEN
from m2st_core.data.tables.text import Rows

MOST_PARTS, MOST_BLANK = 1_000, 2_000_000  # parts of a workbook, blank cells of a sheet
LAST_ROW = 2**20  # of an Excel sheet
LARGEST_READ = 2**16  # bytes between two looks at the clock
UNREADABLE = (zipfile.BadZipFile, ValueError, OSError, NotImplementedError, RuntimeError, IndexError, EOFError)


class TimedParts(zipfile.ZipFile):
    """The parts of a workbook, which stop being read when the time is over."""

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
        """Open a part whose every read looks at the clock."""
        self.check()
        stream = super().open(*arguments, **settings)
        read = stream.read

        def timed_read(size: int = -1) -> bytes:
            self.check()
            return read(min(size, LARGEST_READ) if size and size > 0 else size)

        stream.read = timed_read  # type: ignore[method-assign]
        return stream


def read_workbook(name: str, data: bytes, limits: Limits) -> Rows:
    """Yield the rows of the first sheet of an Excel workbook. Formulas count by the value they last had."""
    try:
        parts = TimedParts(name, data, limits.seconds)
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
        parts.check()  # the reader may have packed the end of the time into an error of its own
        raise TableError(f"{name}: the workbook is damaged. Save the sheet as CSV.") from None


def _rows(name: str, parts: TimedParts, data: bytes, limits: Limits) -> Iterator[tuple[int, list[str]]]:
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
    """A cell as text. Numbers are written so that no decimal comma elsewhere can change them."""
    if value is None:
        return ""
    if isinstance(value, float):
        text = repr(int(value)) if value.is_integer() and abs(value) < LARGEST_WHOLE else repr(value)
        return f"{text}0" if re.fullmatch(OPEN, text) else text  # 8.654 could be thousands, 8.6540 cannot
    return value.isoformat() if isinstance(value, (date, time_of_day)) else str(value)
