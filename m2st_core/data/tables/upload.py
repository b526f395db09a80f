"""An upload: its tables, the pairs of samples in them, and their pooled rows: one target and any related tasks."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from unicodedata import normalize

import numpy as np
import pandas as pd

from m2st_core.data.arrays import named_pairs
from m2st_core.data.tables.columns import IDENTIFIER, NUMERIC, Column, Piece, classify_column
from m2st_core.data.tables.files import Limits, as_table, read_table
from m2st_core.data.tables.readings import (
    DECIMAL,
    ENCODING,
    READ_AS,
    TOTALS,
    Marks,
    Readings,
    TableError,
    Unanswered,
    check_answers,
    choice_for_file,
    settle_readings,
    words_by_file,
)
from m2st_core.data.tables.table import Table, codec_of, encoding_question
from m2st_core.numbers import count_of
from m2st_core.types import listed

GROUP_NAMES = ("group", "sample", "label", "class", "arm", "treatment", "condition", "cohort", "batch", "target")
SIDE = re.compile(r"(.+)[_\-. ]([PQ])", re.IGNORECASE)  # north_P and north_Q are a pair
SHOWN, MOST_GROUPS, OTHERS = 5, 12, "all others"
NAMED_FILES = 3  # with the same note
MOST_SAID = 30  # conversions of cells
NOT_THE_TARGETS = "These values are not the target's."
BASELINES = (
    "old", "control", "controls", "reference", "ref", "baseline", "before", "pre", "placebo", "untreated", "standard",
    "healthy", "normal", "0", "no", "false", "a", "p",
)  # fmt: skip


@dataclass(frozen=True)
class Upload:
    """Tables and the roles of their columns.

    ``target`` is P and Q, or one table whose column ``group`` has two values, or empty if there are only related tasks.
    ``related`` tables have a column ``task`` and a group column, or are one task each, or are pairs ``x_P``, ``x_Q``.
    ``related_group`` is their group column, if it is called neither like the target's nor "group".

    ``groups`` are the values of P and of Q, or one value to compare with all others. Without them, the first value in
    the file is P. In related tasks, values of the target keep their side. ``related_groups`` are P's and Q's value in
    tasks with other values; further values in twos are for further tasks.

    The rest answers what reading may ask: ``decimal`` ("." or ",", for all or by file), ``read_as`` ("numbers", "words"
    or "dates", by column), ``totals`` (whether to "leave out" or to "keep" rows that look like totals) and ``encoding``
    (of text files that are not UTF-8, such as "cp1251", for all or by file).
    """

    target: tuple[Table, ...]
    related: tuple[Table, ...] = ()
    group: str | None = None
    task: str = "task"
    related_group: str | None = None
    groups: tuple[str, ...] = ()
    decimal: Marks = ""
    read_as: Mapping[str, str] = field(default_factory=dict)
    totals: str = ""
    encoding: Marks = ""
    related_groups: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("group", "task", "related_group"):  # composed, as headers and cells are
            if isinstance(value := getattr(self, name), str):
                object.__setattr__(self, name, normalize("NFC", value))
        for name in ("groups", "related_groups"):
            object.__setattr__(self, name, tuple(normalize("NFC", value) for value in getattr(self, name)))
        object.__setattr__(self, "read_as", {normalize("NFC", name): kind for name, kind in self.read_as.items()})
        files = [t.name for t in (*self.target, *self.related)]
        check_answers({name: getattr(self, name) for name in (DECIMAL, TOTALS, READ_AS, ENCODING)}, files)
        for name in [self.encoding] if isinstance(self.encoding, str) else self.encoding.values():
            codec_of(name or "utf-8")
        if len(set(self.groups)) != len(self.groups) or len(self.groups) > 2:
            raise TableError(
                f"groups are two different values of the group column, or one. Got {_quoted(self.groups)}."
            )
        if len(self.related_groups) % 2:
            raise TableError(
                f"related_groups are the values of P and of Q in related tasks. Got {_quoted(self.related_groups)}."
            )

    def decoded(self) -> Upload:
        """The upload with its files decoded by the given encodings, and roles by the names that columns then have."""
        if not self.encoding:
            return self
        before = (*self.target, *self.related)
        after = [self._decoded(table) for table in before]
        count = len(self.target)

        def renamed(name: str | None, tables: slice) -> str | None:
            if name is None or any(_find(table, name) for table in after[tables]):
                return name
            new = (_same_place(old, new, name) for old, new in zip(before[tables], after[tables], strict=True))
            return next(filter(None, new), name)

        group = renamed(self.group, slice(0, count)) if self.target else self.group
        values = self.groups
        if values and self.group and group and self.target:
            cells, anew = before[0].words(_find(before[0], self.group) or self.group), after[0].words(group)
            meant = dict(zip(cells, anew, strict=True)) if len(cells) == len(anew) else {}
            values = tuple(value if (anew == value).any() else str(meant.get(value, value)) for value in values)
        related = slice(count, None)
        return replace(
            self,
            target=tuple(after[:count]),
            related=tuple(after[count:]),
            group=group,
            task=renamed(self.task, related) or self.task,
            related_group=renamed(self.related_group, related),
            groups=values,
        )

    def _decoded(self, table: Table) -> Table:
        """The table decoded by the given encoding; one for all files concerns those that are not UTF-8."""
        encoding = choice_for_file(self.encoding, table.name)
        if table.raw and encoding:
            return read_table(table.name, table.raw, encoding=encoding)
        if not isinstance(self.encoding, str) and encoding and table.encoding not in ("ascii", codec_of(encoding)):
            what = f"{table.encoding} text" if table.encoding else "an Excel workbook"
            raise TableError(f"{table.name}: it is {what}, so it cannot be read as {encoding}. Leave out its encoding.")
        return table

    @property
    def files_digest(self) -> str:
        """A SHA-256 of all files and roles, whichever sample is P."""
        roles = (self.group, self.task, self.related_group)
        parts = [*sorted(t.digest for t in self.target), "related", *(t.digest for t in self.related), repr(roles)]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    @property
    def digest(self) -> str:
        """A SHA-256 of all files, roles, groups and answers: the key under which results are kept."""
        order = [table.digest for table in self.target], self.groups, self.related_groups
        by_file = (sorted(words_by_file(marks)) for marks in (self.decimal, self.encoding))
        given = (*by_file, sorted(self.read_as.items()), self.totals)
        return hashlib.sha256(f"{self.files_digest} {order} {given}".encode()).hexdigest()


def upload_of(x: Any, y: Any, related: Any = None, **reading: Any) -> Upload:
    """Make an upload of frames: x, y and related tasks, pairs by name or in a list. ``reading`` are its answers."""
    names, pairs = named_pairs(related) if related is not None else ((), ())
    tasks: list[Table] = []
    for name, pair in zip(names, pairs, strict=True):
        try:
            first, second = pair
        except (TypeError, ValueError):
            raise ValueError(f"Related task {name!r} is not a pair (x, y) of two samples.") from None
        tasks += [as_table(f"{name}, x", first, (name, "P")), as_table(f"{name}, y", second, (name, "Q"))]
    return Upload((as_table("x", x), as_table("y", y)), tuple(tasks), **reading)


@dataclass(frozen=True)
class Side:
    """The rows of one sample: their table, their positions in it, and the label of the sample."""

    table: Table = field(repr=False)
    label: str
    positions: np.ndarray = field(repr=False, compare=False)

    @classmethod
    def whole(cls, table: Table, label: str) -> Side:
        """All rows of a table."""
        return cls(table, label, np.arange(len(table.frame)))


@dataclass(frozen=True)
class Pair:
    """Two samples that are compared. ``name`` is the task's, or "target"."""

    name: str
    p: Side
    q: Side

    @property
    def labels(self) -> tuple[str, str]:
        """The labels of P and of Q."""
        return self.p.label, self.q.label


@dataclass(frozen=True)
class GroupColumn:
    """A column that may be the group: its values, as first seen, with their rows, and the number of files with it."""

    name: str
    counts: Mapping[str, int]
    files: int = 1

    @property
    def values(self) -> tuple[str, ...]:
        """The values of the column."""
        return tuple(self.counts)

    @property
    def words(self) -> str:
        """The values with their rows, such as "old 30, new 30"."""
        shown = [f"{value[:40]} {count:,}" for value, count in self.counts.items()]
        return ", ".join(shown[:SHOWN]) + (f" and {len(shown) - SHOWN} more" if len(shown) > SHOWN else "")

    def found_in(self, related: Mapping[str, GroupColumn]) -> str:
        """The column of the related tasks with the same values that has the same name or is called group."""
        ours = {_alike(value) for value in self.values}
        same = [name for name, column in related.items() if {_alike(value) for value in column.values} == ours]
        return next((name for name in same if name.lower() in ("group", self.name.lower())), "")


def suggest_groups(
    *tables: Table, besides: str = "", related: Mapping[str, GroupColumn] | None = None
) -> dict[str, GroupColumn]:
    """Columns that may be the group in some of these tables.

    First come those whose values are the groups of ``related`` tasks, then those with two values, then the likeliest.
    Words may have up to 12 values, of which two are compared, or one with the rest.
    """
    candidates: dict[str, GroupColumn] = {}
    numeric: set[str] = set()
    for table in tables:
        for name in map(str, table.frame.columns):
            cells = table.words(name).dropna()
            if name == besides or cells.iloc[:1000].nunique() > MOST_GROUPS or len(cells) < len(table.frame) / 2:
                continue
            counts = cells.value_counts(sort=False)
            is_numeric = not np.isnan(table.numbers(name)).all()
            words = not is_numeric or any(group in name.lower() for group in GROUP_NAMES)
            if len(counts) == 2 or (2 < len(counts) <= MOST_GROUPS and counts.min() > 1 and words):
                known = candidates.get(name, GroupColumn(name, {}, 0))
                more = {str(value): int(count) for value, count in counts.items()}
                both = {value: known.counts.get(value, 0) + more.get(value, 0) for value in {**known.counts, **more}}
                candidates[name] = GroupColumn(name, both, known.files + 1)
                numeric |= {name} if is_numeric else set()

    def rank(name: str) -> tuple[int, bool, int, bool]:
        usual = (i for i, group in enumerate(GROUP_NAMES) if group in name.lower())
        twin = candidates[name].found_in(related or {}).lower()
        by_related = 0 if twin == "group" else 1 if twin else 2
        return by_related, len(candidates[name].values) > 2, min(usual, default=len(GROUP_NAMES)), name in numeric

    return {name: candidates[name] for name in sorted(candidates, key=rank)}


def baseline_first(values: Sequence[str]) -> tuple[str, ...]:
    """Two values with the one that reads as the baseline first; empty if not exactly one does, or it comes first.

    >>> baseline_first(["new", "old"]), baseline_first(["old", "new"])
    (('old', 'new'), ())
    """
    return (values[1], values[0]) if _baseline(values) == 1 else ()


def _baseline(values: Sequence[str]) -> int | None:
    """The position of the one of two values that reads as the baseline; None unless exactly one does."""
    reads = [value.strip().casefold() in BASELINES for value in values]
    return reads.index(True) if sum(reads) == 1 else None


def group_of_related(table: Table, upload: Upload) -> str | None:
    """The group column of a table of related tasks: the one that was named, else the target's, else group."""
    return next((column for name in _wanted(upload) if (column := _find(table, name))), None)


def half_of(table: Table, upload: Upload) -> tuple[str, str] | None:
    """The task and the side, P or Q, of a table that is one sample of a related task, such as x_P; otherwise None."""
    if table.half is not None or group_of_related(table, upload) or _find(table, upload.task):
        return table.half
    match = SIDE.fullmatch(table.stem)
    return (match[1], match[2].upper()) if match else None


def other_labels(target: Pair | None, related: Iterable[Pair]) -> list[tuple[str, str]]:
    """The labels of P and Q in related tasks that have none of the target's labels."""
    ours = {_alike(label) for label in target.labels} if target else set()
    pairs = dict.fromkeys(pair.labels for pair in related) if target else {}
    return [labels for labels in pairs if not ours & set(map(_alike, labels))]


def same_groups(target: Pair, related: Iterable[Pair]) -> int:
    """Count the related tasks with the target's labels. The files x_P and x_Q match a target of two files."""
    ours = {_alike(label) for label in target.labels}
    names = [ours, {"p", "q"}] if target.p.table is not target.q.table else [ours]
    return sum({_alike(label) for label in pair.labels} in names for pair in related)


def matched_by_order(target: Pair | None, related: Iterable[Pair]) -> str:
    """What stands for what in related tasks that have none of the target's labels; empty if there are none."""
    pairs = [pair for pair in related if target and not same_groups(target, [pair])]
    others = other_labels(target, pairs)
    if target is None or not others:
        return ""
    tasks = sum(pair.labels in others for pair in pairs)
    where = "In the related tasks" if tasks == len(pairs) else f"In {count_of(tasks, 'related task')}"
    p, q = ([f"“{label[:40]}”" for label in dict.fromkeys(side)] for side in zip(*others, strict=True))
    named = [", ".join(side[:SHOWN]) + (", …" if len(side) > SHOWN else "") for side in (p, q)]
    stands = "stands" if len(p) == len(q) == 1 else "stand"
    return (
        f"{where} {named[0]} {stands} for “{target.p.label}” and {named[1]} for “{target.q.label}”. "
        f"{NOT_THE_TARGETS} Check that this is right."
    )


def on_both_sides(target: Pair | None, related: Iterable[Pair]) -> str:
    """A warning on values that stand for P in one comparison and for Q in another; empty if there are none."""
    pairs = [pair for pair in related if target and not same_groups(target, [pair])]
    p, q = ({_alike(pair.labels[side]): pair.labels[side] for pair in pairs} for side in (0, 1))
    if target is None or not (both := [label for value, label in p.items() if value in q]):
        return ""
    named = listed([f"“{label[:40]}”" for label in both], SHOWN)
    return (
        f"{named} {'is' if len(both) == 1 else 'are'} “{target.p.label}” in some related tasks and "
        f"“{target.q.label}” in others, so these tasks do not all point one way. Give the values of each task the "
        "names of the target's."
    )


class _Pairing:
    """The pairs of an upload, the columns that name samples and tasks, and notes.

    ``turned``: P and Q of the related tasks are in the reverse order of their files. Tests do not tell the sides apart,
    so they learn in the order of the files, and swapping P and Q changes no p-value.
    """

    def __init__(self, upload: Upload) -> None:
        self.roles: set[str] = set()
        self.notes: list[str] = []
        self.turned = False
        self._upload = upload
        self._order: dict[str, int] = {}  # of labels that are not the target's, so that they keep their side
        self._natural: tuple[str, ...] = ()  # the target's labels as its file has them
        self._given = dict.fromkeys(zip(upload.related_groups[::2], upload.related_groups[1::2], strict=True), False)
        self.target = self._target()
        self._related: dict[str, Pair] = {}
        self._add_related()
        if unused := [labels for labels, used in self._given.items() if not used]:
            raise TableError(
                f"related_groups: no related task compares {unused[0][0]!r} with {unused[0][1]!r}, or these are the "
                "target's values, which keep their sides."
            )
        warnings = matched_by_order(self.target, self.related), on_both_sides(self.target, self.related)
        self.notes += filter(None, warnings)

    @property
    def related(self) -> tuple[Pair, ...]:
        """The pairs of the related tasks."""
        return tuple(self._related.values())

    def _target(self) -> Pair | None:
        upload = self._upload
        if not upload.target:
            return None
        if len(upload.target) == 2:
            if upload.groups:
                raise TableError("groups are two values of a group column. The target is two files, so leave them out.")
            p, q = upload.target
            names = (p.stem, q.stem) if p.stem != q.stem else (p.name, q.name) if p.name != q.name else ("P", "Q")
            return Pair("target", *map(Side.whole, upload.target, names))
        if len(upload.target) > 2:
            raise TableError(f"The target is one table or two. Got {len(upload.target)}.")
        table = upload.target[0]
        group = _find(table, upload.group) if upload.group else None
        if group is None:
            what = f"there is no column called {upload.group!r}." if upload.group else "which column is the group?"
            raise TableError(f"{table.name}: {what} A group column with two values is needed. {_hint(table)}")
        sides = self._sides(table, group, np.arange(len(table.frame)), f"the column {group!r}", upload.groups)
        self._natural = tuple(sides)
        p_label, q_label = sides
        if upload.groups and (upload.groups[0] == q_label or upload.groups[1:] == (p_label,)):
            p_label, q_label = q_label, p_label
        return Pair("target", sides[p_label], sides[q_label])

    def _add_related(self) -> None:
        upload = self._upload
        halves: dict[str, dict[str, Table]] = {}
        for table in upload.related:
            if half := half_of(table, upload):
                halves.setdefault(half[0], {})[half[1]] = table
                continue
            group, task = group_of_related(table, upload), _find(table, upload.task)
            if group is None:
                option = "--related-group-column" if upload.target else "--group-column"
                raise TableError(
                    f"{table.name}: a column called {' or '.join(map(repr, _wanted(upload)))} is needed, with two "
                    f"values per task. {_hint(table, upload.task)}",
                    f"Name it as related_group (shell: {option}), or bring each task as two files x_P.csv and x_Q.csv.",
                )
            if task is None:
                self._add_task(table, group, np.arange(len(table.frame)), table.stem, f"the column {group!r}")
                continue
            self.roles.add(task)
            codes, names = pd.factorize(table.words(task))
            self._note_left_out(table, task, codes)
            by_task = np.argsort(codes, kind="stable")
            starts = np.searchsorted(codes[by_task], np.arange(len(names) + 1))
            for code, name in enumerate(map(str, names)):
                rows = by_task[starts[code] : starts[code + 1]]
                self._add_task(table, group, rows, name, f"task {name!r}")
        for name, files in halves.items():
            if set(files) != {"P", "Q"}:
                table = next(iter(files.values()))
                raise TableError(f"{table.name}: its partner is missing. A task is a pair x_P.csv and x_Q.csv.")
            self._add(name, {side: Side.whole(files[side], side) for side in "PQ"})

    def _add_task(self, table: Table, group: str, rows: np.ndarray, name: str, where: str) -> None:
        values = set(table.words(group).iloc[rows].dropna())
        wanted = next((labels for labels in self._given if values.issuperset(labels)), self._upload.groups)
        self._add(name, self._sides(table, group, rows, where, wanted if len(values) > 2 else ()))

    def _sides(
        self, table: Table, group: str, rows: np.ndarray, where: str, wanted: tuple[str, ...]
    ) -> dict[str, Side]:
        """Split rows of a table by two values of its group column, in the order in which the file has them."""
        self.roles.add(group)
        codes, labels = pd.factorize(table.words(group).iloc[rows])
        self._note_left_out(table, group, codes)
        values = [str(label) for label in labels]
        if wanted:
            codes, values = self._pick(table, group, codes, values, wanted)
        if len(values) != 2:
            shown = ", ".join(value[:40] for value in values[:SHOWN]) + (", …" if len(values) > SHOWN else "")
            raise TableError(
                f"{table.name}: {where} has {len(values)} groups{f' ({shown})' if values else ''}. It needs two. "
                f"Choose two of them, one against all others, or another column than {group!r}."
            )
        return {value: Side(table, value, rows[codes == code]) for code, value in enumerate(values)}

    def _pick(
        self, table: Table, group: str, codes: np.ndarray, values: list[str], wanted: tuple[str, ...]
    ) -> tuple[np.ndarray, list[str]]:
        """Code the rows of the two chosen groups, or of one and all others, as 0 and 1; the rest is −1."""
        named = [value for value in wanted if value != OTHERS or OTHERS in values]
        if unknown := [value for value in named if value not in values]:
            raise TableError(
                f"{table.name}: the column {group!r} has no value {unknown[0]!r}. It has {_quoted(values)}."
            )
        if len(values) <= 2:
            return codes, values
        chosen = [value for value in values if value in named]
        code_of = {name: code for code, name in enumerate(chosen)}
        new = np.array([*(code_of.get(value, 1 if len(chosen) == 1 else -1) for value in values), -1])
        if count := int(((new[codes] < 0) & (codes >= 0)).sum()):
            self.notes.append(f"{table.name}: {count:,} rows of other groups in {group!r} are not compared.")
        return new[codes], [*chosen, OTHERS][:2]

    def _note_left_out(self, table: Table, column: str, codes: np.ndarray) -> None:
        if (codes < 0).any():
            count = int((codes < 0).sum())
            self.notes.append(f"{table.name}: {count:,} rows without a value in {column!r} were left out.")

    def _add(self, task: str, sides: Mapping[str, Side]) -> None:
        """Add a related task with its sides in their places."""
        name, count = task, 1
        while name in self._related:
            count += 1
            name = f"{task} ({count})"
        p, q = self._placed(tuple(sides))
        if not self._related:
            natural = sorted(sides, key=lambda label: (*self._natural, label).index(label) if self._natural else 0)
            self.turned = p != natural[0]
        self._related[name] = Pair(name, sides[p], sides[q])

    def _placed(self, values: tuple[str, ...]) -> tuple[str, ...]:
        """The values of a related task as P and Q.

        Values of the target keep their side. Otherwise an answer decides, or names such as control where the target has
        one, too, or the order; and a value keeps its side over tasks.
        """
        if self.target is not None:
            form = _alike if len(set(map(_alike, self.target.labels))) == 2 else str
            first, second = map(form, values)
            p, q = map(form, self.target.labels)
            if p in (first, second) or q in (first, second):
                return values if first == p or (second == q and second != p) else values[::-1]
        for labels in (values, values[::-1]):
            if labels in self._given:
                self._given[labels] = True
                return labels
        baselines = _baseline(values), _baseline(self.target.labels) if self.target else None
        if None not in baselines:
            return values if baselines[0] == baselines[1] else values[::-1]
        for value in values:
            self._order.setdefault(value, len(self._order))
        return tuple(sorted(values, key=self._order.__getitem__))


def _wanted(upload: Upload) -> list[str]:
    """The names that the group column of related tasks may have."""
    named = [upload.related_group] if upload.related_group else [upload.group, "group"]
    return list(dict.fromkeys(name for name in named if name))


def likely_words(candidates: Mapping[str, GroupColumn]) -> str:
    """The columns that may be the group, with their values and rows, for an error."""
    return " or ".join(f"{name} ({column.words})" for name, column in [*candidates.items()][:SHOWN])


def _hint(table: Table, besides: str = "") -> str:
    """What could be the group column of a table, and all its columns."""
    likely = likely_words(suggest_groups(table, besides=besides))
    columns = ", ".join(map(str, table.frame.columns))
    return f"{f'Likely: {likely}.' if likely else 'No column has exactly two values.'} Its columns: {columns}."


def _quoted(values: Sequence[str]) -> str:
    shown = [repr(value[:40]) for value in values[:MOST_GROUPS]]
    return ", ".join(shown) + (", …" if len(values) > len(shown) else "")


def _alike(label: str) -> str:
    """A label in the form in which files are matched: 1.0 is 1, and Old is old."""
    try:
        return str(float(label))
    except ValueError:
        return label.strip().casefold()


def _same_place(old: Table, new: Table, name: str) -> str | None:
    """The name now of a column of this name in the same file as it was decoded before."""
    name_before = _find(old, name)
    alike = name_before is not None and old.frame.shape[1] == new.frame.shape[1]
    return str(new.frame.columns[[*map(str, old.frame.columns)].index(str(name_before))]) if alike else None


def _find(table: Table, name: str) -> str | None:
    """The column of this name, in any case of letters if that is unique."""
    if name in table.frame.columns:
        return name
    alike = [str(column) for column in table.frame.columns if str(column).lower() == name.lower()]
    return alike[0] if len(alike) == 1 else None


@dataclass(frozen=True)
class Assembled:
    """The pairs of an upload and their pooled rows: P's, then Q's of each pair. The target comes first.

    ``rows`` has the number of every row in its file, ``source`` the position of that file in ``tables``. ``columns``
    are those that all tables share, ``lacking`` names the files without a column of others. ``turned`` is that of the
    pairing. ``notes`` tell what matching had to decide, ``readings`` how cells are read.
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
    upload, readings = _read_jointly(upload.decoded(), limits)
    unsure = next((q for q in readings.questions if q.option == ENCODING and not q.columns), None)
    try:
        pairing = _Pairing(upload)
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
    tables = tuple({id(side.table): side.table for side in sides}.values())
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
    )
    columns, values = {}, {}
    for name in names:
        numbers = np.concatenate([table.numbers(name) for table in tables])[order]
        columns[name] = _classified(made, name, numbers)
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


def _read_jointly(upload: Upload, limits: Limits) -> tuple[Upload, Readings]:
    """Decide how to read every column by all tables of an upload, and leave out totals if that was the answer."""
    tables = (*upload.target, *upload.related)
    names = dict.fromkeys(str(name) for table in tables for name in table.frame.columns)
    empty = pd.Series(dtype="str")
    pieces = {
        name: [Piece(table.name, table.frame[name] if name in table.frame.columns else empty) for table in tables]
        for name in names
    }
    for name in upload.read_as:
        if name not in names:
            raise TableError(f"{tables[0].name}: there is no column {name!r} that could be read as words or numbers.")
    readings = settle_readings(
        pieces, [table.separator for table in tables], upload.decimal, upload.read_as, upload.totals
    )
    roles = [role for role in (upload.group, upload.related_group, "group") if role]
    if unsure := encoding_question(tables, roles, levels=limits.levels):
        readings = replace(readings, questions=(unsure, *readings.questions))
    read = []
    for i, table in enumerate(tables):
        frame = table.frame
        if upload.totals == "leave out" and i in readings.totals:
            frame = frame.drop(index=list(readings.totals[i]))
        readings_of_file = {name: readings.columns[name][i] for name in map(str, frame.columns)}
        read.append(replace(table, frame=frame, readings=readings_of_file))
    count = len(upload.target)
    return replace(upload, target=tuple(read[:count]), related=tuple(read[count:])), readings


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


def _classified(made: Assembled, name: str, values: np.ndarray) -> Column:
    """A column by its numbers in all rows; a first one without a name beside named ones is that of the rows."""
    reading = made.tables[0].reading(name)
    unnamed = name == "column 1" and all(table.named for table in made.tables)
    parts = [slice(p.start, q.stop) for p, q in (made.spans[:1] if made.target else made.spans)]
    label = "row" if unnamed else name
    column = classify_column(
        label, reading.kind, reading.unit, lambda: made.words(name), values, made.limits.levels, parts
    )
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
