"""Which columns and which rows are used, decided without labels and said in words."""

from __future__ import annotations

import numpy as np
import pandas as pd

from m2st_core.data.tables.assembled import CATEGORICAL, NUMERIC, Assembled
from m2st_core.data.tables.encoding import Categorical, Cleaning, Encoding, Numeric, learn_categorical, learn_numeric
from m2st_core.data.tables.limits import TableError


def learn(
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


def encode(made: Assembled, encoding: Encoding, keep: np.ndarray, notes: list[str]) -> np.ndarray:
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
            if not column.indicator and (empty := int(words.isna().sum())):
                notes.append(f"{empty:,} missing cells of {column.name!r} are shown by zeros.")
            here = words.iloc[: int(keep[: made.target_rows].sum())].dropna()
            unseen = here[~here.isin(column.levels)]
            if len(unseen):
                known = "go to its indicator 'other'" if column.other else "are shown by zeros"
                notes.append(
                    f"{len(unseen):,} target cells of {column.name!r} have rare or unseen levels: they {known}."
                )
    return matrix


FEWEST_ROWS = 2
SHOWN = 5
REMEDY = "Correct it, or choose to drop such rows or to fill in medians."


def choose_columns(
    made: Assembled, cleaning: Cleaning, encoding: Encoding | None, notes: list[str]
) -> list[tuple[str, str]]:
    """The columns to use with what they are read as, numeric or categorical."""
    if encoding is not None:
        lacking = [column.name for column in encoding.columns if column.name not in made.columns]
        if lacking:
            raise TableError(
                f"{made.tables[0].name}: the learner was trained with columns that are not here: "
                f"{', '.join(map(repr, lacking[:SHOWN]))}{' …' if len(lacking) > SHOWN else ''}. Bring them too."
            )
        known = {column.name for column in encoding.columns}
        extra = [name for name in made.columns if name not in known]
        if extra:
            notes.append(f"Not among the learner's columns, so not used: {_some(extra)}.")
        return [(c.name, NUMERIC if isinstance(c, Numeric) else CATEGORICAL) for c in encoding.columns]
    unknown = [name for name in cleaning.left_out if name not in made.columns]
    if unknown:
        raise TableError(f"{made.tables[0].name}: there is no column {unknown[0]!r} that could be left out.")
    if cleaning.left_out:
        notes.append(f"Left out by choice: {_some(list(cleaning.left_out))}.")
    open_to_use = [c for c in made.columns.values() if c.name not in cleaning.left_out and c.name != cleaning.block]
    aside = [f"{column.name!r} ({column.kind}: {column.why})" for column in open_to_use if not column.used]
    chosen = [(column.name, column.kind) for column in open_to_use if column.used]
    if not chosen:
        raise TableError(
            f"{made.tables[0].name}: no column can be compared. Set aside: {', '.join(aside[:SHOWN]) or 'all'}. "
            "Bring columns of numbers or categories that vary."
        )
    if aside:
        notes.append(f"Set aside: {', '.join(aside[:20])}{f' and {len(aside) - 20} more' if len(aside) > 20 else ''}.")
    return chosen


def keep_rows(made: Assembled, chosen: list[tuple[str, str]], cleaning: Cleaning, notes: list[str]) -> np.ndarray:
    """Which rows stay, (N,) of bool: all of them, unless those with missing cells are to be dropped."""
    keep = np.ones(len(made.rows), dtype=bool)
    counts: dict[str, int] = {}
    for name, kind in chosen:
        gone = np.isnan(made.numbers(name)) if kind == NUMERIC else made.words(name).isna().to_numpy()
        if not gone.any():
            continue
        if kind == NUMERIC:
            _say_odd(made, name, gone, notes)
        if cleaning.missing == "refuse":
            row = int(np.flatnonzero(gone)[0])
            cell = made.words(name).iloc[row]
            found = "the cell is empty" if pd.isna(cell) else f"{str(cell)[:40]!r} is not a number"
            raise TableError(f"{made.where(row)}, column {name!r}: {found} ({gone.sum():,} such cells in it). {REMEDY}")
        counts[name] = int(gone.sum())
        if cleaning.missing == "drop rows":
            keep &= ~gone
    if not keep.all():
        worst = sorted(counts, key=lambda name: -counts[name])
        named = ", ".join(f"{name!r} {counts[name]:,}" for name in worst[:SHOWN])
        lost = ~keep
        where = [f"{lost[made.target_rows :].sum():,} of related tasks"] if made.related else []
        if made.target:
            p, q = made.spans[0]
            where = [
                f"{lost[p].sum():,} of {made.target.p.label}",
                f"{lost[q].sum():,} of {made.target.q.label}",
                *where,
            ]
        notes.append(f"Rows left out because a cell is missing: {', '.join(where)} (missing cells: {named}).")
        for span, side in zip(made.spans[0], (made.target.p, made.target.q), strict=True) if made.target else ():
            if keep[span].sum() < FEWEST_ROWS:
                raise TableError(
                    f"{side.table.name}: {keep[span].sum()} rows of {side.label} have no missing cell. Leave out the "
                    f"columns that miss most ({named}), or fill in medians."
                )
    return keep


def _say_odd(made: Assembled, name: str, gone: np.ndarray, notes: list[str]) -> None:
    """Cells that are no numbers, in a column of numbers, count as missing; the first one is shown."""
    rows = np.flatnonzero(gone)
    cells = made.words(name).iloc[rows]
    odd = cells.notna().to_numpy()
    if odd.any():
        first = int(rows[odd][0])
        cell = str(cells[odd].iloc[0])[:40]
        notes.append(
            f"{odd.sum():,} cells of {name!r} are no numbers ({made.where(first)}: {cell!r}): they count as missing."
        )


def find_blocks(
    made: Assembled, cleaning: Cleaning, keep: np.ndarray, notes: list[str]
) -> tuple[np.ndarray, tuple[str, ...]]:
    """The block of each target row as a whole number, and the blocks' names; rows without one leave ``keep``."""
    assert cleaning.block is not None
    codes, names = pd.factorize(made.of_target(cleaning.block))
    empty = np.flatnonzero((codes < 0) & keep[: made.target_rows])
    if empty.size and cleaning.missing != "drop rows":
        where = made.where(int(empty[0]))
        raise TableError(f"{where}, column {cleaning.block!r}: the row has no block. Fill it in, or drop such rows.")
    if empty.size:
        keep[empty] = False
        notes.append(f"{empty.size:,} rows without a block were left out.")
    p, q = made.spans[0]
    both = np.intersect1d(codes[p][keep[p]], codes[q][keep[q]])
    if not both.size:
        raise TableError(
            f"{made.tables[0].name}: no block of {cleaning.block!r} has rows of both groups, so no row could change "
            "its place. Choose another block column, or none."
        )
    notes.append(
        f"Rows are permuted within the {len(names):,} blocks of {cleaning.block!r}; "
        f"{len(both):,} of them have rows of both groups."
    )
    return codes, tuple(str(name) for name in names)


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 20} more" if len(names) > 20 else ""
    return ", ".join(map(repr, names[:20])) + more
