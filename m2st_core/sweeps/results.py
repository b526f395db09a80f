"""Results by the hash of what they depend on: a row per cell, a folder per learner, and who computes what now."""

from __future__ import annotations

import json
import os
import shutil
import socket
import tempfile
import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import pandas as pd

from m2st_core.sweeps.database import AMONG, Database, StoreError
from m2st_core.sweeps.spec import SweepSpec
from m2st_core.sweeps.summary import as_rows
from m2st_core.sweeps.trial import Cell, CellResult, LearnerParts, LearnerSpec, canonical, data_of
from m2st_core.testing.learner_files import learner_from_parts
from m2st_core.testing.meta import ABOUT, TENSORS

SHIPPED = 0.0  # the seconds of a cell that came with the software
LEASE_SECONDS = 30.0  # a claim that is not renewed for so long is nobody's
MOST_KEPT, MOST_IN_GRIDS = 2_000, 60_000  # cells that are kept in memory: of one table, and of all grids (30 MB)
HOST = socket.gethostname()

_grids: OrderedDict[tuple[str, str], Grid] = OrderedDict()
_lock = threading.Lock()


def new_holder() -> str:
    """A name for one who computes, which tells others of this machine whether the process still lives."""
    return f"{HOST}:{os.getpid()}:{_started(os.getpid())}-{uuid.uuid4().hex[:8]}"


def _started(process: int) -> str:
    """When a process started, or empty: in a container that was started again, the server has its old number."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def is_held(holder: str, until: float) -> bool:
    """Whether a lease is alive: renewed in time, also if the clock was set back, and by a process that still runs."""
    if not holder or not 0 < until - time.time() <= LEASE_SECONDS:
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


@dataclass(frozen=True)
class Grid:
    """The cells of a spec, and the learners they need, by their keys."""

    cells: dict[str, Cell]

    @cached_property
    def learner_keys(self) -> dict[str, str]:
        """The key of its learner for each cell that needs one."""
        return {key: learner.key for key, cell in self.cells.items() if (learner := cell.learner) is not None}

    @cached_property
    def learners(self) -> dict[str, LearnerSpec]:
        """Each learner once, in the order of the cells."""
        cells = {learner: self.cells[key] for key, learner in reversed(self.learner_keys.items())}
        return {key: learner for key, cell in reversed(cells.items()) if (learner := cell.learner) is not None}


def grid_of(spec: SweepSpec) -> Grid:
    """The grid of a spec. The latest are cached, because hashing many cells takes long."""
    return _grid(spec.to_json(), data_of(spec.task))


def _grid(text: str, data: str) -> Grid:
    with _lock:
        if (text, data) in _grids:
            _grids.move_to_end((text, data))
            return _grids[text, data]
    grid = Grid({cell.key: cell for cell in SweepSpec.from_json(text).cells()})
    with _lock:
        _grids[text, data] = grid
        while sum(len(grid.cells) for grid in _grids.values()) > MOST_IN_GRIDS and len(_grids) > 1:
            _grids.popitem(last=False)
    return grid


@lru_cache(maxsize=32)
def _table(text: str, data: str, results: tuple[tuple[str, CellResult], ...]) -> pd.DataFrame:
    """Results of a spec as a table: one object for equal results, so that what is made of it can be cached."""
    stored = dict(results)
    return as_rows((cell, stored[key]) for key, cell in _grid(text, data).cells.items() if key in stored)


def forget_tables() -> None:
    """Clear the caches of grids and tables."""
    with _lock:
        _grids.clear()
    _table.cache_clear()


def keys_of(specs: Iterable[str]) -> tuple[set[str], set[str]]:
    """The keys of all cells of these specs, and of their learners."""
    grids = [grid_of(SweepSpec.from_json(text)) for text in specs if text]
    return {key for grid in grids for key in grid.cells}, {key for grid in grids for key in grid.learners}


class Results(Database):
    """Cells, learners and measurements, which belong to nobody: equal ones are computed once."""

    def results(self, keys: Iterable[str]) -> dict[str, CellResult]:
        """Stored results of the cells with these keys."""
        query = f"SELECT key, rejections, tests, seconds FROM cells WHERE key IN {AMONG}"
        return {key: CellResult(*values) for key, *values in self._execute(query, canonical(list(keys)))}

    def newest(self, keys: Iterable[str]) -> float | None:
        """Time at which the last of these cells was computed, in seconds since 1970; None if none was."""
        return self._execute(f"SELECT max(created) FROM cells WHERE key IN {AMONG}", canonical(list(keys)))[0][0]

    def add_cell(self, cell: Cell, result: CellResult) -> None:
        """Store a cell's result, unless it has one."""
        self.add_cells([(cell, result)])

    def add_cells(self, found: Iterable[tuple[Cell, CellResult]]) -> None:
        """Store the results of several cells, unless they have some."""
        rows = [(cell.key, canonical(asdict(cell)), r.rejections, r.tests, r.seconds, time.time()) for cell, r in found]
        with self._connect() as db:
            db.executemany("INSERT OR IGNORE INTO cells VALUES (?, ?, ?, ?, ?, ?)", rows)

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

    def has_learner(self, key: str) -> bool:
        """Whether a learner's folder is there, whole or damaged."""
        return (self.home / "learners" / key).is_dir()

    def learner(self, key: str) -> LearnerParts | None:
        """A learner's parts; None if there are none, or if its files are damaged."""
        folder = self.home / "learners" / key
        try:
            parts = (folder / ABOUT).read_text(encoding="utf-8"), (folder / TENSORS).read_bytes()
            learner_from_parts(*parts)
        except (OSError, ValueError):
            return None
        return parts

    def add_learner(self, spec: LearnerSpec, parts: LearnerParts, seconds: float) -> None:
        """Store a learner. Its folder appears whole or not at all, and replaces a damaged one."""
        folder = self.home / "learners" / spec.key
        new = None
        try:
            new = Path(tempfile.mkdtemp(dir=folder.parent))
            write_durably(new / TENSORS, parts[1])
            write_durably(new / ABOUT, parts[0].encode("utf-8"))
            shutil.rmtree(folder, ignore_errors=True)
            try:
                new.rename(folder)
            except OSError:  # another owner was faster
                if not folder.exists():
                    raise
            flush(folder.parent)
        except OSError as error:
            raise StoreError(f"A learner could not be stored in {self.home}: {error.strerror}.") from None
        finally:
            if new is not None:
                shutil.rmtree(new, ignore_errors=True)
        values = (spec.key, canonical(asdict(spec)), seconds, time.time())
        self._execute("INSERT OR REPLACE INTO learners VALUES (?, ?, ?, ?)", *values)

    def claim(self, keys: Iterable[str], holder: str) -> set[str]:
        """Those of these keys that this holder computes from now on, as nobody else does."""
        asked, now = list(keys), time.time()
        with self._connect() as db:
            db.execute("BEGIN IMMEDIATE")
            query = f"SELECT * FROM claims WHERE holder != ? AND key IN {AMONG}"
            claims = db.execute(query, (holder, canonical(asked)))
            others = {key for key, other, until in claims.fetchall() if is_held(other, until)}
            own = [key for key in asked if key not in others]
            values = [(key, holder, now + LEASE_SECONDS) for key in own]
            db.executemany("INSERT OR REPLACE INTO claims VALUES (?, ?, ?)", values)
        return set(own)

    def renew_claims(self, holder: str) -> None:
        """Keep what the holder has claimed."""
        self._execute("UPDATE claims SET until = ? WHERE holder = ?", time.time() + LEASE_SECONDS, holder)

    def give_back(self, holder: str) -> None:
        """End all claims of the holder."""
        self._execute("DELETE FROM claims WHERE holder = ?", holder)

    def rows(self, spec: SweepSpec) -> pd.DataFrame:
        """Finished cells of the spec as a tidy table, in the order of the grid."""
        return table_of(spec, self.results(grid_of(spec).cells))


def table_of(spec: SweepSpec, results: Mapping[str, CellResult]) -> pd.DataFrame:
    """Those of these results that are cells of the spec, as a tidy table in the order of the grid."""
    described = spec.to_json(), data_of(spec.task)
    stored = tuple((key, results[key]) for key in _grid(*described).cells if key in results)
    return (_table if len(stored) <= MOST_KEPT else _table.__wrapped__)(*described, stored)


def write_durably(path: Path, data: bytes) -> None:
    """Write a file, and return when the disk has it."""
    with path.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def flush(folder: Path) -> None:
    """Return when the disk has the folder's entries."""
    if os.name == "posix":
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
