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


def read_meta_csv(path: str | os.PathLike[str]) -> dict[str, tuple[pd.DataFrame, pd.DataFrame]]:
    """Meta-tasks from one file with the columns ``task``, ``group`` (two values in each task) and the features."""
    cells = _read_cells(path)
    header = cells.iloc[0].str.strip().tolist()
    for name in ("task", "group"):
        if header.count(name) != 1:
            raise ValueError(f"{path}: a column called {name!r} is needed, once. Found: {', '.join(header)}.")
    body = cells.iloc[1:]
    task, group = (body[header.index(name)].str.strip() for name in ("task", "group"))
    features = [column for column, name in enumerate(header) if name not in ("task", "group")]
    if body.empty or not features:
        raise ValueError(f"{path}: besides task and group, at least one row and one column of numbers are needed.")
    numbers = _numbers(path, cells, body[features], pd.Series(header))
    numbers.columns = pd.Index([header[column] for column in features])
    tasks = {}
    for name, rows in numbers.groupby(task, sort=False):
        groups = group[rows.index].unique()
        if len(groups) != 2:
            raise ValueError(f"{path}: task {name!r} has {len(groups)} groups ({', '.join(groups)}). It needs two.")
        x, y = (rows[group[rows.index] == value] for value in groups)
        tasks[str(name)] = (x, y)
    return tasks


def read_csv(path: str | os.PathLike[str]) -> pd.DataFrame:
    """A comma-separated file of numbers; the first row is a header if any cell has words."""
    cells = _read_cells(path)
    header = cells.iloc[0].str.strip()
    named = bool((pd.to_numeric(header, errors="coerce").isna() & ~header.str.lower().isin(MISSING)).any())
    body = cells.iloc[1:] if named else cells
    if body.empty:
        raise ValueError(f"{path}: there is a header but no row of numbers.")
    numbers = _numbers(path, cells, body, header if named else None)
    numbers.columns = pd.Index(header) if named else range(cells.shape[1])
    if not numbers.columns.is_unique:
        twice = numbers.columns[numbers.columns.duplicated()][0]
        raise ValueError(f"{path}: two columns are called {twice!r}. Rename one.")
    return numbers.reset_index(drop=True)


def _read_cells(path: str | os.PathLike[str]) -> pd.DataFrame:
    """Every cell as text."""
    if not Path(path).is_file():
        raise ValueError(f"{path}: there is no such file.")
    try:
        return pd.read_csv(path, header=None, dtype=str, keep_default_na=False, skipinitialspace=True)
    except pd.errors.EmptyDataError:
        raise ValueError(f"{path}: the file is empty.") from None
    except (pd.errors.ParserError, UnicodeDecodeError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ValueError(f"{path}: not readable as comma-separated UTF-8 text ({reason}).") from None


def _numbers(
    path: str | os.PathLike[str], cells: pd.DataFrame, body: pd.DataFrame, header: pd.Series | None
) -> pd.DataFrame:
    """The body as numbers, or an error that names the first cell that is none."""
    numbers = body.apply(lambda column: pd.to_numeric(column.str.strip(), errors="coerce"))
    for column in numbers.columns[numbers.isna().any()]:
        row = numbers.index[numbers[column].isna()][0]
        cell, name = str(cells.loc[row, column]), f"{column + 1}" if header is None else f"{header[column]!r}"
        found = f"{cell!r} is not a number" if cell.strip() else "the cell is empty"
        raise ValueError(f"{path}: row {row + 1}, column {name}: {found}. Correct it or remove the row.")
    return numbers
