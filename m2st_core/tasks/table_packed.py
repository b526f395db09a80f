"""Tables in packed files, Parquet and Excel: their size is checked before anything is unpacked."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from datetime import date, time
from typing import Any

import numpy as np
import pandas as pd

from m2st_core.tasks.arrays import LARGEST_WHOLE
from m2st_core.tasks.table_limits import Limits, TableError

MOST_PARTS = 1_000
MOST_BLANK = 2_000_000
LAST_ROW = 2**20  # of an Excel sheet


def read_parquet(name: str, data: bytes, limits: Limits) -> tuple[pd.DataFrame, list[str]]:
    """The numbers and words in a Parquet file, and a note on what else it has; the index counts the rows from 1."""
    import pyarrow as pa
    from pyarrow import parquet

    try:
        meta = parquet.read_metadata(io.BytesIO(data))
        limits.check_size(name, meta.num_rows, meta.num_columns)
        groups = [meta.row_group(i) for i in range(meta.num_row_groups)]
        size = sum(group.column(j).total_uncompressed_size for group in groups for j in range(group.num_columns))
        if size > limits.unpacked:
            raise TableError(
                f"{name}: it unpacks to {size:,} bytes, and {limits.unpacked:,} is the most that is read. "
                "Leave out columns or rows that are not needed."
            )
        flat = [leaf.name for leaf in map(meta.schema.column, range(meta.num_columns)) if leaf.path == leaf.name]
        if not meta.num_rows or not flat:
            raise TableError(f"{name}: there is no row of plain cells. Bring at least 2 rows.")
        table = parquet.ParquetFile(io.BytesIO(data), read_dictionary=flat).read(columns=flat, use_threads=False)
        columns = {position: _plain(name, table.column(position), limits) for position in range(table.num_columns)}
    except (pa.ArrowException, OSError) as error:
        raise TableError(f"{name}: the Parquet file is damaged ({type(error).__name__}). Save it again.") from None
    frame = pd.DataFrame(columns).set_axis(range(1, meta.num_rows + 1), axis=0).set_axis(table.column_names, axis=1)
    nested = meta.num_columns - len(flat)
    return frame, [f"{nested} columns of lists or records were left out."] if nested else []


def _plain(name: str, column: Any, limits: Limits) -> pd.Series:
    """An Arrow column as float64 or words; bytes are shown as missing words."""
    import pyarrow as pa
    from pyarrow import compute

    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_boolean(kind):
        if pa.types.is_dictionary(column.type):  # one long word repeated would unpack without bound
            chunks = [compute.take(compute.binary_length(c.dictionary), c.indices) for c in column.chunks]
            if sum(compute.sum(chunk).as_py() or 0 for chunk in chunks) > limits.unpacked:
                raise TableError(f"{name}: its words unpack to more than {limits.unpacked:,} bytes. Leave some out.")
        words = column.cast(pa.large_string())
        return pd.Series(pd.array(words.to_pylist(), dtype="str"))
    if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        values = column.cast(kind).cast(pa.float64(), safe=False).to_numpy()
        if pa.types.is_integer(kind) and np.nanmax(np.abs(values), initial=0) > LARGEST_WHOLE:
            return pd.Series(pd.array(column.cast(kind).cast(pa.string()).to_pylist(), dtype="str"))
        return pd.Series(values)
    if pa.types.is_temporal(kind):
        return pd.Series(pd.array(column.cast(kind).cast(pa.string()).to_pylist(), dtype="str"))
    return pd.Series(pd.array([None] * len(column), dtype="str"))


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
