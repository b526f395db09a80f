"""What a person brings, and who is compared with whom: one target pair and any number of related ones."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from m2st_core.data.tables.files import Table
from m2st_core.data.tables.limits import TableError

GROUP_NAMES = ("group", "sample", "label", "class", "arm", "treatment", "condition", "cohort", "batch", "target")
SIDE = re.compile(r"(.+)[_\-. ]([PQ])", re.IGNORECASE)  # north_P and north_Q are a pair
SHOWN = 5


@dataclass(frozen=True)
class Upload:
    """Tables and the roles of their columns.

    ``target`` is P and Q, or one table whose column ``group`` has two values, or nothing if only a history is brought.
    ``related`` tables have a column ``task`` and a group column, or are one task each, or are pairs ``x_P``, ``x_Q``.
    ``related_group`` is the group column there, if it is not called like the target's or "group".
    """

    target: tuple[Table, ...]
    related: tuple[Table, ...] = ()
    group: str | None = None
    task: str = "task"
    related_group: str | None = None

    @property
    def digest(self) -> str:
        """One SHA-256 of all files and roles: the key under which results are kept."""
        roles = (self.group, self.task, self.related_group)
        parts = [*(t.digest for t in self.target), "related", *(t.digest for t in self.related), repr(roles)]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()


@dataclass(frozen=True)
class Side:
    """The rows of one sample: which table, which of its rows (by position), and what the sample is called."""

    table: Table = field(repr=False)
    label: str
    positions: np.ndarray = field(repr=False, compare=False)


@dataclass(frozen=True)
class Pair:
    """Two samples that are compared; ``name`` is the task's, or "target"."""

    name: str
    p: Side
    q: Side


def suggest_groups(table: Table) -> list[str]:
    """Columns that could say the group, the likeliest first: those with exactly two values."""
    two = []
    for name in table.frame.columns:
        cells = table.frame[name]
        if cells.iloc[:1000].nunique() <= 2 and cells.nunique() == 2 and cells.isna().mean() < 0.5:
            two.append(str(name))
    words = {name: np.isnan(table.numbers(name)).all() for name in two}
    return sorted(two, key=lambda name: (_rank(name), not words[name], two.index(name)))


def _rank(name: str) -> int:
    low = name.lower()
    return min((i for i, usual in enumerate(GROUP_NAMES) if usual in low), default=len(GROUP_NAMES))


def make_pairs(upload: Upload) -> tuple[Pair | None, list[Pair], set[str], list[str]]:
    """The target pair, the related pairs, the columns that only say who is who, and what to tell."""
    roles: set[str] = set()
    notes: list[str] = []
    order: dict[str, int] = {}
    target: Pair | None = None
    if len(upload.target) == 2:
        p, q = upload.target
        names = (p.stem, q.stem) if p.stem != q.stem else (p.name, q.name) if p.name != q.name else ("P", "Q")
        sides = [Side(t, label, np.arange(len(t.frame))) for t, label in zip(upload.target, names, strict=True)]
        target = Pair("target", *sides)
    elif len(upload.target) == 1:
        table = upload.target[0]
        group = _find(table, upload.group) if upload.group else None
        if group is None:
            likely = suggest_groups(table)
            hint = f"Likely: {', '.join(likely[:SHOWN])}." if likely else "No column has exactly two values."
            what = f"there is no column called {upload.group!r}." if upload.group else "which column is the group?"
            raise TableError(f"{table.name}: {what} A column whose two values say the group is needed. {hint}")
        roles.add(group)
        target = _split(table, group, np.arange(len(table.frame)), "target", "the column", order, notes)
    elif upload.target:
        raise TableError(f"The target is one table or two. Got {len(upload.target)}.")
    related = _related(upload, roles, order, notes)
    return target, related, roles, notes


def _related(upload: Upload, roles: set[str], order: dict[str, int], notes: list[str]) -> list[Pair]:
    pairs: dict[str, Pair] = {}
    halves: dict[str, dict[str, Table]] = {}
    for table in upload.related:
        wanted = [upload.related_group] if upload.related_group else [name for name in (upload.group, "group") if name]
        group = next((found for name in wanted if (found := _find(table, name))), None)
        task = _find(table, upload.task)
        if group is None:
            if task is None and (match := SIDE.fullmatch(table.stem)):
                halves.setdefault(match[1], {})[match[2].upper()] = table
                continue
            columns = ", ".join(map(str, table.frame.columns[:SHOWN]))
            raise TableError(
                f"{table.name}: a column called {wanted[0]!r} is needed, with two values per task. Found: {columns}. "
                "Add it, or bring each task as two files x_P.csv and x_Q.csv."
            )
        roles.add(group)
        if task is None:
            _add(pairs, _split(table, group, np.arange(len(table.frame)), table.stem, "the column", order, notes))
            continue
        roles.add(task)
        codes, names = pd.factorize(table.frame[task].astype("str"))
        _say_left_out(table, task, codes < 0, notes)
        by_task = np.argsort(codes, kind="stable")
        starts = np.searchsorted(codes[by_task], np.arange(len(names) + 1))
        for code, name in enumerate(names):
            rows = by_task[starts[code] : starts[code + 1]]
            _add(pairs, _split(table, group, rows, str(name), f"task {str(name)!r}", order, notes))
    for name, sides in halves.items():
        if set(sides) != {"P", "Q"}:
            table = next(iter(sides.values()))
            raise TableError(f"{table.name}: its partner is missing. A task is a pair x_P.csv and x_Q.csv.")
        _add(pairs, Pair(name, *(Side(sides[s], s, np.arange(len(sides[s].frame))) for s in "PQ")))
    return list(pairs.values())


def _split(
    table: Table, group: str, rows: np.ndarray, name: str, what: str, order: dict[str, int], notes: list[str]
) -> Pair:
    """The rows of a table by the two values of its group column; a value keeps its side in all tasks."""
    codes, labels = pd.factorize(table.frame[group].iloc[rows].astype("str"))
    _say_left_out(table, group, codes < 0, notes)
    values = [str(label) for label in labels]
    if len(values) != 2:
        shown = ", ".join(value[:40] for value in values[:SHOWN]) + (", …" if len(values) > SHOWN else "")
        where = f"{what} {group!r}" if what == "the column" else what
        raise TableError(
            f"{table.name}: {where} has {len(values)} groups{f' ({shown})' if values else ''}. It needs two. "
            f"Choose another column than {group!r}, or keep the rows of two groups."
        )
    for value in values:
        order.setdefault(value, len(order))
    first, second = sorted((0, 1), key=lambda code: order[values[code]])
    return Pair(name, *(Side(table, values[code], rows[codes == code]) for code in (first, second)))


def _say_left_out(table: Table, column: str, empty: np.ndarray, notes: list[str]) -> None:
    if empty.any():
        notes.append(f"{table.name}: {int(empty.sum()):,} rows without a value in {column!r} were left out.")


def _add(pairs: dict[str, Pair], pair: Pair) -> None:
    name, count = pair.name, 1
    while name in pairs:
        count += 1
        name = f"{pair.name} ({count})"
    pairs[name] = Pair(name, pair.p, pair.q)


def _find(table: Table, name: str) -> str | None:
    """The column of this name, in any case of letters if that is unique."""
    if name in table.frame.columns:
        return name
    alike = [str(column) for column in table.frame.columns if str(column).lower() == name.lower()]
    return alike[0] if len(alike) == 1 else None


def missing_columns(tables: Iterable[Table], roles: set[str]) -> tuple[list[str], list[str]]:
    """The columns that every table has, in the order of the first, and which table misses which of the others."""
    known = list({id(table): table for table in tables}.values())
    every: list[str] = []
    seen: set[str] = set()
    for table in known:
        every += [str(c) for c in table.frame.columns if c not in seen and c not in roles]
        seen.update(table.frame.columns)
    held: Sequence[set[str]] = [set(table.frame.columns) for table in known]
    shared = [name for name in every if all(name in columns for columns in held)]
    common = set(shared)
    notes = []
    for name in every:
        if name not in common:
            lack = [table.name for table, columns in zip(known, held, strict=True) if name not in columns]
            more = f" and {len(lack) - SHOWN} more files" if len(lack) > SHOWN else ""
            notes.append(f"Column {name!r} is not in {', '.join(lack[:SHOWN])}{more}, so it is not used.")
    return shared, notes
