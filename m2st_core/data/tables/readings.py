"""How the columns of an upload are read, decided over all files at once; what is in doubt becomes a question."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from m2st_core.data.tables import cells as forms
from m2st_core.data.tables.cells import EXCEL_ERRORS, MISSING_SIGNS, VALUES_OR_MISSING, read_cell
from m2st_core.data.tables.columns import Verdict, judge
from m2st_core.data.tables.marks import OPENS, decide_marks, proven_marks
from m2st_core.data.tables.profiles import Piece, Profile, profile
from m2st_core.data.tables.questions import (
    DECIMAL,
    NUMBERS,
    SHOWN,
    TOTALS,
    WORDS,
    Conversion,
    Example,
    Marks,
    Question,
    mark_of,
)

MARKS = {".": "decimal point", ",": "decimal comma"}
FEW_TOTALS, TOTALS_SHARE = 5, 0.1  # a word such as Total in more rows, and a larger share of them, is a value


@dataclass(frozen=True)
class Reading:
    """How a column of one file is read. ``missing`` are the cells that stand for a missing one."""

    kind: str = WORDS
    mark: str = "."
    unit: str = ""
    missing: frozenset[str] = frozenset()

    def words(self, cells: pd.Series) -> pd.Series:
        """The cells as words, NA where one is missing."""
        return cells.mask(cells.isin(self.missing)) if self.missing else cells


@dataclass(frozen=True)
class Readings:
    """The reading of every column in every file, ``columns[name][i]`` in file i, and what is to be said about it.

    ``totals`` are rows that look like totals, by file. ``warnings`` are differences between the files, and ``signs``
    those that stand for missing cells.
    """

    columns: Mapping[str, tuple[Reading, ...]] = field(default_factory=dict)
    questions: tuple[Question, ...] = ()
    conversions: tuple[Conversion, ...] = ()
    warnings: tuple[str, ...] = ()
    signs: frozenset[str] = frozenset()
    totals: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    def table(self, names: Collection[str]) -> list[list[str | int]]:
        """The conversions of these columns as rows: column, cell, read as, number of cells, how to undo it."""
        return [[c.column, c.example.cell, c.becomes, c.cells, c.undo] for c in self.conversions if c.column in names]


def settle(
    columns: Mapping[str, Sequence[Piece]],
    separators: Sequence[str],
    decimal: Marks = "",
    read_as: Mapping[str, str] | None = None,
    totals: str = "",
) -> Readings:
    """Decide how to read columns, each of which has a piece of every file, empty where a file lacks it.

    Answers to earlier questions are ``decimal`` (for all files, or by file), ``read_as`` by column, and ``totals``.
    """
    profiles = {name: profile(name, pieces) for name, pieces in columns.items()}
    verdicts = {name: judge(one, (read_as or {}).get(name, "")) for name, one in profiles.items()}
    numeric = [profiles[name] for name, verdict in verdicts.items() if verdict.kind == NUMBERS]
    said = [mark_of(decimal, piece.file) for piece in next(iter(columns.values()), ())]
    marks, doubts = decide_marks(numeric, separators, said)
    used_for_missing = {word for one in numeric for word in one.words & VALUES_OR_MISSING}
    readings: dict[str, tuple[Reading, ...]] = {}
    conversions: list[Conversion] = []
    questions: list[Question] = []
    signs: frozenset[str] = frozenset()
    for name, verdict in verdicts.items():
        one = profiles[name]
        kept = _kept(one, used_for_missing) if verdict.kind == WORDS else frozenset()
        mark = marks.get(name, (".",) * len(separators))
        missing = one.missing - kept - (EXCEL_ERRORS if verdict.kind == NUMBERS else frozenset())
        made = {m: Reading(verdict.kind, m, verdict.unit, missing) for m in ".,"}
        readings[name] = tuple(made[m] for m in mark)
        questions += [verdict.question] if verdict.question else []
        conversions += verdict.conversions
        if name not in doubts:
            conversions += _open_conversions(one, mark, any(said)) if verdict.kind == NUMBERS else []
        if kept:
            found = [
                Example(p.file, int(row), cell) for p in columns[name] for row, cell in p.cells.items() if cell in kept
            ]
            conversions.append(Conversion(name, len(found), found[0], "a value, not as missing", "empty cells"))
        signs |= MISSING_SIGNS & missing
    if doubts:
        files = tuple(dict.fromkeys(columns[name][i].file for name, doubtful in doubts.items() for i in doubtful))
        questions.insert(0, _decimal_question([profiles[name] for name in doubts], files))
    rows = _total_rows(columns, profiles) if numeric else {}
    if rows and not totals:
        questions.insert(0, _totals_question(columns, rows))
    warnings = [text for one in profiles.values() for text in _differences(one, verdicts[one.name], columns[one.name])]
    return Readings(readings, tuple(questions), tuple(conversions), tuple(warnings), signs, rows)


def _decimal_question(doubtful: Sequence[Profile], among: tuple[str, ...]) -> Question:
    """Ask for the decimal mark of these columns among the files that are in doubt."""
    found = [example for one in doubtful for kind in OPENS for example in one.examples.get(kind, ())]
    cells = [example for example in found if example.file in among] or found
    files = [example.file for example in cells]
    chosen = sorted(cells, key=lambda example: cells.index(example) != files.index(example.file))[:SHOWN]
    first = read_cell(chosen[0].cell)
    sentence = (
        f"{chosen[0].cell!r} is {first.point:.15g} with a decimal point and {first.comma:.15g} with a decimal comma, "
        "and the other cells do not settle which."
    )
    answers = {
        mark: f"{words.capitalize()}: {chosen[0].cell} is {read_cell(chosen[0].cell).value(mark):.15g}"
        for mark, words in MARKS.items()
    }
    shown = tuple((e, tuple(f"{read_cell(e.cell).value(mark):.15g}" for mark in answers)) for e in chosen)
    return Question(DECIMAL, tuple(one.name for one in doubtful), sentence, answers, shown, among)


def _open_conversions(one: Profile, marks: Sequence[str], said: bool) -> list[Conversion]:
    """Open cells that became thousands, or decimals though their column in that file does not prove it."""
    found = []
    for kind, other in ((forms.OPEN_POINT, ","), (forms.OPEN_COMMA, ".")):
        if not one.counts[:, kind].any():
            continue
        files = np.flatnonzero(one.counts[:, kind])
        mark = marks[int(files[0])]
        example = one.examples[kind][0]
        obvious = mark != other and all(proven_marks(one.counts[i]) for i in files) and not said
        if not obvious or kind == forms.OPEN_COMMA:
            becomes = f"{read_cell(example.cell).value(mark):.15g}"
            undo = "--decimal ." if mark == "," else '--decimal ","'
            found.append(Conversion(one.name, one.count(kind), example, becomes, undo))
    return found


def _kept(one: Profile, used_for_missing: set[str]) -> frozenset[str]:
    """Words such as None, NA and − that are values of this column: no column of numbers has them, and they fit in."""
    others = one.words - VALUES_OR_MISSING
    found = {word for word in one.words & VALUES_OR_MISSING if word.lower() == "none" and others}
    if others and all(len(word) == 2 and word.isalpha() for word in others):
        found |= one.words & {"NA", "na"}
    if others and all(len(word) <= 2 and word.istitle() for word in others):
        found |= one.words & {"Na"}
    if others and all(set(word) == {"+"} for word in others):  # results of a test
        found |= one.missing & {"-", "–", "−"}
    return frozenset(found - used_for_missing)


def _total_rows(columns: Mapping[str, Sequence[Piece]], profiles: Mapping[str, Profile]) -> dict[int, tuple[int, ...]]:
    """Rows of each file that have a word such as Total in a column where few rows have one."""
    found: dict[int, set[int]] = {}
    for name, one in profiles.items():
        for i in np.flatnonzero(one.counts[:, forms.TOTAL]).tolist():
            cells = columns[name][i].cells
            if one.counts[i, forms.TOTAL] <= max(min(FEW_TOTALS, len(cells) - 1), TOTALS_SHARE * len(cells)):
                words = [cell for cell in cells.dropna().unique() if read_cell(str(cell)).form == forms.TOTAL]
                found.setdefault(i, set()).update(map(int, cells.index[cells.isin(words)]))
    return {i: tuple(sorted(rows)) for i, rows in found.items()}


def _totals_question(columns: Mapping[str, Sequence[Piece]], rows: Mapping[int, tuple[int, ...]]) -> Question:
    examples = []
    for i, numbers in rows.items():
        for row in numbers:
            cells = [
                str(p[i].cells.loc[row])
                for p in columns.values()
                if len(p[i].cells) and not pd.isna(p[i].cells.loc[row])
            ]
            word = next(cell for cell in cells if read_cell(cell).form == forms.TOTAL)
            file = next(pieces[i].file for pieces in columns.values())
            examples.append((Example(file, row, word), ("not compared", "an observation")))
    sentence = f"the row says {examples[0][0].cell!r}, as totals under a table do."
    answers = {"leave out": "A total: leave it out", "keep": "An observation: keep it"}
    return Question(TOTALS, (), sentence, answers, tuple(examples[:SHOWN]))


def _differences(one: Profile, verdict: Verdict, pieces: Sequence[Piece]) -> list[str]:
    """Warnings where files write a column differently."""
    if verdict.kind == NUMBERS:
        points, commas = (
            [p.file for p, counts in zip(pieces, one.counts, strict=True) if mark in proven_marks(counts)]
            for mark in MARKS
        )
        if points and commas:
            return [
                f"{one.name!r} has decimal points in {points[0]} and decimal commas in {commas[0]}. Each cell is "
                "read in its own way: check the values."
            ]
        return []
    with_numbers = one.counts[:, forms.NUMBERS].sum(axis=1) > one.counts[:, [forms.WORD]].sum(axis=1)
    with_words = one.counts[:, forms.WORD] > one.counts[:, forms.NUMBERS].sum(axis=1)
    if verdict.kind == WORDS and with_numbers.any() and with_words.any():
        first, second = (pieces[int(np.argmax(which))].file for which in (with_numbers, with_words))
        return [f"{one.name!r} has numbers in {first} and words in {second}: it is compared as words."]
    return []
