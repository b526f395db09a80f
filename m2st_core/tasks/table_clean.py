"""From an upload to clean arrays, with a list of every decision on the way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from m2st_core.tasks.arrays import as_two_sample
from m2st_core.tasks.table_assembled import Assembled, assemble
from m2st_core.tasks.table_columns import NUMERIC
from m2st_core.tasks.table_encoding import Categorical, Cleaning, Encoding, Numeric, learn_categorical, learn_numeric
from m2st_core.tasks.table_export import to_safe_csv
from m2st_core.tasks.table_limits import Limits, TableError
from m2st_core.tasks.table_rows import FEWEST_ROWS, choose_columns, find_blocks, keep_rows
from m2st_core.tasks.table_upload import Upload
from m2st_core.types import TwoSample


@dataclass(frozen=True)
class CleanData:
    """Arrays one can test: x (n, d) and y (m, d), the related tasks, and how they came about.

    ``x_rows`` and ``y_rows`` are the numbers of the kept rows in their files; ``x_blocks`` and ``y_blocks`` say by a
    whole number in which block of ``block_names`` a row is. ``decisions`` says in plain words what was done,
    ``record`` has all of it as plain values for JSON. Without a target, x and y have no rows.
    """

    x: np.ndarray = field(repr=False)
    y: np.ndarray = field(repr=False)
    x_name: str
    y_name: str
    tasks: Mapping[str, tuple[np.ndarray, np.ndarray]] = field(repr=False)
    encoding: Encoding = field(repr=False)
    x_rows: np.ndarray = field(repr=False)
    y_rows: np.ndarray = field(repr=False)
    x_blocks: np.ndarray | None = field(default=None, repr=False)
    y_blocks: np.ndarray | None = field(default=None, repr=False)
    block_names: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()
    record: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the columns of the arrays."""
        return self.encoding.features

    @property
    def sample(self) -> TwoSample:
        """The target as the tests take it."""
        return as_two_sample(self.x, self.y)

    def to_frame(self) -> pd.DataFrame:
        """All rows with the columns task ("target" or the task's name), group, row (in the file) and the features."""
        parts = [
            self._part("target", self.x_name, self.x, self.x_rows, self.x_blocks),
            self._part("target", self.y_name, self.y, self.y_rows, self.y_blocks),
        ]
        for name, (x, y) in self.tasks.items():
            parts += [self._part(name, "P", x), self._part(name, "Q", y)]
        return pd.concat([part for part in parts if len(part)], ignore_index=True)

    def to_csv(self) -> str:
        """``to_frame`` as CSV that is safe to open in a spreadsheet."""
        return to_safe_csv(self.to_frame())

    def _part(
        self,
        task: str,
        group: str,
        values: np.ndarray,
        rows: np.ndarray | None = None,
        blocks: np.ndarray | None = None,
    ) -> pd.DataFrame:
        about: dict[str, Any] = {"task": task, "group": group}
        if self.x_blocks is not None:
            about["block"] = "" if blocks is None else np.array(self.block_names)[blocks]
        about["row"] = pd.array(np.zeros(len(values)) if rows is None else rows, dtype="Int64")
        frame = pd.DataFrame(about, index=range(len(values)))
        return pd.concat([frame, pd.DataFrame(values, columns=list(self.features))], axis=1)


def prepare(
    upload: Upload | Assembled,
    cleaning: Cleaning | None = None,
    encoding: Encoding | None = None,
    limits: Limits | None = None,
) -> CleanData:
    """Clean arrays from an upload.

    The encoding is learned without labels: from the pooled rows of the related tasks, or from the pooled target rows
    where there are none. One that was learned before, beside a learner, can be given instead; it brings its own choices
    for missing cells, scaling and levels.
    """
    made = upload if isinstance(upload, Assembled) else assemble(upload, limits)
    cleaning = cleaning or (encoding.cleaning if encoding else Cleaning())
    if encoding:
        cleaning = replace(encoding.cleaning, block=cleaning.block)
    notes = list(made.notes)
    chosen = choose_columns(made, cleaning, encoding, notes)
    keep = keep_rows(made, chosen, cleaning, notes)
    codes: np.ndarray = np.zeros(0, dtype=int)
    block_names: tuple[str, ...] = ()
    if cleaning.block and made.target:
        codes, block_names = find_blocks(made, cleaning, keep, notes)
    usable = _usable_tasks(made, keep, notes)
    if encoding is None:
        encoding = _learn(made, chosen, cleaning, keep, notes)
    matrix = _encode(made, encoding, keep, notes)
    ends = np.concatenate([[0], np.cumsum(keep)])
    spans = [tuple(matrix[ends[side.start] : ends[side.stop]] for side in pair) for pair in made.spans]
    tasks = {}
    for pair, (x, y), good in zip(
        made.related, spans[-len(made.related) :] if made.related else [], usable, strict=True
    ):
        if good and (x.min(axis=0) != x.max(axis=0)).any() | (x[0] != y).any():
            tasks[pair.name] = (x, y)
        elif good:
            notes.append(f"The task {pair.name!r} was left out: all its rows are identical.")
    if made.related and not tasks:
        raise TableError("No related task is left after cleaning. See what is missing, or go on without them.")
    empty = matrix[:0]
    x, y = spans[0] if made.target else (empty, empty)
    labels = (made.target.p.label, made.target.q.label) if made.target else ("P", "Q")
    p, q = made.spans[0] if made.target else (slice(0, 0), slice(0, 0))
    if made.target:
        for rows, side in ((x, made.target.p), (y, made.target.q)):
            if len(rows) < FEWEST_ROWS:
                raise TableError(
                    f"{side.table.name}: {side.label} has {len(rows)} row{'' if len(rows) == 1 else 's'}. "
                    "Bring at least 2 rows in each sample."
                )
        as_two_sample(x, y)
    blocked = bool(block_names)
    return CleanData(
        x=x,
        y=y,
        x_name=labels[0],
        y_name=labels[1],
        tasks=tasks,
        encoding=encoding,
        x_rows=made.rows[p][keep[p]],
        y_rows=made.rows[q][keep[q]],
        x_blocks=codes[p][keep[p]] if blocked else None,
        y_blocks=codes[q][keep[q]] if blocked else None,
        block_names=block_names,
        decisions=tuple(notes),
        record=_record(made, cleaning, encoding, notes, (x, y), tasks),
    )


def _usable_tasks(made: Assembled, keep: np.ndarray, notes: list[str]) -> list[bool]:
    """Which tasks have rows enough; the rows of the others leave ``keep``."""
    usable = []
    for pair, (p, q) in zip(made.related, made.spans[-len(made.related) :] if made.related else [], strict=True):
        fewest = min(keep[p].sum(), keep[q].sum())
        usable.append(bool(fewest >= FEWEST_ROWS))
        if not usable[-1]:
            keep[p.start : q.stop] = False
            notes.append(f"The task {pair.name!r} was left out: one of its samples has {fewest} usable rows.")
    return usable


def _learn(
    made: Assembled, chosen: list[tuple[str, str]], cleaning: Cleaning, keep: np.ndarray, notes: list[str]
) -> Encoding:
    """Levels, medians, centres and scales from pooled rows."""
    teachers = keep.copy()
    if made.related:
        teachers[: made.target_rows] = False
    source = f"{len(made.related):,} related tasks" if made.related else "both samples"
    columns: list[Numeric | Categorical] = []
    flat = []
    for name, kind in chosen:
        found: Numeric | Categorical | None
        if kind == NUMERIC:
            found = learn_numeric(name, made.numbers(name)[teachers], cleaning)
        else:
            found = learn_categorical(name, made.words(name)[teachers], cleaning, other=bool(made.related))
        if found is None:
            flat.append(name)
        else:
            columns.append(found)
    if flat:
        named = ", ".join(map(repr, flat[:20]))
        notes.append(f"Set aside because they do not vary in the pooled rows of {source}: {named}.")
    if not columns:
        raise TableError(f"{made.tables[0].name}: no column varies in the rows of {source}. Bring rows that vary.")
    learned_from = f"{int(teachers.sum()):,} pooled rows of {source}, without their labels"
    _say_encoding(columns, cleaning, learned_from, notes)
    return Encoding(cleaning, tuple(columns), learned_from)


def _say_encoding(
    columns: list[Numeric | Categorical], cleaning: Cleaning, learned_from: str, notes: list[str]
) -> None:
    numeric = [column for column in columns if isinstance(column, Numeric)]
    if numeric and cleaning.scaling != "none":
        how = "mean and standard deviation" if cleaning.scaling == "standard" else "median and interquartile range"
        notes.append(f"{len(numeric):,} numeric columns were scaled by {how} of {learned_from}.")
    for column in columns:
        if isinstance(column, Categorical):
            rest = ", the others together one" if column.other else ""
            notes.append(f"{column.name!r} became indicators: {len(column.levels)} levels have one each{rest}.")


def _encode(made: Assembled, encoding: Encoding, keep: np.ndarray, notes: list[str]) -> np.ndarray:
    """All kept rows as numbers (kept, d)."""
    count, width = int(keep.sum()), len(encoding.features)
    if count * width > made.limits.cells:
        raise TableError(
            f"With categories as columns the upload has {count * width:,} cells, and {made.limits.cells:,} is the "
            "most. Lower the number of levels, or leave columns out."
        )
    matrix = np.empty((count, width))
    start = 0
    for column in encoding.columns:
        out = matrix[:, start : start + len(column.features)]
        start += len(column.features)
        if isinstance(column, Numeric):
            filled = column.encode(made.numbers(column.name)[keep], out)
            if filled:
                said = " and marked in a column of their own" if column.indicator else ""
                notes.append(f"{filled:,} missing cells of {column.name!r} were filled in by {column.median:g}{said}.")
        else:
            words = made.words(column.name)[keep]
            column.encode(words, out)
            here = words.iloc[: int(keep[: made.target_rows].sum())].dropna()
            unseen = here[~here.isin(column.levels)]
            if len(unseen):
                known = "go to its indicator 'other'" if column.other else "are shown by zeros"
                notes.append(
                    f"{len(unseen):,} target cells of {column.name!r} have rare or unseen levels: they {known}."
                )
    return matrix


def _record(
    made: Assembled,
    cleaning: Cleaning,
    encoding: Encoding,
    notes: list[str],
    target: tuple[np.ndarray, np.ndarray],
    tasks: Mapping[str, tuple[np.ndarray, np.ndarray]],
) -> dict[str, Any]:
    import json

    return {
        "files": [
            {"name": t.name, "sha256": t.digest, "rows": len(t.frame), "columns": t.frame.shape[1], "notes": [*t.notes]}
            for t in made.tables
        ],
        "roles": {"group": made.upload.group, "task": made.upload.task, "related_group": made.upload.related_group},
        "samples": {pair.name: [pair.p.label, pair.q.label] for pair in made.pairs},
        "rows": {"target": [len(part) for part in target]} | {name: [len(x), len(y)] for name, (x, y) in tasks.items()},
        "columns": [{"name": c.name, "kind": c.kind, "why": c.why} for c in made.columns.values()],
        "cleaning": cleaning.to_dict(),
        "encoding": json.loads(encoding.to_json()),
        "decisions": list(notes),
    }
