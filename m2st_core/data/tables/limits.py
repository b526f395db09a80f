"""Limits on the size of uploads, the error for a bad upload, and the safe display of its text."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import pandas as pd

from m2st_core.environment import limits_of

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
NUMBER = re.compile(r"[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?")
PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")
LONGEST_SHOWN = 200


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


@dataclass(frozen=True)
class Limits:
    """Limits of an upload. Each has an environment variable, ``M2ST_MOST_BYTES`` and so on.

    ``bytes`` limits the size of a file, ``unpacked`` that of everything in a packed file. ``rows`` and ``cells`` limit
    the whole upload, ``cells`` also after categories have become columns. A column of words with more than ``levels``
    different values is free text. ``seconds`` is the processor time for one workbook.
    """

    bytes: int = 20 * 2**20
    unpacked: int = 60 * 2**20
    rows: int = 300_000
    columns: int = 5_000
    cells: int = 6_000_000
    tasks: int = 200
    levels: int = 200
    seconds: int = 8

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise TableError(f"The limit {field.name!r} must be a whole number ≥ 1. Got {value!r}.")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Limits:
        """The defaults, changed by the environment.

        >>> Limits.from_environment({"M2ST_MOST_ROWS": "1000"}).rows
        1000
        """
        return limits_of(cls, TableError, environment)

    @property
    def words(self) -> str:
        """The limits in a sentence."""
        return (
            f"At most {_megabytes(self.bytes)} per file ({_megabytes(self.unpacked)} unpacked), {self.rows:,} rows, "
            f"{self.columns:,} columns, {self.cells:,} cells and {self.tasks:,} related tasks in all."
        )

    def check_bytes(self, name: str, size: int) -> None:
        """Refuse a file that is too large."""
        if size > self.bytes:
            raise TableError(
                f"{name}: the file has {_megabytes(size)}, and {_megabytes(self.bytes)} is the most that is read. "
                "Leave out rows or columns that are not needed."
            )

    def check_size(self, name: str, rows: int, columns: int) -> None:
        """Refuse a table with too many rows, columns or cells."""
        for what, count, most in (
            ("columns", columns, self.columns),
            ("rows", rows, self.rows),
            ("cells", rows * columns, self.cells),
        ):
            if count > most:
                raise TableError(
                    f"{name}: there are {count:,} {what}, and {most:,} is the most that is read. "
                    f"Leave out {'columns' if what == 'columns' else 'rows or columns'} that are not needed."
                )


def _megabytes(size: int) -> str:
    return f"{size / 2**20:,.0f} MB" if size >= 2**20 else f"{size / 2**10:,.0f} kB"


def safe_cell(value: Any) -> Any:
    """Put an apostrophe before text that a spreadsheet would evaluate as a formula.

    >>> safe_cell("=cmd|' /C calc'!A0"), safe_cell("-1.5"), safe_cell(-1.5), safe_cell("red")
    ("'=cmd|' /C calc'!A0", '-1.5', -1.5, 'red')
    """
    if not isinstance(value, str) or NUMBER.fullmatch(value):
        return value
    return f"'{value}" if value.startswith(FORMULA_STARTS) or value.lstrip().startswith(FORMULA_STARTS) else value


def to_safe_csv(frame: pd.DataFrame) -> str:
    """Write the frame as CSV whose header and words are safe to open in a spreadsheet."""
    safe = frame.rename(columns=lambda name: safe_cell(str(name)))
    for position, dtype in enumerate(safe.dtypes):
        if not pd.api.types.is_numeric_dtype(dtype):
            safe.isetitem(position, [safe_cell(cell) for cell in safe.iloc[:, position]])
    return safe.to_csv(index=False, quoting=csv.QUOTE_NONNUMERIC)  # a lone \r would end the row


def plain(text: str, longest: int = LONGEST_SHOWN) -> str:
    r"""Escape text from a file, so that Streamlit renders no Markdown, HTML, formula, link or emoji.

    >>> plain("**a** <b>")
    '\\*\\*a\\*\\* \\<b\\>'
    """
    short = " ".join(str(text).split())
    short = short if len(short) <= longest else short[: longest - 1] + "…"
    escaped = PUNCTUATION.sub(r"\\\1", short)
    for start in ("\\:", "\\@", "www"):  # emoji codes and bare addresses are recognised after unescaping
        escaped = escaped.replace(start, f"{start}\u2060")
    return escaped
