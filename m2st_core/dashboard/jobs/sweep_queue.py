"""The server's queue of sweeps, free of streamlit: one sweep at a time on the workers, in turns between sessions."""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections.abc import Callable, Mapping

from m2st_core.dashboard.host import ServerLimits
from m2st_core.dashboard.jobs.turns import Clock, QueueFull, RunStatus, SweepJob, TimeIsUp, in_turns
from m2st_core.sweeps.cost import machine_factor
from m2st_core.sweeps.database import StoreError
from m2st_core.sweeps.executors import Executor
from m2st_core.sweeps.spec import SweepSpec
from m2st_core.sweeps.store import RunState, Store, own_id
from m2st_core.sweeps.work import Paused, SweepFailed, SweepProgress, compute_sweep, end_run, warm_up
from m2st_core.types import Cancelled

ENDED = ("done", "failed", "cancelled")
CLOSE_SECONDS = 3.0  # for a sweep to stop when the server does, and again after its workers were killed
TURN_SECONDS = 60.0  # after this time a sweep pauses for another session's, and goes on in its next turn
ELSEWHERE = "Another process computes this run now. Its points appear here; reload to see its end."
STOPPING = "cannot schedule new futures"  # in the error of executors when Python ends
log = logging.getLogger(__name__)


class SweepQueue:
    """One per server, and the owner of its runs. Any session can watch any run by its id."""

    def __init__(self, store: Store, start_executor: Callable[[], Executor]) -> None:
        self.store, self._start_executor = store, start_executor
        self._executor: Executor | None = None
        self._jobs: dict[str, SweepJob] = {}  # by run, in the order of the requests
        self._served: dict[str, float] = {}  # time of each session's last turn
        self._change, self._closed, self.started = threading.Condition(), False, threading.Event()  # of the workers
        self._thread = threading.Thread(target=self._work, name="sweeps", daemon=True)
        self._thread.start()

    def submit(self, spec: SweepSpec, session: str, name: str = "", store: Store | None = None) -> str:
        """Request a sweep, or join others who did; return the id of its run, which belongs to who sees this store."""
        store, most = store or self.store, ServerLimits.from_environment()
        with self._change:
            job = self._jobs.get(own_id(spec.run_id, store.runs.owner or ""))
            own = sum(session in other.sessions for other in self._jobs.values())
            if (job is None or session not in job.sessions) and own >= most.sweeps:
                words = f"{own} sweep{'s' * (own != 1)}"
                raise QueueFull(f"You have {words} waiting or running. Wait for one, or cancel one in History.")
            if job is not None and not job.stop:
                job.sessions.add(session)
                return job.run
            if len(self._jobs) >= most.all_sweeps:
                raise QueueFull(f"{len(self._jobs)} sweeps are waiting. Please try again later.")
            run = store.runs.start(spec, name)
            if job is not None:  # it is stopping, and starts again after that
                job.sessions, job.stop = {session}, False
            else:
                self._jobs[run] = SweepJob(run, spec, {session}, store.runs.owner or "")
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

    def delete(self, run: str, store: Store | None = None) -> None:
        """Delete a run that neither waits nor runs, if who sees this store may."""
        with self._change:
            if run in self._jobs:
                raise ValueError("This run is waiting or running. Cancel it first.")
            (store or self.store).delete_run(run)

    def close(self) -> None:
        """Stop the work and end the workers. A run that was computed counts as interrupted, and can be resumed."""
        with self._change:
            self._closed = True
            self._change.notify_all()
        if self._executor is not None and not self.started.is_set():
            self._executor.cancel()  # nobody waits for workers that are only starting
        self._thread.join(CLOSE_SECONDS)
        if self._executor is not None and self._thread.is_alive():
            self._executor.cancel(0)  # a sweep that pauses waits longer for its cells than the server may
            self._thread.join(CLOSE_SECONDS)
        if self._executor is not None and not self._thread.is_alive():
            self._executor.close()
        self.store.database.close()

    def status(self, run: str) -> RunStatus | None:
        """The state of a run; None if there is no such run."""
        return self.statuses(self.store.runs.states([run])).get(run)

    def statuses(self, stored: Mapping[str, RunState]) -> dict[str, RunStatus]:
        """The present states of runs, by the keys of their stored ones."""
        with self._change:
            order = self._order()
            first = len(self._jobs) - len(order)
            places = {job.run: first + index for index, job in enumerate(order)}
            active = {
                run: RunStatus(job.state, "", job.progress, places.get(run, 0), frozenset(job.sessions))
                for run, job in self._jobs.items()
            }
        return {key: active.get(run.id) or self._ended(run) for key, run in stored.items()}

    def _ended(self, run: RunState) -> RunStatus:
        """The status of a run that is not in this queue."""
        if run.state in ENDED:
            return RunStatus(run.state, run.message)
        return RunStatus("interrupted", ELSEWHERE if self.store.runs.is_computed(run.id) else run.message)

    @property
    def workers(self) -> int:
        """The number of cells computed at once."""
        return self._executor.workers if self._executor is not None else os.cpu_count() or 1

    def counts(self, session: str | None = None) -> tuple[int, int]:
        """The numbers of running and of waiting sweeps, of one session or in all."""
        with self._change:
            jobs = [job for job in self._jobs.values() if session is None or session in job.sessions]
            waiting = sum(job.state == "waiting" for job in jobs)
            return len(jobs) - waiting, waiting

    def _order(self) -> list[SweepJob]:
        return in_turns([job for job in self._jobs.values() if job.state == "waiting"], self._served)

    def _work(self) -> None:
        """Compute one sweep after the other, on the thread that owns the workers."""
        try:
            machine_factor()
            self._workers()
        except Exception:  # a job that needs the workers will fail with a sentence
            log.exception("the workers did not start")
        self.started.set()
        while True:
            with self._change:
                self._change.wait_for(lambda: self._closed or self._order())
                if self._closed:
                    return
                job = self._order()[0]
                self._served |= dict.fromkeys(job.sessions, time.monotonic())
                job.state = "running"
            error, message = self._compute(job)
            log.info("sweep %s ends its turn: %s", job.run, type(error).__name__ if error else "done")
            with self._change:
                if self._closed:
                    continue
                if isinstance(error, Cancelled) and not (job.stop or message):  # paused, or requested again
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
        began, clock = time.monotonic(), Clock(self.store, job.owner)

        def progress(at: SweepProgress) -> None:
            job.progress = at
            if job.stop or self._closed:
                raise Cancelled
            clock.count(at.spent)
            if at.computed + at.learners and time.monotonic() - began > TURN_SECONDS:
                with self._change:
                    if any(not other.sessions & job.sessions for other in self._order()):
                        raise Paused

        try:
            compute_sweep(job.spec, self.store, self._workers(), job.run, progress)
        except TimeIsUp as error:
            return error, str(error)
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
