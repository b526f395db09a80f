"""CSV files as people have them, to numbers or to an error that names the file, the row and the column."""

from __future__ import annotations

import os
from pathlib import Path

import pandas as pd

from m2st_core.tasks.arrays import match_columns

MISSING = {"", "na", "n/a", "nan", "null", "none"}


def read_csv_pair(first: str | os.PathLike[str], second: str | os.PathLike[str]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The rows of two CSV files with the same columns; named columns are matched by name, others by position."""
    p, q = read_csv(first), read_csv(second)
    q = match_columns(p, q, str(first), str(second))
    if p.shape[1] != q.shape[1]:
        raise ValueError(
            f"{first} has {p.shape[1]} columns and {second} has {q.shape[1]}. Give both files the same columns."
        )
    return p, q


def read_csv(path: str | os.PathLike[str]) -> pd.DataFrame:
    """A comma-separated file of numbers; the first row is a header if any cell has words."""
    if not Path(path).is_file():
        raise ValueError(f"{path}: there is no such file.")
    try:
        cells = pd.read_csv(path, header=None, dtype=str, keep_default_na=False, skipinitialspace=True)
    except pd.errors.EmptyDataError:
        raise ValueError(f"{path}: the file is empty.") from None
    except (pd.errors.ParserError, UnicodeDecodeError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ValueError(f"{path}: not readable as comma-separated UTF-8 text ({reason}).") from None
    header = cells.iloc[0].str.strip()
    named = bool((pd.to_numeric(header, errors="coerce").isna() & ~header.str.lower().isin(MISSING)).any())
    body = cells.iloc[1:] if named else cells
    if body.empty:
        raise ValueError(f"{path}: there is a header but no row of numbers.")
    numbers = body.apply(lambda column: pd.to_numeric(column.str.strip(), errors="coerce"))
    for column in numbers.columns[numbers.isna().any()]:
        row = numbers.index[numbers[column].isna()][0]
        cell, name = str(cells.loc[row, column]), f"{header[column]!r}" if named else f"{column + 1}"
        found = f"{cell!r} is not a number" if cell.strip() else "the cell is empty"
        raise ValueError(f"{path}: row {row + 1}, column {name}: {found}. Correct it or remove the row.")
    numbers.columns = pd.Index(header) if named else range(cells.shape[1])
    if not numbers.columns.is_unique:
        twice = numbers.columns[numbers.columns.duplicated()][0]
        raise ValueError(f"{path}: two columns are called {twice!r}. Rename one.")
    return numbers.reset_index(drop=True)
