"""Look for what must be settled before a test: identifiers, incomplete rows, and groups with the same rows."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

import numpy as np
import pandas as pd

from m2st_core.data.identifiers import says_unit
from m2st_core.data.tables.assembled import Assembled
from m2st_core.data.tables.columns import CATEGORICAL, IDENTIFIER, NUMERIC, TEXT
from m2st_core.data.tables.encoding import Cleaning
from m2st_core.data.tables.limits import TableError
from m2st_core.data.tables.rows import compared

PADDED = r"0\d+"  # a code such as 00501
ROUNDING = 9  # decimal digits of scaled values that are compared


@dataclass(frozen=True)
class Identifier:
    """A column that tells rows apart, or that names units, such as patients, some of which have several rows.

    ``why`` it was set aside, and whether it could be ``usable`` all the same; a column with repeated units that is
    compared like others has no ``why``. ``in_both`` counts the units with rows in both groups: only they make the
    column useful as a block.
    """

    column: str
    why: str
    usable: bool
    units: int
    repeated: int
    in_both: int

    @property
    def sentence(self) -> str:
        """What was found, and why it matters."""
        if not self.repeated:
            return f"{self.column!r} is not compared: {self.why}."
        both = f", {self.in_both:,} of them in both groups" if self.in_both else ", never in both groups"
        found = f"{self.column!r} repeats: {self.repeated:,} of its {self.units:,} values have several rows{both}."
        return f"{found} Rows of one unit are not independent."

    def note(self, cleaning: Cleaning, used: bool) -> str:
        """The sentence with the option that compares the column, or without it if it is compared; empty if settled."""
        settled = (*cleaning.left_out, cleaning.ids)
        if self.column == cleaning.block or (self.column in settled and not self.repeated):
            return ""
        if not self.why or self.column in settled:
            return self.sentence
        if used:
            repeats = f"{self.sentence} " if self.repeated else ""
            return f"{repeats}{self.column!r} is compared by choice, although {self.why}."
        aside = f" {self.column!r} is not compared: {self.why}." if self.repeated else ""
        option = f" --use {shlex.quote(self.column)} compares it all the same." if self.usable else ""
        return f"{self.sentence}{aside}{option}"


def identifiers(made: Assembled) -> list[Identifier]:
    """Return the columns that were set aside as identifiers, and those whose units have several rows in the target."""
    found = []
    for name, column in made.columns.items():
        words = made.words(name) if column.kind != NUMERIC or says_unit(name) else None
        if words is None:
            continue
        padded = column.kind in (CATEGORICAL, TEXT) and words.str.fullmatch(PADDED, na=False).any()
        names_units = says_unit(name) or padded
        codes = pd.factorize(words.iloc[: made.target_rows])[0]
        p, q = (codes[span] for span in made.target_spans)
        units, counts = np.unique(codes[codes >= 0], return_counts=True)
        repeated = int((counts > 1).sum()) if names_units and len(units) > 2 else 0
        if repeated or column.kind == IDENTIFIER:
            why = column.why if column.kind == IDENTIFIER else ""
            both = len(np.intersect1d(p[p >= 0], q[q >= 0]))
            found.append(Identifier(name, why, bool(column.holds), len(units), repeated, both))
    return found


def incomplete_rows(made: Assembled, cleaning: Cleaning) -> int:
    """Count the rows with a missing cell, or one that is not a number, in a column that would be compared."""
    gone = np.zeros(len(made.rows), dtype=bool)
    for name, kind in compared(made, cleaning).items():
        gone |= np.isnan(made.numbers(name)) if kind == NUMERIC else made.words(name).isna().to_numpy()
    return int(gone.sum())


def refuse_same_rows(made: Assembled, x: np.ndarray, y: np.ndarray) -> None:
    """Raise a TableError if both groups are the same file, or hold the same rows (n, d) in any order.

    Rows with few different values may agree by chance. They are not refused.
    """
    if made.target is None or x.shape != y.shape:
        return
    p, q = made.target.p, made.target.q
    remedy = "There is nothing to compare. Bring the rows of the other group."
    if p.table is not q.table and p.table.digest == q.table.digest:
        raise TableError(f"{p.table.name} and {q.table.name} are the same file. {remedy}")
    (rows, counts), (others, other_counts) = (
        np.unique(part.round(ROUNDING), axis=0, return_counts=True) for part in (x, y)
    )
    if len(rows) > len(x) / 2 and np.array_equal(rows, others) and np.array_equal(counts, other_counts):
        raise TableError(f"“{p.label}” and “{q.label}” hold exactly the same {len(x):,} rows. {remedy}")
