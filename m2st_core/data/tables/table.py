"""A table of text cells, the encodings that its file may have, and the question which one it is.

Text that is neither Unicode nor in an encoding that the user names is guessed to be Windows-1252. The guess can be
undone, because no byte is lost. The user is asked where a guess decides which words of several files are the same.
"""

from __future__ import annotations

import codecs
import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pandas as pd

from m2st_core.data.tables.cells import NUMBERS, TOTAL, WORD, CellExample, read_cell
from m2st_core.data.tables.columns import FEW_WORDS, Piece, numbers
from m2st_core.data.tables.readings import ENCODING, SHOWN, Question, Reading, TableError, settle_readings

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
LEARNER = -1  # the position of a learner among the files
MOST_OFFERED = 6
MOST_CELLS = 2_000  # different cells of a column that are read; with so many different words it is free text
MOST_READ = 300  # words by which the encodings of a file are ranked
USUAL_SIGNS = frozenset("°µ²³½€£¥§·×±–—…‘’“”„«»\u00a0")
LETTERS = re.compile(r"[^\W\d_]+")
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


def _is_text(data: bytes, name: str) -> bool:
    try:
        text = data.decode(name)
    except UnicodeDecodeError:
        return False
    return name in OF_TWO_BYTES or not any("\x80" <= character <= "\x9f" for character in text)


def _title(name: str) -> str:
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
    return text, codec, False, [f"Read as {_title(encoding)}, as you chose."]


def check_text(name: str, text: str) -> None:
    """Refuse text that cannot be a table."""
    if not text.strip():
        raise TableError(f"{name}: the file is empty. Bring a table with a header and at least 2 rows.")
    at = min((text.find(mark) for mark in CONTROL if mark in text), default=-1)
    if at >= 0:
        line = text.count("\n", 0, at) + 1
        raise TableError(f"{name}: row {line} holds control characters, so this is not a text file. {SAVE_AS}")


@dataclass(frozen=True)
class Table:
    """The content of a file: ``frame`` has its raw cells (empty ones as NA) under clean, unique names.

    The index of ``frame`` is the number of each row in the file, from 1, the header included. ``separator`` is that of
    its cells. ``readings`` are those of the columns, decided with the other files of an upload; all others are decided
    by this file alone. ``notes`` say what else reading had to decide, ``digest`` is the file's SHA-256. ``encoding`` is
    that of its text. If it is a guess, ``raw`` has the file's bytes, to be decoded again.
    ``half`` is a task and a side, P or Q, if the table is known to be that sample of a related task.
    """

    name: str
    frame: pd.DataFrame = field(repr=False, compare=False)
    digest: str
    separator: str = ""
    notes: tuple[str, ...] = ()
    named: bool = True  # whether the file has column names
    readings: Mapping[str, Reading] = field(default_factory=dict, repr=False, compare=False)
    encoding: str = ""
    raw: bytes = field(default=b"", repr=False, compare=False)
    half: tuple[str, str] | None = None

    def numbers(self, column: str) -> np.ndarray:
        """A column as float64, NaN where a cell is missing or not a number."""
        return numbers(self.frame[column], self.reading(column).mark)

    def words(self, column: str) -> pd.Series:
        """A column as words, NA where a cell is missing."""
        return self.reading(column).words(self.frame[column])

    def reading(self, column: str) -> Reading:
        """The reading of a column."""
        return self.readings.get(column) or self._alone[column]

    @cached_property
    def _alone(self) -> Mapping[str, Reading]:
        pieces = {str(name): (Piece(self.name, self.frame[name]),) for name in self.frame.columns}
        return {name: readings[0] for name, readings in settle_readings(pieces, [self.separator]).columns.items()}

    @cached_property
    def encodings(self) -> tuple[str, ...]:
        """The encodings that the file may have, if its encoding is a guess."""
        used = np.unique(np.frombuffer(self.raw, dtype=np.uint8)).tobytes()
        samples = [*((name, used) for name in OF_ONE_BYTE), *((name, self.raw) for name in OF_TWO_BYTES)]
        return tuple(name for name, sample in samples if _is_text(sample, name))

    @property
    def stem(self) -> str:
        """The file's name, composed, without folders and ending."""
        return unicodedata.normalize("NFC", self.name).replace("\\", "/").rsplit("/", 1)[-1].rsplit(".", 1)[0]


class _Doubt(NamedTuple):
    """Words of a column, or names of columns, and the ``doubtful`` ones, which another encoding may change."""

    column: str  # empty for names of columns
    words: Mapping[int, Mapping[str, str]]  # by the position of a file: each word with a cell that has it
    doubtful: frozenset[str]


def encoding_question(
    tables: Sequence[Table],
    roles: Collection[str] = (),
    learned: Mapping[str, Collection[str]] | None = None,
    *,
    levels: int,
) -> Question | None:
    """Ask for the encoding of files where a guess decides which words, or names of columns, are the same.

    Columns that some files lack count only if they have one of these ``roles``. ``learned`` are the words of a
    learner's categories by the names of their columns. With more than ``levels`` different words a column is free text.
    """
    learned = learned or {}
    if not any(table.raw for table in tables) or len(tables) + bool(learned) < 2:
        return None
    doubts = list(_doubts(tables, roles, learned, levels))
    marked = {
        i: {(doubt.column, word) for doubt in doubts for word in doubt.doubtful & doubt.words.get(i, {}).keys()}
        for i, table in enumerate(tables)
        if table.raw
    }
    files = [i for i, words in marked.items() if words]
    if not files:
        return None
    # Files that share no word with the first may have another encoding, which is asked for later.
    return _ask(tables, doubts, [i for i in files if marked[i] & marked[files[0]]])


def _doubts(
    tables: Sequence[Table], roles: Collection[str], learned: Mapping[str, Collection[str]], levels: int
) -> Iterator[_Doubt]:
    """Doubts about names of columns, and then about the words of each column."""
    names = {i: [*map(str, table.frame.columns)] for i, table in enumerate(tables)}
    headers = {i: _beyond_ascii(names[i]) for i, table in enumerate(tables) if table.named}
    headers[LEARNER] = _beyond_ascii(learned)
    if doubtful := _doubtful(tables, headers, str)[0]:
        yield _Doubt("", headers, doubtful)
    for column in dict.fromkeys(name for columns in names.values() for name in columns):
        holders = [i for i, columns in names.items() if column in columns]
        if len(holders) < len(tables) and column not in roles:
            continue
        words = {i: _words_of(tables[i].frame[column]) for i in holders}
        words[LEARNER] = _beyond_ascii(learned.get(column, ()))
        sizes = [len(cells) for cells in words.values() if cells]
        guessed = any(tables[i].raw and words[i] for i in holders)
        if guessed and len(sizes) > 1 and max(sizes) <= levels:
            doubtful, merged = _doubtful(tables, words, _compared)
            cells = pd.concat([tables[i].frame[column] for i in holders], ignore_index=True)
            different = cells.nunique() - merged  # if so many words are the same
            if doubtful and different <= min(max(FEW_WORDS, int(cells.count()) / 2), levels):
                yield _Doubt(column, words, doubtful)


def _doubtful(
    tables: Sequence[Table], words: Mapping[int, Mapping[str, str]], compared: Callable[[str], str]
) -> tuple[frozenset[str], int]:
    """The words of guessed files that another encoding may change, and the number that may be words of another file.

    They are words that some encoding makes equal to another word, where each of two files has one of both; and all
    words of a file if it shares none with files of known encoding that have words beyond ASCII, too.
    """
    holders: dict[str, set[int]] = defaultdict(set)
    readings: dict[str, set[str]] = defaultdict(set)
    guessed = {i for i in words if i != LEARNER and tables[i].raw}
    for i, cells in words.items():
        for word, cell in cells.items():
            holders[word].add(i)
            readings[word].add(word)
            for name in tables[i].encodings if i in guessed else ():
                readings[compared(unicodedata.normalize("NFC", bytes_of_guess(cell).decode(name, "replace")))].add(word)
    same = {
        word
        for text, alike in readings.items()
        if text and len(alike) > 1
        for pair in combinations(alike, 2)
        if holders[pair[0]] - holders[pair[1]] and holders[pair[1]] - holders[pair[0]]
        for word in pair
        if holders[word] & guessed
    }
    certain = set().union(*(cells for i, cells in words.items() if i not in guessed))
    unshared = {word for i in guessed if certain and not certain & words[i].keys() for word in words[i]}
    return frozenset(same | unshared), len(same)


def _ask(tables: Sequence[Table], doubts: Sequence[_Doubt], files: list[int]) -> Question:
    """Ask for the encoding of these files, the likeliest one first."""
    names = [name for name in tables[files[0]].encodings if all(name in tables[i].encodings for i in files)]
    if not names:  # files with different encodings are asked about one after the other
        files, names = files[:1], list(tables[files[0]].encodings)
    cells = [
        (i, doubt.column, cell)
        for i in files
        for doubt in doubts
        for word, cell in sorted(doubt.words.get(i, {}).items(), key=lambda item: item[0] not in doubt.doubtful)
    ]
    data_of = {cell: bytes_of_guess(cell) for cell in [*dict.fromkeys(cell for _, _, cell in cells)][:MOST_READ]}
    read = {name: {cell: data.decode(name, "replace") for cell, data in data_of.items()} for name in names}
    holders = {cell: i for doubt in doubts for i in doubt.words if i not in files for cell in doubt.words[i].values()}
    possible = {  # in other files whose encoding is a guess, too
        bytes_of_guess(cell).decode(name, "replace")
        for doubt in doubts
        for i in doubt.words
        if i != LEARNER and i not in files and tables[i].raw
        for cell in [*doubt.words[i].values()][:MOST_READ]
        for name in tables[i].encodings
    }

    def likelier(name: str) -> tuple[float, float]:
        shared = sum(text in holders or text in possible for text in read[name].values()) / len(data_of)
        return -shared, -_plausibility(read[name].values(), name)

    different: dict[tuple[str, ...], str] = {}
    for name in sorted(names, key=likelier):
        different.setdefault(tuple(read[name].values()), name)
    offered = [*different.values()][:MOST_OFFERED]
    if GUESS in names and different[tuple(read[GUESS].values())] not in offered:
        offered[-1] = GUESS  # the guess may be right after all
    cells = [entry for entry in cells if entry[2] in data_of]
    first_of_file = {entry[0]: entry for entry in reversed(cells)}
    shown = []
    for i, column, cell in sorted(cells, key=lambda entry: entry is not first_of_file[entry[0]])[:SHOWN]:
        index = tables[i].frame.index
        row = index[(tables[i].frame[column] == cell).to_numpy().argmax()] if column else index[0] - 1
        shown.append((CellExample(tables[i].name, int(row), cell), tuple(read[name][cell] for name in offered)))
    first, readings = shown[0]
    also = holders.get(readings[0])
    where = "" if also is None else ", as in the learner" if also == LEARNER else f", as in {tables[also].name}"
    title = _title(offered[0])
    sentence = f"the file is not UTF-8: {first.cell!r} is a guess. In {title} it is {readings[0]!r}{where}."
    return Question(
        ENCODING,
        () if any(not doubt.column for doubt in doubts) else tuple(doubt.column for doubt in doubts),
        sentence,
        {name: f"{_title(name)}: {reading}" for name, reading in zip(offered, readings, strict=True)},
        tuple(shown),
        tuple(tables[i].name for i in files),
    )


def _beyond_ascii(words: Collection[str]) -> dict[str, str]:
    return {word: word for word in words if not word.isascii()}


def _words_of(cells: pd.Series) -> dict[str, str]:
    """The words of cells beyond ASCII, each with a cell that has it."""
    present = cells.dropna()
    odd = present[~present.str.isascii()].unique()[:MOST_CELLS]
    return {word: cell for cell in map(str, odd) if (word := _compared(cell))}


def _compared(cell: str) -> str:
    """The word of a cell, or the unit of its number; empty if it is ASCII or missing."""
    read = read_cell(cell)
    text = read.unit if NUMBERS.start <= read.form < NUMBERS.stop else cell if read.form in (WORD, TOTAL) else ""
    return "" if text.isascii() else text


def _plausibility(texts: Collection[str], name: str) -> float:
    """The share of the characters beyond ASCII that are usual: letters of one script and case in each word.

    In words of Latin letters, most are within ASCII.
    """
    low, high = OF_TWO_BYTES.get(name, (0, 255))
    good, total = 0.0, 0
    for text in texts:
        signs = sum(character in USUAL_SIGNS for character in text)
        text = "".join(character for character in text if character not in USUAL_SIGNS)
        good += signs / 2
        total += signs + sum(not character.isascii() for character in LETTERS.sub("", text))
        for word in LETTERS.findall(text):
            letters = [character for character in word if not character.isascii()]
            total += len(letters)
            scripts = {unicodedata.name(character, "?").split()[0] for character in word}
            usual = "HALFWIDTH" not in scripts and all(
                low <= character.encode(name, "replace")[0] <= high for character in letters
            )
            cased = word.lower() in (word, word[0].lower() + word[1:]) or word.isupper()
            accented = scripts == {"LATIN"} and len(letters) > max(len(word) / 2, 1)
            good += len(letters) * (len(scripts) == 1 and usual and cased and not accented)
    return good / max(total, 1)
