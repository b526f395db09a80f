"""Levels, medians and scales from pooled rows without labels, and rows turned into numbers by them."""

from __future__ import annotations

import numpy as np

from m2st_core.tasks.tables.assembled import Assembled
from m2st_core.tasks.tables.columns import NUMERIC
from m2st_core.tasks.tables.encoding import Categorical, Cleaning, Encoding, Numeric, learn_categorical, learn_numeric
from m2st_core.tasks.tables.limits import TableError


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
