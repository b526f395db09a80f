"""Results by the hash of what they depend on: SQLite and learner folders under ``M2ST_HOME``, a row per cell."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd

from m2st_core.sweeps.spec import SweepSpec
from m2st_core.sweeps.summary import as_rows
from m2st_core.sweeps.trial import Cell, CellResult, LearnerParts, LearnerSpec, canonical, data_of, digest
from m2st_core.testing.learner_files import learner_from_parts
from m2st_core.testing.meta import ABOUT, TENSORS

SCHEMA = 2  # schema 1 lacks the measurements
TABLES = (
    "cells (key TEXT PRIMARY KEY, spec TEXT NOT NULL, rejections INTEGER NOT NULL, tests INTEGER NOT NULL, "
    "seconds REAL NOT NULL, created REAL NOT NULL)",
    "learners (key TEXT PRIMARY KEY, spec TEXT NOT NULL, seconds REAL NOT NULL, created REAL NOT NULL)",
    "runs (id TEXT PRIMARY KEY, name TEXT NOT NULL, spec TEXT NOT NULL, state TEXT NOT NULL, message TEXT NOT NULL, "
    "created REAL NOT NULL, updated REAL NOT NULL)",
    "measurements (key TEXT PRIMARY KEY, spec TEXT NOT NULL, rows TEXT NOT NULL, created REAL NOT NULL)",
)
SHIPPED = 0.0  # the seconds of a cell that came with the software
AMONG = "(SELECT value FROM json_each(?))"
OLDER = "older version"  # the state of a run that is kept, but neither shown nor resumed
OLDER_SENTENCE = (
    "Run {} was made by an older version, in which some names of methods meant other algorithms. Its numbers are not "
    "shown. Run it again, or delete it."
)


class StoreError(ValueError):
    """A sentence on why the store cannot be used."""


@dataclass(frozen=True)
class Run:
    """A requested sweep with the last state that its owner wrote."""

    id: str
    name: str
    spec: SweepSpec
    state: str
    message: str
    created: float
    updated: float


def _is_older(run: str, spec_json: str) -> bool:
    """Whether another version of the code made this run: the same spec has another id now."""
    return not digest(json.loads(spec_json)).startswith(run)


def _cells(spec_json: str) -> dict[str, Cell]:
    return _cells_with(spec_json, data_of(json.loads(spec_json)["task"]))


@lru_cache(maxsize=128)
def _cells_with(spec_json: str, data: str) -> dict[str, Cell]:
    """Cells of a spec by key, for the user's images; cached, because hashing a large grid takes long."""
    return {cell.key: cell for cell in SweepSpec.from_json(spec_json).cells()}


class Store:
    """Results on disk; see the module's text."""

    def __init__(self, home: str | os.PathLike[str] | None = None) -> None:
        self.home = Path(home or os.environ.get("M2ST_HOME") or Path.home() / ".m2st")
        self._path = self.home / "store.sqlite"
        try:
            (self.home / "learners").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"The store {self.home} cannot be made: {error.strerror}. Set M2ST_HOME.") from None
        with self._connect() as db:
            if db.execute("PRAGMA user_version").fetchone()[0] != SCHEMA:
                self._update(db)

    def _update(self, db: sqlite3.Connection) -> None:
        db.execute("BEGIN IMMEDIATE")  # two processes may open a new store at once
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version == 0 and db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise StoreError(f"{self._path} is another kind of database. Set M2ST_HOME to another folder.")
        if version > SCHEMA:
            remedy = "Use the version that wrote it, or set M2ST_HOME to another folder."
            raise StoreError(f"The store {self.home} has schema {version}, and this version reads {SCHEMA}. {remedy}")
        for table in TABLES:
            db.execute(f"CREATE TABLE IF NOT EXISTS {table} WITHOUT ROWID")
        db.execute(f"PRAGMA user_version = {SCHEMA}")

    @contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        """Open a connection for one transaction; each thread and process has its own."""
        try:
            with closing(sqlite3.connect(self._path, timeout=30)) as db, db:
                db.execute("PRAGMA journal_mode = WAL")
                db.execute("PRAGMA synchronous = NORMAL")
                yield db
        except (sqlite3.DatabaseError, pd.errors.DatabaseError) as error:
            remedy = "Move it away, or set M2ST_HOME to another folder."
            raise StoreError(f"The store {self._path} cannot be read or written: {error}. {remedy}") from None

    def _execute(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._connect() as db:
            return db.execute(statement, values).fetchall()

    def results(self, keys: Iterable[str]) -> dict[str, CellResult]:
        """Stored results of the cells with these keys."""
        query = f"SELECT key, rejections, tests, seconds FROM cells WHERE key IN {AMONG}"
        return {key: CellResult(*values) for key, *values in self._execute(query, canonical(list(keys)))}

    def newest(self, keys: Iterable[str]) -> float | None:
        """Time at which the last of these cells was computed, in seconds since 1970; None if none was."""
        return self._execute(f"SELECT max(created) FROM cells WHERE key IN {AMONG}", canonical(list(keys)))[0][0]

    def add_cell(self, cell: Cell, result: CellResult) -> None:
        """Store a cell's result, unless it has one."""
        values = (cell.key, canonical(asdict(cell)), result.rejections, result.tests, result.seconds, time.time())
        self._execute("INSERT OR IGNORE INTO cells VALUES (?, ?, ?, ?, ?, ?)", *values)

    def drop_shipped(self, keys: Iterable[str]) -> None:
        """Delete those of these cells that were not computed here but came with the software."""
        self._execute(f"DELETE FROM cells WHERE seconds = {SHIPPED} AND key IN {AMONG}", canonical(list(keys)))

    def measurement(self, key: str) -> list[dict[str, Any]] | None:
        """Rows of a measurement other than a cell's rejections; None if there is none."""
        stored = self._execute("SELECT rows FROM measurements WHERE key = ?", key)
        return json.loads(stored[0][0]) if stored else None

    def add_measurement(self, key: str, spec: dict[str, Any], rows: list[dict[str, Any]]) -> None:
        """Store the rows of a measurement, unless it has some."""
        statement = "INSERT OR IGNORE INTO measurements VALUES (?, ?, ?, ?)"
        self._execute(statement, key, canonical(spec), canonical(rows), time.time())

    def learner(self, spec: LearnerSpec) -> LearnerParts | None:
        """A learner's parts; None if there are none, or if its files are damaged."""
        folder = self.home / "learners" / spec.key
        try:
            parts = (folder / ABOUT).read_text(encoding="utf-8"), (folder / TENSORS).read_bytes()
            learner_from_parts(*parts)
        except (OSError, ValueError):
            return None
        return parts

    def add_learner(self, spec: LearnerSpec, parts: LearnerParts, seconds: float) -> None:
        """Store a learner. Its folder appears whole or not at all, and replaces a damaged one."""
        folder = self.home / "learners" / spec.key
        new = Path(tempfile.mkdtemp(dir=self.home / "learners"))
        (new / TENSORS).write_bytes(parts[1])
        (new / ABOUT).write_text(parts[0], encoding="utf-8")
        shutil.rmtree(folder, ignore_errors=True)
        try:
            new.rename(folder)
        except OSError:  # another owner was faster
            shutil.rmtree(new, ignore_errors=True)
        values = (spec.key, canonical(asdict(spec)), seconds, time.time())
        self._execute("INSERT OR REPLACE INTO learners VALUES (?, ?, ?, ?)", *values)

    def start_run(self, spec: SweepSpec, name: str = "") -> str:
        """Register a run, or restart the one with the same spec; return its id."""
        name, run, values = name or spec.label, spec.run_id, ("", "", time.time(), 0.0)
        self._execute("INSERT OR IGNORE INTO runs VALUES (?, ?, ?, ?, ?, ?, ?)", run, name, spec.to_json(), *values)
        self.set_state(run, "running")
        return run

    def set_state(self, run: str, state: str, message: str = "") -> None:
        """Write a run's state: running, done, cancelled or failed."""
        self._execute("UPDATE runs SET state=?, message=?, updated=? WHERE id=?", state, message, time.time(), run)

    def run(self, run: str) -> Run | None:
        """The run with exactly this id; a StoreError if an older version made it."""
        for _, name, text, *state in self._execute("SELECT * FROM runs WHERE id = ?", run):
            if _is_older(run, text):
                raise StoreError(OLDER_SENTENCE.format(run))
            return Run(run, name, SweepSpec.from_json(text), *state)
        return None

    def find_run(self, start: str) -> str:
        """The id of the one run whose id starts so; a StoreError if there are none or several."""
        runs = self._execute("SELECT id FROM runs WHERE id LIKE ? || '%'", start)
        if len(runs) != 1:
            problem = f"are {len(runs)} runs" if runs else "is no run"
            raise StoreError(f"There {problem} with an id that starts with {start!r}. See: python -m m2st_core runs")
        return str(runs[0][0])

    def runs(self) -> pd.DataFrame:
        """All runs, the newest first, with their numbers of cells and of finished cells (0 for older versions)."""
        with self._connect() as db:
            frame = pd.read_sql_query("SELECT * FROM runs ORDER BY updated DESC", db)
        older = [_is_older(run, text) for run, text in zip(frame["id"], frame["spec"], strict=True)]
        cells = [{} if old else _cells(text) for old, text in zip(older, frame["spec"], strict=True)]
        frame.loc[older, "state"], frame.loc[older, "message"] = OLDER, frame["id"].map(OLDER_SENTENCE.format)
        return frame.assign(done=[len(self.results(keys)) for keys in cells], cells=[len(keys) for keys in cells])

    def delete_run(self, start: str) -> None:
        """Delete the run whose id starts so, and its cells that no other run has. Learners and older cells stay."""
        run = self.find_run(start)
        specs = {id_: text for id_, text in self._execute("SELECT id, spec FROM runs") if not _is_older(id_, text)}
        own = set(_cells(specs.pop(run))) - set().union(*map(_cells, specs.values())) if run in specs else set()
        self._execute(f"DELETE FROM cells WHERE key IN {AMONG}", canonical(list(own)))
        self._execute("DELETE FROM runs WHERE id = ?", run)

    def rows(self, spec: SweepSpec) -> pd.DataFrame:
        """Finished cells of the spec as a tidy table, in the order of the grid."""
        cells = _cells(spec.to_json())
        results = self.results(cells)
        return as_rows((cell, results[key]) for key, cell in cells.items() if key in results)
