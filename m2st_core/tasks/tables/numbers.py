"""Numbers as people write them: 1.5 and 1,5, 1,234.5 and 1.234,5, 1 234 and 1'234."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np
import pandas as pd

SPACED = re.compile(r"[+-]?\d{1,3}([ \u00a0\u202f'’]\d{3})+([.,]\d*)?")
SPACES = re.compile(r"[ \u00a0\u202f'’]")
STYLES = {
    mark: re.compile(rf"[+-]?(\d{{1,3}}([{group}]\d{{3}})+|\d+)?([{mark}]\d*)?([eE][+-]?\d+)?")
    for mark, group in ((".", ","), (",", "."))
}
GROUPED = {",": re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+"), ".": re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})+")}


def parse(cell: str, mark: str) -> float:
    """The number in a cell whose decimal mark is this one, or NaN.

    >>> parse("1.234,5", ","), parse("1,234.5", "."), parse("1 234", "."), parse("dog", ".")
    (1234.5, 1234.5, 1234.0, nan)
    """
    text = cell.strip().replace("−", "-")
    if SPACED.fullmatch(text):
        text = SPACES.sub("", text)
    if not STYLES[mark].fullmatch(text):
        return np.nan
    try:
        return float(text.replace("." if mark == "," else ",", "").replace(",", "."))
    except ValueError:
        return np.nan


def decimal_mark(cells: Iterable[str]) -> str | None:
    """The mark that these cells can only have been written with, "," or "."; None if both would do.

    >>> decimal_mark(["1,5", "2"]), decimal_mark(["1,234"]), decimal_mark(["1,234,567"])
    (',', None, '.')
    """
    votes = {".": 0, ",": 0}
    for cell in cells:
        text = SPACES.sub("", cell)
        points, commas = text.count("."), text.count(",")
        if not points and not commas:
            continue
        for mark, marks, others in ((".", points, commas), (",", commas, points)):
            written = marks == 1 and not GROUPED[mark].fullmatch(text) or others > 1
            votes[mark] += written and np.isfinite(parse(text, mark))
    if votes["."] == votes[","]:
        return None
    return "." if votes["."] > votes[","] else ","


def numbers(cells: pd.Series, mark: str = ".") -> np.ndarray:
    """One float64 per cell: NaN where it is missing, infinite or no number."""
    if pd.api.types.is_numeric_dtype(cells.dtype):
        values = cells.to_numpy(dtype=np.float64, na_value=np.nan)
    elif pd.api.types.is_datetime64_any_dtype(cells.dtype):
        return np.full(len(cells), np.nan)
    elif mark == ".":
        values = pd.to_numeric(cells, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
        left = np.isnan(values) & cells.notna().to_numpy()
        if left.any():
            values = values.copy()
            values[left] = _by_unique(cells[left], mark)
    else:
        values = _by_unique(cells, mark)
    return np.where(np.isfinite(values), values, np.nan)


def _by_unique(cells: pd.Series, mark: str) -> np.ndarray:
    """Each different cell is parsed once."""
    codes, different = pd.factorize(cells)
    values = np.array([*(parse(str(cell), mark) for cell in different), np.nan])
    return values[codes]
