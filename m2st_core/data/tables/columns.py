"""Columns over all files of an upload: the forms and the numbers of their cells, and their kind in a test."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
import pandas as pd
from pandas.api.extensions import ExtensionArray

from m2st_core.data.arrays import LARGEST_WHOLE
from m2st_core.data.identifiers import numbers_identify, words_identify
from m2st_core.data.tables import cells as forms
from m2st_core.data.tables.cells import FORMS, CellExample, is_compact_date, read_cell

NUMBERS, WORDS, DATES = "numbers", "words", "dates"  # readings of a column
NUMERIC, CATEGORICAL, DATE, TEXT = "numeric", "categorical", "date", "free text"  # kinds of columns in a test
CONSTANT, EMPTY, IDENTIFIER = "constant", "all missing", "identifier"

PLAIN = r"-?(0|[1-9]\d{0,30})([.,]\d{1,60})?(e[+-]?\d{1,2})?"  # numbers as software writes them, parsed all at once
ASCII = re.compile(r"[+-]?[\d.]+([eE][+-]?\d+)?")
OPEN = r"-?[1-9]\d{0,2}[.,]\d{3}"
DAY = r"(19|20)\d\d(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])(\d{4}|\d{6})?(\.0)?"
DAY_MONTH = r"([12]\d|3[01])\.(0[1-9]|1[0-2])"
LONG_NUMBER = r"[+-]?\d{16,}"
EXAMPLES = 3
FEW_CELLS = 2_000  # different cells up to which each is parsed by itself
MAY_BE_MISSING = (forms.MISSING, forms.VALUE_OR_MISSING, forms.ERROR)
WITH_EXAMPLES = set(range(len(FORMS))) - {forms.MISSING, forms.WHOLE, forms.POINT, forms.WORD, forms.DATE}
MOST_WORDS = 1_000
MOSTLY = 0.8  # share of its cells that makes a column numeric, or one of dates
FEW_WORDS = 5
MOST_LEVELS = 1_000  # different words that are searched for dates
NO_DATES = "dates and times are not compared; bring them as numbers, such as days since a start"


class Profile:
    """A column in all files. Its different cells are parsed once, for their forms and for their values.

    A file that lacks the column has None. ``source`` (N,) is the position of each cell's file in ``files``. ``parsed``
    are the different cells; plain numbers are not among them if there are too many to parse each by itself.
    """

    def __init__(self, name: str, files: Sequence[str], columns: Sequence[pd.Series | None]) -> None:
        self.name, self.files = name, tuple(files)
        self.source = np.repeat(np.arange(len(columns)), [0 if cells is None else len(cells) for cells in columns])
        filled = [cells for cells in columns if cells is not None and len(cells)]
        self._rows = np.concatenate([cells.index.to_numpy() for cells in filled]) if filled else np.zeros(0, dtype=int)
        self._codes, self._different = _different([cells.array for cells in filled])
        self._plain = np.zeros(len(self._different), dtype=bool)
        if len(self._different) > FEW_CELLS:
            self._plain = _matches(self._different, PLAIN)
        self.parsed = {str(text): read_cell(str(text)) for text in self._different[~self._plain].tolist()}

    @cached_property
    def forms(self) -> np.ndarray:
        """The form of every cell: (N,)."""
        return np.append(self._forms, forms.MISSING)[self._codes]  # the last is that of empty cells, whose code is −1

    @cached_property
    def _forms(self) -> np.ndarray:
        """The form of each different cell."""
        kinds = np.zeros(len(self._different), dtype=int)
        kinds[~self._plain] = [cell.form for cell in self.parsed.values()]
        if self._plain.any():
            texts = self._different[self._plain]
            pointed, marked, opened = _matches(texts, r".*\..*"), _matches(texts, ".*,.*"), _matches(texts, OPEN)
            form = np.select([pointed, marked], [forms.POINT, forms.COMMA], forms.WHOLE)
            form[opened] = np.where(pointed[opened], forms.OPEN_POINT, forms.OPEN_COMMA)
            form[_matches(texts, DAY_MONTH)] = forms.DAY_MONTH
            days = [i for i in np.flatnonzero(_matches(texts, DAY)) if is_compact_date(texts.iloc[i])]
            form[days] = forms.COMPACT_DATE
            kinds[self._plain] = form
        return kinds

    def numbers(self, marks: Sequence[str]) -> np.ndarray:
        """One float64 per cell: NaN if it is missing, infinite or not a number. Each file has a mark for open cells."""
        by_mark = {mark: np.append(self._values(mark), np.nan)[self._codes] for mark in dict.fromkeys(marks)}
        if len(by_mark) == 1:
            return by_mark[marks[0]]
        return np.where(np.array(marks)[self.source] == ".", by_mark["."], by_mark[","])

    def _values(self, mark: str) -> np.ndarray:
        """The number of each different cell by a decimal mark."""
        values = np.full(len(self._different), np.nan)
        values[~self._plain] = [cell.value(mark) for cell in self.parsed.values()]
        if (plain := self._plain.copy()).any():
            plain &= ~_matches(self._different, OPEN.replace("[.,]", "," if mark == "." else r"\."))  # thousands
            values[plain] = pd.to_numeric(self._different[plain].str.replace(",", ".", regex=False))
            thousands = self._plain & ~plain
            values[thousands] = [read_cell(str(text)).value(mark) for text in self._different[thousands].tolist()]
        return values

    def example(self, position: int) -> CellExample:
        """A cell with its file and its row there."""
        text = self._different[self._codes[position]]
        return CellExample(self.files[self.source[position]], int(self._rows[position]), str(text))

    def positions(self, texts: Collection[str]) -> np.ndarray:
        """The positions of the cells with one of these texts."""
        if not texts:
            return np.zeros(0, dtype=int)
        return np.flatnonzero(np.append(pd.Index(self._different, dtype=object).isin(list(texts)), False)[self._codes])

    @cached_property
    def counts(self) -> np.ndarray:
        """Cells of each form in each file: (files, forms)."""
        size = len(self.files), len(FORMS)
        return np.bincount(self.source * len(FORMS) + self.forms, minlength=size[0] * size[1]).reshape(size)

    @property
    def total(self) -> np.ndarray:
        """Cells of each form in all files: (forms,)."""
        return self.counts.sum(axis=0)

    def count(self, *kinds: int) -> int:
        """Cells of these forms in all files."""
        return int(self.counts[:, list(kinds)].sum())

    @cached_property
    def examples(self) -> Mapping[int, tuple[CellExample, ...]]:
        """Different cells of each form that needs a decision, of several files if possible."""
        examples = {}
        for kind in set(np.unique(self.forms).tolist()) & WITH_EXAMPLES:
            positions = np.flatnonzero(self.forms == kind)
            of_each_file = positions[np.r_[True, np.diff(self.source[positions]) > 0]]
            few = [self.example(i) for i in [*of_each_file[:EXAMPLES], *positions[: 3 * EXAMPLES]]]
            first = {cell_example.cell: cell_example for cell_example in reversed(few)}
            examples[kind] = tuple(first[cell] for cell in dict.fromkeys(e.cell for e in few))[:EXAMPLES]
        return examples

    @property
    def _numeric(self) -> np.ndarray:
        """The positions of cells with a value."""
        return np.flatnonzero((self.forms >= forms.NUMBERS.start) & (self.forms < forms.NUMBERS.stop))

    @cached_property
    def units(self) -> Mapping[str, tuple[int, CellExample]]:
        """The number of numeric cells with each unit, and an example; the unit "" is last."""
        numeric, names = self._numeric, [""]
        codes = np.zeros(len(numeric), dtype=np.intp)
        if any(cell.unit for cell in self.parsed.values()):
            unit = np.full(len(self._different), "", dtype=object)
            unit[~self._plain] = [cell.unit for cell in self.parsed.values()]
            codes, names = pd.factorize(unit[self._codes[numeric]])
        firsts = numeric[np.unique(codes, return_index=True)[1]]
        units = zip(names, np.bincount(codes).tolist(), firsts, strict=False)
        return {str(unit): (count, self.example(first)) for unit, count, first in sorted(units, key=lambda u: not u[0])}

    @property
    def widths(self) -> frozenset[int]:
        """The lengths of whole numbers."""
        whole = (self._forms == forms.WHOLE) | (self._forms == forms.PADDED)
        return frozenset(map(len, self._different[whole].tolist()))

    @property
    def distinct(self) -> int:
        """The number of different cells with a value."""
        return len(np.unique(self._codes[self._numeric]))

    @property
    def rewritten(self) -> np.ndarray:
        """The positions of numbers that were written by hand, such as –1."""
        by_hand = [text for text, cell in self.parsed.items() if cell.form in (forms.WHOLE, forms.POINT)]
        return self.positions([t for t in by_hand if not self.parsed[t].unit and not ASCII.fullmatch(t)])

    @cached_property
    def words(self) -> frozenset[str]:
        """The different words, the first of many."""
        words = (text for text, cell in self.parsed.items() if cell.form in (forms.WORD, forms.VALUE_OR_MISSING))
        return frozenset(islice(words, MOST_WORDS))

    @property
    def missing(self) -> frozenset[str]:
        """The signs and words for a missing cell."""
        return frozenset(text for text, cell in self.parsed.items() if cell.form in MAY_BE_MISSING)


def _different(columns: Sequence[ExtensionArray]) -> tuple[np.ndarray, Any]:
    """The code of every cell, −1 for empty ones, and the different cells: a series if they may be many."""
    if sum(map(len, columns)) > FEW_CELLS:
        codes, different = pd.factorize(type(columns[0])._concat_same_type(columns))  # faster than pd.concat
        return codes, pd.Series(different, dtype="str")
    code_of: dict[str, int] = {}  # pandas takes a millisecond per column, and there may be thousands of short columns
    texts = (text for column in columns for text in column.tolist())
    few = [code_of.setdefault(text, len(code_of)) if isinstance(text, str) else -1 for text in texts]
    return np.array(few, dtype=np.intp), np.array(list(code_of), dtype=object)


def _matches(cells: pd.Series, pattern: str) -> np.ndarray:
    return cells.str.fullmatch(pattern, na=False).to_numpy(dtype=bool, copy=True)


@dataclass(frozen=True)
class Column:
    """The kind of a column over all rows, and ``why`` it is not compared, if so.

    An identifier that can be compared on request ``holds`` numbers or categories.
    """

    name: str
    kind: str
    why: str = ""
    unit: str = ""
    holds: str = ""

    @property
    def used(self) -> bool:
        """Whether a test can use the column."""
        return self.kind in (NUMERIC, CATEGORICAL)


def classify_column(
    name: str,
    kind: str,
    unit: str,
    words: Callable[[], pd.Series],
    values: np.ndarray,
    most_levels: int,
    groups: Sequence[slice],
) -> Column:
    """Classify a column of numbers, words or dates by its words and their values. Labels of rows are not used.

    It is an identifier if it looks like one in all rows, or in each of these ``groups`` of rows. Only a column of
    numbers needs ``values``.
    """
    column = _classify(name, kind, unit, words, values, most_levels)
    if not column.used and column.kind != TEXT:
        return column

    cells = None if column.kind == NUMERIC else words()

    def reason(rows: slice) -> str:
        if cells is not None:
            return words_identify(name, cells.iloc[rows].value_counts())
        return "" if unit else numbers_identify(name, values[rows])

    why = reason(slice(None)) or (groups and all(map(reason, groups)) and reason(groups[0]))
    return Column(name, IDENTIFIER, why, unit, column.kind if column.used else "") if why else column


def _classify(
    name: str, kind: str, unit: str, words: Callable[[], pd.Series], values: np.ndarray, most_levels: int
) -> Column:
    if kind == DATES:
        return Column(name, DATE, NO_DATES)
    if kind == NUMBERS:
        numeric = values[~np.isnan(values)]
        if not len(numeric):
            return Column(name, EMPTY, "it has no number")
        if np.abs(numeric).max() > LARGEST_WHOLE and words().str.fullmatch(LONG_NUMBER).any():
            return Column(name, IDENTIFIER, "its whole numbers have too many digits for a measurement")
        if numeric.min() == numeric.max() and not words()[np.isnan(values)].notna().any():
            return Column(name, CONSTANT, f"it is always {numeric[0]:g}")
        return Column(name, NUMERIC, "", unit)
    counts = words().value_counts()
    count, levels = int(counts.sum()), [str(level) for level in counts.index]
    if not count:
        return Column(name, EMPTY, "it has no value")
    if len(levels) == 1:
        return Column(name, CONSTANT, f"it is always {levels[0][:40]!r}")
    few = levels[:MOST_LEVELS]
    if sum(read_cell(level).form == forms.DATE for level in few) >= MOSTLY * len(few):
        return Column(name, DATE, NO_DATES)
    if len(levels) > most_levels:
        return Column(name, TEXT, f"it has {len(levels):,} different words, more than {most_levels:,}")
    if len(levels) > max(FEW_WORDS, count / 2):
        return Column(name, TEXT, f"{len(levels):,} of its {count:,} cells are different words")
    return Column(name, CATEGORICAL)
