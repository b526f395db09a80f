"""Rights of a visitor to runs, checked on the server for pages, links and widgets alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import pandas as pd

from m2st_core.dashboard.host import ServerLimits, Visitor, is_open
from m2st_core.dashboard.jobs.sweep_queue import SweepQueue
from m2st_core.dashboard.jobs.turns import QueueFull, RunStatus
from m2st_core.sweeps.database import StoreError
from m2st_core.sweeps.grid import grid_of, table_of
from m2st_core.sweeps.spec import SweepSpec
from m2st_core.sweeps.store import Store

NOT_YOURS = "There is no run {!r} of yours here."


@dataclass(frozen=True)
class SweepView:
    """A sweep at one moment, as one visitor sees it. ``status`` is None without a run."""

    spec: SweepSpec
    run: str
    status: RunStatus | None
    mine: bool  # whether the visitor may change the run
    rows: pd.DataFrame  # of finished cells
    stored: frozenset[str]  # their keys
    cells: int

    @property
    def active(self) -> bool:
        """Whether the run waits or runs."""
        return self.status is not None and self.status.active

    @property
    def missing(self) -> int:
        """The number of cells to compute."""
        return self.cells - len(self.stored)


class Desk:
    """Queue and store restricted to one visitor's permissions.

    The local user may do everything. A person may see, cancel, delete, rename and share their own runs, and see those
    that others share. Ids may be those of specs: they mean the visitor's own run of the spec.
    """

    def __init__(self, queue: SweepQueue, who: Visitor) -> None:
        self._queue, self.who = queue, who
        self.store: Store = queue.store.seen_by(who.person, who.tokens) if who.person else queue.store

    def look(self, specs: Mapping[str, SweepSpec]) -> dict[str, SweepView]:
        """Sweeps as they are now, by the ids of their runs or specs: one query for all runs, and one for all rows."""
        runs = self.store.runs.states(specs)
        statuses = self._queue.statuses(runs)
        grids = {asked: grid_of(spec).cells.keys() for asked, spec in specs.items()}
        results = self.store.cells.results({key for keys in grids.values() for key in keys})
        views = {}
        for asked, spec in specs.items():
            run, stored = runs.get(asked), frozenset(grids[asked] & results.keys())
            mine = run is not None and (not self.who.person or run.owner == self.who.person)
            views[asked] = SweepView(
                spec, run.id if run else "", statuses.get(asked), mine, table_of(spec, results), stored,
                len(grids[asked]),
            )  # fmt: skip
        return views

    def statuses(self, runs: Iterable[str]) -> dict[str, RunStatus]:
        """The states of those of these runs that the visitor may see."""
        return self._queue.statuses(self.store.runs.states(runs))

    def status(self, run: str) -> RunStatus | None:
        """The state of a run; None if there is none that the visitor may see."""
        return self.statuses([run]).get(run)

    def owns(self, run: str) -> bool:
        """Whether the visitor may change the run."""
        known = self.store.runs.resolve(run)
        return known is not None and self.store.runs.owns(known)

    def may_cancel(self, view: SweepView) -> bool:
        """Whether the visitor may cancel it: its owner; in single-user mode anyone, if the tab that asked is closed."""
        return view.mine and view.status is not None and self._may_withdraw(view.status)

    def _may_withdraw(self, status: RunStatus) -> bool:
        asked_here = bool(self.who.person) or self.who.asker in status.sessions
        return asked_here or not any(map(is_open, status.sessions))

    def submit(self, spec: SweepSpec, name: str = "") -> str:
        """Request a sweep as the visitor's own run; return its id."""
        check_time(self.store, self.who)
        return self._queue.submit(spec, self.who.asker, name, self.store)

    def cancel(self, run: str) -> None:
        """Cancel the visitor's request; in single-user mode cancel all requests."""
        known = self._own(run)
        status = self._queue.status(known)
        if status is None or not status.active:
            return
        if not self._may_withdraw(status):
            raise StoreError("Another browser session started this run and is still open, so cancel it there.")
        self._queue.cancel(known, self.who.asker if self.who.asker in status.sessions else None)

    def delete(self, run: str) -> None:
        """Delete one of the visitor's runs, which can be undone."""
        self._queue.delete(self._own(run), self.store)

    def wait(self, run: str, seconds: float) -> None:
        """Return when the run neither waits nor runs, or after this time."""
        self._queue.wait(self.store.runs.resolve(run) or run, seconds)

    def counts(self) -> tuple[int, int]:
        """The numbers of running and waiting sweeps: a person's, or all in single-user mode."""
        return self._queue.counts(self.who.person or None)

    @property
    def workers(self) -> int:
        """The number of cells computed at once."""
        return self._queue.workers

    def _own(self, run: str) -> str:
        known = self.store.runs.resolve(run)
        if known is None or not self.store.runs.owns(known):
            raise StoreError(NOT_YOURS.format(run))
        return known


def check_time(store: Store, who: Visitor) -> None:
    """Refuse a computation if the visitor's time for today is used up."""
    most = ServerLimits.from_environment().minutes
    if who.person and store.usage.of(who.person) >= 60 * most:
        raise QueueFull(
            f"You have used your computing time for today, {most} min. More from midnight UTC. What is computed stays."
        )
