"""An upload: the tables of a target and of related tasks, the roles of their columns, and answers to questions."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from unicodedata import normalize

from m2st_core.data.arrays import as_pair, named_pairs
from m2st_core.data.tables.files import read_table
from m2st_core.data.tables.questions import (
    DECIMAL,
    ENCODING,
    READ_AS,
    TOTALS,
    Marks,
    TableError,
    check_answers,
    choice_for_file,
    words_by_file,
)
from m2st_core.data.tables.table import Table, as_table
from m2st_core.data.tables.text_encoding import codec_of
from m2st_core.types import listed


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
            given = listed([*map(repr, self.groups)])
            raise TableError(f"groups are two different values of the group column, or one. Got {given}.")
        if len(self.related_groups) % 2:
            given = listed([*map(repr, self.related_groups)])
            raise TableError(f"related_groups are the values of P and of Q in related tasks. Got {given}.")

    def decoded(self) -> Upload:
        """The upload with its files decoded by the given encodings, and roles by the names that columns then have."""
        if not self.encoding:
            return self
        target, related = (tuple(map(self._decoded, tables)) for tables in (self.target, self.related))
        group, groups = _renamed(self.group, self.target, target), self.groups
        if groups and group and self.group and target:
            cells, anew = self.target[0].words(self.target[0].find(self.group) or self.group), target[0].words(group)
            meant = dict(zip(cells, anew, strict=True)) if len(cells) == len(anew) else {}
            groups = tuple(value if (anew == value).any() else str(meant.get(value, value)) for value in groups)
        return replace(
            self,
            target=target,
            related=related,
            group=group,
            groups=groups,
            task=_renamed(self.task, self.related, related) or self.task,
            related_group=_renamed(self.related_group, self.related, related),
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
        first, second = as_pair(name, pair)
        tasks += [as_table(f"{name}, x", first, (name, "P")), as_table(f"{name}, y", second, (name, "Q"))]
    return Upload((as_table("x", x), as_table("y", y)), tuple(tasks), **reading)


def _renamed(name: str | None, before: Sequence[Table], after: Sequence[Table]) -> str | None:
    """The name in decoded tables of a column that had this name in them before."""
    if name is None or any(table.find(name) for table in after):
        return name
    for old, new in zip(before, after, strict=True):
        column = old.find(name)
        if column is not None and old.frame.shape[1] == new.frame.shape[1]:
            return str(new.frame.columns[old.frame.columns.get_loc(column)])
    return name
