"""Look for what must be settled before a test: identifiers, incomplete rows, and groups with the same rows."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pandas as pd

from m2st_core.data.tables.assembled import Assembled
from m2st_core.data.tables.columns import CATEGORICAL, NUMERIC, TEXT, Column
from m2st_core.data.tables.encoding import Cleaning
from m2st_core.data.tables.limits import TableError

IDENTIFIER = re.compile(
    r"(^|[\W_])id$|[a-z]ID$|patient|subject|participant|person|donor|animal|household|family|(^|[\W_])pair([\W_]|$)"
)
PADDED = r"0\d+"  # a code such as 00501
FEWEST_NUMBERED = 12  # rows, below which consecutive numbers may be chance
ROUNDING = 9  # decimal digits of scaled values that are compared


@dataclass(frozen=True)
class Identifier:
    """A column of names or numbers of units, such as patients: how many units, and how many of them repeat.

    ``in_both`` counts the units with rows in both groups. Only they make the column useful as a block.
    """

    column: str
    units: int
    repeated: int
    in_both: int

    @property
    def sentence(self) -> str:
        """What was found, and why it matters."""
        if not self.repeated:
            return f"{self.column!r} looks like an identifier: its {self.units:,} values are all different."
        both = f", {self.in_both:,} of them in both groups" if self.in_both else ", never in both groups"
        found = f"{self.column!r} repeats: {self.repeated:,} of its {self.units:,} values have several rows{both}."
        return f"{found} Rows of one unit are not independent."

    def settled_by(self, cleaning: Cleaning) -> bool:
        """Whether nothing needs to be said of it: as a block, or left out if no unit has several rows."""
        return self.column == cleaning.block or (self.column in cleaning.left_out and not self.repeated)


def identifiers(made: Assembled) -> list[Identifier]:
    """Return the columns of the target that look like identifiers, and repeat or would be compared.

    They do so by their name, by leading zeros, or because they number the rows in any order.
    """
    found = []
    for name, column in made.columns.items():
        padded = column.kind in (CATEGORICAL, TEXT) and made.words(name).str.fullmatch(PADDED, na=False).any()
        by_name = IDENTIFIER.search(name) or IDENTIFIER.search(name.lower())
        if not (by_name or padded or _numbers_rows(made, name, column)):
            continue
        codes = pd.factorize(made.words(name).iloc[: made.target_rows])[0]
        p, q = (codes[span] for span in made.target_spans)
        units, counts = np.unique(codes[codes >= 0], return_counts=True)
        repeated = int((counts > 1).sum())
        whole = column.kind == NUMERIC and bool((np.mod(made.numbers(name), 1) == 0).all())
        if len(units) > 2 and (repeated or (column.used and (whole or padded))):
            found.append(Identifier(name, len(units), repeated, len(np.intersect1d(p[p >= 0], q[q >= 0]))))
    return found


def _numbers_rows(made: Assembled, name: str, column: Column) -> bool:
    """Whether a column has the whole numbers from one to another, each in one row of the target."""
    values = np.sort(made.numbers(name)[: made.target_rows]) if column.kind == NUMERIC else np.zeros(0)
    return len(values) >= FEWEST_NUMBERED and bool((np.diff(values) == 1).all() and values[0] % 1 == 0)


def incomplete_rows(made: Assembled, cleaning: Cleaning) -> int:
    """Count the rows with a missing cell, or one that is not a number, in a column that would be compared."""
    gone = np.zeros(len(made.rows), dtype=bool)
    for name, column in made.columns.items():
        if column.used and name not in (*cleaning.left_out, cleaning.block):
            gone |= np.isnan(made.numbers(name)) if column.kind == NUMERIC else made.words(name).isna().to_numpy()
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
