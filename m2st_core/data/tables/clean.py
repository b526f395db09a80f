"""From an upload to clean arrays, with a list of every decision on the way."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from m2st_core.data.arrays import as_related_tasks, as_two_sample
from m2st_core.data.separate import count_of, find_overlap, known_rows
from m2st_core.data.tables.assembled import Assembled, assemble
from m2st_core.data.tables.encoding import Cleaning, Encoding
from m2st_core.data.tables.limits import Limits, TableError
from m2st_core.data.tables.rows import FEWEST_ROWS, choose_columns, encode, find_blocks, keep_rows, learn
from m2st_core.data.tables.upload import Upload
from m2st_core.types import TwoSample

FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")
NUMBER = re.compile(r"[+-]?(\d+([.,]\d*)?|[.,]\d+)([eE][+-]?\d+)?")
PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")
LONGEST_SHOWN = 200


def safe_cell(value: Any) -> Any:
    """The value, or text behind an apostrophe where a spreadsheet would run it as a formula.

    >>> safe_cell("=cmd|' /C calc'!A0"), safe_cell("-1.5"), safe_cell(-1.5), safe_cell("red")
    ("'=cmd|' /C calc'!A0", '-1.5', -1.5, 'red')
    """
    if not isinstance(value, str) or NUMBER.fullmatch(value):
        return value
    return f"'{value}" if value.startswith(FORMULA_STARTS) or value.lstrip().startswith(FORMULA_STARTS) else value


def to_safe_csv(frame: pd.DataFrame) -> str:
    """The frame as CSV text, its header and its words safe to open in a spreadsheet."""
    safe = frame.rename(columns=lambda name: safe_cell(str(name)))
    for position, dtype in enumerate(safe.dtypes):
        if not pd.api.types.is_numeric_dtype(dtype):
            safe.isetitem(position, [safe_cell(cell) for cell in safe.iloc[:, position]])
    return safe.to_csv(index=False, quoting=csv.QUOTE_NONNUMERIC)  # a lone \r would end the row


def plain(text: str, longest: int = LONGEST_SHOWN) -> str:
    r"""Words from a file, shown by Streamlit as they are: no Markdown, HTML, formula, link or emoji.

    >>> plain("**a** <b>")
    '\\*\\*a\\*\\* \\<b\\>'
    """
    short = " ".join(str(text).split())
    short = short if len(short) <= longest else short[: longest - 1] + "…"
    escaped = PUNCTUATION.sub(r"\\\1", short)
    for start in ("\\:", "\\@", "www"):  # emoji codes and bare addresses are looked for after the escapes are gone
        escaped = escaped.replace(start, f"{start}\u2060")
    return escaped


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

    def recoded(self, encoding: Encoding) -> CleanData:
        """The same rows by another scaling of the same columns."""
        x, y = (self.encoding.convert(rows, encoding) for rows in (self.x, self.y))
        tasks = {
            name: (self.encoding.convert(p, encoding), self.encoding.convert(q, encoding))
            for name, (p, q) in self.tasks.items()
        }
        return replace(self, x=x, y=y, tasks=tasks, encoding=encoding)

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
    where there are none. One that was learned before, beside a learner, can be given instead; of ``cleaning`` only
    ``missing`` and ``block`` then count, and without it the encoding's own choices do.
    """
    made = upload if isinstance(upload, Assembled) else assemble(upload, limits)
    if encoding is not None:
        chosen_now = cleaning or encoding.cleaning
        cleaning = replace(encoding.cleaning, missing=chosen_now.missing, block=chosen_now.block)
    cleaning = cleaning or Cleaning()
    notes = list(made.notes)
    _check_rows(made, np.ones(len(made.rows), dtype=bool))
    chosen = choose_columns(made, cleaning, encoding, notes)
    keep = keep_rows(made, chosen, cleaning, notes)
    blocks: np.ndarray | None = None
    block_names: tuple[str, ...] = ()
    if cleaning.block and made.target:
        blocks, block_names = find_blocks(made, cleaning, keep, notes)
    _check_rows(made, keep)
    _drop_small_tasks(made, keep, notes)
    if encoding is None:
        encoding = learn(made, chosen, cleaning, keep, notes)
    matrix = encode(made, encoding, keep, notes)
    x, y, tasks = _arrays(made, matrix, keep, notes)
    if made.target:
        sample = as_two_sample(x, y)
        shared = len(find_overlap(sample, known_rows(as_related_tasks(tasks))[0], encoding.units)) if tasks else 0
        if shared:
            notes.append(
                f"{count_of(shared, 'target row')} recognised in the related tasks, equal or nearly so. "
                "Methods that learn from related tasks do so without them."
            )
    labels = (made.target.p.label, made.target.q.label) if made.target else ("P", "Q")
    p, q = made.spans[0] if made.target else (slice(0, 0), slice(0, 0))
    return CleanData(
        x=x,
        y=y,
        x_name=labels[0],
        y_name=labels[1],
        tasks=tasks,
        encoding=encoding,
        x_rows=made.rows[p][keep[p]],
        y_rows=made.rows[q][keep[q]],
        x_blocks=None if blocks is None else blocks[p][keep[p]],
        y_blocks=None if blocks is None else blocks[q][keep[q]],
        block_names=block_names,
        decisions=tuple(notes),
        record=_record(made, cleaning, encoding, notes, (x, y), tasks),
    )


def _check_rows(made: Assembled, keep: np.ndarray) -> None:
    """Refuse a target sample with fewer than two rows."""
    if made.target:
        for span, side in zip(made.spans[0], (made.target.p, made.target.q), strict=True):
            if (rows := int(keep[span].sum())) < FEWEST_ROWS:
                raise TableError(
                    f"{side.table.name}: {side.label} has {rows} row{'' if rows == 1 else 's'}. "
                    "Bring at least 2 rows in each sample."
                )


def _drop_small_tasks(made: Assembled, keep: np.ndarray, notes: list[str]) -> None:
    """Tasks with too few rows leave ``keep``."""
    for pair, (p, q) in zip(made.related, made.related_spans, strict=True):
        fewest = int(min(keep[p].sum(), keep[q].sum()))
        if fewest < FEWEST_ROWS:
            keep[p.start : q.stop] = False
            notes.append(f"The task {pair.name!r} was left out: one of its samples has {fewest} usable rows.")
    if made.related and not keep[made.target_rows :].any():
        raise TableError(
            f"{made.related[0].p.table.name}: no related task has 2 usable rows in each sample. Fill in missing cells, "
            "leave out the columns that miss most, or go on without related tasks."
        )


def _arrays(
    made: Assembled, matrix: np.ndarray, keep: np.ndarray, notes: list[str]
) -> tuple[np.ndarray, np.ndarray, dict[str, tuple[np.ndarray, np.ndarray]]]:
    """The kept rows (kept, d) by sample; a task whose rows are all alike is left out."""
    ends = np.concatenate([[0], np.cumsum(keep)])
    parts = [(matrix[ends[p.start] : ends[p.stop]], matrix[ends[q.start] : ends[q.stop]]) for p, q in made.spans]
    x, y = parts.pop(0) if made.target else (matrix[:0], matrix[:0])
    tasks = {}
    for pair, (first, second) in zip(made.related, parts, strict=True):
        if len(first) and ((first != first[0]).any() or (second != first[0]).any()):
            tasks[pair.name] = (first, second)
        elif len(first):
            notes.append(f"The task {pair.name!r} was left out: all its rows are identical.")
    return x, y, tasks


def _record(
    made: Assembled,
    cleaning: Cleaning,
    encoding: Encoding,
    notes: list[str],
    target: tuple[np.ndarray, np.ndarray],
    tasks: Mapping[str, tuple[np.ndarray, np.ndarray]],
) -> dict[str, Any]:
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
