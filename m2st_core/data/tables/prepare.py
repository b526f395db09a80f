r"""From an upload to clean arrays, with a list of every decision on the way.

>>> from m2st_core.data.tables.files import read_table
>>> p = read_table("p.csv", b"height;colour\n1,5;red\n2,5;blue\n")
>>> q = read_table("q.csv", b"height,colour\n1.0,red\n4.5,red\n")
>>> prepare(Upload((p, q)), cleaning=Cleaning(scaling="none")).y
array([[1. , 1. , 0. ],
       [4.5, 1. , 0. ]])
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
import torch

from m2st_core.data.arrays import as_blocks, as_ids, check_spread, match_columns
from m2st_core.data.overlap import ColumnUnits
from m2st_core.data.related import RelatedTasks, stack_related_tasks
from m2st_core.data.repeated_rows import repeated_rows_note
from m2st_core.data.separate import Separated, nothing_left, without_target
from m2st_core.data.tables.assemble import Assembled, assemble
from m2st_core.data.tables.cells import BOUND, ERROR, INFINITE, read_cell, to_safe_csv
from m2st_core.data.tables.check import check_identifiers
from m2st_core.data.tables.columns import IDENTIFIER
from m2st_core.data.tables.encoding import (
    FEWEST_ROWS,
    Categorical,
    Cleaning,
    Encoding,
    Numeric,
    choose_columns,
    encode,
    learn_encoding,
    relearn_encoding,
)
from m2st_core.data.tables.groups import Pair
from m2st_core.data.tables.questions import TableError
from m2st_core.data.tables.upload import Upload, upload_of
from m2st_core.numbers import count_of
from m2st_core.types import TwoSample, listed

ROUNDING = 9  # decimal digits of scaled values that are compared


WHY_NOT = {INFINITE: "is infinite or too large", ERROR: "is an error of Excel's", BOUND: "is a bound and not a number"}
REMEDY = "Correct it, or choose to drop such rows or to fill in medians."


@dataclass(frozen=True, eq=False)
class Prepared:
    """Samples to test, the related tasks, and how they were made.

    ``target`` has the rows of P and Q with the names of their columns, and ids and blocks if columns hold them.
    ``related`` are the related tasks, and ``separation`` has them without the rows of the target; ``separated`` is what
    a test that learns from them takes. If ``turned``, the first sample of each related task is Q, as in its file, and
    the second is P. Tests do not tell P from Q, so they learn in the order of the files, and swapping P and Q changes
    no p-value.

    ``rows`` are the numbers of the kept rows in their files, ``blocks`` the names of the blocks of P's rows, then Q's.
    ``decisions`` tell in plain words what was done, ``record`` has all of it as plain values for JSON, and ``digest``
    identifies what was prepared and how. Without a target, its samples have no rows.

    Images have no encoding. They are rows of the features ``described_by`` a network, or of their pixels; ``rows`` are
    then the names of their files, and ``pictures`` the images (n, height, width, channels), if they are there.
    """

    target: TwoSample
    x_name: str
    y_name: str
    related: RelatedTasks | None
    encoding: Encoding | None = field(repr=False)
    rows: tuple[np.ndarray, np.ndarray] = field(repr=False)
    separation: Separated | None = field(default=None, repr=False)
    blocks: np.ndarray | None = field(default=None, repr=False)
    decisions: tuple[str, ...] = field(default=(), repr=False)
    record: Mapping[str, Any] = field(default_factory=dict, repr=False)
    turned: bool = False
    digest: str = field(default="", repr=False)
    described_by: str = ""
    pictures: tuple[np.ndarray, np.ndarray] | None = field(default=None, repr=False)

    @property
    def x(self) -> np.ndarray:
        """The rows of P: (n, d)."""
        return self.target.x.numpy()

    @property
    def y(self) -> np.ndarray:
        """The rows of Q: (m, d)."""
        return self.target.y.numpy()

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the columns of the rows; images have none."""
        return self.encoding.features if self.encoding is not None else ()

    @property
    def columns(self) -> tuple[Numeric | Categorical, ...]:
        """The columns of the files, as they are encoded; images have none."""
        return self.encoding.columns if self.encoding is not None else ()

    @property
    def unit(self) -> str:
        """What is compared: rows or images."""
        return "images" if self.described_by else "rows"

    @property
    def units(self) -> ColumnUnits | None:
        """Centre and scale of every column, if there is an encoding."""
        return self.encoding.units if self.encoding is not None else None

    @property
    def task_names(self) -> tuple[str, ...]:
        """The names of the related tasks."""
        return self.related.names if self.related is not None else ()

    @property
    def exact_if(self) -> str:
        """What a test that uses the related tasks rests on, if rows cannot show it."""
        return self.separation.exact_if if self.separation is not None else ""

    @property
    def identifiers(self) -> tuple[str, ...]:
        """The columns of the files that look like identifiers, compared or not."""
        return tuple(column["name"] for column in self.record.get("columns", ()) if column["kind"] == IDENTIFIER)

    def separated(self) -> Prepared:
        """The data for a test that learns from the related tasks: these without the target's rows, which scale all.

        A ValueError if nothing is left to learn from.
        """
        apart = self.separation
        if apart is None or apart.tasks is self.related:
            return self
        if not apart.tasks.names:
            raise ValueError(nothing_left(self.target))
        if (before := self.encoding) is None:
            return replace(self, related=apart.tasks)
        encoding = relearn_encoding(before, apart.tasks.take_inside().numpy())

        def convert(rows: torch.Tensor) -> torch.Tensor:
            return torch.from_numpy(before.convert(rows.numpy(), encoding))

        tasks = apart.tasks.with_rows(convert(apart.tasks.rows))
        target = replace(self.target, x=convert(self.target.x), y=convert(self.target.y))
        return replace(self, target=target, related=tasks, separation=replace(apart, tasks=tasks), encoding=encoding)

    def in_order_of(self, columns: tuple[str, ...]) -> Prepared:
        """The same data with its columns in the order of a learner's ``columns``; other columns are an error."""
        order, _ = match_columns("the learner", columns, "the data", self.features)
        if order is None or self.encoding is None:
            return self
        position = {name: index for index, name in enumerate(columns)}
        in_order = sorted(self.encoding.columns, key=lambda column: position[column.features[0]])
        encoding = replace(self.encoding, columns=tuple(in_order))
        if encoding.features != columns:
            raise ValueError(f"No table has the learner's columns in their order: {', '.join(columns)}. Train again.")

        def ordered(tasks: RelatedTasks) -> RelatedTasks:
            return replace(tasks, rows=tasks.rows[..., order], columns=columns)

        x, y = (rows[:, order] for rows in self.target)
        related, apart = self.related and ordered(self.related), self.separation
        if apart is not None and related is not None:
            apart = replace(apart, tasks=related if apart.tasks is self.related else ordered(apart.tasks))
        target = replace(self.target, x=x, y=y, columns=columns)
        return replace(self, target=target, related=related, separation=apart, encoding=encoding)

    def to_frame(self) -> pd.DataFrame:
        """All rows with the columns task ("target" or the task's name), group, row (in the file) and the features."""
        related = self.related.samples() if self.related is not None else {}
        parts = [("target", name, rows) for name, rows in zip((self.x_name, self.y_name), self.target, strict=True)]
        for name, sample in related.items():
            parts += zip((name, name), "PQ", sample.swapped() if self.turned else sample, strict=True)
        parts = [part for part in parts if len(part[2])]
        frame = pd.concat([pd.DataFrame({"task": t, "group": g}, index=range(len(v))) for t, g, v in parts])
        frame.index = pd.RangeIndex(len(frame))
        if self.blocks is not None:
            frame["block"] = pd.Series(self.blocks).reindex(frame.index, fill_value="")
        rows = pd.Series(np.concatenate(self.rows), dtype="Int64")
        frame["row"] = rows.reindex(frame.index, fill_value=0)
        values = pd.DataFrame(np.concatenate([values for _, _, values in parts]), columns=list(self.features))
        return pd.concat([frame, values], axis=1)

    def to_csv(self) -> str:
        """``to_frame`` as CSV that is safe to open in a spreadsheet."""
        return to_safe_csv(self.to_frame())


def prepare(
    x: Any,
    y: Any = None,
    *,
    related: Any = None,
    names: tuple[str, str] | None = None,
    cleaning: Cleaning | None = None,
    encoding: Encoding | None = None,
    **reading: Any,
) -> Prepared:
    """Prepare two samples and their related tasks for a test: an upload of files, or frames.

    Args:
        x: An upload; or the rows of P in a frame of any library, whose columns hold numbers or words.
        y: The rows of Q, if x is no upload.
        related: Related tasks beside frames: pairs of frames, by name or in a list.
        names: What to call x and y in sentences; by default as their files or groups, or x and y.
        cleaning: How to treat missing cells, scales, blocks and columns.
        encoding: That of a learner. Then ``cleaning`` changes ``missing``, ``block`` and ``ids`` only. Otherwise it is
            learned without labels, from the pooled rows of the related tasks, or of the target if there are none.
        reading: For frames, what reading may ask: ``decimal``, ``read_as`` and ``totals`` of an ``Upload``.

    >>> before = pd.DataFrame({"id": ["a1", "a2", "a3"], "dose": [1.5, 2.5, None], "sex": ["f", "m", "f"]})
    >>> after = pd.DataFrame({"id": ["b1", "b2", "b3"], "dose": [4.5, 3.5, 5.0], "sex": ["m", "m", "f"]})
    >>> prepare(before, after, cleaning=Cleaning("drop rows")).target
    TwoSample(2 and 3 rows, 3 columns: dose, sex = m, sex = f)
    """
    if isinstance(x, Upload | Assembled):
        if y is not None or related is not None or reading:
            raise TypeError(
                "An upload has both samples, its related tasks and its answers. Beside it, name what else is passed: "
                "prepare(upload, cleaning=…, encoding=…)."
            )
        made = assemble(x) if isinstance(x, Upload) else x
    elif y is None:
        raise ValueError("y is missing. Pass the rows of both samples, or an upload of files.")
    else:
        made = assemble(upload_of(x, y, related, **reading))
    data = _prepared(made, cleaning, encoding)
    return data if names is None else replace(data, x_name=names[0], y_name=names[1])


def _prepared(made: Assembled, cleaning: Cleaning | None, encoding: Encoding | None) -> Prepared:
    """Choose columns and rows, learn the encoding or take the given one, and encode all rows."""
    if encoding is not None:
        choices = cleaning or encoding.cleaning
        known = encoding.cleaning.ids
        column = None if choices.ids == known and known not in made.columns else choices.ids
        cleaning = replace(encoding.cleaning, missing=choices.missing, block=choices.block, ids=column)
    cleaning = cleaning or Cleaning()
    _check_target(made, np.ones(len(made.rows), dtype=bool))
    notes: list[str] = []
    chosen = choose_columns(made, cleaning, encoding, notes)
    suspects = [c for c in check_identifiers(made) if encoding is None or c.repeated or c.column in chosen]
    notes = [*made.notes, *filter(None, (c.note(cleaning, c.column in chosen) for c in suspects)), *notes]
    keep = _keep_rows(made, chosen, cleaning, notes)
    blocks, block_names = _find_blocks(made, cleaning, keep, notes)
    _check_target(made, keep)
    _drop_small_tasks(made, keep, notes)
    if encoding is None:
        encoding = learn_encoding(made, chosen, cleaning, keep, notes)
    matrix = encode(made, encoding, keep, notes)
    target, *samples = _samples(made, torch.from_numpy(matrix), keep, _ids(made, cleaning, keep), encoding)
    tasks = _tasks(made, samples, notes)
    p, q = made.target_spans
    of_rows = None if blocks is None else (blocks[p][keep[p]], blocks[q][keep[q]])
    if made.target:
        check_spread(target.x.numpy(), target.y.numpy())
        numbered = None if of_rows is None else as_blocks(of_rows, target.sizes)
        target = replace(target, x=target.x.clone(), y=target.y.clone(), blocks=numbered)
        _refuse_same_rows(made.target, target)
    notes += repeated_rows_note(target.pooled.numpy())
    in_order = [sample.swapped() if made.turned else sample for sample in tasks.values()]
    related = stack_related_tasks([in_order], tuple(tasks)) if tasks else None
    separation = without_target(related, target, encoding.units) if made.target and related is not None else None
    if separation is not None and separation.shared:
        notes.append(separation.notes[0])
    x_name, y_name = made.target.labels if made.target else ("P", "Q")
    record = _record(made, cleaning, encoding, notes, {"target": target, **tasks})
    return Prepared(
        target=target,
        x_name=x_name,
        y_name=y_name,
        related=related,
        encoding=encoding,
        rows=(made.rows[p][keep[p]], made.rows[q][keep[q]]),
        separation=separation,
        blocks=None if of_rows is None else np.array(block_names)[np.concatenate(of_rows)],
        decisions=tuple(notes),
        record=record,
        turned=made.turned,
        digest=hashlib.sha256(f"{made.upload.digest} {cleaning} {encoding.to_json()}".encode()).hexdigest(),
    )


def _samples(
    made: Assembled, rows: torch.Tensor, keep: np.ndarray, ids: torch.Tensor | None, encoding: Encoding
) -> list[TwoSample]:
    """The target, empty if there is none, and the related tasks, of the kept ``rows`` (kept, d) and their ``ids``."""
    ends, samples = np.concatenate([[0], np.cumsum(keep)]), []
    for spans in (made.target_spans, *made.related_spans):
        x, y = (slice(ends[span.start], ends[span.stop]) for span in spans)
        of_unit = None if ids is None else (ids[x], ids[y])
        samples.append(TwoSample(rows[x], rows[y], columns=encoding.features, ids=of_unit))
    return samples


def _tasks(made: Assembled, samples: Sequence[TwoSample], notes: list[str]) -> dict[str, TwoSample]:
    """The samples of the related tasks by name, without tasks that have no rows, or equal ones only."""
    tasks = {}
    for pair, sample in zip(made.related, samples, strict=True):
        if not sample.sizes[0]:
            continue
        if all((rows == sample.x[0]).all() for rows in sample):
            notes.append(f"The task {pair.name!r} was left out: all its rows are identical.")
            continue
        try:
            check_spread(sample.x.numpy(), sample.y.numpy())
        except ValueError as error:
            raise ValueError(f"Related task {pair.name!r}: {error}") from None
        tasks[pair.name] = sample
    return tasks


def _keep_rows(made: Assembled, chosen: Mapping[str, str], cleaning: Cleaning, notes: list[str]) -> np.ndarray:
    """Mark the rows that stay, (N,) of bool: all, unless those with missing cells are to be dropped."""
    keep = np.ones(len(made.rows), dtype=bool)
    counts: dict[str, int] = {}
    for name, kind in chosen.items():
        gone = made.gaps(name, kind)
        if not gone.any():
            continue
        rows = np.flatnonzero(gone)
        cells = made.words(name).iloc[rows]
        if cleaning.missing == "refuse":
            cell = cells.iloc[0]
            what = "the value is missing" if pd.isna(cell) else f"{str(cell)[:40]!r} {_why_not(cell)}"
            alike = f" ({len(rows):,} such cells)" if len(rows) > 1 else ""
            raise TableError(f"{made.where(rows[0])}, column {name!r}: {what}{alike}. {REMEDY}")
        if len(odd := np.flatnonzero(cells.notna())):
            cell = str(cells.iloc[odd[0]])
            example = f"{made.where(rows[odd[0]])}: {cell[:40]!r} {_why_not(cell)}"
            notes.append(f"{len(odd):,} cells of {name!r} are not numbers ({example}): they count as missing.")
        counts[name] = len(rows)
        if cleaning.missing == "drop rows":
            keep &= ~gone
    if not keep.all():
        worst = sorted(counts, key=lambda name: -counts[name])
        named = ", ".join(f"{name!r} {counts[name]:,}" for name in worst[:5])
        where = [f"{(~keep[span]).sum():,} of {side.label}" for side, span in made.target_samples]
        where += [f"{(~keep[made.target_rows :]).sum():,} of related tasks"] if made.related else []
        notes.append(f"Rows left out because a cell is missing: {', '.join(where)} (missing cells: {named}).")
        _check_target(made, keep, f"Leave out the columns that miss most ({named}), or fill in medians.")
    return keep


def _why_not(cell: str) -> str:
    """Say why a cell is not a number."""
    return WHY_NOT.get(read_cell(str(cell)).form, "is not a number")


def _check_target(made: Assembled, keep: np.ndarray, remedy: str = "Bring at least 2 rows in each sample.") -> None:
    """Refuse a target sample with fewer than two kept rows."""
    for side, span in made.target_samples:
        if (rows := int(keep[span].sum())) < FEWEST_ROWS:
            raise TableError(f"{side.table.name}: {side.label} has {count_of(rows, 'usable row')}. {remedy}")


def _ids(made: Assembled, cleaning: Cleaning, keep: np.ndarray) -> torch.Tensor | None:
    """The ids of the kept rows, if a column identifies rows; a kept row without one is an error."""
    if (name := cleaning.ids) is None:
        return None
    if name not in made.columns:
        raise TableError(f"There is no column {name!r} that all files have. The columns: {listed([*made.columns])}.")
    numbers = made.numbers(name)
    cells = made.words(name) if np.isnan(numbers).any() else pd.Series(numbers)
    if len(empty := np.flatnonzero(cells.isna().to_numpy() & keep)):
        raise TableError(f"{made.where(empty[0])}, column {name!r}: the row has no id. Fill it in, or leave it out.")
    return as_ids(cells[keep], name)


def _find_blocks(
    made: Assembled, cleaning: Cleaning, keep: np.ndarray, notes: list[str]
) -> tuple[np.ndarray | None, tuple[str, ...]]:
    """The block of each target row as a whole number, and the blocks' names. Rows without a block leave ``keep``."""
    if not (block := cleaning.block) or not made.target:
        return None, ()
    pieces = []
    for side, _ in made.target_samples:
        if block not in side.table.frame.columns:
            raise TableError(f"{side.table.name}: there is no column called {block!r}. Choose one that it has.")
        pieces.append(side.table.words(block).iloc[side.positions])
    codes, names = pd.factorize(pd.concat(pieces, ignore_index=True))
    empty = np.flatnonzero((codes < 0) & keep[: made.target_rows])
    if empty.size:
        if cleaning.missing != "drop rows":
            where = made.where(int(empty[0]))
            raise TableError(f"{where}, column {block!r}: the row has no block. Fill it in, or drop such rows.")
        keep[empty] = False
        notes.append(f"{empty.size:,} rows without a block were left out.")
    both = np.intersect1d(*(codes[span][keep[span]] for span in made.target_spans))
    if not both.size:
        what = f"no block of {block!r} has rows of both groups"
        raise TableError(f"{made.tables[0].name}: {what}. Choose another block column, or none.")
    mixed = f"{len(both):,} of them have rows of both groups"
    notes.append(f"Rows are permuted within the {len(names):,} blocks of {block!r}; {mixed}.")
    return codes, tuple(map(str, names))


def _drop_small_tasks(made: Assembled, keep: np.ndarray, notes: list[str]) -> None:
    """Remove tasks with too few rows from ``keep``."""
    for pair, (p, q) in zip(made.related, made.related_spans, strict=True):
        fewest = int(min(keep[p].sum(), keep[q].sum()))
        if fewest < FEWEST_ROWS:
            keep[p.start : q.stop] = False
            notes.append(f"The task {pair.name!r} was left out: one of its samples has {fewest} usable rows.")
    if made.related and not keep[made.target_rows :].any():
        remedy = "Fill in missing cells, leave out the columns that miss most, or go on without related tasks."
        name = made.related[0].p.table.name
        raise TableError(f"{name}: no related task has 2 usable rows in each sample. {remedy}")


def _record(
    made: Assembled, cleaning: Cleaning, encoding: Encoding, notes: list[str], samples: Mapping[str, TwoSample]
) -> dict[str, Any]:
    return {
        "files": [
            {"name": t.name, "sha256": t.digest, "rows": len(t.frame), "columns": t.frame.shape[1], "notes": [*t.notes]}
            for t in made.tables
        ],
        "roles": {
            name: getattr(made.upload, name) for name in ("group", "groups", "task", "related_group", "related_groups")
        },
        "samples": {pair.name: [pair.p.label, pair.q.label] for pair in made.pairs},
        "rows": {name: list(sample.sizes) for name, sample in samples.items()},
        "columns": [{"name": c.name, "kind": c.kind, "why": c.why} for c in made.columns.values()],
        "answers": {name: getattr(made.upload, name) for name in ("decimal", "read_as", "totals", "encoding")},
        "conversions": made.readings.table(made.columns),
        "cleaning": cleaning.to_dict(),
        "encoding": encoding.to_dict(),
        "decisions": list(notes),
    }


def _refuse_same_rows(pair: Pair, sample: TwoSample) -> None:
    """Raise a TableError if both groups are the same table, or hold the same rows in any order.

    Rows with few different values may agree by chance. They are not refused.
    """
    (p, q), (size, other_size) = (pair.p, pair.q), sample.sizes
    if size != other_size:
        return
    remedy = "There is nothing to compare. Bring the rows of the other group."
    if p.table is not q.table and p.table.digest == q.table.digest:
        raise TableError(f"{p.table.name} and {q.table.name} are the same table. {remedy}")
    (rows, counts), (others, other_counts) = (
        np.unique(part.numpy().round(ROUNDING), axis=0, return_counts=True) for part in sample
    )
    if len(rows) > size / 2 and np.array_equal(rows, others) and np.array_equal(counts, other_counts):
        raise TableError(f"“{p.label}” and “{q.label}” hold exactly the same {size:,} rows. {remedy}")
