"""The encoding of rows as numbers: the user's choices, and parameters learned without labels."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np
import pandas as pd

from m2st_core.data.tables.assemble import Assembled
from m2st_core.data.tables.columns import CATEGORICAL, IDENTIFIER, NUMERIC
from m2st_core.data.tables.encoding_question import encoding_question
from m2st_core.data.tables.questions import ENCODING, Question, TableError, Unanswered
from m2st_core.numbers import NORMAL_QUARTILES
from m2st_core.types import listed

MISSING_CHOICES = ("refuse", "drop rows", "median and indicator")
SCALING_CHOICES = ("none", "standard", "robust")
FORMAT = 1
ENCODING_FILE = "encoding.json"
FEWEST_ROWS = 2
SHOWN = 20


@dataclass(frozen=True)
class Cleaning:
    """The user's choices.

    ``missing``: "refuse" stops at the first missing cell, "drop rows" leaves its row out, "median and indicator" fills
    it in and adds a column that marks it. ``levels`` is how many categories of a column get an indicator each; the
    others share one. ``block`` names the column within whose values rows are permuted, and ``ids`` the column that
    identifies rows in the target and the related tasks; neither is compared. Columns in ``use`` are compared although
    they look like identifiers.
    """

    missing: str = "refuse"
    scaling: str = "standard"
    levels: int = 20
    left_out: tuple[str, ...] = ()
    block: str | None = None
    use: tuple[str, ...] = ()
    ids: str | None = None

    def __post_init__(self) -> None:
        for name, choices in (("missing", MISSING_CHOICES), ("scaling", SCALING_CHOICES)):
            if (value := getattr(self, name)) not in choices:
                raise TableError(f"{name} must be one of {', '.join(map(repr, choices))}. Got {value!r}.")
        if isinstance(self.levels, bool) or not isinstance(self.levels, int) or not 1 <= self.levels <= 1000:
            raise TableError(f"levels must be a whole number from 1 to 1,000. Got {self.levels!r}.")
        for name in ("left_out", "use"):
            value = getattr(self, name)
            if isinstance(value, str) or not all(isinstance(column, str) for column in value):
                raise TableError(f"{name} must list names of columns. Got {value!r}.")
            object.__setattr__(self, name, tuple(normalize("NFC", column) for column in value))
        for name in ("block", "ids"):
            if (column := getattr(self, name)) is not None:
                if not isinstance(column, str):
                    raise TableError(f"{name} must be the name of a column. Got {column!r}.")
                object.__setattr__(self, name, normalize("NFC", column))
        if both := [name for name in self.use if name in self.not_compared]:
            raise TableError(f"{both[0]!r} is to be used, and also left out, the block or the id column. Choose one.")

    @property
    def not_compared(self) -> tuple[str | None, ...]:
        """The columns that have another role, or none."""
        return (*self.left_out, self.block, self.ids)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self) | {"left_out": list(self.left_out), "use": list(self.use)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Cleaning:
        """Make the choices from what ``to_dict`` returns."""
        unknown = set(values) - {f.name for f in fields(cls)}
        if unknown:
            raise TableError(f"Unknown choices for cleaning: {', '.join(sorted(unknown))}.")
        return cls(**values)


@dataclass(frozen=True)
class Numeric:
    """A column of numbers: (value − centre) / scale. With ``indicator`` a second column marks missing cells."""

    name: str
    median: float
    centre: float = 0.0
    scale: float = 1.0
    indicator: bool = False
    unit: str = ""

    @property
    def features(self) -> tuple[str, ...]:
        """The columns that it becomes."""
        return (self.name, f"{self.name} is missing") if self.indicator else (self.name,)

    def encode(self, values: np.ndarray, out: np.ndarray) -> None:
        """Write (n, 1 or 2) numbers; missing cells become the median."""
        missing = np.isnan(values)
        out[:, 0] = (np.where(missing, self.median, values) - self.centre) / self.scale
        if self.indicator:
            out[:, 1] = missing


@dataclass(frozen=True)
class Categorical:
    """A column of categories: one indicator per level, one for all others, one for missing cells, as needed."""

    name: str
    levels: tuple[str, ...]
    other: bool = False
    indicator: bool = False

    @property
    def features(self) -> tuple[str, ...]:
        """The columns that it becomes."""
        extra = [f"{self.name} is other"] * self.other + [f"{self.name} is missing"] * self.indicator
        return (*(f"{self.name} = {level}" for level in self.levels), *extra)

    def encode(self, words: pd.Series, out: np.ndarray) -> None:
        """Write (n, levels + …) zeros and ones."""
        codes = pd.Index(self.levels, dtype="str").get_indexer(words)
        missing = words.isna().to_numpy()
        out[:] = 0
        listed = np.flatnonzero(codes >= 0)
        out[listed, codes[listed]] = 1
        if self.other:
            out[(codes < 0) & ~missing, len(self.levels)] = 1
        if self.indicator:
            out[missing, -1] = 1


@dataclass(frozen=True)
class Encoding:
    """Everything needed to turn a new table into the same columns of numbers. It is saved as JSON.

    ``learned_from`` are the rows from which it was learned, in words.
    """

    cleaning: Cleaning
    columns: tuple[Numeric | Categorical, ...]
    learned_from: str = field(default="", compare=False)

    @property
    def features(self) -> tuple[str, ...]:
        """The names of the columns of numbers."""
        return tuple(feature for column in self.columns for feature in column.features)

    @property
    def units(self) -> tuple[np.ndarray, np.ndarray]:
        """Centre and scale of every feature, which turn rows back into the units of their files: (d,), (d,)."""
        centre, scale = np.zeros(len(self.features)), np.ones(len(self.features))
        start = 0
        for column in self.columns:
            if isinstance(column, Numeric):
                centre[start], scale[start] = column.centre, column.scale
            start += len(column.features)
        return centre, scale

    def convert(self, rows: np.ndarray, other: Encoding) -> np.ndarray:
        """Convert rows (n, d) to another scaling of the same columns."""
        (centre, scale), (new_centre, new_scale) = self.units, other.units
        return (rows * scale + centre - new_centre) / new_scale

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        columns = [{"kind": type(c).__name__.lower(), **asdict(c)} for c in self.columns]
        cleaning = self.cleaning.to_dict()
        return {"format": FORMAT, "learned_from": self.learned_from, "cleaning": cleaning, "columns": columns}

    def to_json(self) -> str:
        """Text that ``from_json`` reads."""
        return json.dumps(self.to_dict(), ensure_ascii=False, indent=1)

    @classmethod
    def from_json(cls, text: str, where: str = "The encoding") -> Encoding:
        """Read and check a saved encoding. ``where`` names it in error messages."""
        try:
            values = json.loads(text)
            if values["format"] != FORMAT:
                raise TableError(f"{where} has encoding format {values['format']}, and this version reads {FORMAT}.")
            columns = tuple(_column(dict(column)) for column in values["columns"])
            names = [column.name for column in columns]
            if not names or len(set(names)) < len(names):
                raise KeyError("columns")
            return cls(Cleaning.from_dict(values["cleaning"]), columns, str(values["learned_from"]))
        except TableError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError):
            raise TableError(f"{where} is damaged. Train and save again.") from None


def _column(values: dict[str, Any]) -> Numeric | Categorical:
    """Read and check one column of a saved encoding."""
    kind = values.pop("kind")
    if not isinstance(values["name"], str) or not isinstance(values["indicator"], bool):
        raise TypeError
    values["name"] = normalize("NFC", values["name"])
    if kind == "numeric":
        column = Numeric(**values)
        numbers = (column.median, column.centre, column.scale)
        finite = all(isinstance(v, float) and math.isfinite(v) for v in numbers)
        if not finite or column.scale <= 0 or not isinstance(column.unit, str):
            raise ValueError
        return column
    levels = tuple(normalize("NFC", level) for level in values.pop("levels"))
    if kind != "categorical" or len(set(levels)) < len(levels):
        raise ValueError
    if not isinstance(values["other"], bool):
        raise TypeError
    return Categorical(levels=levels, **values)


def load_encoding(folder: str | os.PathLike[str]) -> Encoding | None:
    """Load the encoding of a learner; None if the learner was trained on arrays."""
    path = Path(folder) / ENCODING_FILE
    if not path.is_file():
        return None
    try:
        return Encoding.from_json(path.read_text(encoding="utf-8"), str(path))
    except UnicodeDecodeError:
        raise TableError(f"{path} is damaged: it is not text. Train and save again.") from None


def choose_columns(made: Assembled, cleaning: Cleaning, encoding: Encoding | None, notes: list[str]) -> dict[str, str]:
    """Choose the columns to use, with their kinds: numeric or categorical. Open questions about them are raised."""
    file = made.tables[0].name
    if questions := open_questions(made, cleaning, encoding):
        raise Unanswered(questions[0])
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
        return {c.name: NUMERIC if isinstance(c, Numeric) else CATEGORICAL for c in encoding.columns}
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
        use = f"To compare {usable[0]!r} all the same, say use=({usable[0]!r},) (shell: --use)." if usable else ""
        raise TableError(
            f"{file}: no column can be compared. Set aside: {listed(named, 5) or 'all'}. "
            "Bring columns of numbers or categories that vary.",
            use,
        )
    if others := [words for column, words in zip(aside, named, strict=True) if column.kind != IDENTIFIER]:
        notes.append(f"Set aside: {listed(others, SHOWN)}.")
    return chosen


def compared(made: Assembled, cleaning: Cleaning) -> dict[str, str]:
    """The columns that these choices compare, with their kinds: numeric or categorical."""
    left = [c for c in made.columns.values() if c.name not in cleaning.not_compared]
    return {c.name: c.holds or c.kind for c in left if c.used or (c.holds and c.name in cleaning.use)}


def open_questions(made: Assembled, cleaning: Cleaning, encoding: Encoding | None = None) -> list[Question]:
    """The questions about columns that would be compared."""
    names = [column.name for column in encoding.columns] if encoding else made.columns
    unsure = [question for question in made.readings.questions if question.option == ENCODING]
    if encoding is not None:
        learned = {c.name: c.levels if isinstance(c, Categorical) else (c.unit,) for c in encoding.columns}
        question = encoding_question(made.tables, learned=learned, levels=made.limits.levels)
        unsure = [question] if question else []
    aside = {*cleaning.left_out, *(set(made.columns) - set(names))} - {cleaning.block, cleaning.ids}
    unsure = [question for question in unsure if not question.columns or set(question.columns) - aside]
    if unsure:  # the other questions may change with the answer
        return unsure
    compared = [name for name in names if name not in cleaning.not_compared]
    return [
        question for question in made.readings.questions if question.option != ENCODING and question.concerns(compared)
    ]


def learn_encoding(
    made: Assembled, chosen: Mapping[str, str], cleaning: Cleaning, keep: np.ndarray, notes: list[str]
) -> Encoding:
    """Learn levels, medians, centres and scales from the pooled rows of the related tasks, or of the target."""
    used = keep.copy()
    if made.related:
        used[: made.target_rows] = False
    source = f"{len(made.related):,} related tasks" if made.related else "both samples"
    learned: dict[str, Numeric | Categorical | None] = {}
    for name, kind in chosen.items():
        if kind == NUMERIC:
            learned[name] = _learn_numeric(name, made.numbers(name)[used], cleaning, made.columns[name].unit)
        else:
            learned[name] = _learn_categorical(name, made.words(name)[used], cleaning, other=bool(made.related))
    columns = tuple(column for column in learned.values() if column is not None)
    if flat := [repr(name) for name, column in learned.items() if column is None]:
        notes.append(f"Set aside because they do not vary in the pooled rows of {source}: {listed(flat, SHOWN)}.")
    if not columns:
        raise TableError(f"{made.tables[0].name}: no column varies in the rows of {source}. Bring rows that vary.")
    learned_from = f"{int(used.sum()):,} pooled rows of {source}, without their labels"
    numeric = sum(isinstance(column, Numeric) for column in columns)
    if numeric and cleaning.scaling != "none":
        how = "mean and standard deviation" if cleaning.scaling == "standard" else "median and interquartile range"
        were = "column was" if numeric == 1 else "columns were"
        notes.append(f"{numeric:,} numeric {were} scaled by {how} of {learned_from}.")
    for column in columns:
        if isinstance(column, Categorical):
            rest = ", and the others share one" if column.other else ""
            notes.append(f"{column.name!r} became indicators: one for each of {len(column.levels)} levels{rest}.")
    return Encoding(cleaning, columns, learned_from)


def _learn_numeric(name: str, values: np.ndarray, cleaning: Cleaning, unit: str = "") -> Numeric | None:
    """Learn a numeric column from pooled values (NaN if missing); None if they do not vary."""
    finite = np.sort(values[~np.isnan(values)])  # in this order sums do not depend on which sample is P
    if not finite.size or finite[0] == finite[-1]:
        return None
    median = float(np.median(finite))
    centre, scale = 0.0, 1.0
    if cleaning.scaling == "robust":
        low, high = np.quantile(finite, [0.25, 0.75])
        centre, scale = median, float(high - low) / NORMAL_QUARTILES
    if cleaning.scaling == "standard" or (cleaning.scaling == "robust" and not scale > 0):
        largest = float(np.abs(finite).max())  # squares stay finite
        centre, scale = float(finite.mean()), float((finite / largest).std() * largest)
    if not (math.isfinite(scale) and math.isfinite(centre) and scale > 0):
        largest = np.abs(finite).max()
        raise TableError(f"Column {name!r} holds numbers up to {largest:.1e}. Rescale it, or leave it out.")
    indicator = cleaning.missing == "median and indicator" and finite.size < values.size
    return Numeric(name, median, centre, scale, indicator, unit)


def _learn_categorical(name: str, words: pd.Series, cleaning: Cleaning, other: bool) -> Categorical | None:
    """Learn the commonest levels of a column from pooled words (NA if missing); None if there is only one value."""
    counts = words.value_counts()
    missing = cleaning.missing == "median and indicator" and bool(words.isna().any())
    if len(counts) + missing < 2:
        return None
    ranked = sorted((str(level) for level in counts.index), key=lambda level: (-counts[level], level))
    return Categorical(name, tuple(ranked[: cleaning.levels]), other or len(ranked) > cleaning.levels, missing)


def relearn_encoding(encoding: Encoding, rows: np.ndarray) -> Encoding:
    """The same columns with a scaling learned from these encoded rows (n, d) alone."""
    columns, start = [], 0
    for column in encoding.columns:
        if isinstance(column, Numeric) and encoding.cleaning.scaling != "none":
            raw = rows[:, start] * column.scale + column.centre
            if fresh := _learn_numeric(column.name, raw, encoding.cleaning):
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
