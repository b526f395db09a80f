"""Rights of a visitor to runs, checked on the server for pages, links and widgets alike."""

from __future__ import annotations

from m2st_core.dashboard.host import ServerLimits, Visitor, is_open
from m2st_core.dashboard.jobs.sweep_queue import SweepQueue
from m2st_core.dashboard.jobs.turns import QueueFull, RunStatus
from m2st_core.sweeps.database import Database, StoreError
from m2st_core.sweeps.spec import SweepSpec
from m2st_core.sweeps.store import Store

NOT_YOURS = "There is no run {!r} of yours here."


class Desk:
    """Queue and store restricted to one visitor's permissions.

    The local user may do everything. A person may see, cancel, delete, rename and share their own runs, and see those
    that others share. Ids may be those of specs: they mean the visitor's own run of the spec.
    """

    def __init__(self, queue: SweepQueue, who: Visitor) -> None:
        self._queue, self.who = queue, who
        self.store: Store = queue.store.seen_by(who.person, who.tokens) if who.person else queue.store

    def status(self, run: str) -> RunStatus | None:
        """The state of a run; None if there is none that the visitor may see."""
        known = self.store.resolve(run)
        return self._queue.status(known) if known is not None else None

    def owns(self, run: str) -> bool:
        """Whether the visitor may change the run."""
        known = self.store.resolve(run)
        return known is not None and self.store.owns(known)

    def may_cancel(self, run: str, status: RunStatus) -> bool:
        """Whether the visitor may cancel it: its owner; in single-user mode anyone, if the tab that asked is closed."""
        if self.who.person:
            return self.owns(run)
        return self.who.asker in status.sessions or not any(map(is_open, status.sessions))

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
        if not self.may_cancel(known, status):
            raise StoreError("Another browser session started this run and is still open, so cancel it there.")
        self._queue.cancel(known, self.who.asker if self.who.asker in status.sessions else None)

    def delete(self, run: str) -> None:
        """Delete one of the visitor's runs, which can be undone."""
        self._queue.delete(self._own(run), self.store)

    def wait(self, run: str, seconds: float) -> None:
        """Return when the run neither waits nor runs, or after this time."""
        self._queue.wait(self.store.resolve(run) or run, seconds)

    def counts(self) -> tuple[int, int]:
        """The numbers of running and waiting sweeps: a person's, or all in single-user mode."""
        return self._queue.counts(self.who.person or None)

    @property
    def workers(self) -> int:
        """The number of cells computed at once."""
        return self._queue.workers

    def _own(self, run: str) -> str:
        known = self.store.resolve(run)
        if known is None or not self.store.owns(known):
            raise StoreError(NOT_YOURS.format(run))
        return known


def check_time(store: Database, who: Visitor) -> None:
    """Refuse a computation if the visitor's time for today is used up."""
    most = ServerLimits.from_environment().minutes
    if who.person and store.used_today(who.person) >= 60 * most:
        raise QueueFull(
            f"You have used your computing time for today, {most} min. More from midnight UTC. What is computed stays."
        )
