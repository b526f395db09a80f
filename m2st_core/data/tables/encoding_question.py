"""The question which encoding a file has, asked where a guess decides which words of several files are the same."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

import pandas as pd

from m2st_core.data.tables.cells import NUMBERS, TOTAL, WORD, CellExample, read_cell
from m2st_core.data.tables.columns import FEW_WORDS
from m2st_core.data.tables.questions import ENCODING, SHOWN, Question
from m2st_core.data.tables.table import Table
from m2st_core.data.tables.text_encoding import GUESS, OF_TWO_BYTES, bytes_of_guess, encoding_title

LEARNER = -1  # the position of a learner among the files
MOST_OFFERED = 6
MOST_CELLS = 2_000  # different cells of a column that are read; with so many different words it is free text
MOST_READ = 300  # words by which the encodings of a file are ranked
USUAL_SIGNS = frozenset("°µ²³½€£¥§·×±–—…‘’“”„«»\u00a0")
LETTERS = re.compile(r"[^\W\d_]+")


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
    title = encoding_title(offered[0])
    sentence = f"the file is not UTF-8: {first.cell!r} is a guess. In {title} it is {readings[0]!r}{where}."
    return Question(
        ENCODING,
        () if any(not doubt.column for doubt in doubts) else tuple(doubt.column for doubt in doubts),
        sentence,
        {name: f"{encoding_title(name)}: {reading}" for name, reading in zip(offered, readings, strict=True)},
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
