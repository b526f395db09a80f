"""Groups of an upload: columns that may name them, and the pairs of samples that are compared."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from m2st_core.data.tables.questions import TableError
from m2st_core.data.tables.table import Table
from m2st_core.data.tables.upload import Upload
from m2st_core.numbers import count_of
from m2st_core.types import listed

GROUP_NAMES = ("group", "sample", "label", "class", "arm", "treatment", "condition", "cohort", "batch", "target")
SIDE = re.compile(r"(.+)[_\-. ]([PQ])", re.IGNORECASE)  # north_P and north_Q are a pair
NOT_THE_TARGETS = "These values are not the target's."
BASELINES = (
    "old", "control", "controls", "reference", "ref", "baseline", "before", "pre", "placebo", "untreated", "standard",
    "healthy", "normal", "0", "no", "false", "a", "p",
)  # fmt: skip
SHOWN, MOST_GROUPS, OTHERS = 5, 12, "all others"


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
    *tables: Table, task: str = "", related: Mapping[str, GroupColumn] | None = None
) -> dict[str, GroupColumn]:
    """Columns that may be the group in some of these tables; the one that names the ``task`` is not.

    First come those whose values are the groups of ``related`` tasks, then those with two values, then the likeliest.
    Words may have up to 12 values, of which two are compared, or one with the rest.
    """
    candidates: dict[str, GroupColumn] = {}
    numeric: set[str] = set()
    for table in tables:
        for name in map(str, table.frame.columns):
            cells = table.words(name).dropna()
            if name == task or cells.iloc[:1000].nunique() > MOST_GROUPS or len(cells) < len(table.frame) / 2:
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
    return next((column for name in _wanted(upload) if (column := table.find(name))), None)


def half_of(table: Table, upload: Upload) -> tuple[str, str] | None:
    """The task and the side, P or Q, of a table that is one sample of a related task, such as x_P; otherwise None."""
    if table.half is not None or group_of_related(table, upload) or table.find(upload.task):
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


def _matched_by_order(target: Pair, related: Sequence[Pair]) -> str:
    """A warning on related tasks with none of the target's labels, which were matched by order; empty without any."""
    others = other_labels(target, related)
    if not others:
        return ""
    tasks = sum(pair.labels in others for pair in related)
    where = "In the related tasks" if tasks == len(related) else f"In {count_of(tasks, 'related task')}"
    p, q = ([f"“{label[:40]}”" for label in dict.fromkeys(side)] for side in zip(*others, strict=True))
    named = [", ".join(side[:SHOWN]) + (", …" if len(side) > SHOWN else "") for side in (p, q)]
    stands = "stands" if len(p) == len(q) == 1 else "stand"
    return (
        f"{where} {named[0]} {stands} for “{target.p.label}” and {named[1]} for “{target.q.label}”. "
        f"{NOT_THE_TARGETS} Check that this is right."
    )


def _on_both_sides(target: Pair, related: Sequence[Pair]) -> str:
    """A warning on values that stand for P in one comparison and for Q in another; empty without any."""
    p, q = ({_alike(pair.labels[side]): pair.labels[side] for pair in related} for side in (0, 1))
    if not (both := [label for value, label in p.items() if value in q]):
        return ""
    named = listed([f"“{label[:40]}”" for label in both], SHOWN)
    return (
        f"{named} {'is' if len(both) == 1 else 'are'} “{target.p.label}” in some related tasks and "
        f"“{target.q.label}” in others, so these tasks do not all point one way. Give the values of each task the "
        "names of the target's."
    )


class Pairing:
    """The pairs of an upload, the columns that name samples and tasks, and notes.

    ``matched_by_order`` and ``on_both_sides`` are warnings on values of related tasks that are not the target's.
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
        others = [pair for pair in self.related if self.target and not same_groups(self.target, [pair])]
        self.matched_by_order = _matched_by_order(self.target, others) if self.target else ""
        self.on_both_sides = _on_both_sides(self.target, others) if self.target else ""
        self.notes += filter(None, (self.matched_by_order, self.on_both_sides))

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
        group = table.find(upload.group) if upload.group else None
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
            group, task = group_of_related(table, upload), table.find(upload.task)
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
            have = listed([repr(value[:40]) for value in values], MOST_GROUPS)
            raise TableError(f"{table.name}: the column {group!r} has no value {unknown[0]!r}. It has {have}.")
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


def _hint(table: Table, task: str = "") -> str:
    """What could be the group column of a table, and all its columns."""
    likely = likely_words(suggest_groups(table, task=task))
    columns = ", ".join(map(str, table.frame.columns))
    return f"{f'Likely: {likely}.' if likely else 'No column has exactly two values.'} Its columns: {columns}."


def _alike(label: str) -> str:
    """A label in the form in which files are matched: 1.0 is 1, and Old is old."""
    try:
        return str(float(label))
    except ValueError:
        return label.strip().casefold()
