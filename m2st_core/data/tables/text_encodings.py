"""Encodings of text files: which are accepted, how a guess is made and undone, and when the user must be asked."""

from __future__ import annotations

import codecs
import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from m2st_core.data.tables.cells import NUMBERS, TOTAL, WORD, read_cell
from m2st_core.data.tables.columns import FEW_WORDS
from m2st_core.data.tables.limits import Limits, TableError
from m2st_core.data.tables.questions import ENCODING, SHOWN, Example, Question

if TYPE_CHECKING:
    from m2st_core.data.tables.files import Table

GUESS = "cp1252"
UNICODE = ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be")
OF_ONE_BYTE = (  # likelier ones first
    "cp1252", "cp1251", "cp1250", "cp1253", "cp1254", "cp1257", "cp1255", "cp1256", "cp1258", "cp874", "koi8-r",
    "koi8-u", *(f"iso-8859-{i}" for i in (1, 15, 2, 5, 7, 9, 13, 4, 8, 6, 3, 10, 11, 14, 16)), "mac-roman",
    "mac-latin2", "mac-cyrillic", "mac-greek", "mac-turkish", "mac-iceland", "cp437", "cp850", "cp852", "cp855",
    "cp857", "cp858", "cp866", "cp737", "cp775", "cp1125",
)  # fmt: skip
OF_TWO_BYTES = {  # with the first bytes of their usual characters
    "shift_jis": (0x81, 0x97), "cp932": (0x81, 0x97), "euc-jp": (0xA4, 0xCF), "gb18030": (0xB0, 0xD7),
    "big5": (0xA4, 0xC6), "euc-kr": (0xB0, 0xC8), "cp949": (0xB0, 0xC8),
}  # fmt: skip
SYNONYMS = ("gbk", "gb2312", "big5hkscs", "cp950")
ACCEPTED = frozenset(codecs.lookup(name).name for name in (*UNICODE, *OF_ONE_BYTE, *OF_TWO_BYTES, *SYNONYMS))
NAMED = (
    "utf-8, utf-16, cp1250 to cp1258, iso-8859-1 to iso-8859-16, koi8-r, koi8-u, mac-roman, mac-cyrillic, cp437, "
    "cp850, cp866, shift_jis, euc-jp, gb18030, big5 or euc-kr"
)
MOST_OFFERED = 6
MOST_CELLS = 2_000  # different cells of a column that are looked at; with so many different words it is free text
MOST_READ = 300  # words of a file by which its encodings are ranked
USUAL_SIGNS = frozenset("°µ²³½€£¥§·×±–—…‘’“”„«»\u00a0")
LETTERS = re.compile(r"[^\W\d_]+")
GUESSED = "".join(bytes([code]).decode(GUESS, "ignore") or chr(code) for code in range(256))
UNGUESSED = {ord(character): code for code, character in enumerate(GUESSED)}


def codec_of(name: str) -> str:
    """Python's name of a text encoding. Names of anything else are refused."""
    try:
        found = codecs.lookup(name).name if isinstance(name, str) else ""
    except (LookupError, ValueError):
        found = ""
    if found not in ACCEPTED:
        raise TableError(f"{ENCODING} must be a text encoding such as {NAMED}. Got {str(name)[:40]!r}.")
    return found


def guess(data: bytes) -> str:
    """Decode by Windows-1252. Bytes that it lacks become the control characters of Latin-1, so nothing is lost."""
    return codecs.charmap_decode(data, "strict", GUESSED)[0]


def unguess(text: str) -> bytes:
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


class Doubt(NamedTuple):
    """Words of a column, or names of columns, that another encoding may change: by the position of their file."""

    column: str  # empty for names of columns
    words: Mapping[int, Mapping[str, str]]  # of each file: what is compared, and the cell that has it
    doubtful: frozenset[str]


@dataclass(frozen=True)
class Comparison:
    """Files whose words are compared, and the words and names of columns that a learner knows."""

    tables: Sequence[Table]
    roles: Collection[str] = ()
    learned: Mapping[str, Collection[str]] = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)

    def question(self) -> Question | None:
        """Ask for the encoding of files where a guess decides which words, or names of columns, are the same."""
        if not any(table.raw for table in self.tables) or len(self.tables) + bool(self.learned) < 2:
            return None
        doubts = [doubt for doubt in self._doubts() if doubt.doubtful]
        if not doubts:
            return None
        files = [
            i
            for i, table in enumerate(self.tables)
            if table.raw and any(doubt.doubtful & doubt.words.get(i, {}).keys() for doubt in doubts)
        ]
        first = files[0]  # files that share no word with it may be in another encoding, and are asked about later
        alike = [
            i
            for i in files
            if i == first or any(d.words.get(i, {}).keys() & d.words.get(first, {}).keys() & d.doubtful for d in doubts)
        ]
        return self._ask(doubts, alike)

    def _doubts(self) -> Iterator[Doubt]:
        """Names of columns, and then the words of each column, of which several files have some beyond ASCII."""
        names = [set(map(str, table.frame.columns)) for table in self.tables]
        headers = {
            i: {name: name for name in names[i] if not name.isascii()}
            for i, table in enumerate(self.tables)
            if table.named
        }
        if self.learned:
            headers[-1] = {name: name for name in self.learned if not name.isascii()}
        yield Doubt("", headers, self._doubtful(headers, str)[0])
        for column in dict.fromkeys(name for table in self.tables for name in map(str, table.frame.columns)):
            there = [i for i, known in enumerate(names) if column in known]
            if len(there) < len(self.tables) and column not in self.roles:
                continue
            words = {i: _words_of(self.tables[i].frame[column]) for i in there}
            words[-1] = {word: word for word in self.learned.get(column, ()) if not word.isascii()}
            words = {i: found for i, found in words.items() if found}
            few = max(map(len, words.values()), default=0) <= self.limits.levels  # or it is free text
            if few and len(words) > 1 and any(i >= 0 and self.tables[i].raw for i in words):
                doubtful, merged = self._doubtful(words, _compared)
                if doubtful and not self._is_free_text(column, there, merged):
                    yield Doubt(column, words, doubtful)

    def _doubtful(
        self, words: Mapping[int, Mapping[str, str]], compared: Callable[[str], str]
    ) -> tuple[frozenset[str], int]:
        """The words of guessed files that may be others, and how many may be words of another file.

        They are those that some encoding makes equal to another word, where each of two files has one of both; and
        all of a file if it shares none with files of known encoding, which have some, too.
        """
        holders: dict[str, set[int]] = defaultdict(set)
        readings: dict[str, set[str]] = defaultdict(set)
        guessed = {i for i in words if i >= 0 and self.tables[i].raw}
        for i, found in words.items():
            for word, cell in found.items():
                holders[word].add(i)
                readings[word].add(word)
                for name in self.tables[i].encodings if i in guessed else ():
                    readings[compared(unguess(cell).decode(name, "replace"))].add(word)
        same = {
            word
            for text, alike in readings.items()
            if text and len(alike) > 1
            for pair in combinations(alike, 2)
            if holders[pair[0]] - holders[pair[1]] and holders[pair[1]] - holders[pair[0]]
            for word in pair
            if holders[word] & guessed
        }
        known = set().union(*(found for i, found in words.items() if i not in guessed))
        strange = {word for i in guessed if known and not known & words[i].keys() for word in words[i]}
        return frozenset(same | strange), len(same)

    def _is_free_text(self, column: str, there: Sequence[int], merged: int) -> bool:
        """Whether a column has too many different words to be compared, even if so many are the same."""
        cells = pd.concat([self.tables[i].frame[column] for i in there], ignore_index=True)
        different = cells.nunique() - merged
        return different > max(FEW_WORDS, int(cells.count()) / 2) or different > self.limits.levels

    def _ask(self, doubts: Sequence[Doubt], files: list[int]) -> Question:
        """Ask for the encoding of these files, the likeliest one first."""
        names = [
            name for name in self.tables[files[0]].encodings if all(name in self.tables[i].encodings for i in files)
        ]
        if not names:  # they are in different encodings, so that they are asked about one after the other
            files, names = files[:1], list(self.tables[files[0]].encodings)
        cells = {
            cell: doubt
            for doubt in doubts
            for i in files
            for word, cell in sorted(doubt.words.get(i, {}).items(), key=lambda item: item[0] not in doubt.doubtful)
        }
        raw = {cell: unguess(cell) for cell in [*cells][:MOST_READ]}
        read = {name: {cell: data.decode(name, "replace") for cell, data in raw.items()} for name in names}
        holders = {
            text: i for doubt in doubts for i, found in doubt.words.items() if i not in files for text in found.values()
        }

        def likelier(name: str) -> tuple[float, float]:
            shared = sum(text in holders for text in read[name].values()) / len(raw)
            return -shared, -plausibility(read[name].values(), name)

        different: dict[tuple[str, ...], str] = {}
        for name in sorted(names, key=likelier):
            different.setdefault(tuple(read[name].values()), name)
        offered = [*different.values()][:MOST_OFFERED]
        if GUESS in names and different[tuple(read[GUESS].values())] not in offered:
            offered[-1] = GUESS  # the guess may be right after all
        examples = [
            (Example(self.tables[i].name, self._row(i, doubt.column, cell), cell), doubt)
            for i in files
            for cell, doubt in cells.items()
            if cell in raw and cell in doubt.words.get(i, {}).values()
        ]
        first_of = {example.file: example for example, _ in reversed(examples)}
        examples.sort(key=lambda item: item[0] is not first_of[item[0].file])
        first = examples[0][0]
        best = read[offered[0]][first.cell]
        also = holders.get(best)
        other = "" if also is None else ", as the learner has it" if also < 0 else f", as in {self.tables[also].name}"
        sentence = f"the file is not UTF-8: {first.cell!r} is a guess. In {title(offered[0])} it is {best!r}{other}."
        return Question(
            ENCODING,
            () if any(not doubt.column for doubt in doubts) else tuple(doubt.column for doubt in doubts),
            sentence,
            {name: f"{title(name)}: {read[name][first.cell]}" for name in offered},
            tuple((e, tuple(read[name][e.cell] for name in offered)) for e, _ in examples[:SHOWN]),
            tuple(self.tables[i].name for i in files),
        )

    def _row(self, i: int, column: str, cell: str) -> int:
        """The row of a cell in its file."""
        frame = self.tables[i].frame
        return int(frame.index[(frame[column] == cell).to_numpy().argmax()]) if column else int(frame.index[0]) - 1


def _words_of(cells: pd.Series) -> dict[str, str]:
    """What is compared of the cells beyond ASCII, with a cell that has it."""
    present = cells.dropna()
    odd = present[~present.str.isascii()].unique()[:MOST_CELLS]
    found = {_compared(cell): cell for cell in map(str, odd)}
    found.pop("", None)
    return found


def _compared(cell: str) -> str:
    """The word of a cell, or the unit of its number; empty if that is ASCII, or if there is none."""
    read = read_cell(cell)
    text = read.unit if NUMBERS.start <= read.form < NUMBERS.stop else cell if read.form in (WORD, TOTAL) else ""
    return "" if text.isascii() else text


def title(name: str) -> str:
    """The encoding as the page calls it."""
    return f"Windows-{name[2:]} ({name})" if re.fullmatch(r"cp125\d", name) else name


def plausibility(texts: Collection[str], name: str) -> float:
    """The share of the characters beyond ASCII that are usual: letters of one script and case in each word.

    In words of Latin letters, most are within ASCII.
    """
    low, high = OF_TWO_BYTES.get(name, (0, 255))
    good, total = 0.0, 0
    for text in texts:
        good += sum(character in USUAL_SIGNS for character in text) / 2
        total += sum(character in USUAL_SIGNS for character in text)
        text = "".join(character for character in text if character not in USUAL_SIGNS)
        total += sum(not character.isascii() for character in LETTERS.sub("", text))
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
