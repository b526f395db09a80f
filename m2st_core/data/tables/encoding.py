"""How rows become numbers: what the user chose, and what was learned for it without any label."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

import numpy as np
import pandas as pd

from m2st_core.data.tables.limits import TableError

MISSING_CHOICES = ("refuse", "drop rows", "median and indicator")
SCALING_CHOICES = ("none", "standard", "robust")
FORMAT = 1
IQR_OF_NORMAL = 1.349


@dataclass(frozen=True)
class Cleaning:
    """What the user chose.

    ``missing``: "refuse" stops at the first missing cell, "drop rows" leaves its row out, "median and indicator" fills
    it in and adds a column that says so. ``levels`` is how many categories of a column get an indicator each; the
    others share one. ``block`` names the column within whose values rows are permuted; it is not compared.
    """

    missing: str = "refuse"
    scaling: str = "standard"
    levels: int = 20
    left_out: tuple[str, ...] = ()
    block: str | None = None

    def __post_init__(self) -> None:
        for name, value, choices in (
            ("missing", self.missing, MISSING_CHOICES),
            ("scaling", self.scaling, SCALING_CHOICES),
        ):
            if value not in choices:
                raise TableError(f"{name} must be one of {', '.join(map(repr, choices))}. Got {value!r}.")
        if isinstance(self.levels, bool) or not isinstance(self.levels, int) or not 1 <= self.levels <= 1000:
            raise TableError(f"levels must be a whole number from 1 to 1,000. Got {self.levels!r}.")
        if isinstance(self.left_out, str) or not all(isinstance(name, str) for name in self.left_out):
            raise TableError(f"left_out must list names of columns. Got {self.left_out!r}.")
        if self.block is not None and not isinstance(self.block, str):
            raise TableError(f"block must be the name of a column. Got {self.block!r}.")
        object.__setattr__(self, "left_out", tuple(self.left_out))

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self) | {"left_out": list(self.left_out)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Cleaning:
        """The reverse of ``to_dict``."""
        unknown = set(values) - {f.name for f in fields(cls)}
        if unknown:
            raise TableError(f"Unknown choices for cleaning: {', '.join(sorted(unknown))}.")
        return cls(**values)


@dataclass(frozen=True)
class Numeric:
    """A column of numbers: (value − centre) / scale; with ``indicator`` a column more says where it was missing."""

    name: str
    median: float
    centre: float = 0.0
    scale: float = 1.0
    indicator: bool = False

    @property
    def features(self) -> tuple[str, ...]:
        """The columns it becomes."""
        return (self.name, f"{self.name} is missing") if self.indicator else (self.name,)

    def encode(self, values: np.ndarray, out: np.ndarray) -> int:
        """Write (n, 1 or 2) numbers; how many cells had to be filled in."""
        missing = np.isnan(values)
        out[:, 0] = (np.where(missing, self.median, values) - self.centre) / self.scale
        if self.indicator:
            out[:, 1] = missing
        return int(missing.sum())


@dataclass(frozen=True)
class Categorical:
    """A column of categories: one indicator per level, one for all others, one for missing cells, as needed."""

    name: str
    levels: tuple[str, ...]
    other: bool = False
    indicator: bool = False

    @property
    def features(self) -> tuple[str, ...]:
        """The columns it becomes."""
        extra = [f"{self.name} is other"] * self.other + [f"{self.name} is missing"] * self.indicator
        return (*(f"{self.name} = {level}" for level in self.levels), *extra)

    def encode(self, words: pd.Series, out: np.ndarray) -> int:
        """Write (n, levels + …) zeros and ones; how many cells had a level that is not among those known."""
        codes = pd.Index(self.levels, dtype="str").get_indexer(words)
        missing = words.isna().to_numpy()
        other = (codes < 0) & ~missing
        out[:] = 0
        known = np.flatnonzero(codes >= 0)
        out[known, codes[known]] = 1
        if self.other:
            out[other, len(self.levels)] = 1
        if self.indicator:
            out[missing, -1] = 1
        return int(other.sum())


@dataclass(frozen=True)
class Encoding:
    """Everything needed to turn a new table into the same columns of numbers; it serialises to JSON.

    ``learned_from`` says in words which rows taught it.
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
        parts = [
            [(c.centre, c.scale), (0.0, 1.0)][: len(c.features)]
            if isinstance(c, Numeric)
            else [(0.0, 1.0)] * len(c.features)
            for c in self.columns
        ]
        centre, scale = np.array([pair for part in parts for pair in part]).T
        return centre, scale

    def convert(self, rows: np.ndarray, other: Encoding) -> np.ndarray:
        """Rows (n, d) of this encoding by another scaling of the same columns."""
        (centre, scale), (new_centre, new_scale) = self.units, other.units
        return (rows * scale + centre - new_centre) / new_scale

    def relearned(self, rows: np.ndarray) -> Encoding:
        """The same columns, their scaling learned from these encoded rows (n, d) alone."""
        columns, start = [], 0
        for column in self.columns:
            if isinstance(column, Numeric) and self.cleaning.scaling != "none":
                raw = rows[:, start] * column.scale + column.centre
                fresh = learn_numeric(column.name, raw, self.cleaning)
                column = replace(column, centre=fresh.centre, scale=fresh.scale) if fresh is not None else column
            columns.append(column)
            start += len(column.features)
        return replace(self, columns=tuple(columns))

    def to_json(self) -> str:
        """Text that ``from_json`` reads."""
        columns = [{"kind": type(c).__name__.lower(), **asdict(c)} for c in self.columns]
        about = {"format": FORMAT, "learned_from": self.learned_from, "cleaning": self.cleaning.to_dict()}
        return json.dumps(about | {"columns": columns}, ensure_ascii=False, indent=1)

    @classmethod
    def from_json(cls, text: str, where: str = "The encoding") -> Encoding:
        """An encoding that was saved, checked; ``where`` it comes from is for the error message."""
        try:
            about = json.loads(text)
            if about["format"] != FORMAT:
                raise TableError(f"{where} has encoding format {about['format']}, and this version reads {FORMAT}.")
            columns = tuple(_column(dict(values)) for values in about["columns"])
            names = [column.name for column in columns]
            if not names or len(set(names)) < len(names):
                raise KeyError("columns")
            return cls(Cleaning.from_dict(about["cleaning"]), columns, str(about["learned_from"]))
        except TableError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise TableError(f"{where} is damaged ({type(error).__name__}). Train and save again.") from None


def _column(values: dict[str, Any]) -> Numeric | Categorical:
    """One column of a saved encoding."""
    kind = values.pop("kind")
    if not isinstance(values["name"], str) or not isinstance(values["indicator"], bool):
        raise TypeError
    if kind == "numeric":
        found = Numeric(**values)
        numbers = (found.median, found.centre, found.scale)
        if not all(isinstance(v, float) and math.isfinite(v) for v in numbers) or found.scale <= 0:
            raise ValueError
        return found
    levels = tuple(values.pop("levels"))
    if kind != "categorical" or not all(isinstance(level, str) for level in levels) or len(set(levels)) < len(levels):
        raise ValueError
    if not isinstance(values["other"], bool):
        raise TypeError
    return Categorical(levels=levels, **values)


def learn_numeric(name: str, values: np.ndarray, cleaning: Cleaning) -> Numeric | None:
    """From pooled values (NaN is missing), without labels; None if they do not vary."""
    found = np.sort(values[~np.isnan(values)])  # in this order sums do not depend on who is P
    if not found.size or found[0] == found[-1]:
        return None
    median = float(np.median(found))
    centre, scale = 0.0, 1.0
    if cleaning.scaling == "robust":
        low, high = np.quantile(found, [0.25, 0.75])
        centre, scale = median, float(high - low) / IQR_OF_NORMAL
    if cleaning.scaling == "standard" or (cleaning.scaling == "robust" and not scale > 0):
        largest = float(np.abs(found).max())  # squares stay finite
        centre, scale = float(found.mean()), float((found / largest).std() * largest)
    if not (math.isfinite(scale) and math.isfinite(centre) and scale > 0):
        raise TableError(f"Column {name!r} holds numbers up to {np.abs(found).max():.1e}. Rescale it, or leave it out.")
    indicator = cleaning.missing == "median and indicator" and found.size < values.size
    return Numeric(name, median, centre, scale, bool(indicator))


def learn_categorical(name: str, words: pd.Series, cleaning: Cleaning, other: bool) -> Categorical | None:
    """From pooled words (NA is missing), without labels: the commonest levels; None if there is but one value."""
    counts = words.value_counts()
    missing = cleaning.missing == "median and indicator" and bool(words.isna().any())
    if len(counts) + missing < 2:
        return None
    ranked: Sequence[str] = sorted((str(level) for level in counts.index), key=lambda level: (-counts[level], level))
    return Categorical(name, tuple(ranked[: cleaning.levels]), other or len(ranked) > cleaning.levels, missing)
