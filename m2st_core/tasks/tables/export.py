"""What leaves the program: cells that no spreadsheet runs and words that no page formats."""

from __future__ import annotations

import csv
import re
from typing import Any

import pandas as pd

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
NUMBER = re.compile(r"[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?")
PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")
LONGEST_SHOWN = 200


def safe_cell(value: Any) -> Any:
    """The value, or text behind an apostrophe where a spreadsheet would run it as a formula.

    >>> safe_cell("=cmd|' /C calc'!A0"), safe_cell("-1.5"), safe_cell(-1.5), safe_cell("red")
    ("'=cmd|' /C calc'!A0", '-1.5', -1.5, 'red')
    """
    if not isinstance(value, str) or NUMBER.fullmatch(value):
        return value
    return f"'{value}" if value.startswith(FORMULA_STARTS) or value.lstrip().startswith(FORMULA_STARTS) else value


def to_safe_csv(frame: pd.DataFrame) -> str:
    """The frame as CSV text, its header and its words safe to open in a spreadsheet."""
    safe = frame.rename(columns=lambda name: safe_cell(str(name)))
    for position, dtype in enumerate(safe.dtypes):
        if not pd.api.types.is_numeric_dtype(dtype):
            safe.isetitem(position, [safe_cell(cell) for cell in safe.iloc[:, position]])
    return safe.to_csv(index=False, quoting=csv.QUOTE_NONNUMERIC)  # a lone \r would end the row


def plain(text: str, longest: int = LONGEST_SHOWN) -> str:
    r"""Words from a file, shown by Streamlit as they are: no Markdown, HTML, formula, link or emoji.

    >>> plain("**a** <b>")
    '\\*\\*a\\*\\* \\<b\\>'
    """
    short = " ".join(str(text).split())
    short = short if len(short) <= longest else short[: longest - 1] + "…"
    escaped = PUNCTUATION.sub(r"\\\1", short)
    for start in ("\\:", "\\@", "www"):  # emoji codes and bare addresses are looked for after the escapes are gone
        escaped = escaped.replace(start, f"{start}\u2060")
    return escaped
