"""A sweep in the queue, what a page says of it, and whose turn it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from m2st_core.experiments.spec import SweepSpec
from m2st_core.experiments.sweep import SweepProgress

RunState = Literal["waiting", "running", "done", "failed", "cancelled", "interrupted"]


@dataclass
class SweepJob:
    """A sweep that waits or runs. It stops when every session that asked for it has cancelled."""

    run: str
    spec: SweepSpec
    name: str
    number: int
    sessions: set[str]
    state: Literal["waiting", "running"] = "waiting"
    progress: SweepProgress | None = None
    stop: bool = False


@dataclass(frozen=True)
class RunStatus:
    """What a page says of a run; ``place`` counts the sweeps that come before it."""

    state: RunState
    message: str = ""
    progress: SweepProgress | None = None
    place: int = 0
    sessions: frozenset[str] = field(default_factory=frozenset)

    @property
    def active(self) -> bool:
        """Whether there is something to wait for."""
        return self.state in ("waiting", "running")


def in_turns(waiting: Sequence[SweepJob], served: Mapping[str, int]) -> list[SweepJob]:
    """Jobs as they will start: sessions take turns, each session's jobs in the order it asked.

    ``served`` says when each session last had a turn. Of those that had none for longest, who asked first is first.
    """
    left, last, order = list(waiting), dict(served), list[SweepJob]()
    clock = max(last.values(), default=0)
    while left:
        job = min(left, key=lambda job: (min(last.get(session, 0) for session in job.sessions), job.number))
        clock += 1
        last |= dict.fromkeys(job.sessions, clock)
        left.remove(job)
        order.append(job)
    return order
