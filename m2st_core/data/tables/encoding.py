"""The encoding of rows as numbers: the user's choices, and parameters learned without labels."""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np
import pandas as pd

from m2st_core.data.tables.limits import TableError

MISSING_CHOICES = ("refuse", "drop rows", "median and indicator")
SCALING_CHOICES = ("none", "standard", "robust")
FORMAT = 1
ENCODING_FILE = "encoding.json"


@dataclass(frozen=True)
class Cleaning:
    """The user's choices.

    ``missing``: "refuse" stops at the first missing cell, "drop rows" leaves its row out, "median and indicator" fills
    it in and adds a column that says so. ``levels`` is how many categories of a column get an indicator each; the
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

    @property
    def known_words(self) -> tuple[str, ...]:
        """The words that cells are compared with: the unit."""
        return (self.unit,) if self.unit else ()

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

    @property
    def known_words(self) -> tuple[str, ...]:
        """The words that cells are compared with: the levels."""
        return self.levels

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

    ``learned_from`` says in words from which rows it was learned.
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
    levels = tuple(values.pop("levels"))
    if kind != "categorical" or not all(isinstance(level, str) for level in levels) or len(set(levels)) < len(levels):
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
