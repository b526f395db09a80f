"""From the bytes of a text file to rows of cells: encoding, separator, quotes."""

from __future__ import annotations

import codecs
import csv
import io
from collections import Counter
from collections.abc import Iterator
from itertools import islice

from m2st_core.data.tables.limits import Limits, TableError

SEPARATORS = {"\t": "tab", ";": "semicolon", "|": "pipe", ",": "comma"}  # the likelier one first, if two fit
SAMPLE_LINES, SAMPLE_CHARACTERS = 100, 2**18
LONGEST_LINE = 2**20
CONTROL = {chr(code) for code in range(32)} - set("\t\n\r\x0b\x0c\x1a\x1c\x1d\x1e\x1f")
SAVE_AS = "Save it again as CSV (UTF-8)."


def decode(name: str, data: bytes) -> tuple[str, list[str]]:
    """The text of a file, and a note if its encoding had to be guessed."""
    if not data.strip():
        raise TableError(f"{name}: the file is empty. Bring a table with a header and at least 2 rows.")
    for mark, encoding in (
        (codecs.BOM_UTF32_LE, "utf-32"),
        (codecs.BOM_UTF32_BE, "utf-32"),
        (codecs.BOM_UTF8, "utf-8-sig"),
        (codecs.BOM_UTF16_LE, "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16"),
    ):
        if data.startswith(mark):
            try:
                return _checked(name, data.decode(encoding)), []
            except UnicodeDecodeError:
                raise TableError(
                    f"{name}: it begins like {encoding.removesuffix('-sig').upper()} text but is not. {SAVE_AS}"
                ) from None
    if (at := data.find(0)) >= 0:
        line = data.count(b"\n", 0, at) + 1
        raise TableError(f"{name}: row {line} holds a NUL byte, so this is no text file, or a UTF-16 one. {SAVE_AS}")
    try:
        return _checked(name, data.decode("utf-8")), []
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
    try:
        text = data.decode("cp1252")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    note = f"Not UTF-8 (row {line}): read as Latin-1 (Windows-1252). If words look wrong, save it again as UTF-8."
    return _checked(name, text), [note]


def _checked(name: str, text: str) -> str:
    """The text, if it is one that a person or a program wrote as a table."""
    if not text.strip():
        raise TableError(f"{name}: the file is empty. Bring a table with a header and at least 2 rows.")
    found = {mark: text.find(mark) for mark in CONTROL if mark in text}
    if found:
        at = min(found.values())
        line = text.count("\n", 0, at) + 1
        raise TableError(f"{name}: row {line} holds control characters, so this is no text file. {SAVE_AS}")
    return text


def find_separator(name: str, text: str) -> tuple[str, int]:
    """The separator of the cells, and how many characters of an Excel ``sep=`` line come before them."""
    first = text[:10].splitlines()[0] if text[:10].strip() else ""
    if first.lower().startswith("sep=") and len(first) == 5:
        return first[4], len(text) - len(text[5:].lstrip("\r\n"))
    sample = list(islice(_lines(name, text[:SAMPLE_CHARACTERS]), SAMPLE_LINES))
    if len(sample) > 1 and not sample[-1].endswith(("\n", "\r")):
        del sample[-1]  # it may be cut
    best, best_share = ",", 0.0
    for separator in SEPARATORS:
        try:
            widths = [len(row) for row in csv.reader(sample, delimiter=separator) if any(row)]
        except csv.Error:
            continue
        width, count = Counter(widths).most_common(1)[0] if widths else (1, 0)
        share = count / len(widths) if width > 1 else 0.0
        if share > best_share + 1e-9:
            best, best_share = separator, share
    return best, 0


def read_rows(name: str, text: str, separator: str, start: int, limits: Limits) -> Iterator[tuple[int, list[str]]]:
    """Each row that is not blank, with the number of its last line in the file (from 1)."""
    reader = csv.reader(_lines(name, text, start), delimiter=separator, skipinitialspace=separator != "\t")
    before = 1 if start else 0
    try:
        for row in reader:
            if len(row) > limits.columns and any(cell.strip() for cell in row[limits.columns :]):
                limits.check_size(f"{name}: row {reader.line_num + before}", 1, len(row))
            if row and (row[0].strip() or "".join(row).strip()):
                yield reader.line_num + before, row
    except csv.Error:
        raise TableError(
            f"{name}: near row {reader.line_num + before} a cell is longer than {csv.field_size_limit():,} characters. "
            "Look for a quotation mark that is opened and never closed."
        ) from None


def _lines(name: str, text: str, start: int = 0) -> Iterator[str]:
    """Lines with their ends, none so long that it could fill the memory as a row of cells."""
    stream = io.StringIO(text, newline="")
    stream.seek(start)
    for number, line in enumerate(stream, start=2 if start else 1):
        if len(line) > LONGEST_LINE:
            raise TableError(
                f"{name}: row {number} is {len(line):,} characters long, and {LONGEST_LINE:,} is the most that is "
                "read. Put every observation on a line of its own."
            )
        yield line
