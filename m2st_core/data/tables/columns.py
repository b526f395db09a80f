"""Columns over all files of an upload: profiles of their cells, decimal marks, numbers, and their kind in a test."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pandas as pd

from m2st_core.data.arrays import LARGEST_WHOLE
from m2st_core.data.identifiers import numbers_identify, words_identify
from m2st_core.data.tables import cells as forms
from m2st_core.data.tables.cells import FORMS, CellExample, ParsedCell, is_compact_date, read_cell

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

EVIDENCE = {
    ".": [forms.POINT, forms.DAY_MONTH, forms.COMMA_GROUPS],
    ",": [forms.COMMA, forms.POINT_GROUPS],
}
OPENS = [forms.OPEN_POINT, forms.OPEN_COMMA]
THOUSANDS = {".": (forms.OPEN_COMMA, forms.COMMA_GROUPS), ",": (forms.OPEN_POINT, forms.POINT_GROUPS)}
"""By decimal mark: open cells that are thousands with it, and cells that prove that thousands are marked."""


class Piece(NamedTuple):
    """A column of one file: the file's name and its text cells, indexed by their rows in the file."""

    file: str
    cells: pd.Series


@dataclass(frozen=True)
class Profile:
    """The forms of a column's cells: ``counts`` (files, forms), with examples of each form.

    ``units`` has the number of cells with each unit and an example; the unit "" is last. ``widths`` are the lengths of
    whole numbers, ``words`` the different words (the first of many), ``distinct`` the number of different numbers if
    they may be dates, and ``rewritten`` counts the numbers that were written by hand, such as –1, with an example.
    ``missing`` are the signs and words for a missing cell.
    """

    name: str
    counts: np.ndarray = field(repr=False)
    examples: Mapping[int, tuple[CellExample, ...]] = field(repr=False)
    units: Mapping[str, tuple[int, CellExample]] = field(repr=False)
    widths: frozenset[int]
    words: frozenset[str] = field(repr=False)
    distinct: int = 0
    rewritten: tuple[int, CellExample] | None = None
    missing: frozenset[str] = frozenset()

    @property
    def total(self) -> np.ndarray:
        """Cells of each form in all files: (forms,)."""
        return self.counts.sum(axis=0)

    def count(self, *kinds: int) -> int:
        """Cells of these forms in all files."""
        return int(self.counts[:, list(kinds)].sum())


def profile_column(name: str, pieces: Sequence[Piece]) -> Profile:
    """Profile a column. A file that lacks it has an empty piece."""
    filled = [piece.cells for piece in pieces if len(piece.cells)]
    cells = pieces[0].cells if not filled else filled[0] if len(filled) == 1 else _joined(filled)
    source = np.repeat(np.arange(len(pieces)), [len(piece.cells) for piece in pieces])
    form, odd = column_forms(cells)
    counts = np.bincount(source * len(FORMS) + form, minlength=len(pieces) * len(FORMS))

    def example(position: int) -> CellExample:
        return CellExample(pieces[source[position]].file, int(cells.index[position]), str(cells.iloc[position]))

    examples = {}
    for kind in set(np.unique(form).tolist()) & WITH_EXAMPLES:
        positions = np.flatnonzero(form == kind)
        of_each_file = positions[np.r_[True, np.diff(source[positions]) > 0]]
        few = [example(i) for i in [*of_each_file[:EXAMPLES], *positions[: 3 * EXAMPLES]]]
        first = {cell_example.cell: cell_example for cell_example in reversed(few)}
        examples[kind] = tuple(first[cell] for cell in dict.fromkeys(e.cell for e in few))[:EXAMPLES]
    numeric = np.flatnonzero((form >= forms.NUMBERS.start) & (form < forms.NUMBERS.stop))
    unit_of = {text: cell.unit for text, cell in odd.items() if cell.unit}
    unit_codes, names = np.zeros(len(numeric), dtype=np.intp), [""]
    if unit_of:
        unit_codes, names = pd.factorize(cells.iloc[numeric].map(unit_of).fillna(""))
    first_cells = numeric[np.unique(unit_codes, return_index=True)[1]]
    units = {
        str(unit): (int(count), example(position))
        for unit, count, position in zip(names, np.bincount(unit_codes), first_cells, strict=False)
    }
    if "" in units:
        units[""] = units.pop("")
    whole = cells[(form == forms.WHOLE) | (form == forms.PADDED)] if forms.PADDED in examples else None
    words = [text for text, cell in odd.items() if cell.form in (forms.WORD, forms.VALUE_OR_MISSING)]
    by_hand = [text for text, cell in odd.items() if cell.form in (forms.WHOLE, forms.POINT) and not cell.unit]
    by_hand = [text for text in by_hand if not ASCII.fullmatch(text)]
    rewritten = np.flatnonzero(cells.isin(by_hand)) if by_hand else np.zeros(0, dtype=int)
    return Profile(
        name,
        counts.reshape(len(pieces), len(FORMS)),
        examples,
        units,
        frozenset(whole.str.len() if whole is not None else ()),
        frozenset(words[:MOST_WORDS]),
        int(cells.iloc[numeric].nunique()) if set(examples) & {forms.DAY_MONTH, forms.COMPACT_DATE} else 0,
        (len(rewritten), example(rewritten[0])) if len(rewritten) else None,
        frozenset(text for text, cell in odd.items() if cell.form in MAY_BE_MISSING),
    )


def _joined(filled: Sequence[pd.Series]) -> pd.Series:
    """Concatenate series, three times as fast as ``pd.concat``."""
    arrays = [cells.array for cells in filled]
    joined = type(arrays[0])._concat_same_type(arrays)
    return pd.Series(joined, index=np.concatenate([cells.index.to_numpy() for cells in filled]), copy=False)


def column_forms(cells: pd.Series) -> tuple[np.ndarray, dict[str, ParsedCell]]:
    """The form of every cell (N,), and the different cells, without plain numbers if there are many."""
    codes, different = _different(cells)
    plain = _plain(different)
    kinds = np.full(len(different) + 1, forms.MISSING)  # the last is that of empty cells, whose code is −1
    if plain.any():
        texts = different[plain]
        pointed, marked, opened = _matches(texts, r".*\..*"), _matches(texts, ".*,.*"), _matches(texts, OPEN)
        form = np.select([pointed, marked], [forms.POINT, forms.COMMA], forms.WHOLE)
        form[opened] = np.where(pointed[opened], forms.OPEN_POINT, forms.OPEN_COMMA)
        form[_matches(texts, DAY_MONTH)] = forms.DAY_MONTH
        form[[i for i in np.flatnonzero(_matches(texts, DAY)) if is_compact_date(texts.iloc[i])]] = forms.COMPACT_DATE
        kinds[:-1][plain] = form
    odd = {str(text): read_cell(str(text)) for text in different[~plain].tolist()}  # a list is twice as fast
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
    """The code of every cell, −1 for empty ones, and the different cells."""
    if len(cells) > FEW_CELLS:
        codes, different = pd.factorize(cells)
        return codes, pd.Series(different, dtype="str")
    code_of: dict[str, int] = {}  # pandas takes a millisecond per column, and there may be thousands of short columns
    few = [code_of.setdefault(text, len(code_of)) if isinstance(text, str) else -1 for text in cells.tolist()]
    return np.array(few, dtype=np.intp), np.array(list(code_of), dtype=object)


def _plain(different: pd.Series | np.ndarray) -> np.ndarray:
    """Mark plain numbers, if there are too many different cells to parse each by itself."""
    return _matches(different, PLAIN) if len(different) > FEW_CELLS else np.zeros(len(different), dtype=bool)


def _matches(cells: pd.Series, pattern: str) -> np.ndarray:
    return cells.str.fullmatch(pattern, na=False).to_numpy(dtype=bool, copy=True)


def decide_marks(
    profiles: Sequence[Profile], separators: Sequence[str], answers: Sequence[str]
) -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[int, ...]]]:
    """The decimal mark of each column with open cells in each file, and the files in doubt by column.

    The user's answer for a file decides, otherwise the nearest evidence: the same cells, the file, the column in other
    files, all files; and last, commas between cells, which writers of 8.654 for 8654 avoid. Files with other
    separators, or workbooks, are no evidence, because another program wrote them. There is doubt where evidence is
    absent or contradicts itself, where a column would mix decimals with thousands though no cell proves that thousands
    are marked, and where a column would be read differently in two files without an answer.
    """
    of_files = sum((column.counts for column in profiles), np.zeros((len(separators), len(FORMS)), dtype=np.int64))
    marks, doubts = {}, {}
    for column in profiles:
        with_open = np.flatnonzero(column.counts[:, OPENS].any(axis=1)).tolist()
        if not with_open:
            continue
        by_file: dict[int, str | None] = {}
        for i in with_open:
            alike = np.array(separators) == separators[i]
            evidence = column.counts[i], of_files[i], column.counts[alike].sum(axis=0), of_files[alike].sum(axis=0)
            by_file[i] = answers[i] or _mark(*evidence, separators[i])
        usual = next((mark for mark in by_file.values() if mark), ".")
        marks[column.name] = tuple(by_file.get(i) or usual for i in range(len(separators)))
        unanswered = tuple(i for i in with_open if not answers[i])
        if None in by_file.values() or (unanswered and len(set(by_file.values())) > 1):
            doubts[column.name] = unanswered
    return marks, doubts


def _mark(cells: np.ndarray, file: np.ndarray, column: np.ndarray, files: np.ndarray, separator: str) -> str | None:
    """The decimal mark of a column's open cells in a file, by evidence from near to far; None if in doubt."""
    by_commas, workbook = separator == ",", not separator
    if cells[OPENS].all() and not proven_marks(cells):
        return None
    levels = ((cells, True, True), (file, False, True), (column, True, False), (files, False, False))
    for counts, same_column, same_file in levels:
        proven = [mark for mark in proven_marks(counts) if mark == "," or not workbook]  # its floats have points
        if len(proven) > 1:
            return None
        for mark in proven:
            thousands, proof = THOUSANDS[mark]
            mixed = same_column and cells[thousands] and not counts[proof]
            return None if mixed or (by_commas and mark == "," and not same_file) else mark
    return "." if by_commas and not cells[forms.OPEN_COMMA] else None


def proven_marks(counts: np.ndarray) -> list[str]:
    """The decimal marks that cells, counted by form, prove."""
    return [mark for mark, proofs in EVIDENCE.items() if counts[proofs].any()]


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
    groups: Sequence[slice] = (slice(None),),
) -> Column:
    """Classify a column of numbers, words or dates by its words and their values. Labels of rows are not used.

    It is an identifier if it looks like one in all rows, or in each of these ``groups`` of rows.
    """
    column = _classify(name, kind, unit, words, values, most_levels)
    if not column.used and column.kind != TEXT:
        return column

    cells = None if column.kind == NUMERIC else words()

    def reason(rows: slice) -> str:
        if cells is not None:
            return words_identify(name, cells.iloc[rows].value_counts())
        return "" if unit else numbers_identify(name, values[rows])

    why = reason(slice(None)) or (all(map(reason, groups)) and reason(groups[0]))
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
