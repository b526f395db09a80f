"""The files of a store: one SQLite database with its transactions, a folder of learners, backup and restoration."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from m2st_core.environment import home_folder
from m2st_core.testing.meta import ABOUT, TENSORS

FILE = "store.sqlite"
SECRET = "secret"  # the file with the secret by which a server signs its cookies
SCHEMA = 3
TABLES = {
    "cells": "key TEXT PRIMARY KEY, spec TEXT NOT NULL, rejections INTEGER NOT NULL, tests INTEGER NOT NULL, "
    "seconds REAL NOT NULL, created REAL NOT NULL",
    "learners": "key TEXT PRIMARY KEY, spec TEXT NOT NULL, seconds REAL NOT NULL, created REAL NOT NULL",
    "measurements": "key TEXT PRIMARY KEY, spec TEXT NOT NULL, rows TEXT NOT NULL, created REAL NOT NULL",
    "runs": "id TEXT PRIMARY KEY, name TEXT NOT NULL, spec TEXT NOT NULL, state TEXT NOT NULL, message TEXT NOT NULL, "
    "created REAL NOT NULL, updated REAL NOT NULL, owner TEXT NOT NULL DEFAULT '', share TEXT NOT NULL DEFAULT '', "
    "deleted REAL",
    "heartbeats": "holder TEXT PRIMARY KEY, run TEXT NOT NULL, until REAL NOT NULL",
    "claimed": "key TEXT PRIMARY KEY, holder TEXT NOT NULL",
    "usage": "owner TEXT NOT NULL, day TEXT NOT NULL, seconds REAL NOT NULL, PRIMARY KEY (owner, day)",
}
MOST_IDLE = 4  # open connections
PATIENCE = 5.0  # seconds that another writer may take
AMONG = "(SELECT value FROM json_each(?))"
LEARNER = re.compile(rf"learners/[0-9a-f]{{32}}/({re.escape(ABOUT)}|{re.escape(TENSORS)})")
REMEDY = "Set M2ST_HOME to another folder."
Identity = tuple[int, ...]  # device and number of a file; empty without a file


class StoreError(ValueError):
    """A sentence on why the store cannot be used."""


def is_writable(path: Path) -> bool:
    """Whether this process may write here."""
    return os.access(path, os.W_OK)


class Database:
    """A folder with a database and learners. Each transaction has its own connection; a few stay open for others."""

    def __init__(self, home: str | os.PathLike[str] | None = None) -> None:
        self._idle: list[tuple[Identity, sqlite3.Connection]] = []
        self.home = Path(home or home_folder())
        self._path = self.home / FILE
        self.read_only = self._path.exists() and not (is_writable(self.home) and is_writable(self._path))
        if self.read_only:
            self.execute("SELECT count(*) FROM runs")
            return
        try:
            self.learners.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"The store {self.home} cannot be made: {error.strerror}. {REMEDY}") from None
        with self.transaction() as db:
            if not _tables(db) >= TABLES.keys() or _version(db) != SCHEMA:
                self._create(db)

    @property
    def learners(self) -> Path:
        """The folder of learners."""
        return self.home / "learners"

    def _create(self, db: sqlite3.Connection) -> None:
        db.execute("BEGIN IMMEDIATE")  # two processes may open a new store at once
        if (version := _version(db)) not in (0, SCHEMA):
            remedy = "Use the version that wrote it, or set M2ST_HOME to another folder."
            raise StoreError(f"The store {self.home} has schema {version}, and this version reads {SCHEMA}. {remedy}")
        if version == 0 and _tables(db):
            raise StoreError(f"{self._path} is another kind of database. {REMEDY}")
        for name, columns in TABLES.items():
            db.execute(f"CREATE TABLE IF NOT EXISTS {name} ({columns}) WITHOUT ROWID")
        db.execute(f"PRAGMA user_version = {SCHEMA}")

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """A connection for one transaction. It is rolled back after an error."""
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
            if "readonly" in str(error):
                raise StoreError(f"The store {self.home} can be read but not written. {REMEDY}") from None
            if "full" in str(error):
                raise StoreError(f"The disk of the store {self.home} is full. Finished cells are kept.") from None
            remedy = f"Move it away, or {REMEDY[0].lower()}{REMEDY[1:]}"
            raise StoreError(f"The store {self._path} cannot be read or written: {error}. {remedy}") from None

    def execute(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Execute one statement as a transaction; return its rows."""
        with self.transaction() as db:
            return db.execute(statement, values).fetchall()

    def close(self) -> None:
        """Close idle connections, which moves the write-ahead log into the database."""
        while self._idle:
            with suppress(IndexError):
                self._idle.pop()[1].close()

    def _take(self) -> tuple[Identity, sqlite3.Connection]:
        """An idle connection to the present file, or a new one. Read-only ones do not see changes, so none is kept."""
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
        if self.read_only:
            wal = self._path.with_name(f"{self._path.name}-wal")
            unchanging = "" if wal.exists() and wal.stat().st_size else "&immutable=1"
            return sqlite3.connect(f"{self._path.absolute().as_uri()}?mode=ro{unchanging}", timeout=30, uri=True)
        db = sqlite3.connect(self._path, timeout=30, check_same_thread=False)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = NORMAL")
        db.execute("PRAGMA cache_size = -512")  # kB; several connections stay open
        return db

    def check_writable(self) -> None:
        """Refuse a database into which nothing can be written."""
        try:
            with closing(sqlite3.connect(self._path, timeout=PATIENCE)) as db:
                db.execute("BEGIN IMMEDIATE")
                db.execute(f"PRAGMA user_version = {SCHEMA}")
                db.rollback()
        except sqlite3.DatabaseError as error:
            raise StoreError(f"The store {self.home} cannot be written: {error}.") from None

    def back_up(self, path: Path) -> int:
        """Write the store into a ZIP, which appears whole or not at all; return the number of learners.

        It holds the secret that signs the server's cookies, so only its owner can read the file.
        """
        with tempfile.TemporaryDirectory(dir=path.absolute().parent, prefix=".m2st-backup-") as folder:
            copy, packed = Path(folder) / FILE, Path(folder) / "backup.zip"
            try:
                with closing(sqlite3.connect(self._path)) as source, closing(sqlite3.connect(copy)) as target:
                    source.backup(target)  # consistent, also while others write
                    target.execute("PRAGMA journal_mode = DELETE")
                with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
                    archive.write(copy, FILE)
                    if (self.home / SECRET).is_file():
                        archive.write(self.home / SECRET, SECRET)
                    learners = [each for each in sorted(self.learners.iterdir()) if (each / ABOUT).is_file()]
                    for learner in learners:
                        for name in (TENSORS, ABOUT):
                            archive.write(learner / name, f"learners/{learner.name}/{name}")
                packed.chmod(0o600)
                packed.replace(path)
            except (OSError, sqlite3.DatabaseError) as error:
                raise StoreError(f"The store {self.home} could not be backed up: {error}.") from None
        return len(learners)


def restore_store(path: Path, home: str | os.PathLike[str] | None = None) -> Path:
    """Restore a backup into a folder without a store, and return the folder."""
    target = Path(home or home_folder())
    learners = target / "learners"
    if (target / FILE).exists() or (learners.is_dir() and any(learners.iterdir())):
        raise StoreError(f"There is a store in {target} already. Move it away, or set M2ST_HOME to another folder.")
    try:
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target, prefix=".restore-") as folder:
            new = Path(folder)
            (new / "learners").mkdir()
            _unpack(path, new)
            _check(path, new / FILE)
            if learners.is_dir():
                learners.rmdir()
            (new / "learners").rename(learners)
            if (new / SECRET).exists():
                (new / SECRET).chmod(0o600)
                (new / SECRET).replace(target / SECRET)
            (new / FILE).rename(target / FILE)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError):
        raise StoreError(f"{path} is not a backup of a store, or it is damaged.") from None
    except OSError as error:
        raise StoreError(f"{path} could not be restored into {target}: {error.strerror}.") from None
    return target


def _unpack(path: Path, folder: Path) -> None:
    """Unpack the files of a store; refuse any other file."""
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if info.filename not in (FILE, SECRET) and not LEARNER.fullmatch(info.filename):
                raise StoreError(f"{path} is not a backup of a store: it holds {info.filename!r}.")
            target = folder / info.filename
            target.parent.mkdir(exist_ok=True)
            with archive.open(info) as source, target.open("wb") as copy:
                shutil.copyfileobj(source, copy)


def _check(path: Path, database: Path) -> None:
    """Refuse a database that is damaged or of another version."""
    try:
        with closing(sqlite3.connect(database)) as db:
            usable = db.execute("PRAGMA integrity_check").fetchone()[0] == "ok" and _version(db) == SCHEMA
    except sqlite3.DatabaseError:
        usable = False
    if not usable:
        raise StoreError(f"{path} is not a backup that this version reads: its database is damaged or another version.")


def _identity(path: Path) -> Identity:
    try:
        status = path.stat()
    except OSError:
        return ()
    return status.st_dev, status.st_ino


def _version(db: sqlite3.Connection) -> int:
    return int(db.execute("PRAGMA user_version").fetchone()[0])


def _tables(db: sqlite3.Connection) -> set[str]:
    return {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
