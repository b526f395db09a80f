"""Excel workbooks: their size is checked before anything is unpacked."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from datetime import date, time
from typing import Any

from m2st_core.tasks.arrays import LARGEST_WHOLE
from m2st_core.tasks.tables.limits import Limits, TableError

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
