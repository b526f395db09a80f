"""What was ever computed: runs, cells and learners, addressed by what they depend on.

SQLite in WAL mode and learner folders under ``M2ST_HOME``. Only the owner of a run writes; several owners may share a
store. Every finished cell is one committed row, so a killed run loses the cells in flight and nothing else.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pandas as pd

from m2st_core.sweeps.spec import Cell, LearnerSpec, SweepSpec, canonical, data_of, digest, label_of, origin_of
from m2st_core.sweeps.trial import CellResult, LearnerParts
from m2st_core.testing.learner_files import learner_from_parts
from m2st_core.testing.meta import ABOUT, TENSORS

SCHEMA = 2
TABLES = """
CREATE TABLE cells (key TEXT PRIMARY KEY, spec TEXT NOT NULL, rejections INTEGER NOT NULL, tests INTEGER NOT NULL,
                    seconds REAL NOT NULL, created REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE learners (key TEXT PRIMARY KEY, spec TEXT NOT NULL, seconds REAL NOT NULL, created REAL NOT NULL)
                    WITHOUT ROWID;
CREATE TABLE runs (id TEXT PRIMARY KEY, name TEXT NOT NULL, spec TEXT NOT NULL, state TEXT NOT NULL,
                   message TEXT NOT NULL, created REAL NOT NULL, updated REAL NOT NULL) WITHOUT ROWID;
"""
MEASUREMENTS = """
CREATE TABLE measurements (key TEXT PRIMARY KEY, spec TEXT NOT NULL, rows TEXT NOT NULL, created REAL NOT NULL)
                   WITHOUT ROWID
"""  # new in schema 2

OLDER = "older version"  # the state of a run that is kept, and neither shown nor resumed

COLUMNS = [name for name in Cell.__dataclass_fields__ if name not in ("settings", "data")]


class StoreError(ValueError):
    """The store can not be used, and why."""


@dataclass(frozen=True)
class Run:
    """A sweep that somebody asked for, and where it stood when its owner last said."""

    id: str
    name: str
    spec: SweepSpec
    state: str
    message: str
    created: float
    updated: float


def _is_older(run: str, spec_json: str) -> bool:
    """Whether another version of the code made this run: the same spec has another id now."""
    return digest(json.loads(spec_json))[:12] != run


def _older_sentence(run: str) -> str:
    return (
        f"Run {run} was made by an older version, in which some names of methods meant other algorithms. Its numbers "
        "are not shown. Run it again, or delete it."
    )


def _cells(spec_json: str) -> dict[str, Cell]:
    """The cells of a spec by key, for the images that are there now."""
    return _cells_on(spec_json, data_of(json.loads(spec_json)["task"]))


@lru_cache(maxsize=128)
def _cells_on(spec_json: str, data: str) -> dict[str, Cell]:
    """Hashing a large grid is worth doing once."""
    return {cell.key: cell for cell in SweepSpec.from_json(spec_json).cells()}


def as_rows(found: Iterable[tuple[Cell, CellResult]]) -> pd.DataFrame:
    """Cells with their results as a tidy table; ``origin`` says whose the method is."""
    rows = [
        {name: getattr(cell, name) for name in COLUMNS}
        | {"origin": origin_of(cell.method)}
        | {"rejections": r.rejections, "rate": r.rejections / r.tests, "seconds": r.seconds}
        for cell, r in found
    ]
    return pd.DataFrame(rows, columns=[*COLUMNS, "origin", "rejections", "rate", "seconds"])


def default_home() -> Path:
    """``M2ST_HOME``, or a folder in the user's home directory."""
    return Path(os.environ.get("M2ST_HOME") or Path.home() / ".m2st")


class Store:
    """Results on disk; see the module's text."""

    def __init__(self, home: str | os.PathLike[str] | None = None) -> None:
        self.home = Path(home) if home is not None else default_home()
        try:
            (self.home / "learners").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"The store {self.home} can not be made: {error.strerror}. Set M2ST_HOME.") from None
        self._path = self.home / "store.sqlite"
        with self._connect() as db:
            version = db.execute("PRAGMA user_version").fetchone()[0]
            if version in (0, 1):
                self._make(db)
            elif version != SCHEMA:
                raise StoreError(
                    f"The store {self.home} has schema {version}, and this version reads {SCHEMA}. "
                    "Use the version that wrote it, or set M2ST_HOME to another folder."
                )

    def _make(self, db: sqlite3.Connection) -> None:
        db.execute("BEGIN IMMEDIATE")  # two processes may open a new store at once
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version == 0:
            if db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                raise StoreError(f"{self._path} is a database of something else. Set M2ST_HOME to another folder.")
            for statement in TABLES.split(";"):
                if statement.strip():
                    db.execute(statement)
        if version < SCHEMA:
            db.execute(MEASUREMENTS)
            db.execute(f"PRAGMA user_version = {SCHEMA}")

    @contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        """A connection for one transaction; each thread and process has its own."""
        db = None
        try:
            db = sqlite3.connect(self._path, timeout=30)
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")
            with db:
                yield db
        except sqlite3.DatabaseError as error:
            raise StoreError(
                f"The store {self._path} can not be read or written: {error}. "
                "Move it away, or set M2ST_HOME to another folder."
            ) from None
        finally:
            if db is not None:
                db.close()

    def results(self, cells: Iterable[Cell]) -> dict[str, CellResult]:
        """What is known of these cells, by key."""
        return self._results([cell.key for cell in cells])

    def _results(self, keys: Sequence[str]) -> dict[str, CellResult]:
        found: dict[str, CellResult] = {}
        with self._connect() as db:
            for start in range(0, len(keys), 500):
                part = keys[start : start + 500]
                marks = ",".join("?" * len(part))
                query = f"SELECT key, rejections, tests, seconds FROM cells WHERE key IN ({marks})"
                found |= {key: CellResult(*values) for key, *values in db.execute(query, part)}
        return found

    def newest(self, cells: Iterable[Cell]) -> float | None:
        """When the last of these cells was computed, in seconds since 1970; None if none was."""
        with self._connect() as db:
            query = "SELECT created FROM cells WHERE key = ?"
            times = [found[0] for cell in cells if (found := db.execute(query, (cell.key,)).fetchone())]
        return max(times, default=None)

    def add_cell(self, cell: Cell, result: CellResult) -> None:
        """Keep a cell's result; the first one stays."""
        values = (cell.key, canonical(asdict(cell)), result.rejections, result.tests, result.seconds, time.time())
        with self._connect() as db:
            db.execute("INSERT OR IGNORE INTO cells VALUES (?, ?, ?, ?, ?, ?)", values)

    def measurement(self, key: str) -> list[dict[str, Any]] | None:
        """The rows of a measurement other than a cell's rejections; None if there is none."""
        with self._connect() as db:
            found = db.execute("SELECT rows FROM measurements WHERE key = ?", (key,)).fetchone()
        return None if found is None else json.loads(found[0])

    def add_measurement(self, key: str, spec: dict[str, Any], rows: list[dict[str, Any]]) -> None:
        """Keep its rows; the first ones stay."""
        with self._connect() as db:
            values = (key, canonical(spec), canonical(rows), time.time())
            db.execute("INSERT OR IGNORE INTO measurements VALUES (?, ?, ?, ?)", values)

    def learner(self, spec: LearnerSpec) -> LearnerParts | None:
        """A learner's parts; None if there is none, or if its files are not what was saved."""
        folder = self._folder(spec)
        try:
            parts = (folder / ABOUT).read_text(encoding="utf-8"), (folder / TENSORS).read_bytes()
            learner_from_parts(*parts)
        except (OSError, ValueError):
            return None
        return parts

    def add_learner(self, spec: LearnerSpec, parts: LearnerParts, seconds: float) -> None:
        """Keep a learner; its folder appears whole or not at all, and replaces a damaged one."""
        folder = self._folder(spec)
        made = Path(tempfile.mkdtemp(dir=self.home / "learners"))
        (made / TENSORS).write_bytes(parts[1])
        (made / ABOUT).write_text(parts[0], encoding="utf-8")
        if folder.exists():
            shutil.rmtree(folder, ignore_errors=True)
        try:
            made.rename(folder)
        except OSError:  # another owner was faster
            shutil.rmtree(made, ignore_errors=True)
        with self._connect() as db:
            values = (spec.key, canonical(asdict(spec)), seconds, time.time())
            db.execute("INSERT OR REPLACE INTO learners VALUES (?, ?, ?, ?)", values)

    def _folder(self, spec: LearnerSpec) -> Path:
        return self.home / "learners" / spec.key

    def start_run(self, spec: SweepSpec, name: str = "") -> str:
        """Register a run, or find the one with the same spec; its id."""
        now, run = time.time(), spec.hash[:12]
        with self._connect() as db:
            name = name or f"{spec.task}: {', '.join(map(label_of, spec.methods))}"
            values = (run, name, spec.to_json(), "running", "", now, now)
            db.execute("INSERT OR IGNORE INTO runs VALUES (?, ?, ?, ?, ?, ?, ?)", values)
        self.set_state(run, "running")
        return run

    def set_state(self, run: str, state: str, message: str = "") -> None:
        """Where a run stands: running, done, cancelled or failed."""
        with self._connect() as db:
            db.execute(
                "UPDATE runs SET state = ?, message = ?, updated = ? WHERE id = ?", (state, message, time.time(), run)
            )

    def run(self, run: str) -> Run | None:
        """The run with exactly this id; a StoreError if an older version made it."""
        with self._connect() as db:
            found = db.execute("SELECT * FROM runs WHERE id = ?", (run,)).fetchone()
        if found is None:
            return None
        if _is_older(found[0], found[2]):
            raise StoreError(_older_sentence(run))
        return Run(found[0], found[1], SweepSpec.from_json(found[2]), *found[3:])

    def spec(self, run: str) -> SweepSpec:
        """The spec of a run; the start of its id is enough. A StoreError if an older version made it."""
        whole, text = self._find(run)
        if _is_older(whole, text):
            raise StoreError(_older_sentence(whole))
        return SweepSpec.from_json(text)

    def _find(self, run: str) -> tuple[str, str]:
        """Id and spec of the one run whose id starts so."""
        with self._connect() as db:
            found = db.execute("SELECT id, spec FROM runs WHERE id LIKE ? || '%'", (run,)).fetchall()
        if len(found) != 1:
            problem = "no run" if not found else f"{len(found)} runs"
            raise StoreError(f"There is {problem} with an id that starts with {run!r}. See: python -m m2st_core runs")
        return found[0][0], found[0][1]

    def runs(self) -> pd.DataFrame:
        """All runs, the newest first, with how many of their cells are done: of older versions' runs, none."""
        with self._connect() as db:
            frame = pd.read_sql_query("SELECT * FROM runs ORDER BY updated DESC", db)
        done, cells = [], []
        for place, (run, text) in enumerate(zip(frame["id"], frame["spec"], strict=True)):
            older = _is_older(run, text)
            wanted = {} if older else _cells(text)
            cells.append(len(wanted))
            done.append(len(self._results(list(wanted))))
            if older:
                frame.loc[place, ["state", "message"]] = [OLDER, _older_sentence(run)]
        return frame.assign(done=done, cells=cells)

    def delete_run(self, run: str) -> None:
        """Forget a run, and those of its cells that no other run has. Learners stay: others may need them.

        Cells of older versions have other keys and stay too.
        """
        whole, own_text = self._find(run)
        with self._connect() as db:
            if not _is_older(whole, own_text):
                known = db.execute("SELECT id, spec FROM runs WHERE id != ?", (whole,)).fetchall()
                others = {key for other, text in known if not _is_older(other, text) for key in _cells(text)}
                own = [(key,) for key in _cells(own_text) if key not in others]
                db.executemany("DELETE FROM cells WHERE key = ?", own)
            db.execute("DELETE FROM runs WHERE id = ?", (whole,))

    def rows(self, spec: SweepSpec) -> pd.DataFrame:
        """The spec's finished cells as a tidy table, one row each, in the order of the grid."""
        cells = _cells(spec.to_json())
        known = self._results(list(cells))
        return as_rows((cell, known[key]) for key, cell in cells.items() if key in known)
