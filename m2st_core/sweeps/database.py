"""The database of a store: one transaction at a time, brought up to date, and read where it cannot be written."""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from m2st_core.environment import home_folder

SECRET = "secret"  # the file with what a served instance signs its cookies with
SCHEMA = 3  # schema 1 lacks the measurements, schema 2 the owners of runs, claims and usage
TABLES = (
    "cells (key TEXT PRIMARY KEY, spec TEXT NOT NULL, rejections INTEGER NOT NULL, tests INTEGER NOT NULL, "
    "seconds REAL NOT NULL, created REAL NOT NULL)",
    "learners (key TEXT PRIMARY KEY, spec TEXT NOT NULL, seconds REAL NOT NULL, created REAL NOT NULL)",
    "runs (id TEXT PRIMARY KEY, name TEXT NOT NULL, spec TEXT NOT NULL, state TEXT NOT NULL, message TEXT NOT NULL, "
    "created REAL NOT NULL, updated REAL NOT NULL)",
    "measurements (key TEXT PRIMARY KEY, spec TEXT NOT NULL, rows TEXT NOT NULL, created REAL NOT NULL)",
    "claims (key TEXT PRIMARY KEY, holder TEXT NOT NULL, until REAL NOT NULL)",
    "usage (owner TEXT NOT NULL, day TEXT NOT NULL, seconds REAL NOT NULL, PRIMARY KEY (owner, day))",
)
RUN_COLUMNS = {  # those that schema 2 lacks
    "owner": "TEXT NOT NULL DEFAULT ''",
    "share": "TEXT NOT NULL DEFAULT ''",
    "deleted": "REAL",
    "holder": "TEXT NOT NULL DEFAULT ''",
    "until": "REAL NOT NULL DEFAULT 0",
}
MOST_IDLE = 4  # open connections
File = tuple[int, ...]
AMONG = "(SELECT value FROM json_each(?))"


class StoreError(ValueError):
    """A sentence on why the store cannot be used."""


def is_writable(path: Path) -> bool:
    """Whether this process may write here."""
    return os.access(path, os.W_OK)


class Database:
    """A folder with a database and learners. A transaction has a connection of its own; a few stay open for others."""

    def __init__(self, home: str | os.PathLike[str] | None = None) -> None:
        self._idle: list[tuple[File, sqlite3.Connection]] = []
        self.home = Path(home or home_folder())
        self._path = self.home / "store.sqlite"
        self.read_only = self._path.exists() and not (is_writable(self.home) and is_writable(self._path))
        if self.read_only:
            self._execute("SELECT count(*) FROM runs")
            return
        try:
            (self.home / "learners").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"The store {self.home} cannot be made: {error.strerror}. Set M2ST_HOME.") from None
        with self._connect() as db:
            if _version(db) != SCHEMA:
                self._update(db)

    def _update(self, db: sqlite3.Connection) -> None:
        db.execute("BEGIN IMMEDIATE")  # two processes may open a new store at once
        version = _version(db)
        if version == 0 and db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            raise StoreError(f"{self._path} is another kind of database. Set M2ST_HOME to another folder.")
        if version > SCHEMA:
            remedy = "Use the version that wrote it, or set M2ST_HOME to another folder."
            raise StoreError(f"The store {self.home} has schema {version}, and this version reads {SCHEMA}. {remedy}")
        for table in TABLES:
            db.execute(f"CREATE TABLE IF NOT EXISTS {table} WITHOUT ROWID")
        there = {row[1] for row in db.execute("PRAGMA table_info(runs)")}
        for name, kind in RUN_COLUMNS.items():
            if name not in there:
                db.execute(f"ALTER TABLE runs ADD COLUMN {name} {kind}")
        db.execute(f"PRAGMA user_version = {SCHEMA}")

    @contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection]:
        """A connection for one transaction."""
        try:
            with ExitStack() as stack:
                file, db = self._take()
                stack.callback(db.close)
                with db:
                    yield db
                if file and len(self._idle) < MOST_IDLE:
                    stack.pop_all()
                    self._idle.append((file, db))
        except sqlite3.DatabaseError as error:
            if "readonly" in str(error) or (self.read_only and "cannot modify" in str(error)):
                raise StoreError(f"The store {self.home} can be read but not written. {REMEDY}") from None
            if "full" in str(error):
                raise StoreError(f"The disk of the store {self.home} is full. Finished cells are kept.") from None
            remedy = f"Move it away, or {REMEDY[0].lower()}{REMEDY[1:]}"
            raise StoreError(f"The store {self._path} cannot be read or written: {error}. {remedy}") from None

    def close(self) -> None:
        """Close the connections that are open, so that all is in one file."""
        while self._idle:
            with suppress(IndexError):
                self._idle.pop()[1].close()

    def _take(self) -> tuple[File, sqlite3.Connection]:
        """An idle connection to the file that is there now, or a new one; read-only ones may not see what changes."""
        if self.read_only:
            return (), self._open()
        while self._idle:
            with suppress(IndexError):  # another thread was faster
                file, db = self._idle.pop()
                if file == _identity(self._path):
                    return file, db
                db.close()  # the store was moved away or deleted
        db = self._open()
        return _identity(self._path), db

    def _open(self) -> sqlite3.Connection:
        if not self.read_only:
            db = sqlite3.connect(self._path, timeout=30, check_same_thread=False)
            db.execute("PRAGMA journal_mode = WAL")
            db.execute("PRAGMA synchronous = NORMAL")
            db.execute("PRAGMA cache_size = -512")  # kB; several connections stay open
            return db
        wal = self._path.with_name(f"{self._path.name}-wal")
        unchanging = "" if wal.exists() and wal.stat().st_size else "&immutable=1"
        db = sqlite3.connect(f"{self._path.absolute().as_uri()}?mode=ro{unchanging}", timeout=30, uri=True)
        if _version(db) < SCHEMA:  # it cannot be brought up to date, so it is read as if it had been
            db.execute("PRAGMA temp_store = MEMORY")
            blank = ", ".join(f"{'NULL' if name == 'deleted' else repr('')} AS {name}" for name in RUN_COLUMNS)
            db.execute(f"CREATE TEMP VIEW runs AS SELECT *, {blank} FROM main.runs")
        return db

    def _execute(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._connect() as db:
            return db.execute(statement, values).fetchall()

    def add_usage(self, owner: str, seconds: float) -> None:
        """Count seconds of computing for a person, today."""
        statement = "INSERT INTO usage VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET seconds = seconds + excluded.seconds"
        self._execute(statement, owner, today(), seconds)

    def used_today(self, owner: str) -> float:
        """Seconds of computing that a person has used today."""
        return float(
            sum(s for (s,) in self._execute("SELECT seconds FROM usage WHERE owner=? AND day=?", owner, today()))
        )

    def usage(self) -> list[tuple[str, float]]:
        """Every person with the seconds used today, the largest first."""
        statement = "SELECT owner, seconds FROM usage WHERE day = ? ORDER BY seconds DESC"
        return [(str(owner), float(seconds)) for owner, seconds in self._execute(statement, today())]


REMEDY = "Set M2ST_HOME to another folder."


def today() -> str:
    """The day that usage is counted in, which begins at midnight UTC."""
    return time.strftime("%Y-%m-%d", time.gmtime())


def _identity(path: Path) -> File:
    """Device and number of a file; empty if there is none."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_dev, found.st_ino


def _version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])
