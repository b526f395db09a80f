"""Point or comma: the decimal mark of each column in each file, by what all files of an upload show."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from m2st_core.data.tables import cells as forms
from m2st_core.data.tables.cells import FORMS
from m2st_core.data.tables.profiles import Profile

EVIDENCE = {
    ".": [forms.POINT, forms.DAY_MONTH, forms.COMMA_GROUPS],
    ",": [forms.COMMA, forms.POINT_GROUPS],
}
OPENS = [forms.OPEN_POINT, forms.OPEN_COMMA]
THOUSANDS = {".": (forms.OPEN_COMMA, forms.COMMA_GROUPS), ",": (forms.OPEN_POINT, forms.POINT_GROUPS)}
"""By decimal mark: open cells that are thousands with it, and cells that prove that thousands are marked."""


def decide_marks(
    profiles: Sequence[Profile], separators: Sequence[str], said: Sequence[str]
) -> tuple[dict[str, tuple[str, ...]], dict[str, tuple[int, ...]]]:
    """The decimal mark of each column with open cells in each file, and the files in doubt by column.

    What the user ``said`` about a file decides, and else the nearest evidence: of the same cells, of the file, of the
    column in other files, of all files; and in the end commas between cells, which writers of 8.654 for 8654 avoid.
    Files with other separators, or workbooks, are no evidence: another program wrote them. There is doubt where
    evidence is absent or contradicts itself, where a column would mix decimals with thousands though no cell proves
    that thousands are marked, and where a column would be read differently in two files and the user did not say so.
    """
    files = sum((one.counts for one in profiles), np.zeros((len(separators), len(FORMS)), dtype=np.int64))
    marks, doubts = {}, {}
    for one in profiles:
        with_open = np.flatnonzero(one.counts[:, OPENS].any(axis=1)).tolist()
        if with_open:
            found = []
            for i in with_open:
                alike = np.array(separators) == separators[i]
                column, all_files = one.counts[alike].sum(axis=0), files[alike].sum(axis=0)
                found.append(said[i] or _mark(one.counts[i], files[i], column, all_files, separators[i]))
            usual = next((mark for mark in found if mark), ".")
            by_file = dict(zip(with_open, found, strict=True))
            marks[one.name] = tuple(by_file.get(i) or usual for i in range(len(separators)))
            unsaid = tuple(i for i in with_open if not said[i])
            if None in found or (unsaid and len(set(found)) > 1):
                doubts[one.name] = unsaid
    return marks, doubts


def _mark(own: np.ndarray, file: np.ndarray, column: np.ndarray, everything: np.ndarray, separator: str) -> str | None:
    """The decimal mark of the open cells of a column in a file, by evidence from near to far; None if in doubt."""
    by_commas, workbook = separator == ",", not separator
    if own[OPENS].all() and not proven_marks(own):
        return None
    levels = ((own, True, True), (file, False, True), (column, True, False), (everything, False, False))
    for counts, same_column, same_file in levels:
        said = [mark for mark in proven_marks(counts) if mark == "," or not workbook]  # its numbers have points anyway
        if len(said) > 1:
            return None
        for mark in said:
            thousands, proof = THOUSANDS[mark]
            mixed = same_column and own[thousands] and not counts[proof]
            return None if mixed or (by_commas and mark == "," and not same_file) else mark
    return "." if by_commas and not own[forms.OPEN_COMMA] else None


def proven_marks(counts: np.ndarray) -> list[str]:
    """The decimal marks that cells, counted by form, prove."""
    return [mark for mark, proofs in EVIDENCE.items() if counts[proofs].any()]
