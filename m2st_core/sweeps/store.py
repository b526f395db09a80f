"""The store under ``M2ST_HOME``, for all threads, processes and people that compute or look.

What its parts guarantee:

- **Content** (``Cells``). Cells, learners and measurements have the hash of all that they depend on as key and belong
  to nobody. The first result of a key stays, so a row is never doubled. A learner's folder appears whole or not at all.
- **Transactions.** Every call is one transaction, in any thread or process. Between two calls others may write. A
  killed process loses only what was not stored yet.
- **Heartbeats** (``Runs``). A process that computes a run renews one heartbeat. It lasts ``HEARTBEAT_SECONDS``, and on
  this machine it ends with the process. The cells and learners that a process claimed are its own while its heartbeat
  lasts, so several processes share out a sweep. Then they are free.
- **Rights** (``Runs``). A run belongs to the person who started it, whose name is hashed into its id. A person reads
  their own runs and those of shared links, and changes their own; an error does not tell whether a run exists. On the
  machine itself (no person) everything is allowed.
- **Deletion.** A deleted run can be restored for ``UNDO_SECONDS``. Then it is removed, with the cells and learners that
  no other run has. Its heartbeat is refused at once, which tells the process that computes it.
- **Errors.** A store that cannot be read or written raises a ``StoreError``, a sentence with a remedy. A store that
  cannot be written can be read.
"""

from __future__ import annotations

import copy
import json
import os
import secrets
import shutil
import socket
import tempfile
import time
import uuid
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from m2st_core.sweeps.cells import Cell, CellResult, LearnerParts, LearnerSpec, canonical, digest
from m2st_core.sweeps.database import AMONG, Database, StoreError
from m2st_core.sweeps.grid import grid_keys, grid_of, grid_table
from m2st_core.sweeps.spec import SweepSpec
from m2st_core.testing.learner_files import learner_from_parts
from m2st_core.testing.meta import ABOUT, TENSORS

SHIPPED = 0.0  # the seconds of a cell that came with the software
HEARTBEAT_SECONDS = 30.0
UNDO_SECONDS = 7 * 24 * 3600.0
LONGEST_NAME = 200
HOST = socket.gethostname()
FIELDS = "id, name, spec, state, message, created, updated, owner"
UNKNOWN = "other version"  # the state of runs that are listed, but neither shown nor resumed
OF_OTHER_VERSION = (
    "Run {} was made by another version, whose results this version cannot show. Use that version, or delete the run."
)


def new_holder() -> str:
    """Id of a process that computes (host, process, start time), from which others tell whether it is alive."""
    return f"{HOST}:{os.getpid()}:{_started(os.getpid())}-{uuid.uuid4().hex[:8]}"


def _started(process: int) -> str:
    """The time at which a process started, or empty: in a restarted container, the server has its old number."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def is_alive(holder: str, until: float) -> bool:
    """Whether a heartbeat lasts: renewed in time, also if the clock was set back, by a process that still runs."""
    if not 0 < until - time.time() <= HEARTBEAT_SECONDS:
        return False
    host, process, name = holder.rsplit(":", 2)
    if host != HOST or os.name != "posix":
        return True
    try:
        os.kill(int(process), 0)
    except ProcessLookupError:
        return False
    except OSError:  # it belongs to another user
        pass
    started, dash, _ = name.partition("-")
    return not (dash and started and _started(int(process)) not in ("", started))


class Cells:
    """Cells, learners and measurements by key."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def results(self, keys: Iterable[str]) -> dict[str, CellResult]:
        """Stored results of the cells with these keys."""
        query = f"SELECT key, rejections, tests, seconds FROM cells WHERE key IN {AMONG}"
        return {key: CellResult(*values) for key, *values in self._database.execute(query, canonical(list(keys)))}

    def rows(self, spec: SweepSpec) -> pd.DataFrame:
        """Finished cells of the spec as a tidy table, in the order of the grid."""
        return grid_table(spec, self.results(grid_of(spec).cells))

    def newest(self, keys: Iterable[str]) -> float | None:
        """Time at which the last of these cells was computed, in seconds since 1970; None if none was."""
        query = f"SELECT max(created) FROM cells WHERE key IN {AMONG}"
        return self._database.execute(query, canonical(list(keys)))[0][0]

    def add(self, results: Iterable[tuple[Cell, CellResult]]) -> None:
        """Store results of cells, unless they have some."""
        now = time.time()
        rows = [(cell.key, canonical(asdict(cell)), r.rejections, r.tests, r.seconds, now) for cell, r in results]
        with self._database.transaction() as db:
            db.executemany("INSERT OR IGNORE INTO cells VALUES (?, ?, ?, ?, ?, ?)", rows)

    def drop_shipped(self, keys: Iterable[str]) -> None:
        """Delete those of these cells that were not computed here but came with the software."""
        statement = f"DELETE FROM cells WHERE seconds = {SHIPPED} AND key IN {AMONG}"
        self._database.execute(statement, canonical(list(keys)))

    def claim(self, keys: Iterable[str], holder: str) -> set[str]:
        """Claim cells and learners for a process; return the keys that no other one has claimed."""
        wanted = list(keys)
        living = "claimed JOIN heartbeats USING (holder)"
        query = f"SELECT key, holder, until FROM {living} WHERE holder != ? AND key IN {AMONG}"
        with self._database.transaction() as db:
            db.execute("BEGIN IMMEDIATE")
            claims = db.execute(query, (holder, canonical(wanted))).fetchall()
            others = {key for key, other, until in claims if is_alive(other, until)}
            free = [key for key in wanted if key not in others]
            db.executemany("INSERT OR REPLACE INTO claimed VALUES (?, ?)", [(key, holder) for key in free])
        return set(free)

    def measurement(self, key: str) -> list[dict[str, Any]] | None:
        """Rows of a measurement other than a cell's rejections; None if there is none."""
        stored = self._database.execute("SELECT rows FROM measurements WHERE key = ?", key)
        return json.loads(stored[0][0]) if stored else None

    def add_measurement(self, key: str, spec: dict[str, Any], rows: list[dict[str, Any]]) -> None:
        """Store the rows of a measurement, unless it has some."""
        statement = "INSERT OR IGNORE INTO measurements VALUES (?, ?, ?, ?)"
        self._database.execute(statement, key, canonical(spec), canonical(rows), time.time())

    def has_learner(self, key: str) -> bool:
        """Whether a learner's folder exists, whole or damaged."""
        return (self._database.learners / key).is_dir()

    def learner(self, key: str) -> LearnerParts | None:
        """A learner's parts; None if there are none, or if its files are damaged."""
        folder = self._database.learners / key
        try:
            parts = (folder / ABOUT).read_text(encoding="utf-8"), (folder / TENSORS).read_bytes()
            learner_from_parts(*parts)
        except (OSError, ValueError):
            return None
        return parts

    def add_learner(self, spec: LearnerSpec, parts: LearnerParts, seconds: float) -> None:
        """Store a learner. Its folder appears whole or not at all, and replaces a damaged one."""
        folder = self._database.learners / spec.key
        new = None
        try:
            new = Path(tempfile.mkdtemp(dir=folder.parent))
            write_durably(new / TENSORS, parts[1])
            write_durably(new / ABOUT, parts[0].encode("utf-8"))
            shutil.rmtree(folder, ignore_errors=True)
            try:
                new.rename(folder)
            except OSError:  # another process was faster
                if not folder.exists():
                    raise
            _flush(folder.parent)
        except OSError as error:
            raise StoreError(f"A learner could not be stored in {self._database.home}: {error.strerror}.") from None
        finally:
            if new is not None:
                shutil.rmtree(new, ignore_errors=True)
        values = (spec.key, canonical(asdict(spec)), seconds, time.time())
        self._database.execute("INSERT OR REPLACE INTO learners VALUES (?, ?, ?, ?)", *values)


def write_durably(path: Path, data: bytes) -> None:
    """Write a file, and return when the disk has it."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _flush(folder: Path) -> None:
    """Return when the disk has the folder's entries."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@dataclass(frozen=True)
class Run:
    """A requested sweep with the last state that was written, and its owner on a served instance."""

    id: str
    name: str
    text: str  # the spec as JSON
    state: str
    message: str
    created: float
    updated: float
    owner: str

    @property
    def is_known(self) -> bool:
        """Whether this version can show the run."""
        return _is_known(self.id, self.text, self.owner)

    @cached_property
    def spec(self) -> SweepSpec:
        """The spec of a run that this version can show."""
        return SweepSpec.from_json(self.text)


def own_id(run: str, owner: str) -> str:
    """The id of a person's run of the spec with this id; without a person, the same."""
    return digest([run, owner])[: len(run)] if owner else run


@lru_cache(maxsize=4096)
def _is_known(run: str, spec_json: str, owner: str) -> bool:
    """Whether this version can show a run: its spec is valid, and the same spec has the same id."""
    try:
        SweepSpec.from_json(spec_json)
        return own_id(digest(json.loads(spec_json))[: len(run)], owner) == run
    except (ValueError, TypeError, AttributeError, RecursionError):
        return False


class Runs:
    """Runs with their states and heartbeats: all of them, or those that one person may read."""

    def __init__(self, database: Database, owner: str | None = None, tokens: tuple[str, ...] = ()) -> None:
        self._database, self.owner, self.tokens = database, owner, tokens

    def _select(self, also: str, *values: Any, mine: bool = False, fields: str = FIELDS) -> list[tuple[Any, ...]]:
        """Fields of the runs that may be read (with ``mine``: be changed)."""
        if self.owner is None:
            rights, person = "1", tuple[str, ...]()
        elif mine:
            rights, person = "owner = ?", (self.owner,)
        else:
            rights = f"(owner = ? OR (share != '' AND share IN {AMONG}))"
            person = (self.owner, canonical(self.tokens))
        query = f"SELECT {fields} FROM runs WHERE {rights} AND {also} ORDER BY updated DESC"
        return self._database.execute(query, *person, *values)

    def _change(self, run: str, assignment: str, *values: Any) -> None:
        """Change a run; a StoreError, which does not tell whether it exists, if it may not be changed."""
        if not self.owns(run):
            raise StoreError(f"There is no run {run!r} of yours here.")
        self._database.execute(f"UPDATE runs SET {assignment} WHERE id = ?", *values, run)

    def owns(self, run: str) -> bool:
        """Whether the run exists and may be changed."""
        return bool(self._select("id = ?", run, mine=True))

    def start(self, spec: SweepSpec, name: str = "") -> str:
        """Register a run, or restart the one of the same spec; return its id."""
        name, run, now = name or spec.label, own_id(spec.run_id, self.owner or ""), time.time()
        columns = "(id, name, spec, state, message, created, updated, owner)"
        statement = f"INSERT OR IGNORE INTO runs {columns} VALUES (?, ?, ?, '', '', ?, 0.0, ?)"
        self._database.execute(statement, run, name[:LONGEST_NAME], spec.to_json(), now, self.owner or "")
        self._database.execute("UPDATE runs SET deleted = NULL WHERE id = ?", run)
        self.set_state(run, "running")
        return run

    def set_state(self, run: str, state: str, message: str = "") -> None:
        """Write a run's state: running, done, cancelled or failed."""
        statement = "UPDATE runs SET state = ?, message = ?, updated = ? WHERE id = ?"
        self._database.execute(statement, state, message, time.time(), run)

    def beat(self, run: str, holder: str) -> bool:
        """Renew the heartbeat of a process that computes a run; False if the run was deleted."""
        query = "SELECT ?, id, ? FROM runs WHERE id = ? AND deleted IS NULL"
        with self._database.transaction() as db:
            values = (holder, time.time() + HEARTBEAT_SECONDS, run)
            return db.execute(f"INSERT OR REPLACE INTO heartbeats {query}", values).rowcount > 0

    def leave(self, holder: str) -> None:
        """End a process's heartbeat, and the claims of all processes without one."""
        with self._database.transaction() as db:
            db.execute("DELETE FROM heartbeats WHERE holder = ? OR until < ?", (holder, time.time()))
            db.execute("DELETE FROM claimed WHERE holder NOT IN (SELECT holder FROM heartbeats)")

    def is_computed(self, run: str) -> bool:
        """Whether some process computes the run now."""
        beats = self._database.execute("SELECT holder, until FROM heartbeats WHERE run = ?", run)
        return any(is_alive(*beat) for beat in beats)

    def by_id(self, ids: Iterable[str]) -> dict[str, Run]:
        """Readable runs by the given ids of runs or specs. A spec's id means the person's run of it."""
        wanted = {each: (own_id(each, self.owner or ""), each) for each in ids}
        keys = canonical(sorted({key for pair in wanted.values() for key in pair}))
        runs = {row[0]: Run(*row) for row in self._select(f"deleted IS NULL AND id IN {AMONG}", keys)}
        meant = {each: next((key for key in pair if key in runs), None) for each, pair in wanted.items()}
        return {each: runs[key] for each, key in meant.items() if key is not None}

    def get(self, run: str) -> Run | None:
        """The run with this id, or the person's run of this spec; a StoreError if this version cannot show it."""
        stored = self.by_id([run]).get(run)
        if stored is not None and not stored.is_known:
            raise StoreError(OF_OTHER_VERSION.format(stored.id))
        return stored

    def find(self, start: str, *, deleted: bool = False) -> str:
        """The id of the one run whose id starts so; a StoreError if there are none or several."""
        state = f"deleted IS {'NOT ' if deleted else ''}NULL"
        runs = self._select(f"substr(id, 1, length(?)) = ? AND {state}", start, start) if start else []
        if len(runs) != 1:
            problem = f"are {len(runs)} runs" if runs else f"is no {'deleted ' if deleted else ''}run"
            raise StoreError(f"There {problem} with an id that starts with {start!r}. See: python -m m2st_core runs")
        return str(runs[0][0])

    def all(self) -> list[Run]:
        """All readable runs, the newest first."""
        return [Run(*row) for row in self._select("deleted IS NULL")]

    def delete(self, start: str) -> str:
        """Delete the run whose id starts so, and return its id."""
        run = self.find(start)
        self._change(run, "deleted = ?, share = ''", time.time())
        return run

    def restore(self, start: str) -> str:
        """Undo a deletion; return the id of the run."""
        run = self.find(start, deleted=True)
        self._change(run, "deleted = NULL")
        return run

    def rename(self, run: str, name: str) -> None:
        """Give a run another name."""
        if not (name := " ".join(name.split())):
            raise StoreError("A run needs a name.")
        self._change(run, "name = ?", name[:LONGEST_NAME])

    def share(self, run: str) -> str:
        """The token by which anyone may read the run; it is made at the first call."""
        tokens = [token for (token,) in self._select("id = ?", run, mine=True, fields="share")]
        token = "".join(tokens) or secrets.token_urlsafe(24)
        self._change(run, "share = ?", token)
        return token


class Usage:
    """Seconds of computing by person and day, which begins at midnight UTC."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, owner: str, seconds: float) -> None:
        """Count seconds for a person, today."""
        statement = "INSERT INTO usage VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET seconds = seconds + excluded.seconds"
        self._database.execute(statement, owner, today(), seconds)

    def of(self, owner: str) -> float:
        """Seconds that a person has used today."""
        return dict(self.by_person()).get(owner, 0.0)

    def by_person(self) -> list[tuple[str, float]]:
        """Every person with the seconds used today, the largest first."""
        query = "SELECT owner, seconds FROM usage WHERE day = ? ORDER BY seconds DESC"
        return [(str(owner), float(seconds)) for owner, seconds in self._database.execute(query, today())]


def today() -> str:
    """The present day in UTC."""
    return time.strftime("%Y-%m-%d", time.gmtime())


class Store:
    """A store, made of its parts. ``seen_by`` gives the same store with the rights of one person."""

    def __init__(self, home: str | os.PathLike[str] | None = None) -> None:
        self.database = Database(home)
        self.cells, self.runs, self.usage = Cells(self.database), Runs(self.database), Usage(self.database)

    @property
    def home(self) -> Path:
        """The store's folder."""
        return self.database.home

    def seen_by(self, owner: str, tokens: tuple[str, ...] = ()) -> Store:
        """The store with this person's runs and those shared by one of these tokens, which can only be read."""
        seen = copy.copy(self)
        seen.runs = Runs(self.database, owner, tokens)
        return seen

    def all_runs(self) -> pd.DataFrame:
        """All runs, the newest first, with their numbers of cells and of finished ones.

        Those of another version have the state ``UNKNOWN``, a message and no cells.
        """
        runs = self.runs.all()
        cells = [grid_of(run.spec).cells.keys() if run.is_known else set() for run in runs]
        stored = self.cells.results({key for keys in cells for key in keys}).keys()
        frame = pd.DataFrame(runs, columns=[field.name for field in fields(Run)])
        frame = frame.assign(done=[len(keys & stored) for keys in cells], cells=list(map(len, cells)))
        other = np.array([not run.is_known for run in runs], dtype=bool)
        frame.loc[other, "state"] = UNKNOWN
        frame.loc[other, "message"] = frame.loc[other, "id"].map(OF_OTHER_VERSION.format)
        return frame

    def delete_run(self, start: str) -> str:
        """Delete the run whose id starts so, return its id, and remove runs that were deleted long ago."""
        run = self.runs.delete(start)
        self.collect()
        return run

    def collect(self, after: float = UNDO_SECONDS, *, orphans: bool = False) -> tuple[int, int, int]:
        """Remove runs that were deleted so many seconds ago, with cells and learners that no other run has.

        ``orphans`` also removes cells and learners of no run at all and remains of crashes. Return the numbers of
        removed runs, cells and learners.
        """
        old, kept = dict[str, str](), dict[str, str]()
        for run, text, owner, deleted in self.database.execute("SELECT id, spec, owner, deleted FROM runs"):
            expired = deleted is not None and time.time() - deleted >= after
            (old if expired else kept)[run] = text if _is_known(run, text, owner) else ""
        if not old and not orphans:
            return 0, 0, 0
        cells, learners = grid_keys(old.values())
        if orphans and all(kept.values()):  # a run of another version may need any of them
            cells |= {key for (key,) in self.database.execute(f"SELECT key FROM cells WHERE seconds != {SHIPPED}")}
            recent = time.time() - HEARTBEAT_SECONDS  # it may be written now
            folders = self.database.learners.iterdir()
            learners |= {folder.name for folder in folders if folder.stat().st_mtime < recent}
        needed_cells, needed_learners = grid_keys(kept.values())
        cells, learners = cells - needed_cells, learners - needed_learners
        for table, keys in (("cells", cells), ("learners", learners)):
            self.database.execute(f"DELETE FROM {table} WHERE key IN {AMONG}", canonical(sorted(keys)))
        for key in learners:
            shutil.rmtree(self.database.learners / key, ignore_errors=True)
        self.database.execute(f"DELETE FROM runs WHERE id IN {AMONG}", canonical(list(old)))
        return len(old), len(cells), len(learners)
