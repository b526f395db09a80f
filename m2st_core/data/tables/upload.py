"""An upload: its tables, and the pairs of samples in them: one target and any number of related tasks."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from unicodedata import normalize

import numpy as np
import pandas as pd

from m2st_core.data.tables.files import Table, read_table
from m2st_core.data.tables.limits import TableError
from m2st_core.data.tables.questions import ENCODING, Marks, check_answers, check_files, mark_of, words_by_file
from m2st_core.data.tables.text_encodings import codec_of

GROUP_NAMES = ("group", "sample", "label", "class", "arm", "treatment", "condition", "cohort", "batch", "target")
SIDE = re.compile(r"(.+)[_\-. ]([PQ])", re.IGNORECASE)  # north_P and north_Q are a pair
SHOWN, MOST_GROUPS, OTHERS = 5, 12, "all others"


@dataclass(frozen=True)
class Upload:
    """Tables and the roles of their columns.

    ``target`` is P and Q, or one table whose column ``group`` has two values, or empty if there are only related tasks.
    ``related`` tables have a column ``task`` and a group column, or are one task each, or are pairs ``x_P``, ``x_Q``.
    ``related_group`` is their group column, if it is called neither like the target's nor "group". ``groups`` are the
    two values to compare where the group column has more, or one value to compare with all others.

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

    def __post_init__(self) -> None:
        for name in ("group", "task", "related_group"):  # composed, as the headers of tables are
            if isinstance(value := getattr(self, name), str):
                object.__setattr__(self, name, normalize("NFC", value))
        object.__setattr__(self, "read_as", {normalize("NFC", name): kind for name, kind in self.read_as.items()})
        files = [t.name for t in (*self.target, *self.related)]
        check_answers(self.decimal, self.read_as, self.totals, files)
        check_files(ENCODING, self.encoding, files)
        for name in [self.encoding] if isinstance(self.encoding, str) else self.encoding.values():
            codec_of(name or "utf-8")

    def decoded(self) -> Upload:
        """The upload with its files decoded as the user said. Roles by the names as they were guessed are renamed."""
        if not self.encoding:
            return self
        before = (*self.target, *self.related)
        after = [self._decoded(table) for table in before]
        count = len(self.target)

        def renamed(name: str | None, tables: slice) -> str | None:
            if name is None or any(_find(table, name) for table in after[tables]):
                return name
            new = (_same_place(old, new, name) for old, new in zip(before[tables], after[tables], strict=True))
            return next((found for found in new if found), name)

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
        """The table decoded as the user said; for all files, this concerns those that are not UTF-8."""
        said = mark_of(self.encoding, table.name)
        if table.raw and said:
            return read_table(table.name, table.raw, encoding=said)
        if not isinstance(self.encoding, str) and said and table.encoding not in ("ascii", codec_of(said)):
            what = f"{table.encoding} text" if table.encoding else "an Excel workbook"
            raise TableError(f"{table.name}: it is {what}, so it cannot be read as {said}. Leave out its encoding.")
        return table

    @property
    def files_digest(self) -> str:
        """A SHA-256 of all files and roles."""
        roles = (self.group, self.task, self.related_group, self.groups)
        parts = [*(t.digest for t in self.target), "related", *(t.digest for t in self.related), repr(roles)]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    @property
    def digest(self) -> str:
        """A SHA-256 of all files, roles and answers: the key under which results are kept."""
        by_file = (sorted(words_by_file(said)) for said in (self.decimal, self.encoding))
        given = (*by_file, sorted(self.read_as.items()), self.totals)
        return hashlib.sha256(f"{self.files_digest} {given}".encode()).hexdigest()


@dataclass(frozen=True)
class Side:
    """The rows of one sample: their table, their positions in it, and the label of the sample."""

    table: Table = field(repr=False)
    label: str
    positions: np.ndarray = field(repr=False, compare=False)


@dataclass(frozen=True)
class Pair:
    """Two samples that are compared. ``name`` is the task's, or "target"."""

    name: str
    p: Side
    q: Side


def suggest_groups(table: Table) -> dict[str, tuple[str, ...]]:
    """Columns that may be the group, with their values: those with two values first, then the likeliest.

    Words may have up to 12 values, of which two are compared, or one with the rest.
    """
    found = {}
    for name in map(str, table.frame.columns):
        cells = table.words(name).dropna()
        if cells.iloc[:1000].nunique() > MOST_GROUPS or len(cells) < len(table.frame) / 2:
            continue
        counts = cells.value_counts(sort=False)
        words = bool(np.isnan(table.numbers(name)).all()) or any(group in name.lower() for group in GROUP_NAMES)
        if len(counts) == 2 or (2 < len(counts) <= MOST_GROUPS and counts.min() > 1 and words):
            found[name] = tuple(map(str, counts.index))

    def rank(name: str) -> tuple[bool, int, bool]:
        usual = (i for i, group in enumerate(GROUP_NAMES) if group in name.lower())
        return len(found[name]) > 2, min(usual, default=len(GROUP_NAMES)), not np.isnan(table.numbers(name)).all()

    return {name: found[name] for name in sorted(found, key=rank)}


class Pairing:
    """The pairs of an upload, the columns that only tell samples and tasks apart, and notes."""

    def __init__(self, upload: Upload) -> None:
        self.roles: set[str] = set()
        self.notes: list[str] = []
        self._groups = upload.groups
        self._order: dict[str, int] = {}  # a label keeps its side in all tasks
        self.target = self._target(upload)
        self._related: dict[str, Pair] = {}
        self._add_related(upload)

    @property
    def related(self) -> tuple[Pair, ...]:
        """The pairs of the related tasks."""
        return tuple(self._related.values())

    def _target(self, upload: Upload) -> Pair | None:
        if not upload.target:
            return None
        if len(upload.target) == 2:
            p, q = upload.target
            names = (p.stem, q.stem) if p.stem != q.stem else (p.name, q.name) if p.name != q.name else ("P", "Q")
            return Pair("target", *(_whole(t, label) for t, label in zip(upload.target, names, strict=True)))
        if len(upload.target) > 2:
            raise TableError(f"The target is one table or two. Got {len(upload.target)}.")
        table = upload.target[0]
        group = _find(table, upload.group) if upload.group else None
        if group is None:
            likely = suggest_groups(table)
            hint = f"Likely: {', '.join([*likely][:SHOWN])}." if likely else "No column has exactly two values."
            what = f"there is no column called {upload.group!r}." if upload.group else "which column is the group?"
            raise TableError(f"{table.name}: {what} A group column with two values is needed. {hint}")
        return self._split(table, group, np.arange(len(table.frame)), "target", f"the column {group!r}")

    def _add_related(self, upload: Upload) -> None:
        halves: dict[str, dict[str, Table]] = {}
        wanted = [upload.related_group] if upload.related_group else [name for name in (upload.group, "group") if name]
        for table in upload.related:
            group = next((column for name in wanted if (column := _find(table, name))), None)
            task = _find(table, upload.task)
            if group is None and task is None and (match := SIDE.fullmatch(table.stem)):
                halves.setdefault(match[1], {})[match[2].upper()] = table
                continue
            if group is None:
                columns = ", ".join(map(str, table.frame.columns[:SHOWN]))
                raise TableError(
                    f"{table.name}: a column called {wanted[0]!r} is needed, with two values per task. Its columns: "
                    f"{columns}. Add it, or bring each task as two files x_P.csv and x_Q.csv."
                )
            if task is None:
                self._add(self._split(table, group, np.arange(len(table.frame)), table.stem, f"the column {group!r}"))
                continue
            self.roles.add(task)
            codes, names = pd.factorize(table.words(task))
            self._note_left_out(table, task, codes)
            by_task = np.argsort(codes, kind="stable")
            starts = np.searchsorted(codes[by_task], np.arange(len(names) + 1))
            for code, name in enumerate(map(str, names)):
                rows = by_task[starts[code] : starts[code + 1]]
                self._add(self._split(table, group, rows, name, f"task {name!r}"))
        for name, sides in halves.items():
            if set(sides) != {"P", "Q"}:
                table = next(iter(sides.values()))
                raise TableError(f"{table.name}: its partner is missing. A task is a pair x_P.csv and x_Q.csv.")
            self._add(Pair(name, *(_whole(sides[side], side) for side in "PQ")))

    def _split(self, table: Table, group: str, rows: np.ndarray, name: str, where: str) -> Pair:
        """Split rows of a table by the two values of its group column."""
        self.roles.add(group)
        codes, labels = pd.factorize(table.words(group).iloc[rows])
        self._note_left_out(table, group, codes)
        values = [str(label) for label in labels]
        if len(values) > 2 and self._groups:
            codes, values = self._pick(table, group, codes, values)
        if len(values) != 2:
            shown = ", ".join(value[:40] for value in values[:SHOWN]) + (", …" if len(values) > SHOWN else "")
            raise TableError(
                f"{table.name}: {where} has {len(values)} groups{f' ({shown})' if values else ''}. It needs two. "
                f"Choose two of them, one against all others, or another column than {group!r}."
            )
        for value in values:
            self._order.setdefault(value, len(self._order))
        first, second = sorted((0, 1), key=lambda code: self._order[values[code]])
        return Pair(name, *(Side(table, values[code], rows[codes == code]) for code in (first, second)))

    def _pick(self, table: Table, group: str, codes: np.ndarray, values: list[str]) -> tuple[np.ndarray, list[str]]:
        """Code the rows of the two chosen groups, or of one and all others, as 0 and 1; the rest is −1."""
        if unknown := [repr(name) for name in self._groups if name not in values]:
            raise TableError(f"{table.name}: the column {group!r} has no value {unknown[0]}.")
        place = {name: code for code, name in enumerate(self._groups)}
        new = np.array([*(place.get(value, 1 if len(place) == 1 else -1) for value in values), -1])
        if count := int(((new[codes] < 0) & (codes >= 0)).sum()):
            self.notes.append(f"{table.name}: {count:,} rows of other groups in {group!r} are not compared.")
        return new[codes], [*self._groups, OTHERS][:2]

    def _note_left_out(self, table: Table, column: str, codes: np.ndarray) -> None:
        if (codes < 0).any():
            count = int((codes < 0).sum())
            self.notes.append(f"{table.name}: {count:,} rows without a value in {column!r} were left out.")

    def _add(self, pair: Pair) -> None:
        name, count = pair.name, 1
        while name in self._related:
            count += 1
            name = f"{pair.name} ({count})"
        self._related[name] = replace(pair, name=name)


def _whole(table: Table, label: str) -> Side:
    return Side(table, label, np.arange(len(table.frame)))


def _same_place(old: Table, new: Table, name: str) -> str | None:
    """The name now of a column of this name in the same file as it was decoded before."""
    found = _find(old, name)
    alike = found is not None and old.frame.shape[1] == new.frame.shape[1]
    return str(new.frame.columns[[*map(str, old.frame.columns)].index(str(found))]) if alike else None


def _find(table: Table, name: str) -> str | None:
    """The column of this name, in any case of letters if that is unique."""
    if name in table.frame.columns:
        return name
    alike = [str(column) for column in table.frame.columns if str(column).lower() == name.lower()]
    return alike[0] if len(alike) == 1 else None
