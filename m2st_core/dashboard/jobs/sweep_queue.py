"""The server's queue of sweeps, free of streamlit: one sweep at a time on the workers, in turns between sessions."""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from m2st_core.sweeps.cost import machine_factor
from m2st_core.sweeps.executors import Executor
from m2st_core.sweeps.spec import SweepSpec
from m2st_core.sweeps.store import Store, StoreError
from m2st_core.sweeps.sweep import SweepFailed, SweepProgress, compute_sweep, end_run, warm_up
from m2st_core.types import Cancelled

ENDED = ("done", "failed", "cancelled")
PER_SESSION, IN_ALL = 3, 30  # sweeps that wait or run
TURN_SECONDS = 60.0  # after this time a sweep pauses for another session's, and goes on in its next turn
STOPPING = "cannot schedule new futures"  # in the error of executors when Python ends
log = logging.getLogger(__name__)


@dataclass
class SweepJob:
    """A sweep that waits or runs. It stops when every session that asked for it has cancelled."""

    run: str
    spec: SweepSpec
    sessions: set[str]
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


class Paused(Cancelled):
    """It is another session's turn."""


class SweepQueue:
    """One per server, and the owner of its runs. Any session can watch any run by its id."""

    def __init__(self, store: Store, start_executor: Callable[[], Executor]) -> None:
        self.store, self._start_executor = store, start_executor
        self._executor: Executor | None = None
        self._jobs: dict[str, SweepJob] = {}  # by run, in the order of the requests
        self._served: dict[str, float] = {}  # time of each session's last turn
        self._change = threading.Condition()
        threading.Thread(target=self._work, name="sweeps", daemon=True).start()

    def submit(self, spec: SweepSpec, session: str, name: str = "") -> str:
        """Request a sweep, or join others who did; return the id of its run."""
        with self._change:
            job = self._jobs.get(spec.run_id)
            own = sum(session in other.sessions for other in self._jobs.values())
            if (job is None or session not in job.sessions) and own >= PER_SESSION:
                raise QueueFull(f"You have {own} sweeps waiting or running. Wait for one, or cancel one in History.")
            if job is not None and not job.stop:
                job.sessions.add(session)
                return job.run
            if len(self._jobs) >= IN_ALL:
                raise QueueFull(f"{len(self._jobs)} sweeps are waiting. Please try again later.")
            run = self.store.start_run(spec, name)
            if job is not None:  # it is stopping, and starts again after that
                job.sessions, job.stop = {session}, False
            else:
                self._jobs[run] = SweepJob(run, spec, {session})
            self._change.notify_all()
            return run

    def cancel(self, run: str, session: str | None = None) -> None:
        """Withdraw a session's request (None: all requests). Without requests the work stops."""
        with self._change:
            job = self._jobs.get(run)
            if job is None:
                return
            job.sessions = job.sessions - {session} if session is not None else set()
            job.stop = not job.sessions
            if job.stop and job.state == "waiting":
                self._end(job, Cancelled())

    def wait(self, run: str, seconds: float) -> None:
        """Return when the run neither waits nor runs, or after this time."""
        with self._change:
            self._change.wait_for(lambda: run not in self._jobs, seconds)

    def delete(self, run: str) -> None:
        """Delete a run that neither waits nor runs."""
        with self._change:
            if run in self._jobs:
                raise ValueError("This run is waiting or running. Cancel it first.")
            self.store.delete_run(run)

    def status(self, run: str) -> RunStatus | None:
        """The state of a run; None if there is no such run."""
        with self._change:
            job = self._jobs.get(run)
            if job is not None:
                order = self._order()
                place = 0 if job.state == "running" else order.index(job) + len(self._jobs) - len(order)
                return RunStatus(job.state, "", job.progress, place, frozenset(job.sessions))
            stored = self.store.run(run)
        if stored is None:
            return None
        return RunStatus(stored.state if stored.state in ENDED else "interrupted", stored.message)

    @property
    def workers(self) -> int:
        """The number of cells computed at once."""
        return self._executor.workers if self._executor is not None else os.cpu_count() or 1

    def counts(self) -> tuple[int, int]:
        """The numbers of running and of waiting sweeps."""
        with self._change:
            waiting = len(self._order())
            return len(self._jobs) - waiting, waiting

    def _order(self) -> list[SweepJob]:
        return in_turns([job for job in self._jobs.values() if job.state == "waiting"], self._served)

    def _work(self) -> None:
        """Compute one sweep after the other, on the thread that owns the workers."""
        try:
            machine_factor()
            self._workers()
        except Exception:  # a job that needs the workers will fail with a sentence
            log.exception("the workers did not start")
        while True:
            with self._change:
                job = self._change.wait_for(self._order)[0]
                self._served |= dict.fromkeys(job.sessions, time.monotonic())
                job.state = "running"
            error, message = self._compute(job)
            log.info("sweep %s ends its turn: %s", job.run, type(error).__name__ if error else "done")
            with self._change:
                if isinstance(error, Cancelled) and not job.stop:  # paused, or requested again
                    job.state = "waiting"
                else:
                    self._end(job, error, message)

    def _workers(self) -> Executor:
        if self._executor is None:
            self._executor = self._start_executor()
            warm_up(self._executor)
        return self._executor

    def _compute(self, job: SweepJob) -> tuple[Exception | None, str]:
        """Compute a sweep until it ends, is stopped, or has used its turn; return its error and a sentence on it."""
        began = time.monotonic()

        def progress(at: SweepProgress) -> None:
            job.progress = at
            if job.stop:
                raise Cancelled
            if at.computed + at.learners and time.monotonic() - began > TURN_SECONDS:
                with self._change:
                    if any(not other.sessions & job.sessions for other in self._order()):
                        raise Paused

        try:
            compute_sweep(job.spec, self.store, self._workers(), progress)
        except Exception as error:
            silent = isinstance(error, Cancelled) or STOPPING in str(error)
            return error, "" if silent else self._explain(job, error)
        return None, ""

    def _end(self, job: SweepJob, error: Exception | None, message: str = "") -> None:
        """Remove a job and write how its run ended, unless the server stops: then the run was interrupted."""
        del self._jobs[job.run]
        self._change.notify_all()
        try:
            if error is None or isinstance(error, Cancelled) or message:
                end_run(self.store, job.run, error, message)
        except StoreError:  # the thread must live on
            log.exception("the end of run %s was not stored", job.run)

    def _explain(self, job: SweepJob, error: Exception) -> str:
        """A sentence with a reference, under which the log has the rest."""
        reference = uuid.uuid4().hex[:8]
        log.error("sweep %s failed, reference %s", job.run, reference, exc_info=error)
        sentence = str(error) if isinstance(error, ValueError) else "Something went wrong on our side."
        if isinstance(error, SweepFailed):
            sentence = " ".join(error.sentences) or "Some cells could not be computed."
        elif self._executor is not None:
            self._executor.close()  # it may have failed
            self._executor = None
        return f"{sentence} Computed cells are kept. The log has more under {reference}."
