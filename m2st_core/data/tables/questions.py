"""What reading says to the user: cells in doubt as questions, and cells read as something else as conversions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from m2st_core.data.tables.cells import read_cell
from m2st_core.data.tables.limits import TableError

DECIMAL, READ_AS, TOTALS, ENCODING = "decimal", "read_as", "totals", "encoding"  # the options that answer a question
NUMBERS, WORDS, DATES = "numbers", "words", "dates"
CHOICES = {DECIMAL: (".", ","), READ_AS: (NUMBERS, WORDS, DATES), TOTALS: ("leave out", "keep")}

SHOWN = 3  # cells of the user's

Marks = str | Mapping[str, str]
"""A decimal mark, or an encoding, for all files or by the name of a file; empty where nothing is said."""


def mark_of(said: Marks, file: str) -> str:
    """The decimal mark, or the encoding, that was said for a file; empty if none was."""
    return said if isinstance(said, str) else said.get(file, "")


def words_by_file(said: Marks) -> list[str]:
    """What was said for all files, or by file, as the shell takes it."""
    return [said] if isinstance(said, str) else [f"{file}={word}" for file, word in said.items()]


def check_answers(decimal: Marks, read_as: Mapping[str, str], totals: str, files: Sequence[str]) -> None:
    """Refuse answers that no question about these files has."""
    marks = [decimal] if isinstance(decimal, str) else decimal.values()
    given = [*((DECIMAL, mark) for mark in marks), (TOTALS, totals), *((READ_AS, kind) for kind in read_as.values())]
    for option, value in given:
        if value and value not in CHOICES[option]:
            raise TableError(f"{option} must be one of {', '.join(map(repr, CHOICES[option]))}. Got {value!r}.")
    check_files(DECIMAL, decimal, files)


def check_files(option: str, said: Marks, files: Sequence[str]) -> None:
    """Refuse what is said for a file that is not there."""
    if unknown := [] if isinstance(said, str) else [file for file in said if file not in files]:
        there = ", ".join(files[:SHOWN])
        raise TableError(f"{option} names {unknown[0]!r}, which is no file here. There are {there}.")


@dataclass(frozen=True)
class Example:
    """A cell of the user's and where it is."""

    file: str
    row: int
    cell: str

    @property
    def where(self) -> str:
        """The file and the row, for messages."""
        return f"{self.file}: row {self.row:,}"


@dataclass(frozen=True)
class Question:
    """A doubt that changes numbers, with every reading of the user's own cells.

    ``option`` is decimal, read_as, totals or encoding, and ``answers`` has its values in words. ``examples`` are
    cells, each with its reading by each answer. A question about ``columns`` that are not compared needs no answer.
    ``files`` are those that may have different answers.
    """

    option: str
    columns: tuple[str, ...]
    sentence: str
    answers: Mapping[str, str]
    examples: tuple[tuple[Example, tuple[str, ...]], ...] = field(repr=False)
    files: tuple[str, ...] = ()

    def concerns(self, compared: Sequence[str]) -> bool:
        """Whether it must be answered if these columns are compared."""
        return not self.columns or any(column in compared for column in self.columns)

    @property
    def error(self) -> str:
        """The question with its place, and the options that answer it in Python and in the shell."""
        column = self.columns[0] if self.columns else ""
        where = f"{self.examples[0][0].where}{f', column {column!r}' if column else ''}"
        leave = ", or leave the column out" if self.columns else ""
        if self.option == ENCODING:
            name, *others = self.answers
            said = " ".join(f"--{ENCODING} {_quoted(f'{file}={name}')}" for file in self.files[:SHOWN])
            more = f" (or {', '.join(others)})" if others else ""
            in_python = f"{ENCODING}={dict.fromkeys(self.files[:SHOWN], name)}"
            return f"{where}: {self.sentence} Choose {said}{more}, in Python {in_python}{leave}."
        if self.option == READ_AS:
            python = [f"read_as={{{column!r}: {answer!r}}}" for answer in self.answers]
            shell = [f"--read-as {_quoted(f'{column}={answer}')}" for answer in self.answers]
        else:
            python = [f"{self.option}={answer!r}" for answer in self.answers]
            shell = [f"--{self.option} {_quoted(answer)}" for answer in self.answers]
        by_file = ""
        if len(self.files) > 1:
            each = dict(zip(self.files, self.answers, strict=False))
            words = " ".join(f"--{self.option} {_quoted(f'{file}={answer}')}" for file, answer in each.items())
            by_file = f", or by file, such as {self.option}={each} (shell: {words})"
        return f"{where}: {self.sentence} Choose {' or '.join(python)} (shell: {' or '.join(shell)}){by_file}{leave}."


class Unanswered(TableError):
    """An error that the answer to a question may solve."""

    def __init__(self, question: Question) -> None:
        super().__init__(question.error)
        self.question = question


def ask_kind(column: str, sentence: str, kinds: Sequence[str], examples: Sequence[Example]) -> Question:
    """Ask what a column holds: numbers, words or dates."""

    def shown(cell: str, kind: str) -> str:
        if kind == NUMBERS:
            return f"{read_cell(cell).value('.'):.15g}"
        if kind != DATES:
            return f"“{cell}”"
        return f"{cell[:4]}-{cell[4:6]}-{cell[6:8]}" if len(cell) > 5 else "day {}, month {}".format(*cell.split("."))

    words = {NUMBERS: "Numbers", WORDS: "Words: codes or categories", DATES: "Dates, which are not compared"}
    cells = tuple((example, tuple(shown(example.cell, kind) for kind in kinds)) for example in examples[:SHOWN])
    return Question(READ_AS, (column,), sentence, {kind: words[kind] for kind in kinds}, cells)


@dataclass(frozen=True)
class Conversion:
    """Cells of a column that become something else than they say, with an example and the option that undoes it."""

    column: str
    cells: int
    example: Example
    becomes: str
    undo: str

    @property
    def sentence(self) -> str:
        """The conversion in words."""
        count = f"{self.cells:,} cell{'s' * (self.cells != 1)}"
        read = f"{self.column!r}: {self.example.cell[:40]!r} is read as {self.becomes}"
        undo = f"in the shell {self.undo} undoes it" if self.undo.startswith("--") else f"{self.undo} undo it"
        return f"{read} ({count}; {undo})."


def read_as_option(column: str, kind: str) -> str:
    """The shell's option that reads a column as numbers, words or dates."""
    return f"--read-as {_quoted(f'{column}={kind}')}"


def _quoted(word: str) -> str:
    return f'"{word}"' if " " in word or "," in word else word
