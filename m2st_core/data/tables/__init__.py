r"""From files as people have them to clean arrays: read, assemble, check, prepare.

>>> p = read_table("p.csv", b"height;colour\n1,5;red\n2,5;blue\n")
>>> q = read_table("q.csv", b"height,colour\n1.0,red\n4.5,red\n")
>>> prepare(Upload((p, q)), Cleaning(scaling="none")).y
array([[1. , 1. , 0. ],
       [4.5, 1. , 0. ]])
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from m2st_core.data.tables.assembled import Assembled, assemble
from m2st_core.data.tables.checking import Check, ColumnReport, check
from m2st_core.data.tables.clean import CleanData, plain, prepare, safe_cell, to_safe_csv
from m2st_core.data.tables.encoding import MISSING_CHOICES, SCALING_CHOICES, Cleaning, Encoding
from m2st_core.data.tables.examples import EXAMPLES, Example
from m2st_core.data.tables.files import Table, read_table, read_tables
from m2st_core.data.tables.limits import Limits, TableError
from m2st_core.data.tables.upload import Upload, suggest_groups

ENCODING_FILE = "encoding.json"


def read_files(paths: Iterable[str | os.PathLike[str]], limits: Limits | None = None) -> tuple[Table, ...]:
    """The tables in these files, those in ZIP archives included."""
    limits = limits or Limits.from_environment()
    tables: list[Table] = []
    for path in map(Path, paths):
        if not path.is_file():
            raise TableError(f"{path}: there is no such file.")
        try:
            limits.check_bytes(str(path), path.stat().st_size)
            data = path.read_bytes()
        except OSError as error:
            raise TableError(f"{path} can not be read: {error.strerror}.") from None
        tables += read_tables(str(path), data, limits)
    return tuple(tables)


def save_encoding(encoding: Encoding, folder: str | os.PathLike[str]) -> None:
    """Write it beside a learner, into the learner's folder."""
    (Path(folder) / ENCODING_FILE).write_text(encoding.to_json(), encoding="utf-8")


def load_encoding(folder: str | os.PathLike[str]) -> Encoding | None:
    """The encoding beside a learner, or None if it was trained on arrays."""
    path = Path(folder) / ENCODING_FILE
    if not path.is_file():
        return None
    try:
        return Encoding.from_json(path.read_text(encoding="utf-8"), str(path))
    except UnicodeDecodeError:
        raise TableError(f"{path} is damaged: it is no text. Train and save again.") from None


__all__ = [
    "ENCODING_FILE",
    "EXAMPLES",
    "MISSING_CHOICES",
    "SCALING_CHOICES",
    "Assembled",
    "Check",
    "CleanData",
    "Cleaning",
    "ColumnReport",
    "Encoding",
    "Example",
    "Limits",
    "Table",
    "TableError",
    "Upload",
    "assemble",
    "check",
    "load_encoding",
    "plain",
    "prepare",
    "read_files",
    "read_table",
    "read_tables",
    "safe_cell",
    "save_encoding",
    "suggest_groups",
    "to_safe_csv",
]
