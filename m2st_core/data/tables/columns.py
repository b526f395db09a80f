"""Columns: their names, whether they hold numbers, words or dates, and how they are used in a test."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from m2st_core.data.arrays import LARGEST_WHOLE
from m2st_core.data.identifiers import numbers_identify, words_identify
from m2st_core.data.tables import cells as forms
from m2st_core.data.tables.cells import is_known_unit, read_cell, same_unit
from m2st_core.data.tables.limits import Limits
from m2st_core.data.tables.profiles import Profile
from m2st_core.data.tables.questions import (
    DATES,
    NUMBERS,
    WORDS,
    Conversion,
    Question,
    ask_kind,
    read_as_option,
)

LONGEST_NAME = 100
MOST_NOTES = 3
NUMERIC, CATEGORICAL, DATE, TEXT = "numeric", "categorical", "date", "free text"
CONSTANT, EMPTY, IDENTIFIER = "constant", "all missing", "identifier"
MOSTLY = 0.8  # share of its cells that makes a column numeric, or one of dates
LONG_NUMBER = r"[+-]?\d{16,}"
FEW_WORDS = 5
MOST_LEVELS = 1_000  # that are looked at
FEW_DAYS = 3  # different cells such as 12.03 that look like days and months
NO_DATES = "dates and times are not compared; bring them as numbers, such as days since a start"


def is_header(first: Sequence[str], below: Sequence[list[str]]) -> bool:
    """Whether a row has words other than the values of its columns."""
    filled = [i for i, cell in enumerate(first) if cell]
    words = [i for i in filled if _is_name(first[i], [row[i].strip() for row in below if i < len(row)])]
    if len(words) == len(filled):
        return bool(words)
    return bool(words) and not any(first[i] == row[i].strip() for i in words for row in below if i < len(row))


def _is_name(cell: str, below: Sequence[str]) -> bool:
    """Whether a cell can be a name: it is neither missing nor a number, even with a unit that cells below have."""
    read = read_cell(cell)
    if read.form in (forms.MISSING, forms.VALUE_OR_MISSING):
        return False
    if not forms.NUMBERS.start <= read.form < forms.NUMBERS.stop:
        return True
    return bool(read.unit) and not any(read_cell(other).unit == read.unit for other in below)


def clean_names(names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Names on one line, composed (ä is one letter), none blank and none twice, and notes on what was changed."""
    clean: list[str] = []
    notes = []
    lines = [" ".join(unicodedata.normalize("NFC", name).split()) for name in names]
    wanted = [name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…" for name in lines]
    taken, used = set(wanted), set()
    for position, short in enumerate(wanted, start=1):
        base = short or f"column {position}"
        unique, count = base, 1
        while unique in used or (unique != short and unique in taken):
            count += 1
            unique = f"{base} ({count})"
        if short and unique != short:
            notes.append(f"Two columns are called {short!r}: the one at position {position} is now {unique!r}.")
        used.add(unique)
        clean.append(unique)
    more = len(notes) - MOST_NOTES
    return clean, notes if more <= 0 else [*notes[:MOST_NOTES], f"{more:,} more columns were renamed like this."]


@dataclass(frozen=True)
class Verdict:
    """What a column holds (numbers, words or dates), the unit of its numbers, and what is to be said or asked."""

    kind: str
    unit: str = ""
    conversions: tuple[Conversion, ...] = ()
    question: Question | None = None


def judge(one: Profile, chosen: str = "") -> Verdict:
    """Judge a column by the forms of its cells in all files; ``chosen`` is the user's own verdict."""
    total = one.total
    filled = int(total.sum()) - one.count(forms.MISSING, forms.VALUE_OR_MISSING)
    numeric, nearly = int(total[forms.NUMBERS].sum()), int(total[forms.NEARLY].sum())
    if chosen in (WORDS, DATES):
        return Verdict(chosen)
    if not chosen and (not numeric or nearly < MOSTLY * filled):
        return Verdict(WORDS)
    units = [unit for unit in one.units if unit]
    if len({same_unit(unit) for unit in units}) > 1:
        if not chosen and not all(map(is_known_unit, units)):
            return Verdict(WORDS)  # codes such as 12ab, 13cd
        first, second, *_ = (one.unit_examples[unit] for unit in one.units if unit)
        sentence = (
            f"{first.cell!r} and {second.cell!r} ({second.where}) have different units. Convert them to one unit."
        )
        return Verdict(NUMBERS, "", (), ask_kind(one.name, sentence, (WORDS,), list(one.unit_examples.values())))
    unit = next(iter(units), "")
    if not chosen and (verdict := _doubt(one, numeric, unit)):
        return verdict
    return Verdict(NUMBERS, unit, (*_number_conversions(one, unit),))


def _doubt(one: Profile, numeric: int, unit: str) -> Verdict | None:
    """A verdict on numbers that may be codes or dates, or lack their unit; None if there is no doubt."""
    both = (NUMBERS, WORDS)
    if unit and "" in one.units:
        bare = one.unit_examples[""]
        sentence = f"{bare.cell!r} has no unit, and {one.unit_examples[unit].cell!r} has one. Is it in {unit}, too?"
        return Verdict(NUMBERS, unit, (), ask_kind(one.name, sentence, both, [bare, one.unit_examples[unit]]))
    if (days := one.count(forms.COMPACT_DATE)) >= MOSTLY * numeric and one.distinct > 1:
        if days == numeric:
            return _turned(one, forms.COMPACT_DATE, DATES, "a date")
        found = list(one.examples[forms.COMPACT_DATE])
        sentence = f"{found[0].cell!r} is a number, or a date; {numeric - days:,} other cells are no dates."
        return Verdict(NUMBERS, "", (), ask_kind(one.name, sentence, (NUMBERS, DATES), found))
    if one.count(forms.DAY_MONTH) == numeric and one.distinct >= FEW_DAYS:
        found = list(one.examples[forms.DAY_MONTH])
        sentence = f"{found[0].cell!r} is a number, or a day and a month."
        return Verdict(NUMBERS, "", (), ask_kind(one.name, sentence, (NUMBERS, DATES), found))
    if padded := one.count(forms.PADDED):
        if padded + one.count(forms.WHOLE) == numeric and len(one.widths) == 1:
            return _turned(one, forms.PADDED, WORDS, "a code, because of its leading zero")
        codes = list(one.examples[forms.PADDED])
        sentence = f"{codes[0].cell!r} begins with 0 as codes do, and other cells are numbers."
        return Verdict(NUMBERS, "", (), ask_kind(one.name, sentence, both, codes))
    if 2 * one.count(forms.CODE) >= numeric:
        if one.count(forms.WORD):
            return _turned(one, forms.CODE, WORDS, "a code")
        codes = list(one.examples[forms.CODE])
        sentence = f"{codes[0].cell!r} is a code, or {read_cell(codes[0].cell).point:,.15g} with an exponent."
        return Verdict(NUMBERS, "", (), ask_kind(one.name, sentence, both, codes))
    return None


def _turned(one: Profile, form: int, kind: str, becomes: str) -> Verdict:
    undo = read_as_option(one.name, NUMBERS)
    return Verdict(kind, "", (Conversion(one.name, one.count(form), one.examples[form][0], becomes, undo),))


def _number_conversions(one: Profile, unit: str) -> list[Conversion]:
    """Cells that are numbers though they are not written as software writes them."""
    undo, found = read_as_option(one.name, WORDS), []
    if unit:
        example = one.unit_examples[unit]
        becomes = f"{read_cell(example.cell).value('.'):.15g} (unit: {unit})"
        return [Conversion(one.name, one.units[unit], example, becomes, undo)]
    for form in (forms.COMMA, forms.POINT_GROUPS, forms.COMMA_GROUPS, forms.CODE):
        if count := one.count(form):
            example = one.examples[form][0]
            found.append(Conversion(one.name, count, example, f"{read_cell(example.cell).value('.'):.15g}", undo))
    if one.rewritten:
        count, example = one.rewritten
        found.append(Conversion(one.name, count, example, f"{read_cell(example.cell).value('.'):.15g}", undo))
    return found


@dataclass(frozen=True)
class Column:
    """The kind of a column over all rows, and ``why`` it is set aside if it is.

    An identifier that could be compared all the same ``holds`` numbers or categories.
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


def classify(
    name: str,
    kind: str,
    unit: str,
    words: Callable[[], pd.Series],
    values: np.ndarray,
    limits: Limits,
    parts: Sequence[slice] = (slice(None),),
) -> Column:
    """Classify a column of numbers, words or dates by its words and their values. Labels of rows are not used.

    It is an identifier if it looks like one in all rows, or in each of these ``parts``.
    """
    column = _classify(name, kind, unit, words, values, limits)
    if not column.used and column.kind != TEXT:
        return column

    cells = None if column.kind == NUMERIC else words()

    def reason(rows: slice) -> str:
        if cells is not None:
            return words_identify(name, cells.iloc[rows].value_counts())
        return "" if unit else numbers_identify(name, values[rows])

    why = reason(slice(None)) or (all(map(reason, parts)) and reason(parts[0]))
    return Column(name, IDENTIFIER, why, unit, column.kind if column.used else "") if why else column


def _classify(
    name: str, kind: str, unit: str, words: Callable[[], pd.Series], values: np.ndarray, limits: Limits
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
    if len(levels) > limits.levels:
        return Column(name, TEXT, f"it has {len(levels):,} different words, more than {limits.levels:,}")
    if len(levels) > max(FEW_WORDS, count / 2):
        return Column(name, TEXT, f"{len(levels):,} of its {count:,} cells are different words")
    return Column(name, CATEGORICAL)
