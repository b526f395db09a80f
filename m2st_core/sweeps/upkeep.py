"""Upkeep of a store: a backup as one ZIP, consistent even while it is in use, its restoration, and a check."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import tempfile
import zipfile
import zlib
from contextlib import closing
from pathlib import Path

from m2st_core.environment import home_folder
from m2st_core.sweeps.database import SCHEMA, SECRET, StoreError
from m2st_core.sweeps.store import Store
from m2st_core.testing.meta import ABOUT, TENSORS

DATABASE = "store.sqlite"
PATIENCE = 5.0  # seconds that another writer may take
LEARNER = re.compile(rf"learners/[0-9a-f]{{32}}/({re.escape(ABOUT)}|{re.escape(TENSORS)})")


def back_up(store: Store, path: Path) -> int:
    """Write the store into a ZIP, which appears whole or not at all; return the number of learners.

    It has the secret by which a server knows its visitors again, so only its owner can read the file.
    """
    with tempfile.TemporaryDirectory(dir=path.absolute().parent, prefix=".m2st-backup-") as folder:
        copy, packed = Path(folder) / DATABASE, Path(folder) / "backup.zip"
        try:
            with closing(sqlite3.connect(store.home / DATABASE)) as source, closing(sqlite3.connect(copy)) as target:
                source.backup(target)
                target.execute("PRAGMA journal_mode = DELETE")
            with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
                archive.write(copy, DATABASE)
                if (store.home / SECRET).is_file():
                    archive.write(store.home / SECRET, SECRET)
                learners = [place for place in sorted((store.home / "learners").iterdir()) if (place / ABOUT).is_file()]
                for place in learners:
                    for name in (TENSORS, ABOUT):
                        archive.write(place / name, f"learners/{place.name}/{name}")
            packed.chmod(0o600)
            packed.replace(path)
        except (OSError, sqlite3.DatabaseError) as error:
            raise StoreError(f"The store {store.home} could not be backed up: {error}.") from None
    return len(learners)


def restore(path: Path, home: str | os.PathLike[str] | None = None) -> Path:
    """Make the store of a backup anew, where there is none yet, and return its folder."""
    target = Path(home or home_folder())
    learners = target / "learners"
    if (target / DATABASE).exists() or (learners.is_dir() and any(learners.iterdir())):
        raise StoreError(f"There is a store in {target} already. Move it away, or set M2ST_HOME to another folder.")
    try:
        target.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target, prefix=".restore-") as folder:
            new = Path(folder)
            (new / "learners").mkdir()
            _unpack(path, new)
            _check_database(path, new / DATABASE)
            if learners.is_dir():
                learners.rmdir()
            (new / "learners").rename(learners)
            if (new / SECRET).exists():
                (new / SECRET).chmod(0o600)
                (new / SECRET).replace(target / SECRET)
            (new / DATABASE).rename(target / DATABASE)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError):
        raise StoreError(f"{path} is not a backup of a store, or it is damaged.") from None
    except OSError as error:
        raise StoreError(f"{path} could not be restored into {target}: {error.strerror}.") from None
    Store(target)  # brings an older schema up to date
    return target


def _unpack(path: Path, folder: Path) -> None:
    """Unpack what a store has; anything else is refused."""
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            if info.filename not in (DATABASE, SECRET) and not LEARNER.fullmatch(info.filename):
                raise StoreError(f"{path} is not a backup of a store: it holds {info.filename!r}.")
            place = folder / info.filename
            place.parent.mkdir(exist_ok=True)
            with archive.open(info) as source, place.open("wb") as copy:
                shutil.copyfileobj(source, copy)


def check_writable(store: Store) -> None:
    """Refuse a store into which nothing can be written."""
    try:
        with closing(sqlite3.connect(store.home / DATABASE, timeout=PATIENCE)) as db:
            db.execute("BEGIN IMMEDIATE")
            db.execute(f"PRAGMA user_version = {SCHEMA}")
            db.rollback()
    except sqlite3.DatabaseError as error:
        raise StoreError(f"The store {store.home} cannot be written: {error}.") from None


def _check_database(path: Path, database: Path) -> None:
    """Refuse a database that is damaged, or of a version that this one cannot read."""
    try:
        with closing(sqlite3.connect(database)) as db:
            whole = db.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
            version = db.execute("PRAGMA user_version").fetchone()[0]
    except sqlite3.DatabaseError:
        whole, version = False, 0
    if not whole or not 1 <= version <= SCHEMA:
        raise StoreError(f"{path} is not a backup that this version reads: its database is damaged or too new.")
