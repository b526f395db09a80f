"""All rows of an upload in one order, target first; each column over all of them; and a check of what they hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd

from m2st_core.data.tables.columns import NUMERIC, RUNNING, Column, classify, is_running
from m2st_core.data.tables.files import Table
from m2st_core.data.tables.limits import Limits, TableError, listed
from m2st_core.data.tables.upload import Pair, Pairing, Side, Upload, shared_columns

FAR = 3.0  # interquartile ranges beyond the quartiles
TOP_LEVELS = 5
NAMED_FILES = 3  # with the same note


@dataclass(frozen=True)
class Assembled:
    """The pairs of an upload and their pooled rows: P's, then Q's of each pair. The target comes first.

    ``rows`` has the number of every row in its file, ``source`` the position of that file in ``tables``. ``columns``
    are those that all tables share. ``notes`` say what matching them had to decide.
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
        ends = np.cumsum([0, *(len(side.positions) for pair in self.pairs for side in (pair.p, pair.q))]).tolist()
        slices = [slice(start, stop) for start, stop in zip(ends, ends[1:], strict=False)]
        return list(zip(slices[::2], slices[1::2], strict=True))

    @property
    def target_samples(self) -> list[tuple[Side, slice]]:
        """P and Q of the target with their rows; empty without a target."""
        return list(zip((self.target.p, self.target.q), self.spans[0], strict=True)) if self.target else []

    @property
    def target_spans(self) -> tuple[slice, slice]:
        """Where the rows of the target's P and Q are; empty without a target."""
        return self.spans[0] if self.target else (slice(0, 0), slice(0, 0))

    @property
    def target_rows(self) -> int:
        """The number of the target's rows, which come first."""
        return self.target_spans[1].stop

    def numbers(self, name: str) -> np.ndarray:
        """A column as float64, NaN where a cell is missing or not a number. Numeric columns are kept."""
        values = self.values.get(name)
        return values if values is not None else np.concatenate([t.numbers(name) for t in self.tables])[self.order]

    def words(self, name: str) -> pd.Series:
        """A column as words, NA where a cell is missing."""
        pieces = [table.frame[name].astype("str") for table in self.tables]
        return pd.concat(pieces, ignore_index=True).iloc[self.order].reset_index(drop=True)

    def where(self, row: int) -> str:
        """The file and the row in it, for messages."""
        return f"{self.tables[self.source[row]].name}: row {self.rows[row]:,}"


def assemble(upload: Upload, limits: Limits | None = None) -> Assembled:
    """Pool the samples of an upload and classify the columns that all tables share."""
    limits = limits or Limits.from_environment()
    pairing = Pairing(upload)
    if (count := len(pairing.related)) > limits.tasks:
        raise TableError(f"There are {count:,} related tasks, and {limits.tasks:,} is the most. Bring fewer.")
    related_sides = [side for pair in pairing.related for side in (pair.p, pair.q)]
    sides = [*([pairing.target.p, pairing.target.q] if pairing.target else []), *related_sides]
    if not sides:
        raise TableError("There is no table. Bring P and Q, or one table with a group column.")
    tables = tuple({id(side.table): side.table for side in sides}.values())
    # Related tables come first, because a learner was trained on their order of columns.
    names, lacking = shared_columns([*(side.table for side in related_sides), *tables], pairing.roles)
    for first, second in zip(tables, tables[1:], strict=False):
        if not (first.named and second.named) and (lacking or first.named != second.named):
            bare = first if not first.named else second
            raise TableError(
                f"{bare.name}: it has no header, and the files {first.name} ({first.frame.shape[1]} columns) and "
                f"{second.name} ({second.frame.shape[1]} columns) do not match without one. Add a header to both."
            )
    if not names:
        besides = f" besides {', '.join(sorted(pairing.roles))}" if pairing.roles else ""
        raise TableError(f"{tables[0].name}: the files share no column{besides}. {' '.join(lacking[:3])}")
    lengths = [len(table.frame) for table in tables]
    begins = dict(zip(map(id, tables), np.cumsum([0, *lengths]), strict=False))
    order = np.concatenate([begins[id(side.table)] + side.positions for side in sides])
    limits.check_size("The upload", len(order), len(names))
    made = Assembled(
        upload=upload,
        target=pairing.target,
        related=pairing.related,
        tables=tables,
        order=order,
        rows=np.concatenate([table.frame.index.to_numpy() for table in tables])[order],
        source=np.repeat(np.arange(len(tables)), lengths)[order],
        limits=limits,
    )
    columns, values = {}, {}
    for name in names:
        numbers = made.numbers(name)
        columns[name] = _classified(made, name, numbers)
        if columns[name].kind == NUMERIC:
            values[name] = numbers
    said = {note: [table.name for table in tables if note in table.notes] for t in tables for note in t.notes}
    notes = [f"{listed(files, NAMED_FILES)}: {note}" for note, files in said.items()]
    return replace(made, columns=columns, values=values, notes=(*notes, *pairing.notes, *lacking))


def _classified(made: Assembled, name: str, values: np.ndarray) -> Column:
    if all(table.named for table in made.tables) and is_running(name, (table.numbers(name) for table in made.tables)):
        return Column(name, RUNNING, "it only counts the rows")
    pieces = [table.frame[name] for table in made.tables]
    alike = len({piece.dtype for piece in pieces}) == 1
    cells = pd.concat([piece if alike else piece.astype("str") for piece in pieces], ignore_index=True)
    used = cells.iloc[made.order] if len(made.order) < len(cells) else cells
    return classify(name, used, values, made.limits)


@dataclass(frozen=True)
class ColumnReport(Column):
    """A column with its missing cells and outliers.

    ``missing`` counts cells of (P, Q, related tasks), ``odd`` the cells of a numeric column that are not numbers.
    ``outliers`` are more than three interquartile ranges outside the quartiles. They are reported, never removed.
    """

    missing: tuple[int, int, int] = (0, 0, 0)
    odd: int = 0
    levels: int = 0
    top_levels: tuple[tuple[str, int], ...] = ()
    outliers: int = 0
    minimum: float | None = None
    median: float | None = None
    maximum: float | None = None


@dataclass(frozen=True)
class Check:
    """The report on an upload: sizes, columns, and notes on duplicates and on differences between the files."""

    rows: tuple[int, int, int]  # of P, of Q, of all related tasks
    related_tasks: int
    columns: tuple[ColumnReport, ...]
    notes: tuple[str, ...]


def check(made: Assembled) -> Check:
    """Report on every column and on duplicate rows. Nothing is changed."""
    p, q = made.target_spans
    hashes = np.zeros(len(made.rows), dtype=np.uint64)  # of the used columns of each row
    reports, telling = [], []
    for column in made.columns.values():
        report, codes = _report(made, column)
        reports.append(report)
        if column.used:
            hashes = hashes * np.uint64(1_000_003) + pd.util.hash_array(codes, categorize=False)
            constant = all(len(codes[side]) > 1 and (codes[side] == codes[side][0]).all() for side in (p, q))
            if constant and codes[p][0] != codes[q][0]:
                telling.append(column.name)
    duplicates = [len(hashes[side]) - len(np.unique(hashes[side])) for side in (p, q)]
    between = int(np.isin(hashes[p], hashes[q]).sum() + np.isin(hashes[q], hashes[p]).sum())
    notes = [*made.notes]
    if any(duplicates):
        notes.append(f"Rows that repeat an earlier one: {duplicates[0]:,} in P, {duplicates[1]:,} in Q.")
    if between:
        notes.append(f"{between:,} rows of P and Q are in both. Rows of one unit must not be in both samples.")
    for name in telling:
        notes.append(f"{name!r} has one value in P and another in Q. If it only names the sample, leave it out.")
    sizes = (p.stop, q.stop - q.start, len(made.rows) - made.target_rows)
    return Check(sizes, len(made.related), tuple(reports), tuple(notes))


def _report(made: Assembled, column: Column) -> tuple[ColumnReport, np.ndarray]:
    """The report on a column, and numbers (N,) that are equal where its cells are."""
    p, q = made.target_spans
    report = ColumnReport(column.name, column.kind, column.why)
    if column.kind == NUMERIC:
        values = made.numbers(column.name)
        gaps = np.isnan(values)
        missing = made.words(column.name).isna().to_numpy() if gaps.any() else gaps
        low, middle, high = np.quantile(values[~gaps], [0.25, 0.5, 0.75])
        reach = FAR * (high - low)
        codes = np.where(gaps, np.inf, values) + 0.0
        report = replace(
            report,
            odd=int((gaps & ~missing).sum()),
            outliers=int(((values < low - reach) | (values > high + reach)).sum()) if reach > 0 else 0,
            minimum=float(np.nanmin(values)),
            median=float(middle),
            maximum=float(np.nanmax(values)),
        )
    else:
        words = made.words(column.name)
        counts = words.value_counts()
        missing, codes = words.isna().to_numpy(), pd.factorize(words)[0]
        top = tuple((str(level), int(count)) for level, count in counts.head(TOP_LEVELS).items())
        report = replace(report, levels=len(counts), top_levels=top)
    return replace(report, missing=(missing[p].sum(), missing[q].sum(), missing[made.target_rows :].sum())), codes
