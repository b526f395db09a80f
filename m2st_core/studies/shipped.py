"""Results that come with the software: a compressed file for each name, with a stamp of the code that made it.

``python -m m2st_core bench shipped`` computes them anew.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from m2st_core.sweeps.cells import CODE
from m2st_core.testing.methods import METHODS

FOLDER = Path(__file__).with_name("shipped")
TEXT = "about"  # the entry of a file with everything but its arrays


@dataclass(frozen=True)
class Shipped:
    """Arrays, tables and plain values by name, and the code version with the revision of each method behind them."""

    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    tables: Mapping[str, pd.DataFrame] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    stamp: Mapping[str, str | int] = field(default_factory=dict)

    def save(self, name: str, folder: Path = FOLDER) -> Path:
        """Write the file of this name."""
        tables = {key: table.to_csv(index=False, float_format="%.6g") for key, table in self.tables.items()}
        about = {"stamp": dict(self.stamp), "values": dict(self.values), "tables": tables}
        path = folder / f"{name}.npz"
        entries: dict[str, Any] = {**self.arrays, TEXT: np.array(json.dumps(about, ensure_ascii=False))}
        np.savez_compressed(path, **entries)
        return path


def shipped_stamp(methods: Sequence[str]) -> dict[str, str | int]:
    """The version of the sampling, and the revision of each method: numbers of another stamp may not agree."""
    return {"code": CODE, **{name: METHODS[name].revision for name in methods}}


@lru_cache(maxsize=16)
def load_shipped(name: str, folder: Path = FOLDER) -> Shipped:
    """The shipped results of this name."""
    with np.load(folder / f"{name}.npz", allow_pickle=False) as stored:
        arrays = {key: stored[key] for key in stored.files}
    about = json.loads(str(arrays.pop(TEXT)))
    tables = {key: pd.read_csv(io.StringIO(text), dtype={"class": str}) for key, text in about["tables"].items()}
    return Shipped(arrays, tables, about["values"], about["stamp"])
