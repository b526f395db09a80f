"""Choose columns and rows, learn an encoding and apply it. Labels are not used, and every decision is noted."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd

from m2st_core.data.tables.assembled import Assembled
from m2st_core.data.tables.cells import BOUND, ERROR, INFINITE, read_cell
from m2st_core.data.tables.columns import CATEGORICAL, IDENTIFIER, NUMERIC
from m2st_core.data.tables.encoding import Categorical, Cleaning, Encoding, Numeric
from m2st_core.data.tables.limits import TableError
from m2st_core.data.tables.questions import ENCODING, Question
from m2st_core.data.tables.text_encodings import Comparison
from m2st_core.numbers import count_of
from m2st_core.types import listed

FEWEST_ROWS = 2
IQR_OF_NORMAL = 1.349
SHOWN = 20
WHY_NOT = {INFINITE: "is infinite or too large", ERROR: "is an error of Excel's", BOUND: "is a bound and not a number"}
REMEDY = "Correct it, or choose to drop such rows or to fill in medians."


def choose_columns(
    made: Assembled, cleaning: Cleaning, encoding: Encoding | None, notes: list[str]
) -> list[tuple[str, str]]:
    """Choose the columns to use, with their kinds: numeric or categorical. Open questions about them are raised."""
    file = made.tables[0].name
    if questions := open_questions(made, cleaning, encoding):
        raise TableError(questions[0].error)
    if encoding is not None:
        names = [column.name for column in encoding.columns]
        if lacking := [repr(name) for name in names if name not in made.columns]:
            raise TableError(f"{file}: the learner was trained with columns that are not here: {listed(lacking, 5)}.")
        if extra := [repr(name) for name in made.columns if name not in names]:
            notes.append(f"Not among the learner's columns, so not used: {listed(extra, SHOWN)}.")
        for c in encoding.columns:
            here, there = made.columns[c.name].unit, c.unit if isinstance(c, Numeric) else ""
            if here and there and here != there:
                raise TableError(f"{file}: {c.name!r} is in {here} here, and the learner was trained with {there}.")
        return [(c.name, NUMERIC if isinstance(c, Numeric) else CATEGORICAL) for c in encoding.columns]
    for given, what in ((cleaning.left_out, "left out"), (cleaning.use, "used")):
        if unknown := [name for name in given if name not in made.columns]:
            raise TableError(f"{file}: there is no column {unknown[0]!r} that could be {what}.")
    for column in (made.columns[name] for name in cleaning.use):
        if not (column.used or column.holds):
            raise TableError(f"{file}: {column.name!r} cannot be used: {column.why or column.kind}.")
    if cleaning.left_out:
        notes.append(f"Left out by choice: {listed([*map(repr, cleaning.left_out)], SHOWN)}.")
    chosen = compared(made, cleaning)
    left = [made.columns[name] for name in made.columns if name not in cleaning.not_compared]
    aside = [column for column in left if column.name not in chosen]
    named = [f"{column.name!r} ({column.kind}: {column.why})" for column in aside]
    if not chosen:
        usable = [column.name for column in aside if column.holds]
        use = f" To compare {usable[0]!r} all the same, say use=({usable[0]!r},) (shell: --use)." if usable else ""
        raise TableError(
            f"{file}: no column can be compared. Set aside: {listed(named, 5) or 'all'}. "
            f"Bring columns of numbers or categories that vary.{use}"
        )
    if others := [words for column, words in zip(aside, named, strict=True) if column.kind != IDENTIFIER]:
        notes.append(f"Set aside: {listed(others, SHOWN)}.")
    return list(chosen.items())


def compared(made: Assembled, cleaning: Cleaning) -> dict[str, str]:
    """The columns that these choices compare, with their kinds: numeric or categorical."""
    left = [c for c in made.columns.values() if c.name not in cleaning.not_compared]
    return {c.name: c.holds or c.kind for c in left if c.used or (c.holds and c.name in cleaning.use)}


def open_questions(made: Assembled, cleaning: Cleaning, encoding: Encoding | None = None) -> list[Question]:
    """The questions about columns that would be compared."""
    names = [column.name for column in encoding.columns] if encoding else made.columns
    unsure = [question for question in made.readings.questions if question.option == ENCODING]
    if encoding is not None:
        learned = {column.name: column.known_words for column in encoding.columns}
        found = Comparison(made.tables, learned=learned, limits=made.limits).question()
        unsure = [found] if found else []
    aside = {*cleaning.left_out, *(set(made.columns) - set(names))} - {cleaning.block, cleaning.ids}
    unsure = [question for question in unsure if not question.columns or set(question.columns) - aside]
    if unsure:  # what the other questions say may change with the answer
        return unsure
    compared = [name for name in names if name not in cleaning.not_compared]
    return [
        question for question in made.readings.questions if question.option != ENCODING and question.concerns(compared)
    ]


def keep_rows(made: Assembled, chosen: list[tuple[str, str]], cleaning: Cleaning, notes: list[str]) -> np.ndarray:
    """Mark the rows that stay, (N,) of bool: all, unless those with missing cells are to be dropped."""
    keep = np.ones(len(made.rows), dtype=bool)
    counts: dict[str, int] = {}
    for name, kind in chosen:
        gone = np.isnan(made.numbers(name)) if kind == NUMERIC else made.words(name).isna().to_numpy()
        if not gone.any():
            continue
        rows = np.flatnonzero(gone)
        cells = made.words(name).iloc[rows]
        if cleaning.missing == "refuse":
            cell = cells.iloc[0]
            what = "the value is missing" if pd.isna(cell) else f"{str(cell)[:40]!r} {why_not(cell)}"
            alike = f" ({len(rows):,} such cells)" if len(rows) > 1 else ""
            raise TableError(f"{made.where(rows[0])}, column {name!r}: {what}{alike}. {REMEDY}")
        if len(odd := np.flatnonzero(cells.notna())):
            cell = str(cells.iloc[odd[0]])
            example = f"{made.where(rows[odd[0]])}: {cell[:40]!r} {why_not(cell)}"
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
        check_target(made, keep, f"Leave out the columns that miss most ({named}), or fill in medians.")
    return keep


def why_not(cell: str) -> str:
    """Say why a cell is not a number."""
    return WHY_NOT.get(read_cell(str(cell)).form, "is not a number")


def check_target(made: Assembled, keep: np.ndarray, remedy: str = "Bring at least 2 rows in each sample.") -> None:
    """Refuse a target sample with fewer than two kept rows."""
    for side, span in made.target_samples:
        if (rows := int(keep[span].sum())) < FEWEST_ROWS:
            raise TableError(f"{side.table.name}: {side.label} has {count_of(rows, 'usable row')}. {remedy}")


def learn(
    made: Assembled, chosen: list[tuple[str, str]], cleaning: Cleaning, keep: np.ndarray, notes: list[str]
) -> Encoding:
    """Learn levels, medians, centres and scales from the pooled rows of the related tasks, or of the target."""
    used = keep.copy()
    if made.related:
        used[: made.target_rows] = False
    source = f"{len(made.related):,} related tasks" if made.related else "both samples"
    learned: dict[str, Numeric | Categorical | None] = {}
    for name, kind in chosen:
        if kind == NUMERIC:
            numbers = learn_numeric(name, made.numbers(name)[used], cleaning)
            learned[name] = numbers and replace(numbers, unit=made.columns[name].unit)
        else:
            learned[name] = learn_categorical(name, made.words(name)[used], cleaning, other=bool(made.related))
    columns = tuple(column for column in learned.values() if column is not None)
    if flat := [repr(name) for name, column in learned.items() if column is None]:
        notes.append(f"Set aside because they do not vary in the pooled rows of {source}: {listed(flat, SHOWN)}.")
    if not columns:
        raise TableError(f"{made.tables[0].name}: no column varies in the rows of {source}. Bring rows that vary.")
    learned_from = f"{int(used.sum()):,} pooled rows of {source}, without their labels"
    numeric = sum(isinstance(column, Numeric) for column in columns)
    if numeric and cleaning.scaling != "none":
        how = "mean and standard deviation" if cleaning.scaling == "standard" else "median and interquartile range"
        notes.append(f"{numeric:,} numeric columns were scaled by {how} of {learned_from}.")
    for column in columns:
        if isinstance(column, Categorical):
            rest = ", and the others share one" if column.other else ""
            notes.append(f"{column.name!r} became indicators: one for each of {len(column.levels)} levels{rest}.")
    return Encoding(cleaning, columns, learned_from)


def learn_numeric(name: str, values: np.ndarray, cleaning: Cleaning) -> Numeric | None:
    """Learn a numeric column from pooled values (NaN if missing); None if they do not vary."""
    finite = np.sort(values[~np.isnan(values)])  # in this order sums do not depend on which sample is P
    if not finite.size or finite[0] == finite[-1]:
        return None
    median = float(np.median(finite))
    centre, scale = 0.0, 1.0
    if cleaning.scaling == "robust":
        low, high = np.quantile(finite, [0.25, 0.75])
        centre, scale = median, float(high - low) / IQR_OF_NORMAL
    if cleaning.scaling == "standard" or (cleaning.scaling == "robust" and not scale > 0):
        largest = float(np.abs(finite).max())  # squares stay finite
        centre, scale = float(finite.mean()), float((finite / largest).std() * largest)
    if not (math.isfinite(scale) and math.isfinite(centre) and scale > 0):
        largest = np.abs(finite).max()
        raise TableError(f"Column {name!r} holds numbers up to {largest:.1e}. Rescale it, or leave it out.")
    return Numeric(
        name, median, centre, scale, cleaning.missing == "median and indicator" and finite.size < values.size
    )


def learn_categorical(name: str, words: pd.Series, cleaning: Cleaning, other: bool) -> Categorical | None:
    """Learn the commonest levels of a column from pooled words (NA if missing); None if there is only one value."""
    counts = words.value_counts()
    missing = cleaning.missing == "median and indicator" and bool(words.isna().any())
    if len(counts) + missing < 2:
        return None
    ranked = sorted((str(level) for level in counts.index), key=lambda level: (-counts[level], level))
    return Categorical(name, tuple(ranked[: cleaning.levels]), other or len(ranked) > cleaning.levels, missing)


def relearn(encoding: Encoding, rows: np.ndarray) -> Encoding:
    """The same columns with a scaling learned from these encoded rows (n, d) alone."""
    columns, start = [], 0
    for column in encoding.columns:
        if isinstance(column, Numeric) and encoding.cleaning.scaling != "none":
            raw = rows[:, start] * column.scale + column.centre
            if fresh := learn_numeric(column.name, raw, encoding.cleaning):
                column = replace(column, centre=fresh.centre, scale=fresh.scale)
        columns.append(column)
        start += len(column.features)
    return replace(encoding, columns=tuple(columns))


def encode(made: Assembled, encoding: Encoding, keep: np.ndarray, notes: list[str]) -> np.ndarray:
    """Encode all kept rows as numbers: (kept, d)."""
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
            values = made.numbers(column.name)[keep]
            column.encode(values, out)
            if missing := int(np.isnan(values).sum()):
                marked = " and marked in a column of their own" if column.indicator else ""
                notes.append(
                    f"{missing:,} missing cells of {column.name!r} were replaced by {column.median:g}{marked}."
                )
            continue
        words = made.words(column.name)[keep]
        column.encode(words, out)
        if not column.indicator and (missing := int(words.isna().sum())):
            notes.append(f"{missing:,} missing cells of {column.name!r} are encoded as zeros.")
        target = words.iloc[: int(keep[: made.target_rows].sum())].dropna()
        if unlisted := int((~target.isin(column.levels)).sum()):
            how = "are in the indicator 'other'" if column.other else "are encoded as zeros"
            notes.append(f"{unlisted:,} target cells of {column.name!r} have rare or unseen levels: they {how}.")
    return matrix
