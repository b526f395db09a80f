"""From the bytes of a text file to rows, and to columns, of text cells."""

from __future__ import annotations

import codecs
import csv
import io
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np
import pandas as pd

from m2st_core.data.tables.limits import Limits, TableError
from m2st_core.data.tables.text_encodings import GUESS, codec_of, guess, title

SEPARATORS = {"\t": "tab", ";": "semicolon", "|": "pipe", ",": "comma"}  # the likelier one first, if two fit
SAMPLE_LINES, SAMPLE_CHARACTERS = 100, 2**18
LONGEST_LINE = 2**20
CONTROL = {chr(code) for code in range(32)} - set("\t\n\r\x0b\x0c\x1a\x1c\x1d\x1e\x1f")
SAVE_AS = "Save it again as CSV (UTF-8)."
CHUNK_CELLS = 200_000

Rows = Iterator[tuple[int, list[str]]]
"""Rows of text cells, each with its number in the file (from 1)."""


class Decoded(NamedTuple):
    """The text of a file, its encoding, whether that is a guess, and notes."""

    text: str
    encoding: str
    guessed: bool
    notes: list[str]


def decode(name: str, data: bytes, said: str = "") -> Decoded:
    """Decode the text of a file. ``said`` is its encoding if it is not UTF-8 and does not begin with a mark."""
    codec = codec_of(said) if said else ""
    for mark, encoding in (
        (codecs.BOM_UTF32_LE, "utf-32"),
        (codecs.BOM_UTF32_BE, "utf-32"),
        (codecs.BOM_UTF8, "utf-8-sig"),
        (codecs.BOM_UTF16_LE, "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16"),
    ):
        if data.startswith(mark):
            try:
                return Decoded(_checked(name, data.decode(encoding)), encoding.removesuffix("-sig"), False, [])
            except UnicodeDecodeError:
                standard = encoding.removesuffix("-sig").upper()
                raise TableError(f"{name}: it begins like {standard} text but is not. {SAVE_AS}") from None
    has_nulls = codec.startswith(("utf-16", "utf-32"))  # every separator has some in these encodings
    wide = has_nulls and b"\0" in data
    if not wide and (at := data.find(0)) >= 0:
        line = data.count(b"\n", 0, at) + 1
        raise TableError(f"{name}: row {line} holds a NUL byte, so this is not a text file, or UTF-16. {SAVE_AS}")
    try:
        if not wide:
            return Decoded(_checked(name, data.decode("utf-8")), "ascii" if data.isascii() else "utf-8", False, [])
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
    if not said:
        note = (
            f"Not UTF-8 (row {line}): read as Latin-1 (Windows-1252). If words look wrong, say its encoding "
            "(--encoding), or save it again as UTF-8."
        )
        return Decoded(_checked(name, guess(data)), GUESS, True, [note])
    try:
        text = data.decode(codec if wide == has_nulls else "ascii")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise TableError(
            f"{name}: row {line} is not {said} text. Choose another encoding, or save it as UTF-8."
        ) from None
    return Decoded(_checked(name, text), codec, False, [f"Read as {title(said)}, as you said."])


def _checked(name: str, text: str) -> str:
    """Return the text, if it may be a table."""
    if not text.strip():
        raise TableError(f"{name}: the file is empty. Bring a table with a header and at least 2 rows.")
    at = min((text.find(mark) for mark in CONTROL if mark in text), default=-1)
    if at >= 0:
        line = text.count("\n", 0, at) + 1
        raise TableError(f"{name}: row {line} holds control characters, so this is not a text file. {SAVE_AS}")
    return text


def find_separator(name: str, text: str) -> tuple[str, int]:
    """Find the separator of the cells, and the number of characters of an Excel ``sep=`` line before them."""
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


def read_rows(name: str, text: str, separator: str, start: int, limits: Limits) -> Rows:
    """Yield each row that is not blank, with the number of its last line in the file."""
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
    """Yield lines with their ends, none so long that it could fill the memory as a row of cells."""
    stream = io.StringIO(text, newline="")
    stream.seek(start)
    for number, line in enumerate(stream, start=2 if start else 1):
        if len(line) > LONGEST_LINE:
            raise TableError(
                f"{name}: row {number} is {len(line):,} characters long, and {LONGEST_LINE:,} is the most that is "
                "read. Put every observation on a line of its own."
            )
        yield line


def take_chunk(rows: Rows, width: int) -> list[tuple[int, list[str]]]:
    """Take the next rows, few enough to be held as Python strings."""
    return list(islice(rows, max(CHUNK_CELLS // width, 1)))


def columns_of(
    name: str, body: list[tuple[int, list[str]]], rest: Rows, header: Sequence[str], limits: Limits
) -> tuple[pd.DataFrame, list[str]]:
    """Text cells by column, with NA for empty ones, and notes. The index is the number of the row in the file."""
    width = len(header)
    index: list[int] = []
    chunks: list[list[pd.api.extensions.ExtensionArray]] = []
    short: list[int] = []
    needed = max((i for i, cell in enumerate(header, start=1) if cell), default=width)
    while body:
        limits.check_size(name, len(index) + len(body), width)
        for number, row in body:
            if len(row) == width:
                continue
            if len(row) < needed:
                short.append(number)
            if any(cell.strip() for cell in row[width:]):
                raise TableError(
                    f"{name}: row {number} has {len(row)} cells and the first row has {width}. Correct that row, "
                    "or put quotation marks around a cell that contains the separator."
                )
            row[width:] = [""] * (width - len(row))
        index += [number for number, _ in body]
        chunk = []
        for column in zip(*[row for _, row in body], strict=True):
            cells = [cell.strip() for cell in column]
            chunk.append(pd.array([cell or None for cell in cells] if "" in cells else cells, dtype="str"))
        chunks.append(chunk)
        body = take_chunk(rest, width)
    notes = []
    if short:
        notes.append(f"{len(short):,} rows end early (the first is row {short[0]}): their last cells count as missing.")
    if not chunks:
        return pd.DataFrame({position: pd.array([], dtype="str") for position in range(width)}), notes
    join = type(chunks[0][0])._concat_same_type
    columns = {position: join([chunk[position] for chunk in chunks]) for position in range(width)}
    return pd.DataFrame(columns, index=np.array(index), copy=False), notes
