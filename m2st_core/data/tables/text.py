"""From the bytes of a text file to rows and columns of text cells: encodings and separators.

Text that is neither Unicode nor in an encoding that the user names is guessed to be Windows-1252. The guess can be
undone, because no byte is lost; ``encoding_question`` asks the user where it matters.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple
from unicodedata import normalize

import numpy as np
import pandas as pd

from m2st_core.data.tables.limits import Limits, TableError
from m2st_core.data.tables.readings import ENCODING

SEPARATORS = {"\t": "tab", ";": "semicolon", "|": "pipe", ",": "comma"}  # by priority if several fit
SAMPLE_LINES, SAMPLE_CHARACTERS = 100, 2**18
LONGEST_LINE = 2**20
CONTROL = {chr(code) for code in range(32)} - set("\t\n\r\x0b\x0c\x1a\x1c\x1d\x1e\x1f")
SAVE_AS = "Save it again as CSV (UTF-8)."
CHUNK_CELLS = 200_000

GUESS = "cp1252"
UNICODE = ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be")
OF_ONE_BYTE = (  # likelier ones first
    "cp1252", "cp1251", "cp1250", "cp1253", "cp1254", "cp1257", "cp1255", "cp1256", "cp1258", "cp874", "koi8-r",
    "koi8-u", *(f"iso-8859-{i}" for i in (1, 15, 2, 5, 7, 9, 13, 4, 8, 6, 3, 10, 11, 14, 16)), "mac-roman",
    "mac-latin2", "mac-cyrillic", "mac-greek", "mac-turkish", "mac-iceland", "cp437", "cp850", "cp852", "cp855",
    "cp857", "cp858", "cp866", "cp737", "cp775", "cp1125",
)  # fmt: skip
OF_TWO_BYTES = {  # with the range of the first byte of usual characters
    "shift_jis": (0x81, 0x97), "cp932": (0x81, 0x97), "euc-jp": (0xA4, 0xCF), "gb18030": (0xB0, 0xD7),
    "big5": (0xA4, 0xC6), "euc-kr": (0xB0, 0xC8), "cp949": (0xB0, 0xC8),
}  # fmt: skip
SYNONYMS = ("gbk", "gb2312", "big5hkscs", "cp950")
ACCEPTED = frozenset(codecs.lookup(name).name for name in (*UNICODE, *OF_ONE_BYTE, *OF_TWO_BYTES, *SYNONYMS))
NAMED = (
    "utf-8, utf-16, cp1250 to cp1258, iso-8859-1 to iso-8859-16, koi8-r, koi8-u, mac-roman, mac-cyrillic, cp437, "
    "cp850, cp866, shift_jis, euc-jp, gb18030, big5 or euc-kr"
)
GUESSED = "".join(bytes([code]).decode(GUESS, "ignore") or chr(code) for code in range(256))
UNGUESSED = {ord(character): code for code, character in enumerate(GUESSED)}

TextRows = Iterator[tuple[int, list[str]]]
"""Rows of text cells, each with its number in the file (from 1)."""


def codec_of(name: str) -> str:
    """Python's name of a text encoding. Names of anything else are refused."""
    try:
        codec = codecs.lookup(name).name if isinstance(name, str) else ""
    except (LookupError, ValueError):
        codec = ""
    if codec not in ACCEPTED:
        raise TableError(f"{ENCODING} must be a text encoding such as {NAMED}. Got {str(name)[:40]!r}.")
    return codec


def guess_text(data: bytes) -> str:
    """Decode as Windows-1252. Its undefined bytes become the control characters of Latin-1, so nothing is lost."""
    return codecs.charmap_decode(data, "strict", GUESSED)[0]


def bytes_of_guess(text: str) -> bytes:
    """The bytes of guessed text."""
    return bytes(UNGUESSED[ord(character)] for character in text)


def possible_encodings(data: bytes) -> tuple[str, ...]:
    """The encodings other than Unicode in which these bytes are text."""
    used = np.flatnonzero(np.bincount(np.frombuffer(data, dtype=np.uint8), minlength=256)).astype(np.uint8).tobytes()
    return tuple(
        name
        for names, sample in ((OF_ONE_BYTE, used), (OF_TWO_BYTES, data))
        for name in names
        if _is_text(sample, name)
    )


def _is_text(data: bytes, name: str) -> bool:
    try:
        text = data.decode(name)
    except UnicodeDecodeError:
        return False
    return name in OF_TWO_BYTES or not any("\x80" <= character <= "\x9f" for character in text)


def encoding_title(name: str) -> str:
    """The name of an encoding for users."""
    return f"Windows-{name[2:]} ({name})" if re.fullmatch(r"cp125\d", name) else name


class Decoded(NamedTuple):
    """The text of a file, its encoding, whether that is a guess, and notes."""

    text: str
    encoding: str
    guessed: bool
    notes: list[str]


def decode_text(name: str, data: bytes, encoding: str = "") -> Decoded:
    """Decode the text of a file. ``encoding`` is the user's choice if it is not UTF-8 and has no byte-order mark."""
    codec = codec_of(encoding) if encoding else ""
    for mark, by_mark in (
        (codecs.BOM_UTF32_LE, "utf-32"),
        (codecs.BOM_UTF32_BE, "utf-32"),
        (codecs.BOM_UTF8, "utf-8-sig"),
        (codecs.BOM_UTF16_LE, "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16"),
    ):
        if data.startswith(mark):
            try:
                return Decoded(_checked(name, data.decode(by_mark)), by_mark.removesuffix("-sig"), False, [])
            except UnicodeDecodeError:
                standard = by_mark.removesuffix("-sig").upper()
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
    if not encoding:
        note = (
            f"Not UTF-8 (row {line}): read as Latin-1 (Windows-1252). If words look wrong, choose its encoding "
            "(--encoding), or save it again as UTF-8."
        )
        return Decoded(_checked(name, guess_text(data)), GUESS, True, [note])
    try:
        text = data.decode(codec if wide == has_nulls else "ascii")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise TableError(
            f"{name}: row {line} is not {encoding} text. Choose another encoding, or save it as UTF-8."
        ) from None
    return Decoded(_checked(name, text), codec, False, [f"Read as {encoding_title(encoding)}, as you chose."])


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


def read_rows(name: str, text: str, separator: str, start: int, limits: Limits) -> TextRows:
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
    """Yield lines with their ends. Lines so long that their cells could fill the memory are refused."""
    stream = io.StringIO(text, newline="")
    stream.seek(start)
    for number, line in enumerate(stream, start=2 if start else 1):
        if len(line) > LONGEST_LINE:
            raise TableError(
                f"{name}: row {number} is {len(line):,} characters long, and {LONGEST_LINE:,} is the most that is "
                "read. Put every observation on a line of its own."
            )
        yield line


def take_chunk(rows: TextRows, width: int) -> list[tuple[int, list[str]]]:
    """Take the next rows, as many as may be held as Python strings."""
    return list(islice(rows, max(CHUNK_CELLS // width, 1)))


def columns_of(
    name: str, body: list[tuple[int, list[str]]], rest: TextRows, header: Sequence[str], limits: Limits
) -> tuple[pd.DataFrame, list[str]]:
    """Text cells by column, in NFC, NA if empty, and notes. The index is the row's number in the file."""
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
            cells = [normalize("NFC", cell.strip()) for cell in column]
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
