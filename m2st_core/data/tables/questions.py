"""Errors, notes and questions about tables, and the answers, which are options in Python and in the shell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from m2st_core.data.tables.cells import CellExample
from m2st_core.data.tables.columns import DATES, NUMBERS, WORDS

DECIMAL, READ_AS, TOTALS, ENCODING = "decimal", "read_as", "totals", "encoding"  # the options that answer a question
CHOICES = {DECIMAL: (".", ","), READ_AS: (NUMBERS, WORDS, DATES), TOTALS: ("leave out", "keep")}
SHOWN = 3  # cells in a question
Marks = str | Mapping[str, str]
"""A decimal mark, or an encoding, for all files or by the name of a file; empty if not chosen."""


class TableError(ValueError):
    """An error on one line. It names the file, the row, the column and the remedy.

    ``sentence`` is the error without its remedy ``in_code``: an argument in Python or an option of the shell.
    """

    def __init__(self, sentence: str, in_code: str = "") -> None:
        self.sentence = " ".join(sentence.split())
        super().__init__(" ".join(f"{sentence} {in_code}".split()))


class Note(str):
    """A sentence on what was done, and a sentence on the option of the shell that changes it."""

    option: str

    def __new__(cls, sentence: str, option: str = "") -> Note:
        """Make a string with the attribute ``option``."""
        note = super().__new__(cls, sentence)
        note.option = option
        return note


def in_shell(note: str) -> str:
    """The note with the sentence on its option.

    >>> in_shell(Note("'id' is not compared.", "--use id compares it.")), in_shell("Rows were left out.")
    ("'id' is not compared. --use id compares it.", 'Rows were left out.')
    """
    return f"{note} {note.option}".rstrip() if isinstance(note, Note) else note


def choice_for_file(choice: Marks, file: str) -> str:
    """The decimal mark, or the encoding, chosen for a file; empty if none is."""
    return choice if isinstance(choice, str) else choice.get(file, "")


def words_by_file(choice: Marks) -> list[str]:
    """Format a choice for all files, or by file, for the shell."""
    return [choice] if isinstance(choice, str) else [f"{file}={word}" for file, word in choice.items()]


def check_answers(answers: Mapping[str, Marks], files: Sequence[str]) -> None:
    """Refuse answers by option that are not among those of its question, or that name unknown files."""
    for option, answer in answers.items():
        for value in [answer] if isinstance(answer, str) else answer.values():
            if value and option in CHOICES and value not in CHOICES[option]:
                raise TableError(f"{option} must be one of {', '.join(map(repr, CHOICES[option]))}. Got {value!r}.")
        if option in (DECIMAL, ENCODING) and not isinstance(answer, str):
            if unknown := [file for file in answer if file not in files]:
                there = ", ".join(files[:SHOWN])
                raise TableError(f"{option} names {unknown[0]!r}, which is no file here. There are {there}.")


@dataclass(frozen=True)
class Question:
    """A doubt that changes numbers, with the readings of example cells.

    ``option`` is decimal, read_as, totals or encoding, and ``answers`` describes its values. ``examples`` are cells,
    each with its reading by each answer. A question about ``columns`` that are not compared needs no answer. ``files``
    may have different answers.
    """

    option: str
    columns: tuple[str, ...]
    sentence: str
    answers: Mapping[str, str]
    examples: tuple[tuple[CellExample, tuple[str, ...]], ...] = field(repr=False)
    files: tuple[str, ...] = ()

    def concerns(self, compared: Sequence[str]) -> bool:
        """Whether the question must be answered if these columns are compared."""
        return not self.columns or any(column in compared for column in self.columns)

    @property
    def doubt(self) -> str:
        """The question with the file, the row and the column of its first example."""
        column = f", column {self.columns[0]!r}" if self.columns else ""
        return f"{self.examples[0][0].where}{column}: {self.sentence}"

    @property
    def in_code(self) -> str:
        """The options that answer it in Python and in the shell."""
        column = self.columns[0] if self.columns else ""
        leave = ", or leave the column out" if self.columns else ""
        if self.option == ENCODING:
            name, *others = self.answers
            shell = " ".join(shell_option(ENCODING, f"{file}={name}") for file in self.files[:SHOWN])
            more = f" (or {', '.join(others)})" if others else ""
            python = f"{ENCODING}={dict.fromkeys(self.files[:SHOWN], name)}"
            return f"Choose {shell}{more}, in Python {python}{leave}."
        of_column = self.option == READ_AS
        in_python = [f"read_as={{{column!r}: {a!r}}}" if of_column else f"{self.option}={a!r}" for a in self.answers]
        in_shell = [shell_option(self.option, f"{column}={a}" if of_column else a) for a in self.answers]
        by_file = ""
        if len(self.files) > 1:
            each = dict(zip(self.files, self.answers, strict=False))
            options = " ".join(shell_option(self.option, f"{file}={answer}") for file, answer in each.items())
            by_file = f", or by file, such as {self.option}={each} (shell: {options})"
        choose = f"Choose {' or '.join(in_python)} (shell: {' or '.join(in_shell)})"
        return f"{choose}{by_file}{leave}."


class Unanswered(TableError):
    """An error that the answer to a question may resolve."""

    def __init__(self, question: Question) -> None:
        super().__init__(question.doubt, question.in_code)
        self.question = question


def shell_option(option: str, value: str) -> str:
    """An option of the shell with its value, quoted if need be."""
    quoted = f'"{value}"' if " " in value or "," in value else value
    return f"--{option.replace('_', '-')} {quoted}"
