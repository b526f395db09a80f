"""Readings of the columns of an upload, decided over all files together; doubts become questions to the user.

A column is judged to hold numbers, words or dates, its open cells get a decimal mark, and rows of totals are marked.
Cells whose value differs from what is written become conversions.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from m2st_core.data.tables import cells as forms
from m2st_core.data.tables.cells import (
    EXCEL_ERRORS,
    FORMS,
    MISSING_SIGNS,
    VALUES_OR_MISSING,
    CellExample,
    is_known_unit,
    read_cell,
    same_unit,
)
from m2st_core.data.tables.columns import DATES, MOSTLY, NUMBERS, WORDS, Profile
from m2st_core.data.tables.questions import (
    DECIMAL,
    READ_AS,
    SHOWN,
    TOTALS,
    Marks,
    Note,
    Question,
    choice_for_file,
    shell_option,
)
from m2st_core.numbers import count_of

KIND_ANSWERS = {NUMBERS: "Numbers", WORDS: "Words: codes or categories", DATES: "Dates, which are not compared"}
MARKS = {".": "decimal point", ",": "decimal comma"}
FEW_DAYS = 3  # different cells such as 12.03 that look like days and months
FEW_TOTALS, TOTALS_SHARE = 5, 0.1  # a word such as Total in more rows, and a larger share of them, is a value
EVIDENCE = {
    ".": [forms.POINT, forms.DAY_MONTH, forms.COMMA_GROUPS],
    ",": [forms.COMMA, forms.POINT_GROUPS],
}
OPENS = [forms.OPEN_POINT, forms.OPEN_COMMA]
THOUSANDS = {".": (forms.OPEN_COMMA, forms.COMMA_GROUPS), ",": (forms.OPEN_POINT, forms.POINT_GROUPS)}
"""By decimal mark: open cells that are thousands with it, and cells that prove that thousands are marked."""


@dataclass(frozen=True)
class Conversion:
    """A number of cells whose value differs from what is written, an example, and the option that undoes it."""

    column: str
    cells: int
    example: CellExample
    becomes: str
    undo: str

    @property
    def note(self) -> Note:
        """The conversion in words."""
        read = f"{self.column!r}: {self.example.cell[:40]!r} is read as {self.becomes}"
        count = count_of(self.cells, "cell")
        if self.undo.startswith("--"):
            return Note(f"{read} ({count}).", f"In the shell, {self.undo} undoes it.")
        return Note(f"{read} ({count}; {self.undo} undo it).")


def _number(example: CellExample, mark: str = ".") -> str:
    return f"{read_cell(example.cell).value(mark):.15g}"


def _decide_marks(
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
    if cells[OPENS].all() and not _proven_marks(cells):
        return None
    levels = ((cells, True, True), (file, False, True), (column, True, False), (files, False, False))
    for counts, same_column, same_file in levels:
        proven = [mark for mark in _proven_marks(counts) if mark == "," or not workbook]  # its floats have points
        if len(proven) > 1:
            return None
        for mark in proven:
            thousands, proof = THOUSANDS[mark]
            mixed = same_column and cells[thousands] and not counts[proof]
            return None if mixed or (by_commas and mark == "," and not same_file) else mark
    return "." if by_commas and not cells[forms.OPEN_COMMA] else None


def _proven_marks(counts: np.ndarray) -> list[str]:
    """The decimal marks that cells, counted by form, prove."""
    return [mark for mark, proofs in EVIDENCE.items() if counts[proofs].any()]


@dataclass(frozen=True)
class _Verdict:
    """The kind of a column (numbers, words or dates), the unit of its numbers, and its conversions or question."""

    kind: str
    unit: str = ""
    conversions: tuple[Conversion, ...] = ()
    question: Question | None = None


def _judge_column(column: Profile, answer: str = "") -> _Verdict:
    """Judge a column by the forms of its cells in all files; the user's ``answer`` overrules them."""
    filled = int(column.counts.sum()) - column.count(forms.MISSING, forms.VALUE_OR_MISSING)
    numeric, nearly = int(column.total[forms.NUMBERS].sum()), int(column.total[forms.NEARLY].sum())
    if answer in (WORDS, DATES):
        return _Verdict(answer)
    if not answer and (not numeric or nearly < MOSTLY * filled):
        return _Verdict(WORDS)
    units = [unit for unit in column.units if unit]
    if len(set(map(same_unit, units))) > 1:
        if not answer and not all(map(is_known_unit, units)):
            return _Verdict(WORDS)  # codes such as 12ab, 13cd
        examples = [example for _, example in column.units.values()]
        sentence = (
            f"{examples[0].cell!r} and {examples[1].cell!r} ({examples[1].where}) have different units. "
            "Convert them to one unit."
        )
        return _asked(column, sentence, (WORDS,), examples)
    unit = next(iter(units), "")
    if not answer and (verdict := _doubt(column, numeric, unit)):
        return verdict
    return _Verdict(NUMBERS, unit, (*_number_conversions(column, unit),))


def _doubt(column: Profile, numeric: int, unit: str) -> _Verdict | None:
    """The verdict on numbers that may be codes or dates, or lack a unit; None if there is no doubt."""
    both = (NUMBERS, WORDS)
    if unit and "" in column.units:
        (_, bare), (_, named) = column.units[""], column.units[unit]
        sentence = f"{bare.cell!r} has no unit, and {named.cell!r} has one. Is it in {unit}, too?"
        return _asked(column, sentence, both, [bare, named], unit)
    if (days := column.count(forms.COMPACT_DATE)) >= MOSTLY * numeric and column.distinct > 1:
        if days == numeric:
            return _turned(column, forms.COMPACT_DATE, DATES, "a date")
        cells = column.examples[forms.COMPACT_DATE]
        sentence = f"{cells[0].cell!r} is a number, or a date; {numeric - days:,} other cells are no dates."
        return _asked(column, sentence, (NUMBERS, DATES), cells)
    if column.count(forms.DAY_MONTH) == numeric and column.distinct >= FEW_DAYS:
        cells = column.examples[forms.DAY_MONTH]
        return _asked(column, f"{cells[0].cell!r} is a number, or a day and a month.", (NUMBERS, DATES), cells)
    if padded := column.count(forms.PADDED):
        if padded + column.count(forms.WHOLE) == numeric and len(column.widths) == 1:
            return _turned(column, forms.PADDED, WORDS, "a code, because of its leading zero")
        cells = column.examples[forms.PADDED]
        return _asked(column, f"{cells[0].cell!r} begins with 0 as codes do, and other cells are numbers.", both, cells)
    if 2 * column.count(forms.CODE) >= numeric:
        if column.count(forms.WORD):
            return _turned(column, forms.CODE, WORDS, "a code")
        cells = column.examples[forms.CODE]
        sentence = f"{cells[0].cell!r} is a code, or {read_cell(cells[0].cell).point:,.15g} with an exponent."
        return _asked(column, sentence, both, cells)
    return None


def _asked(
    column: Profile, sentence: str, kinds: Sequence[str], cells: Sequence[CellExample], unit: str = ""
) -> _Verdict:
    """Read as numbers, and ask which of these kinds they are."""

    def shown(example: CellExample, kind: str) -> str:
        cell = example.cell
        if kind != DATES:
            return _number(example) if kind == NUMBERS else f"“{cell}”"
        return f"{cell[:4]}-{cell[4:6]}-{cell[6:8]}" if len(cell) > 5 else "day {}, month {}".format(*cell.split("."))

    examples = tuple((example, tuple(shown(example, kind) for kind in kinds)) for example in cells[:SHOWN])
    answers = {kind: KIND_ANSWERS[kind] for kind in kinds}
    return _Verdict(NUMBERS, unit, (), Question(READ_AS, (column.name,), sentence, answers, examples))


def _turned(column: Profile, form: int, kind: str, becomes: str) -> _Verdict:
    undo = shell_option(READ_AS, f"{column.name}={NUMBERS}")
    return _Verdict(kind, "", (Conversion(column.name, column.count(form), column.examples[form][0], becomes, undo),))


def _number_conversions(column: Profile, unit: str) -> list[Conversion]:
    """The conversions of numbers that are not written as software writes them."""
    undo = shell_option(READ_AS, f"{column.name}={WORDS}")
    if unit:
        count, example = column.units[unit]
        return [Conversion(column.name, count, example, f"{_number(example)} (unit: {unit})", undo)]
    unusual = [form for form in (forms.COMMA, forms.POINT_GROUPS, forms.COMMA_GROUPS, forms.CODE) if column.count(form)]
    cells = [(column.count(form), column.examples[form][0]) for form in unusual]
    if len(rewritten := column.rewritten):
        cells.append((len(rewritten), column.example(rewritten[0])))
    return [Conversion(column.name, count, example, _number(example), undo) for count, example in cells]


@dataclass(frozen=True)
class Reading:
    """The reading of a column of one file. ``missing`` are the signs and words of missing cells."""

    kind: str = WORDS
    mark: str = "."
    unit: str = ""
    missing: frozenset[str] = frozenset()

    def words(self, cells: pd.Series) -> pd.Series:
        """The cells as words, NA where one is missing."""
        return cells.mask(cells.isin(self.missing)) if self.missing else cells


@dataclass(frozen=True)
class Readings:
    """The reading of every column in every file, ``columns[name][i]`` in file i, with questions and conversions.

    ``totals`` are rows that look like totals, by file. ``warnings`` are differences between the files, and ``signs``
    are the signs of missing cells.
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


def settle_readings(
    profiles: Mapping[str, Profile],
    separators: Sequence[str],
    decimal: Marks = "",
    read_as: Mapping[str, str] | None = None,
    totals: str = "",
) -> Readings:
    """Decide the readings of columns over all files.

    ``decimal`` (for all files, or by file), ``read_as`` by column, and ``totals`` are answers to earlier questions.
    """
    verdicts = {name: _judge_column(column, (read_as or {}).get(name, "")) for name, column in profiles.items()}
    numeric = [profiles[name] for name, verdict in verdicts.items() if verdict.kind == NUMBERS]
    files = next((column.files for column in profiles.values()), ())
    chosen_marks = [choice_for_file(decimal, file) for file in files]
    marks, doubts = _decide_marks(numeric, separators, chosen_marks)
    used_for_missing = {word for column in numeric for word in column.words & VALUES_OR_MISSING}
    readings: dict[str, tuple[Reading, ...]] = {}
    conversions: list[Conversion] = []
    questions: list[Question] = []
    warnings: list[str] = []
    signs: frozenset[str] = frozenset()
    for name, verdict in verdicts.items():
        column, is_number = profiles[name], verdict.kind == NUMBERS
        values = _values_not_missing(column, used_for_missing) if verdict.kind == WORDS else frozenset()
        missing = column.missing - values - (EXCEL_ERRORS if is_number else frozenset())
        by_mark = {mark: Reading(verdict.kind, mark, verdict.unit, missing) for mark in MARKS}
        of_files = marks.get(name, (".",) * len(separators))
        readings[name] = tuple(by_mark[mark] for mark in of_files)
        questions += [verdict.question] if verdict.question else []
        conversions += verdict.conversions
        if is_number and name not in doubts:
            conversions += _open_conversions(column, of_files, any(chosen_marks))
        if values:
            positions = column.positions(values)
            first = column.example(positions[0])
            conversions.append(Conversion(name, len(positions), first, "a value, not as missing", "empty cells"))
        signs |= MISSING_SIGNS & missing
        warnings += _differences(column, verdict)
    if doubts:
        doubtful = tuple(dict.fromkeys(files[i] for of_column in doubts.values() for i in of_column))
        questions.insert(0, _decimal_question([profiles[name] for name in doubts], doubtful))
    rows = _total_rows(profiles) if numeric else {}
    if rows and not totals:
        cells = [CellExample(files[i], row, word) for i, words in rows.items() for row, word in sorted(words.items())]
        sentence = f"{cells[0].cell!r} in this row looks like a total under a table."
        answers = {"leave out": "A total: leave it out", "keep": "An observation: keep it"}
        shown = tuple((example, ("not compared", "an observation")) for example in cells[:SHOWN])
        questions.insert(0, Question(TOTALS, (), sentence, answers, shown))
    of_totals = {i: tuple(sorted(words)) for i, words in rows.items()}
    return Readings(readings, tuple(questions), tuple(conversions), tuple(warnings), signs, of_totals)


def _decimal_question(doubtful: Sequence[Profile], among: tuple[str, ...]) -> Question:
    """Ask for the decimal mark of these columns in the files in doubt."""
    examples = [example for column in doubtful for kind in OPENS for example in column.examples.get(kind, ())]
    cells = [example for example in examples if example.file in among] or examples
    files = [example.file for example in cells]
    first_of_files = sorted(cells, key=lambda example: cells.index(example) != files.index(example.file))[:SHOWN]
    first = first_of_files[0]
    sentence = (
        f"{first.cell!r} is {_number(first, '.')} with a decimal point and {_number(first, ',')} with a decimal comma, "
        "and the other cells do not settle which."
    )
    answers = {mark: f"{words.capitalize()}: {first.cell} is {_number(first, mark)}" for mark, words in MARKS.items()}
    shown = tuple((example, tuple(_number(example, mark) for mark in MARKS)) for example in first_of_files)
    return Question(DECIMAL, tuple(column.name for column in doubtful), sentence, answers, shown, among)


def _open_conversions(column: Profile, marks: Sequence[str], answered: bool) -> list[Conversion]:
    """The conversions of open cells to thousands, or to decimals if the column does not prove it in each file."""
    conversions = []
    for kind, other in ((forms.OPEN_POINT, ","), (forms.OPEN_COMMA, ".")):
        files = np.flatnonzero(column.counts[:, kind])
        if not len(files):
            continue
        mark, example = marks[int(files[0])], column.examples[kind][0]
        obvious = mark != other and all(_proven_marks(column.counts[i]) for i in files) and not answered
        if not obvious or kind == forms.OPEN_COMMA:
            undo = shell_option(DECIMAL, "." if mark == "," else ",")
            conversions.append(Conversion(column.name, column.count(kind), example, _number(example, mark), undo))
    return conversions


def _values_not_missing(column: Profile, used_for_missing: set[str]) -> frozenset[str]:
    """Words such as None, NA and − that are values of this column: no column of numbers has them, and they fit in."""
    others = column.words - VALUES_OR_MISSING
    if not others:
        return frozenset()
    values = {word for word in column.words & VALUES_OR_MISSING if word.lower() == "none"}
    if all(len(word) == 2 and word.isalpha() for word in others):
        values |= column.words & {"NA", "na"}
    if all(len(word) <= 2 and word.istitle() for word in others):
        values |= column.words & {"Na"}
    if all(set(word) == {"+"} for word in others):  # results of a test
        values |= column.missing & {"-", "–", "−"}
    return frozenset(values - used_for_missing)


def _total_rows(profiles: Mapping[str, Profile]) -> dict[int, dict[int, str]]:
    """The rows of each file with a word such as Total, in columns where few rows have one, and that word."""
    rows: dict[int, dict[int, str]] = {}
    for column in profiles.values():
        for i in np.flatnonzero(column.counts[:, forms.TOTAL]).tolist():
            size = int(column.counts[i].sum())
            if column.counts[i, forms.TOTAL] <= max(min(FEW_TOTALS, size - 1), TOTALS_SHARE * size):
                for position in np.flatnonzero((column.source == i) & (column.forms == forms.TOTAL)).tolist():
                    total = column.example(position)
                    rows.setdefault(i, {}).setdefault(total.row, total.cell)
    return rows


def _differences(column: Profile, verdict: _Verdict) -> list[str]:
    """Warnings about files that write a column differently."""
    if verdict.kind == NUMBERS:
        points, commas = (
            [file for file, counts in zip(column.files, column.counts, strict=True) if mark in _proven_marks(counts)]
            for mark in MARKS
        )
        if points and commas:
            return [
                f"{column.name!r} has decimal points in {points[0]} and decimal commas in {commas[0]}. Each cell is "
                "read in its own way: check the values."
            ]
        return []
    numeric, words = column.counts[:, forms.NUMBERS].sum(axis=1), column.counts[:, forms.WORD]
    if verdict.kind == WORDS and (numeric > words).any() and (words > numeric).any():
        first, second = (column.files[int(np.argmax(which))] for which in (numeric > words, words > numeric))
        return [f"{column.name!r} has numbers in {first} and words in {second}: it is compared as words."]
    return []
