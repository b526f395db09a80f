"""The store under ``M2ST_HOME``: results, and the runs that asked for them, each of one owner."""

from __future__ import annotations

import copy
import json
import os
import secrets
import shutil
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import pandas as pd

from m2st_core.sweeps.database import AMONG, StoreError
from m2st_core.sweeps.results import LEASE_SECONDS, SHIPPED, Results, grid_of, is_held, keys_of
from m2st_core.sweeps.spec import SweepSpec
from m2st_core.sweeps.trial import canonical, digest

UNDO_SECONDS = 7 * 24 * 3600.0  # a deleted run can be restored for so long
LONGEST_NAME = 200
FIELDS = "id, name, spec, state, message, created, updated, owner"
OLDER, UNKNOWN = "older version", "unknown settings"  # states of runs that are kept, but neither shown nor resumed
SENTENCES = {
    OLDER: "Run {} was made by an older version, in which some names of methods meant other algorithms. Its numbers "
    "are not shown. Run it again, or delete it.",
    UNKNOWN: "Run {} has settings that this version does not know. Use the version that made it, or delete it.",
}


@dataclass(frozen=True)
class Run:
    """A requested sweep with the last state that was written, and its owner on a served instance."""

    id: str
    name: str
    spec: SweepSpec
    state: str
    message: str
    created: float
    updated: float
    owner: str = ""


class RunState(NamedTuple):
    """The stored state of a run, without its spec."""

    id: str
    state: str
    message: str
    owner: str


def own_id(run: str, owner: str) -> str:
    """The id of a person's run of the spec with this id; without a person, the same."""
    return digest([run, owner])[: len(run)] if owner else run


@lru_cache(maxsize=4096)
def problem_of(run: str, spec_json: str, owner: str) -> str:
    """Why a run can only be listed: ``OLDER`` if the same spec has another id now, or ``UNKNOWN``; empty if it can."""
    try:
        if own_id(digest(json.loads(spec_json))[: len(run)], owner) != run:
            return OLDER
        SweepSpec.from_json(spec_json)
    except (ValueError, TypeError, AttributeError, RecursionError):
        return UNKNOWN
    return ""


class Store(Results):
    """Results and runs. ``seen_by`` gives the same store as one person may use it."""

    def __init__(self, home: str | os.PathLike[str] | None = None) -> None:
        self.owner: str | None = None  # None: whose machine this is, who may do everything
        self.tokens: tuple[str, ...] = ()
        super().__init__(home)

    def seen_by(self, owner: str, tokens: tuple[str, ...] = ()) -> Store:
        """The store with this person's runs only, and to read, those that somebody shared by one of these tokens."""
        seen = copy.copy(self)
        seen.owner, seen.tokens = owner, tokens
        return seen

    def _select(self, fields: str, also: str = "1", *values: Any, own: bool = False) -> list[tuple[Any, ...]]:
        """Fields of the runs that may be read (with ``own``: be changed)."""
        if self.owner is None:
            return self._execute(f"SELECT {fields} FROM runs WHERE {also} ORDER BY updated DESC", *values)
        mine = "owner = ?" if own else f"(owner = ? OR (share != '' AND share IN {AMONG}))"
        who = (self.owner,) if own else (self.owner, canonical(self.tokens))
        return self._execute(f"SELECT {fields} FROM runs WHERE {mine} AND {also} ORDER BY updated DESC", *who, *values)

    def owns(self, run: str) -> bool:
        """Whether the run exists and may be changed."""
        return bool(self._select("id", "id = ?", run, own=True))

    def _change(self, run: str, assignment: str, *values: Any) -> None:
        """Change a run; a StoreError, which does not tell whether it exists, if it may not be changed."""
        if not self.owns(run):
            raise StoreError(f"There is no run {run!r} of yours here.")
        self._execute(f"UPDATE runs SET {assignment} WHERE id = ?", *values, run)

    def start_run(self, spec: SweepSpec, name: str = "") -> str:
        """Register a run, or restart the one of the same spec; return its id."""
        name, run, now = name or spec.label, own_id(spec.run_id, self.owner or ""), time.time()
        columns = "(id, name, spec, state, message, created, updated, owner)"
        statement = f"INSERT OR IGNORE INTO runs {columns} VALUES (?, ?, ?, '', '', ?, 0.0, ?)"
        self._execute(statement, run, name[:LONGEST_NAME], spec.to_json(), now, self.owner or "")
        self._execute("UPDATE runs SET deleted = NULL WHERE id = ?", run)
        self.set_state(run, "running")
        return run

    def set_state(self, run: str, state: str, message: str = "") -> None:
        """Write a run's state: running, done, cancelled or failed. This ends its lease."""
        statement = "UPDATE runs SET state=?, message=?, updated=?, holder='', until=0 WHERE id=?"
        self._execute(statement, state, message, time.time(), run)

    def hold(self, run: str, holder: str) -> bool:
        """Renew the lease of who computes a run; False if the run was deleted."""
        with self._connect() as db:
            statement = "UPDATE runs SET holder = ?, until = ? WHERE id = ? AND deleted IS NULL"
            return db.execute(statement, (holder, time.time() + LEASE_SECONDS, run)).rowcount > 0

    def is_computed(self, run: str) -> bool:
        """Whether some process computes the run now."""
        return any(is_held(*lease) for lease in self._execute("SELECT holder, until FROM runs WHERE id = ?", run))

    def resolve(self, run: str) -> str | None:
        """The id of the run that is meant and may be read: this one, or one's own run of the spec with this id."""
        return next((stored.id for stored in self.states([run]).values()), None)

    def states(self, runs: Iterable[str]) -> dict[str, RunState]:
        """The stored states of runs that may be read, by the ids asked for: those of runs, or of specs."""
        wanted = {run: (own_id(run, self.owner or ""), run) for run in runs}
        fields = "id, state, message, owner"
        also = f"deleted IS NULL AND id IN {AMONG}"
        rows = self._select(fields, also, canonical(sorted({id_ for ids in wanted.values() for id_ in ids})))
        stored = {id_: RunState(id_, state, message, owner) for id_, state, message, owner in rows}
        meant = {run: next((id_ for id_ in ids if id_ in stored), None) for run, ids in wanted.items()}
        return {run: stored[id_] for run, id_ in meant.items() if id_ is not None}

    def run(self, run: str) -> Run | None:
        """The run with exactly this id, or one's own of this spec; a StoreError if this version cannot show it."""
        for found in self._select(FIELDS, "id = ? AND deleted IS NULL", self.resolve(run)):
            id_, name, text, state, message, created, updated, owner = found
            if problem := problem_of(id_, text, owner):
                raise StoreError(SENTENCES[problem].format(id_))
            return Run(id_, name, SweepSpec.from_json(text), state, message, created, updated, owner)
        return None

    def find_run(self, start: str, *, deleted: bool = False) -> str:
        """The id of the one run whose id starts so; a StoreError if there are none or several."""
        state = f"deleted IS {'NOT ' if deleted else ''}NULL"
        runs = self._select("id", f"substr(id, 1, length(?)) = ? AND {state}", start, start) if start else []
        if len(runs) != 1:
            problem = f"are {len(runs)} runs" if runs else f"is no {'deleted ' if deleted else ''}run"
            raise StoreError(f"There {problem} with an id that starts with {start!r}. See: python -m m2st_core runs")
        return str(runs[0][0])

    def runs(self) -> pd.DataFrame:
        """All runs, the newest first, with their numbers of cells and of finished cells (0 for older versions)."""
        frame = pd.DataFrame(self._select(FIELDS, "deleted IS NULL"), columns=FIELDS.split(", "))
        about = zip(frame["id"], frame["spec"], frame["owner"], strict=True)
        problems = pd.Series([problem_of(*run) for run in about], index=frame.index, dtype=object)
        bad = problems != ""
        cells = [
            {} if problem else grid_of(SweepSpec.from_json(text)).cells
            for problem, text in zip(problems, frame["spec"], strict=True)
        ]
        frame.loc[bad, "state"] = problems[bad]
        for index, run in frame.loc[bad, "id"].items():
            frame.loc[index, "message"] = SENTENCES[problems[index]].format(run)
        return frame.assign(done=[len(self.results(keys)) for keys in cells], cells=[len(keys) for keys in cells])

    def delete_run(self, start: str) -> str:
        """Delete the run whose id starts so, return its id, and collect what was deleted long ago."""
        run = self.find_run(start)
        self._change(run, "deleted = ?, share = ''", time.time())
        self.collect()
        return run

    def restore_run(self, start: str) -> str:
        """Undo a deletion; return the id of the run."""
        run = self.find_run(start, deleted=True)
        self._change(run, "deleted = NULL")
        return run

    def rename_run(self, run: str, name: str) -> None:
        """Give a run another name."""
        if not (name := " ".join(name.split())):
            raise StoreError("A run needs a name.")
        self._change(run, "name = ?", name[:LONGEST_NAME])

    def share_run(self, run: str, shared: bool = True) -> str:
        """The token by which anyone may read the run. A new one is made if it has none; without ``shared`` it ends."""
        found = [token for (token,) in self._select("share", "id = ?", run, own=True)]
        token = ("".join(found) or secrets.token_urlsafe(24)) if shared else ""
        self._change(run, "share = ?", token)
        return token

    def collect(
        self, after: float = UNDO_SECONDS, *, orphans: bool = False, shipped: Collection[str] = ()
    ) -> tuple[int, int, int]:
        """Remove runs that were deleted so many seconds ago, with cells and learners that no other run has.

        ``orphans`` also removes cells and learners of no run at all, but the ``shipped`` ones, and what a crash has
        left. Return the numbers of removed runs, cells and learners.
        """
        old, kept = dict[str, str](), dict[str, str]()
        for run, text, owner, deleted in self._execute("SELECT id, spec, owner, deleted FROM runs"):
            gone = deleted is not None and time.time() - deleted >= after
            (old if gone else kept)[run] = "" if problem_of(run, text, owner) else text
        if not old and not orphans:
            return 0, 0, 0
        cells, learners = keys_of(old.values())
        if orphans and all(kept.values()):  # a run that cannot be read may need any of them
            stored = {key for (key,) in self._execute(f"SELECT key FROM cells WHERE seconds != {SHIPPED}")}
            cells |= stored.difference(shipped)
            folders = (self.home / "learners").iterdir()
            learners |= {folder.name for folder in folders if time.time() - folder.stat().st_mtime > LEASE_SECONDS}
        needed = keys_of(kept.values())
        cells, learners = cells - needed[0], learners - needed[1]
        for table, keys in (("cells", cells), ("learners", learners)):
            self._execute(f"DELETE FROM {table} WHERE key IN {AMONG}", canonical(sorted(keys)))
        for key in learners:
            shutil.rmtree(self.home / "learners" / key, ignore_errors=True)
        self._execute(f"DELETE FROM runs WHERE id IN {AMONG}", canonical(list(old)))
        return len(old), len(cells), len(learners)
