"""A column over all files of an upload: the forms of its cells, and its numbers by a decimal mark."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pandas as pd

from m2st_core.data.tables import cells as forms
from m2st_core.data.tables.cells import FORMS, Cell, is_compact_date, read_cell
from m2st_core.data.tables.questions import Example

PLAIN = r"-?(0|[1-9]\d{0,30})([.,]\d{1,60})?(e[+-]?\d{1,2})?"  # numbers as software writes them, read by columns
ASCII = re.compile(r"[+-]?[\d.]+([eE][+-]?\d+)?")
OPEN = r"-?[1-9]\d{0,2}[.,]\d{3}"
DAY = r"(19|20)\d\d(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])(\d{4}|\d{6})?(\.0)?"
DAY_MONTH = r"([12]\d|3[01])\.(0[1-9]|1[0-2])"
EXAMPLES = 3
FEW_CELLS = 2_000  # that are read one by one
MAY_BE_MISSING = (forms.MISSING, forms.VALUE_OR_MISSING, forms.ERROR)
TOLD = set(range(len(FORMS))) - {forms.MISSING, forms.WHOLE, forms.POINT, forms.WORD, forms.DATE}  # in examples
MOST_WORDS = 1_000


class Piece(NamedTuple):
    """A column of one file: the file's name and its text cells, indexed by their rows in the file."""

    file: str
    cells: pd.Series


@dataclass(frozen=True)
class Profile:
    """What the cells of a column look like: ``counts`` (files, forms), and cells of each form, unit and word.

    ``units`` counts the numbers by their unit. ``widths`` are the lengths of whole numbers, ``words`` the different
    words (the first of many), ``distinct`` the number of different numbers if they may be dates, and ``rewritten`` the
    numbers that no software would write so, such as –1. ``missing`` are its signs and words for it.
    """

    name: str
    counts: np.ndarray = field(repr=False)
    examples: Mapping[int, tuple[Example, ...]] = field(repr=False)
    units: Mapping[str, int]
    unit_examples: Mapping[str, Example] = field(repr=False)
    widths: frozenset[int]
    words: frozenset[str] = field(repr=False)
    distinct: int = 0
    rewritten: tuple[int, Example] | None = None
    missing: frozenset[str] = frozenset()

    @property
    def total(self) -> np.ndarray:
        """Cells of each form in all files: (forms,)."""
        return self.counts.sum(axis=0)

    def count(self, *kinds: int) -> int:
        """Cells of these forms in all files."""
        return int(self.counts[:, list(kinds)].sum())


def profile(name: str, pieces: Sequence[Piece]) -> Profile:
    """Profile a column. A file that lacks it has an empty piece."""
    filled = [piece.cells for piece in pieces if len(piece.cells)]
    cells = pieces[0].cells if not filled else filled[0] if len(filled) == 1 else _joined(filled)
    source = np.repeat(np.arange(len(pieces)), [len(piece.cells) for piece in pieces])
    form, odd = forms_of(cells)
    counts = np.bincount(source * len(FORMS) + form, minlength=len(pieces) * len(FORMS))

    def example(position: int) -> Example:
        return Example(pieces[source[position]].file, int(cells.index[position]), str(cells.iloc[position]))

    examples = {}
    for kind in set(np.unique(form).tolist()) & TOLD:
        positions = np.flatnonzero(form == kind)
        of_each_file = positions[np.r_[True, np.diff(source[positions]) > 0]]
        few = [example(i) for i in [*of_each_file[:EXAMPLES], *positions[: 3 * EXAMPLES]]]
        first = {one.cell: one for one in reversed(few)}
        examples[kind] = tuple(first[cell] for cell in dict.fromkeys(one.cell for one in few))[:EXAMPLES]
    numeric = (form >= forms.NUMBERS.start) & (form < forms.NUMBERS.stop)
    units, unit_examples = {"": int(numeric.sum())}, {}
    if any(cell.unit for cell in odd.values()):
        codes = pd.Index(list(odd)).get_indexer(pd.Index(cells))
        named = np.array([cell.unit for cell in odd.values()], dtype=object)
        of_odd = np.where(codes >= 0, named[codes], "")
        for unit in dict.fromkeys(cell.unit for cell in odd.values() if cell.unit):
            where = np.flatnonzero(of_odd == unit)
            units[unit], unit_examples[unit] = len(where), example(int(where[0]))
            units[""] -= len(where)
    if units[""] and len(units) > 1:
        unit_examples[""] = example(int(np.flatnonzero(numeric & (of_odd == ""))[0]))
    whole = cells[(form == forms.WHOLE) | (form == forms.PADDED)] if forms.PADDED in examples else None
    words = [text for text, cell in odd.items() if cell.form in (forms.WORD, forms.VALUE_OR_MISSING)]
    rewritten = [text for text, cell in odd.items() if cell.form in (forms.WHOLE, forms.POINT) and not cell.unit]
    rewritten = [text for text in rewritten if not ASCII.fullmatch(text)]
    where = np.flatnonzero(cells.isin(rewritten)) if rewritten else np.zeros(0, dtype=int)
    return Profile(
        name,
        counts.reshape(len(pieces), len(FORMS)),
        examples,
        {unit: count for unit, count in units.items() if count},
        unit_examples,
        frozenset(whole.str.len() if whole is not None else ()),
        frozenset(words[:MOST_WORDS]),
        int(cells[numeric].nunique()) if set(examples) & {forms.DAY_MONTH, forms.COMPACT_DATE} else 0,
        (len(where), example(int(where[0]))) if len(where) else None,
        frozenset(text for text, cell in odd.items() if cell.form in MAY_BE_MISSING),
    )


def _joined(filled: Sequence[pd.Series]) -> pd.Series:
    """One series of several, which pandas' own function makes in three times as long."""
    arrays = [cells.array for cells in filled]
    joined = type(arrays[0])._concat_same_type(arrays)
    return pd.Series(joined, index=np.concatenate([cells.index.to_numpy() for cells in filled]), copy=False)


def forms_of(cells: pd.Series) -> tuple[np.ndarray, dict[str, Cell]]:
    """The form of every cell (N,), and the different cells, except plain numbers if there are many."""
    codes, different = _different(cells)
    plain = _plain(different)
    kinds = np.full(len(different) + 1, forms.MISSING)  # the last is that of empty cells, whose code is −1
    if plain.any():
        texts = different[plain]
        pointed, marked, opened = _matches(texts, r".*\..*"), _matches(texts, ".*,.*"), _matches(texts, OPEN)
        found = np.select([pointed, marked], [forms.POINT, forms.COMMA], forms.WHOLE)
        found[opened] = np.where(pointed[opened], forms.OPEN_POINT, forms.OPEN_COMMA)
        found[_matches(texts, DAY_MONTH)] = forms.DAY_MONTH
        found[[i for i in np.flatnonzero(_matches(texts, DAY)) if is_compact_date(texts.iloc[i])]] = forms.COMPACT_DATE
        kinds[:-1][plain] = found
    odd = {str(text): read_cell(str(text)) for text in different[~plain].tolist()}  # pandas would take as long again
    kinds[:-1][~plain] = [cell.form for cell in odd.values()]
    return kinds[codes], odd


def numbers(cells: pd.Series, mark: str = ".") -> np.ndarray:
    """One float64 per cell: NaN if it is missing, infinite or not a number. Open cells are read by the mark."""
    codes, different = _different(cells)
    plain = _plain(different)
    values = np.full(len(different) + 1, np.nan)
    if plain.any():
        plain &= ~_matches(different, OPEN.replace("[.,]", "," if mark == "." else r"\."))  # thousands
        values[:-1][plain] = pd.to_numeric(different[plain].str.replace(",", ".", regex=False))
    values[:-1][~plain] = [read_cell(str(text)).value(mark) for text in different[~plain].tolist()]
    return values[codes]


def _different(cells: pd.Series) -> tuple[np.ndarray, pd.Series | np.ndarray]:
    """The code of every cell, −1 if it is empty, and the different cells."""
    if len(cells) > FEW_CELLS:
        codes, different = pd.factorize(cells)
        return codes, pd.Series(different, dtype="str")
    places: dict[str, int] = {}  # pandas takes a millisecond, and there may be thousands of columns with few rows
    found = [places.setdefault(text, len(places)) if isinstance(text, str) else -1 for text in cells.tolist()]
    return np.array(found, dtype=np.intp), np.array(list(places), dtype=object)


def _plain(different: pd.Series | np.ndarray) -> np.ndarray:
    """Which cells are plain numbers, if there are too many to be read one by one."""
    return _matches(different, PLAIN) if len(different) > FEW_CELLS else np.zeros(len(different), dtype=bool)


def _matches(cells: pd.Series, pattern: str) -> np.ndarray:
    return cells.str.fullmatch(pattern, na=False).to_numpy(dtype=bool, copy=True)
