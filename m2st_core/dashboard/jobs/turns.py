"""Sweeps that wait and run: whose turn it is, and whose time it takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from m2st_core.dashboard.host import ServerLimits
from m2st_core.sweeps.spec import SweepSpec
from m2st_core.sweeps.store import Store
from m2st_core.sweeps.work import SweepProgress
from m2st_core.types import Cancelled

COUNT_SECONDS = 2.0


@dataclass
class SweepJob:
    """A sweep that waits or runs. It stops when every session that asked for it has cancelled."""

    run: str
    spec: SweepSpec
    sessions: set[str]
    owner: str = ""  # on a served instance, whose time it takes
    state: str = "waiting"  # or running
    progress: SweepProgress | None = None
    stop: bool = False


@dataclass(frozen=True)
class RunStatus:
    """The state of a run for a page; ``place`` counts the sweeps that come before it."""

    state: str  # waiting, running, done, failed, cancelled or interrupted
    message: str = ""
    progress: SweepProgress | None = None
    place: int = 0
    sessions: frozenset[str] = frozenset()

    @property
    def active(self) -> bool:
        """Whether the run waits or runs."""
        return self.state in ("waiting", "running")


def in_turns(waiting: Sequence[SweepJob], served: Mapping[str, float]) -> list[SweepJob]:
    """Jobs in the order in which they will start: the session whose last turn (``served``) is oldest comes first."""
    left, last, order = list(waiting), dict(served), list[SweepJob]()
    while left:
        job = min(left, key=lambda job: min(last.get(session, 0) for session in job.sessions))
        last |= dict.fromkeys(job.sessions, max(last.values(), default=0) + 1)
        order.append(left.pop(left.index(job)))
    return order


class QueueFull(ValueError):
    """A sentence on why no more sweeps are accepted now."""


class TimeIsUp(Cancelled):
    """The owner's time for today is used up."""


class Clock:
    """Counts the time that a sweep takes for its owner on a served instance, and stops it when that is used up."""

    def __init__(self, store: Store, owner: str) -> None:
        self.store, self.owner, self.counted = store, owner, 0.0

    def count(self, spent: float) -> None:
        """Count what was spent since the last time."""
        if not self.owner or spent - self.counted < COUNT_SECONDS:
            return
        self.store.usage.add(self.owner, spent - self.counted)
        self.counted, most = spent, ServerLimits.from_environment().minutes
        if self.store.usage.of(self.owner) >= 60 * most:
            raise TimeIsUp(
                f"Your computing time for today, {most} min, is used up. Finished cells are kept; resume it tomorrow."
            )
