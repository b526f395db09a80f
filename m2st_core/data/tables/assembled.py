"""All rows of an upload in one order, target first, and each column over all of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from m2st_core.data.arrays import LARGEST_WHOLE
from m2st_core.data.tables.files import Table
from m2st_core.data.tables.limits import Limits, TableError
from m2st_core.data.tables.upload import Pair, Upload, make_pairs, missing_columns

NUMERIC, CATEGORICAL, DATE, TEXT = "numeric", "categorical", "date", "free text"
CONSTANT, EMPTY, RUNNING = "constant", "all missing", "row number"
RUNNING_NAMES = re.compile(r"column \d+|unnamed: \d+|__index_level_\d+__|index|id|row|nr|no|number", re.IGNORECASE)
MOSTLY = 0.8  # a column is of numbers, or of dates, if this share of its cells is
DATES = re.compile(
    r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}([T ].*)?|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}([T ].*)?|\d{1,2}:\d{2}(:\d{2}.*)?"
    r"|\d{1,2}[. -]+[^\W\d]{3,9}[., -]+\d{2,4}|[^\W\d]{3,9} \d{1,2},? \d{4}",
)
LONG_NUMBER = re.compile(r"[+-]?\d{16,}")
FEW_WORDS = 5


@dataclass(frozen=True)
class Column:
    """What a column was found to be over all rows; ``why`` it is set aside, if it is."""

    name: str
    kind: str
    why: str = ""

    @property
    def used(self) -> bool:
        """Whether a test can use it."""
        return self.kind in (NUMERIC, CATEGORICAL)


def is_running(name: str, pieces: Iterable[np.ndarray]) -> bool:
    """Whether a column only counts the rows of each table; order of entry would be taken for a difference."""
    return bool(RUNNING_NAMES.fullmatch(name)) and all(len(v) > 1 and bool((np.diff(v) == 1).all()) for v in pieces)


def classify(name: str, cells: pd.Series, values: np.ndarray, limits: Limits) -> Column:
    """The column of these cells, whose numbers are ``values``; no row's label has a say in what it is."""
    count = int(cells.notna().sum())
    found = values[~np.isnan(values)]
    if not count:
        return Column(name, EMPTY, "it has no value")
    if len(found) >= MOSTLY * count:
        if np.abs(found).max() > LARGEST_WHOLE and any(LONG_NUMBER.fullmatch(str(cell)) for cell in cells.dropna()):
            return Column(name, TEXT, "its whole numbers have too many digits, as identifiers do")
        if found.min() == found.max():
            return Column(name, CONSTANT, f"it is always {found[0]:g}")
        return Column(name, NUMERIC)
    levels = [str(level) for level in cells.dropna().unique()]
    if len(levels) == 1:
        return Column(name, CONSTANT, f"it is always {levels[0][:40]!r}")
    if sum(bool(DATES.fullmatch(level)) for level in levels) >= MOSTLY * len(levels):
        return Column(name, DATE, "dates and times are not compared; bring them as numbers, such as days since a start")
    if len(levels) > limits.levels:
        return Column(name, TEXT, f"it has {len(levels):,} different words, more than {limits.levels:,}")
    if len(levels) > max(FEW_WORDS, count / 2):
        return Column(name, TEXT, f"{len(levels):,} of its {count:,} cells are different words")
    return Column(name, CATEGORICAL)


@dataclass(frozen=True)
class Assembled:
    """The pairs of an upload, their rows pooled: of each pair those of P, then those of Q; the target's come first.

    ``rows`` has the number of every row in its file, ``source`` the position of that file in ``tables``. ``columns``
    are those that all tables share; ``notes`` is what matching them had to decide.
    """

    upload: Upload
    target: Pair | None
    related: tuple[Pair, ...]
    tables: tuple[Table, ...] = field(repr=False)
    order: np.ndarray = field(repr=False, compare=False)
    rows: np.ndarray = field(repr=False, compare=False)
    source: np.ndarray = field(repr=False, compare=False)
    limits: Limits
    columns: Mapping[str, Column] = field(default_factory=dict)
    values: Mapping[str, np.ndarray] = field(default_factory=dict, repr=False, compare=False)
    notes: tuple[str, ...] = ()

    @property
    def pairs(self) -> tuple[Pair, ...]:
        """The target, if there is one, and the related tasks."""
        return (*([self.target] if self.target else []), *self.related)

    @property
    def spans(self) -> list[tuple[slice, slice]]:
        """Where the rows of P and of Q of each pair are."""
        found, start = [], 0
        for pair in self.pairs:
            middle = start + len(pair.p.positions)
            end = middle + len(pair.q.positions)
            found.append((slice(start, middle), slice(middle, end)))
            start = end
        return found

    @property
    def related_spans(self) -> list[tuple[slice, slice]]:
        """Where the rows of the related tasks are."""
        return self.spans[1:] if self.target else self.spans

    @property
    def target_rows(self) -> int:
        """How many rows the target has; they come first."""
        return self.spans[0][1].stop if self.target else 0

    def numbers(self, name: str) -> np.ndarray:
        """A column as float64, NaN where a cell is missing or no number; those of numeric columns are kept."""
        if name in self.values:
            return self.values[name]
        return np.concatenate([table.numbers(name) for table in self.tables])[self.order]

    def words(self, name: str) -> pd.Series:
        """A column as words, NA where a cell is missing."""
        pieces = [table.frame[name].astype("str") for table in self.tables]
        return pd.concat(pieces, ignore_index=True).iloc[self.order].reset_index(drop=True)

    def where(self, row: int) -> str:
        """The file and the row in it, for messages."""
        return f"{self.tables[self.source[row]].name}: row {self.rows[row]:,}"

    def of_target(self, name: str) -> pd.Series:
        """A column of the target's tables as words, whether the related tasks have it or not."""
        assert self.target is not None
        for side in (self.target.p, self.target.q):
            if name not in side.table.frame.columns:
                raise TableError(f"{side.table.name}: there is no column called {name!r}. Choose one that it has.")
        pieces = [side.table.frame[name].astype("str").iloc[side.positions] for side in (self.target.p, self.target.q)]
        return pd.concat(pieces, ignore_index=True)


def assemble(upload: Upload, limits: Limits | None = None) -> Assembled:
    """Who is compared with whom, and what the columns are that all of them share."""
    limits = limits or Limits.from_environment()
    target, related, roles, notes = make_pairs(upload)
    if len(related) > limits.tasks:
        raise TableError(f"There are {len(related):,} related tasks, and {limits.tasks:,} is the most. Bring fewer.")
    pairs = [*([target] if target else []), *related]
    if not pairs:
        raise TableError("There is no table. Bring P and Q, or one table with a group column.")
    tables = tuple({id(side.table): side.table for pair in pairs for side in (pair.p, pair.q)}.values())
    history = [side.table for pair in related for side in (pair.p, pair.q)]
    names, lacking = missing_columns([*history, *tables], roles)  # a learner knows its columns by their order
    for first, second in zip(tables, tables[1:], strict=False):
        if not (first.named and second.named) and (lacking or first.named != second.named):
            bare = first if not first.named else second
            raise TableError(
                f"{bare.name}: it has no header, and the files {first.name} ({first.frame.shape[1]} columns) and "
                f"{second.name} ({second.frame.shape[1]} columns) do not match without one. Add a header to both."
            )
    if not names:
        beside = f" besides {', '.join(sorted(roles))}" if roles else ""
        raise TableError(f"{tables[0].name}: the files share no column{beside}. {' '.join(lacking[:3])}")
    begins = dict(zip(map(id, tables), np.cumsum([0, *(len(t.frame) for t in tables)]), strict=False))
    sides = [side for pair in pairs for side in (pair.p, pair.q)]
    order = np.concatenate([begins[id(side.table)] + side.positions for side in sides])
    limits.check_size("The upload", len(order), 1)
    if len(order) * len(names) > limits.cells:
        raise TableError(f"The upload has {len(order) * len(names):,} cells, more than {limits.cells:,}. Bring fewer.")
    made = Assembled(
        upload=upload,
        target=target,
        related=tuple(related),
        tables=tables,
        order=order,
        rows=np.concatenate([table.frame.index.to_numpy() for table in tables])[order],
        source=np.repeat(np.arange(len(tables)), [len(t.frame) for t in tables])[order],
        limits=limits,
    )
    columns, values = {}, {}
    for name in names:
        found = made.numbers(name)
        columns[name] = _classified(made, name, found)
        if columns[name].kind == NUMERIC:
            values[name] = found
    said = [f"{table.name}: {note}" for table in tables for note in table.notes]
    return replace(made, columns=columns, values=values, notes=(*said, *notes, *lacking))


def _classified(made: Assembled, name: str, values: np.ndarray) -> Column:
    pieces = [table.frame[name] for table in made.tables]
    alike = len({piece.dtype for piece in pieces}) == 1
    cells = pd.concat([piece if alike else piece.astype("str") for piece in pieces], ignore_index=True)
    used = cells.iloc[made.order] if len(made.order) < len(cells) else cells
    if all(table.named for table in made.tables) and is_running(name, (table.numbers(name) for table in made.tables)):
        return Column(name, RUNNING, "it only counts the rows")
    return classify(name, used, values, made.limits)
