"""What a column is: numbers, categories, or something that a test can not use, and why."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from m2st_core.tasks.arrays import LARGEST_WHOLE
from m2st_core.tasks.tables.limits import Limits

NUMERIC, CATEGORICAL, DATE, TEXT = "numeric", "categorical", "date", "free text"
CONSTANT, EMPTY, RUNNING = "constant", "all missing", "row number"
RUNNING_NAMES = re.compile(r"column \d+|unnamed: \d+|__index_level_\d+__|index|id|row|nr|no|number", re.IGNORECASE)
MOSTLY = 0.8  # a column is of numbers, or of dates, if this share of its cells is
DATES = re.compile(
    r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}([T ].*)?|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}([T ].*)?|\d{1,2}:\d{2}(:\d{2}.*)?"
    r"|\d{1,2}[. -]+[^\W\d]{3,9}[., -]+\d{2,4}|[^\W\d]{3,9} \d{1,2},? \d{4}",
)
LONG_NUMBER = re.compile(r"[+-]?\d{16,}")
FEW_WORDS = 5


@dataclass(frozen=True)
class Column:
    """What a column was found to be over all rows; ``why`` it is set aside, if it is."""

    name: str
    kind: str
    why: str = ""

    @property
    def used(self) -> bool:
        """Whether a test can use it."""
        return self.kind in (NUMERIC, CATEGORICAL)


def is_running(name: str, pieces: Iterable[np.ndarray]) -> bool:
    """Whether a column only counts the rows of each table; order of entry would be taken for a difference."""
    return bool(RUNNING_NAMES.fullmatch(name)) and all(len(v) > 1 and bool((np.diff(v) == 1).all()) for v in pieces)


def classify(name: str, cells: pd.Series, values: np.ndarray, limits: Limits) -> Column:
    """The column of these cells, whose numbers are ``values``; no row's label has a say in what it is."""
    count = int(cells.notna().sum())
    found = values[~np.isnan(values)]
    if not count:
        return Column(name, EMPTY, "it has no value")
    if len(found) >= MOSTLY * count:
        if np.abs(found).max() > LARGEST_WHOLE and any(LONG_NUMBER.fullmatch(str(cell)) for cell in cells.dropna()):
            return Column(name, TEXT, "its whole numbers have too many digits, as identifiers do")
        if found.min() == found.max():
            return Column(name, CONSTANT, f"it is always {found[0]:g}")
        return Column(name, NUMERIC)
    levels = [str(level) for level in cells.dropna().unique()]
    if len(levels) == 1:
        return Column(name, CONSTANT, f"it is always {levels[0][:40]!r}")
    if sum(bool(DATES.fullmatch(level)) for level in levels) >= MOSTLY * len(levels):
        return Column(name, DATE, "dates and times are not compared; bring them as numbers, such as days since a start")
    if len(levels) > limits.levels:
        return Column(name, TEXT, f"it has {len(levels):,} different words, more than {limits.levels:,}")
    if len(levels) > max(FEW_WORDS, count / 2):
        return Column(name, TEXT, f"{len(levels):,} of its {count:,} cells are different words")
    return Column(name, CATEGORICAL)
