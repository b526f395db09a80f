"""Assemble an upload: its pairs of samples, their pooled rows, and the kinds of the columns that all files share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
import pandas as pd

from m2st_core.data.tables.columns import IDENTIFIER, NUMBERS, NUMERIC, Column, Profile, classify_column
from m2st_core.data.tables.encoding_question import encoding_question
from m2st_core.data.tables.groups import SHOWN, Pair, Pairing, Side
from m2st_core.data.tables.questions import ENCODING, TableError, Unanswered
from m2st_core.data.tables.readings import Reading, Readings, settle_readings
from m2st_core.data.tables.table import Limits, Table
from m2st_core.data.tables.upload import Upload
from m2st_core.types import listed

NAMED_FILES = 3  # with the same note
MOST_SAID = 30  # conversions of cells


@dataclass(frozen=True)
class Assembled:
    """The pairs of an upload and their pooled rows: P's, then Q's of each pair. The target comes first.

    ``rows`` has the number of every row in its file, ``source`` the position of that file in ``tables``. ``columns``
    are those that all tables share, ``lacking`` names the files without a column of others. ``turned``,
    ``matched_by_order`` and ``on_both_sides`` are those of the pairing. ``notes`` tell what matching had to decide,
    ``readings`` how cells are read.
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
    readings: Readings = field(default_factory=Readings, repr=False, compare=False)
    lacking: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    turned: bool = False
    matched_by_order: str = ""
    on_both_sides: str = ""

    @property
    def identifiers(self) -> tuple[str, ...]:
        """The columns that identify rows, persons, records or moments, and are compared only by choice."""
        return tuple(column.name for column in self.columns.values() if column.kind == IDENTIFIER)

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
    def target_spans(self) -> tuple[slice, slice]:
        """Where the rows of the target's P and Q are; empty without a target."""
        return self.spans[0] if self.target else (slice(0, 0), slice(0, 0))

    @property
    def target_samples(self) -> list[tuple[Side, slice]]:
        """P and Q of the target with their rows; empty without a target."""
        return list(zip((self.target.p, self.target.q), self.target_spans, strict=True)) if self.target else []

    @property
    def related_spans(self) -> list[tuple[slice, slice]]:
        """Where the rows of both samples of each related task are."""
        return self.spans[1:] if self.target else self.spans

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
        pieces = [table.words(name) for table in self.tables]
        return pd.concat(pieces, ignore_index=True).iloc[self.order].reset_index(drop=True)

    def gaps(self, name: str, kind: str) -> np.ndarray:
        """Mark the cells of a column that are missing, or no numbers if its kind is numeric: (N,)."""
        return np.isnan(self.numbers(name)) if kind == NUMERIC else self.words(name).isna().to_numpy()

    def where(self, row: int) -> str:
        """The file and the row in it, for messages."""
        return f"{self.tables[self.source[row]].name}: row {self.rows[row]:,}"


def assemble(upload: Upload, limits: Limits | None = None) -> Assembled:
    """Pool the samples of an upload and classify the columns that all tables share."""
    limits = limits or Limits.from_environment()
    given = upload
    upload, readings, profiles = _read_jointly(upload.decoded(), limits)
    unsure = next((q for q in readings.questions if q.option == ENCODING and not q.columns), None)
    try:
        pairing = Pairing(upload)
    except TableError:
        if unsure:  # the column that it misses may have another name in another encoding
            raise Unanswered(unsure) from None
        raise
    if (count := len(pairing.related)) > limits.tasks:
        raise TableError(f"There are {count:,} related tasks, and {limits.tasks:,} is the most. Bring fewer.")
    related_sides = [side for pair in pairing.related for side in (pair.p, pair.q)]
    sides = [*([pairing.target.p, pairing.target.q] if pairing.target else []), *related_sides]
    if not sides:
        raise TableError("There is no table. Bring P and Q, or one table with a group column.")
    compared = {id(side.table) for side in sides}
    tables = tuple(table for table in (*upload.target, *upload.related) if id(table) in compared)
    if len(tables) < len(upload.target) + len(upload.related):
        profiles = _profiles(tables)
    # Related tables come first, because a learner was trained on their order of columns.
    names, lacking = _shared_columns([*(side.table for side in related_sides), *tables], pairing.roles)
    if unsure and not names:
        raise Unanswered(unsure)
    for first, second in zip(tables, tables[1:], strict=False):
        if not (first.named and second.named) and (lacking or first.named != second.named):
            bare = first if not first.named else second
            raise TableError(
                f"{bare.name}: it has no header, and the files {first.name} ({first.frame.shape[1]} columns) and "
                f"{second.name} ({second.frame.shape[1]} columns) do not match without one. Add a header to both."
            )
    if not names:
        besides = f" besides {', '.join(sorted(pairing.roles))}" if pairing.roles else ""
        raise TableError(
            f"{tables[0].name}: the files share no column{besides}. {' '.join(lacking_notes(lacking)[:3])}"
        )
    lengths = [len(table.frame) for table in tables]
    begins = dict(zip(map(id, tables), np.cumsum([0, *lengths]), strict=False))
    order = np.concatenate([begins[id(side.table)] + side.positions for side in sides])
    limits.check_size("The upload", len(order), len(names))
    made = Assembled(
        upload=replace(given, target=upload.target, related=upload.related),
        target=pairing.target,
        related=pairing.related,
        tables=tables,
        order=order,
        rows=np.concatenate([table.frame.index.to_numpy() for table in tables])[order],
        source=np.repeat(np.arange(len(tables)), lengths)[order],
        limits=limits,
        readings=readings,
        turned=pairing.turned,
        matched_by_order=pairing.matched_by_order,
        on_both_sides=pairing.on_both_sides,
    )
    columns, values = {}, {}
    for name in names:
        reading, marks = tables[0].reading(name), [table.reading(name).mark for table in tables]
        numbers = profiles[name].numbers(marks)[order] if reading.kind == NUMBERS else np.zeros(0)
        columns[name] = _classified(made, name, reading, numbers)
        if columns[name].kind == NUMERIC:
            values[name] = numbers
    files_of = {note: [table.name for table in tables if note in table.notes] for t in tables for note in t.notes}
    notes = [f"{listed(files, NAMED_FILES)}: {note}" for note, files in files_of.items()]
    return replace(
        made,
        columns=columns,
        values=values,
        notes=(*notes, *_reading_notes(readings, names), *pairing.notes, *lacking_notes(lacking)),
        lacking=lacking,
    )


def _read_jointly(upload: Upload, limits: Limits) -> tuple[Upload, Readings, dict[str, Profile]]:
    """Decide how to read every column by all tables of an upload, and leave out totals if that was the answer."""
    tables = (*upload.target, *upload.related)
    profiles = _profiles(tables)
    for name in upload.read_as:
        if name not in profiles:
            raise TableError(f"{tables[0].name}: there is no column {name!r} that could be read as words or numbers.")
    separators = [table.separator for table in tables]
    readings = settle_readings(profiles, separators, upload.decimal, upload.read_as, upload.totals)
    roles = [role for role in (upload.group, upload.related_group, "group") if role]
    if unsure := encoding_question(tables, roles, levels=limits.levels):
        readings = replace(readings, questions=(unsure, *readings.questions))
    totals = readings.totals if upload.totals == "leave out" else {}
    read = []
    for i, table in enumerate(tables):
        readings_of_file = {name: readings.columns[name][i] for name in map(str, table.frame.columns)}
        frame = table.frame.drop(index=list(totals[i])) if i in totals else table.frame
        read.append(replace(table, frame=frame, readings=readings_of_file))
    count = len(upload.target)
    upload = replace(upload, target=tuple(read[:count]), related=tuple(read[count:]))
    return upload, readings, _profiles(read) if totals else profiles


def _profiles(tables: Sequence[Table]) -> dict[str, Profile]:
    """The profile of every column of some of these tables."""
    files, frames = [table.name for table in tables], [table.frame for table in tables]
    names = dict.fromkeys(str(name) for frame in frames for name in frame.columns)
    return {name: Profile(name, files, [frame.get(name) for frame in frames]) for name in names}


def lacking_notes(lacking: Mapping[str, Sequence[str]]) -> list[str]:
    """The notes on columns that some file lacks."""
    return [f"Column {name!r} is not in {listed(files, SHOWN)}, so it is not used." for name, files in lacking.items()]


def _reading_notes(readings: Readings, names: Sequence[str]) -> list[str]:
    """The notes on how these columns were read."""
    signs = [f"Cells with {' '.join(sorted(readings.signs))} count as missing."] if readings.signs else []
    converted: list[str] = [conversion.note for conversion in readings.conversions if conversion.column in names]
    if len(converted) > MOST_SAID:
        converted[MOST_SAID:] = [f"{len(converted) - MOST_SAID:,} further readings like these are in the report."]
    return [*readings.warnings, *converted, *signs]


def _classified(made: Assembled, name: str, reading: Reading, values: np.ndarray) -> Column:
    """Classify a column by all rows. A first column without a name beside named ones has the numbers of the rows."""
    unnamed = name == "column 1" and all(table.named for table in made.tables)
    groups = [slice(p.start, q.stop) for p, q in (made.spans[:1] if made.target else made.spans)]
    groups = groups if len(made.pairs) > 1 else []  # one pair has all rows
    label = "row" if unnamed else name
    words = cache(lambda: made.words(name))
    column = classify_column(label, reading.kind, reading.unit, words, values, made.limits.levels, groups)
    return replace(column, name=name)


def _shared_columns(tables: Iterable[Table], roles: set[str]) -> tuple[list[str], dict[str, tuple[str, ...]]]:
    """The columns that every table has, in the order of the first, and the tables that lack one of the others."""
    tables = list({id(table): table for table in tables}.values())
    columns = [{str(column): None for column in table.frame.columns} for table in tables]
    every = {name: None for names in columns for name in names if name not in roles}
    lacking = {
        name: tuple(table.name for table, names in zip(tables, columns, strict=True) if name not in names)
        for name in every
    }
    return [name for name in every if not lacking[name]], {name: files for name, files in lacking.items() if files}
