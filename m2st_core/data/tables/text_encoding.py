"""Encodings of text files, and the decoding of their bytes.

Text that is neither Unicode nor in an encoding that the user names is guessed to be Windows-1252. The guess can be
undone, because no byte is lost.
"""

from __future__ import annotations

import codecs
import re

import numpy as np

from m2st_core.data.tables.questions import ENCODING, TableError

CONTROL = {chr(code) for code in range(32)} - set("\t\n\r\x0b\x0c\x1a\x1c\x1d\x1e\x1f")
SAVE_AS = "Save it again as CSV (UTF-8)."
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
    """The encodings in which these bytes are text."""
    used = np.unique(np.frombuffer(data, dtype=np.uint8)).tobytes()
    samples = [*((name, used) for name in OF_ONE_BYTE), *((name, data) for name in OF_TWO_BYTES)]
    return tuple(name for name, sample in samples if _is_text(sample, name))


def _is_text(data: bytes, name: str) -> bool:
    try:
        text = data.decode(name)
    except UnicodeDecodeError:
        return False
    return name in OF_TWO_BYTES or not any("\x80" <= character <= "\x9f" for character in text)


def encoding_title(name: str) -> str:
    """The name of an encoding for users."""
    return f"Windows-{name[2:]} ({name})" if re.fullmatch(r"cp125\d", name) else name


def decode_text(name: str, data: bytes, encoding: str = "") -> tuple[str, str, bool, list[str]]:
    """Decode the text of a file: the text, its encoding, whether that is a guess, and notes.

    ``encoding`` is the user's choice if the file is not UTF-8 and has no byte-order mark.
    """
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
                return data.decode(by_mark), by_mark.removesuffix("-sig"), False, []
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
            return data.decode("utf-8"), "ascii" if data.isascii() else "utf-8", False, []
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
    if not encoding:
        note = (
            f"Not UTF-8 (row {line}): read as Latin-1 (Windows-1252). If words look wrong, choose its encoding "
            "(--encoding), or save it again as UTF-8."
        )
        return guess_text(data), GUESS, True, [note]
    try:
        text = data.decode(codec if wide == has_nulls else "ascii")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise TableError(
            f"{name}: row {line} is not {encoding} text. Choose another encoding, or save it as UTF-8."
        ) from None
    return text, codec, False, [f"Read as {encoding_title(encoding)}, as you chose."]


def check_text(name: str, text: str) -> None:
    """Refuse text that cannot be a table."""
    if not text.strip():
        raise TableError(f"{name}: the file is empty. Bring a table with a header and at least 2 rows.")
    at = min((text.find(mark) for mark in CONTROL if mark in text), default=-1)
    if at >= 0:
        line = text.count("\n", 0, at) + 1
        raise TableError(f"{name}: row {line} holds control characters, so this is not a text file. {SAVE_AS}")
