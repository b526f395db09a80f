"""The server's queue of sweeps: one at a time on the workers, in turns between sessions. Knows nothing of streamlit."""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

from m2st_core.sweeps.cost import machine_factor
from m2st_core.sweeps.executors import Executor
from m2st_core.sweeps.spec import SweepSpec
from m2st_core.sweeps.store import Store
from m2st_core.sweeps.sweep import SweepFailed, SweepProgress, run_sweep, warm_up
from m2st_core.types import Cancelled

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


PER_SESSION = 3  # sweeps that wait or run
IN_ALL = 30
TURN_SECONDS = 60.0  # after this long, a sweep makes room for another session's and goes on in its next turn
STOPPED = "Stopped on request; finished cells are kept."
log = logging.getLogger(__name__)


class QueueFull(ValueError):
    """Why no more sweeps are taken now."""


class _Yield(Cancelled):
    """Another session's turn has come."""


class SweepQueue:
    """One per server. Runs are found by their id in the store, so any session can watch any of them."""

    def __init__(self, store: Store, start_executor: Callable[[], Executor]) -> None:
        self.store, self._start_executor = store, start_executor
        self._executor: Executor | None = None
        self._jobs: dict[str, SweepJob] = {}
        self._served: dict[str, int] = {}  # when each session last had a turn
        self._counter = 0
        self._change = threading.Condition()
        threading.Thread(target=self._work, name="sweeps", daemon=True).start()

    def submit(self, spec: SweepSpec, session: str, name: str = "") -> str:
        """Ask for a sweep, or join others who did; the id of its run."""
        with self._change:
            job = self._jobs.get(spec.hash[:12])
            if job is None or session not in job.sessions:
                own = sum(session in other.sessions for other in self._jobs.values())
                if own >= PER_SESSION:
                    raise QueueFull(f"You have {own} sweeps waiting or running. Wait for one, or cancel one in Runs.")
            if job is not None and not job.stop:
                job.sessions.add(session)
                return job.run
            if len(self._jobs) >= IN_ALL:
                raise QueueFull(f"{len(self._jobs)} sweeps are waiting. Please try again later.")
            run = self.store.start_run(spec, name)
            if job is not None:  # it is being stopped: it goes on after that
                job.sessions, job.stop = {session}, False
            else:
                self._counter += 1
                self._jobs[run] = SweepJob(run, spec, name, self._counter, {session})
            self._change.notify_all()
            return run

    def cancel(self, run: str, session: str | None = None) -> None:
        """Withdraw a session's wish (None: everybody's); when nobody is left, the work stops."""
        with self._change:
            job = self._jobs.get(run)
            if job is None:
                return
            job.sessions = job.sessions - {session} if session is not None else set()
            if job.sessions:
                return
            job.stop = True
            if job.state == "waiting":
                del self._jobs[run]
                self.store.set_state(run, "cancelled", STOPPED)

    def wait(self, run: str, seconds: float) -> None:
        """Return when nobody computes this run, or after this long."""
        with self._change:
            self._change.wait_for(lambda: run not in self._jobs, seconds)

    def delete(self, run: str) -> None:
        """Forget a run that nobody computes."""
        with self._change:
            if run in self._jobs:
                raise ValueError("This run is waiting or running. Cancel it first.")
            self.store.delete_run(run)

    def status(self, run: str) -> RunStatus | None:
        """Where a run stands; None if there is no such run."""
        with self._change:
            job = self._jobs.get(run)
            if job is not None:
                order = [other.run for other in self._order()]
                place = 0 if job.state == "running" else order.index(run) + (len(self._jobs) - len(order))
                return RunStatus(job.state, "", job.progress, place, frozenset(job.sessions))
            found = self.store.run(run)
        if found is None:
            return None
        states: dict[str, RunState] = {"done": "done", "failed": "failed", "cancelled": "cancelled"}
        return RunStatus(states.get(found.state, "interrupted"), found.message)

    @property
    def workers(self) -> int:
        """How many cells are computed at once."""
        return self._executor.workers if self._executor is not None else os.cpu_count() or 1

    def counts(self) -> tuple[int, int]:
        """How many sweeps run, and how many wait."""
        with self._change:
            running = sum(job.state == "running" for job in self._jobs.values())
            return running, len(self._jobs) - running

    def _order(self) -> list[SweepJob]:
        waiting = [job for job in self._jobs.values() if job.state == "waiting"]
        return in_turns(waiting, self._served)

    def _work(self) -> None:
        """The thread that owns the workers."""
        self._guarded(machine_factor)
        self._guarded(self._workers)
        while True:
            with self._change:
                while not (order := self._order()):
                    self._change.wait()
                job = order[0]
                self._counter += 1
                self._served |= dict.fromkeys(job.sessions, self._counter)
                job.state = "running"
            self._guarded(partial(self._run, job))

    def _workers(self) -> Executor:
        if self._executor is None:
            executor = self._start_executor()
            warm_up(executor)
            self._executor = executor
        return self._executor

    def _guarded(self, function: Callable[[], object]) -> None:
        try:
            function()
        except Exception as error:  # the thread must live on; a job that needs what failed will say so
            if not _server_stops(error):
                log.exception("the queue of sweeps met an error")

    def _run(self, job: SweepJob) -> None:
        began = time.monotonic()

        def progress(at: SweepProgress) -> None:
            job.progress = at
            if job.stop:
                raise Cancelled
            if at.computed + at.learners and time.monotonic() - began > TURN_SECONDS and self._others_wait(job):
                raise _Yield

        state, message = "done", ""
        try:
            run_sweep(job.spec, self.store, self._workers(), name=job.name, progress=progress)
        except _Yield:
            state = "waiting"
        except Cancelled:
            state, message = "cancelled", STOPPED
        except Exception as error:  # the user gets a sentence and a reference, the log gets the rest
            if _server_stops(error):
                state = "running"  # whoever starts it again finds the run interrupted
            else:
                state, message = "failed", self._explain(job, error)
        with self._change:
            if job.stop and state == "waiting":
                state, message = "cancelled", STOPPED
            again = not job.stop and (state == "waiting" or (state == "cancelled" and bool(job.sessions)))
            if again:
                job.state = "waiting"
            else:
                del self._jobs[job.run]
            self.store.set_state(job.run, "running" if again else state, "" if again else message)
            self._change.notify_all()

    def _others_wait(self, job: SweepJob) -> bool:
        with self._change:
            order = self._order()
        return any(not other.sessions & job.sessions for other in order)

    def _explain(self, job: SweepJob, error: Exception) -> str:
        reference = uuid.uuid4().hex[:8]
        log.error("sweep %s failed, reference %s", job.run, reference, exc_info=error)
        if isinstance(error, SweepFailed):
            if error.sentences:
                return f"{' '.join(error.sentences)} What was computed is kept. Reference: {reference}."
            return f"Some cells could not be computed; the others are kept. The log has the cause under {reference}."
        if self._executor is not None:  # it may be what failed
            self._executor.close()
            self._executor = None
        sentence = str(error) if isinstance(error, ValueError) else "Something went wrong on our side."
        return f"{sentence} What was computed is kept. The log has more under {reference}."


def _server_stops(error: Exception) -> bool:
    """Whether this comes from Python's own end, when executors take no more work."""
    return isinstance(error, RuntimeError) and "cannot schedule new futures" in str(error)
