"""Sweeps of a server, free of streamlit: the queue that computes them, and the part of it that one visitor may use."""

from __future__ import annotations

import logging
import os
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

import pandas as pd

from m2st_core.dashboard.jobs.host import ServerLimits, Visitor, is_open
from m2st_core.dashboard.jobs.scheduler import Job, Scheduler
from m2st_core.sweeps.cost import machine_factor
from m2st_core.sweeps.database import StoreError
from m2st_core.sweeps.executors import Executor
from m2st_core.sweeps.grid import grid_of, grid_table
from m2st_core.sweeps.spec import SweepSpec
from m2st_core.sweeps.store import Run, Store, own_id
from m2st_core.sweeps.work import Paused, SweepFailed, SweepProgress, compute_sweep, end_run, warm_up_worker
from m2st_core.types import Cancelled, Progress

ENDED = ("done", "failed", "cancelled")
CLOSE_SECONDS = 3.0  # for a sweep to stop when the server does, and again after its workers were killed
TURN_SECONDS = 60.0  # after this time a sweep pauses for another person's, and continues in its next turn
COUNT_SECONDS = 2.0  # of computing, between two entries of usage
ELSEWHERE = "Another process computes this run now. Its points appear here; reload to see its end."
STOPPING = "cannot schedule new futures"  # in the error of executors when Python ends
NOT_YOURS = "There is no run {!r} of yours here."
log = logging.getLogger(__name__)


class QueueFull(ValueError):
    """A sentence on why no more sweeps are accepted now."""


class TimeIsUp(Cancelled):
    """The owner's time for today is used up."""


@dataclass(frozen=True)
class RunStatus:
    """The state of a run for a page; ``position`` counts the sweeps before it."""

    state: str  # waiting, running, done, failed, cancelled or interrupted
    message: str = ""
    progress: SweepProgress | None = None
    position: int = 0
    sessions: frozenset[str] = frozenset()

    @property
    def active(self) -> bool:
        """Whether the run waits or runs."""
        return self.state in ("waiting", "running")


class SweepJob(Job):
    """A sweep that waits or runs. It stops when every session that asked for it has cancelled."""

    def __init__(self, run: str, spec: SweepSpec, owner: str, asker: str, queue: SweepQueue) -> None:
        super().__init__(partial(queue.compute, self), [asker])
        self.run, self.spec, self.owner, self._queue = run, spec, owner, queue
        self.progress: SweepProgress | None = None
        self.message = ""  # how the run ended

    def finish(self, error: BaseException | None) -> None:
        """Write how the run ended into the store."""
        self._queue.finish(self, error)


class SweepQueue:
    """The sweeps of a server: one at a time on its workers. Any session can watch any run by its id."""

    def __init__(self, store: Store, start_executor: Callable[[], Executor]) -> None:
        self.store, self._start_executor = store, start_executor
        self._executor: Executor | None = None
        self._jobs: dict[str, SweepJob] = {}  # by run
        self._scheduler = Scheduler(1, "sweeps")
        self.started = self._scheduler.submit(Job(self._prepare)).ended  # set when the workers are ready

    def submit(self, spec: SweepSpec, asker: str, name: str = "", store: Store | None = None) -> str:
        """Queue a sweep, or join the identical queued one. Return the run's id; the store's person owns it."""
        store, most = store or self.store, ServerLimits.from_environment()
        owner = store.runs.owner or ""
        with self._scheduler.change:
            job = self._jobs.get(own_id(spec.run_id, owner))
            asked = sum(asker in other.people for other in self._jobs.values())
            if (job is None or asker not in job.people) and asked >= most.sweeps:
                words = f"{asked} sweep{'s' * (asked != 1)}"
                raise QueueFull(f"You have {words} waiting or running. Wait for one, or cancel one in History.")
            if job is not None and not job.stop.is_set():
                job.people.add(asker)
                return job.run
            if len(self._jobs) >= most.all_sweeps:
                raise QueueFull(f"{len(self._jobs)} sweeps are waiting. Please try again later.")
            run = store.runs.start(spec, name)  # a job that is stopping is replaced by a new one
            self._jobs[run] = SweepJob(run, spec, owner, asker, self)
            self._scheduler.submit(self._jobs[run])
            return run

    def cancel(self, run: str, asker: str | None = None) -> None:
        """Withdraw a request (None: all requests). Without requests the work stops."""
        with self._scheduler.change:
            if (job := self._jobs.get(run)) is not None:
                job.people = job.people - {asker} if asker is not None else set()
                if not job.people:
                    self._scheduler.cancel(job)

    def wait(self, run: str, seconds: float) -> None:
        """Return when the run neither waits nor runs, or after this time."""
        if (job := self._jobs.get(run)) is not None:
            job.wait(seconds)

    def delete(self, run: str, store: Store | None = None) -> None:
        """Delete an inactive run that the store's person owns."""
        with self._scheduler.change:
            if run in self._jobs:
                raise ValueError("This run is waiting or running. Cancel it first.")
            (store or self.store).delete_run(run)

    def close(self) -> None:
        """Stop the work and end the workers. A run that was computed counts as interrupted, and can be resumed."""
        closed = self._scheduler.close()
        if self._executor is not None and not self.started.is_set():
            self._executor.cancel()  # workers that are only starting are not waited for
        closed = closed or self._scheduler.close(CLOSE_SECONDS)
        if self._executor is not None and not closed:
            self._executor.cancel(0)  # a sweep that pauses waits longer for its cells than the server may
            closed = self._scheduler.close(CLOSE_SECONDS)
        if self._executor is not None and closed:
            self._executor.close()
        self.store.database.close()

    def status(self, run: str) -> RunStatus | None:
        """The state of a run; None if there is no such run."""
        return self.statuses(self.store.runs.by_id([run])).get(run)

    def statuses(self, stored: Mapping[str, Run]) -> dict[str, RunStatus]:
        """The present states of runs, by the keys of their stored ones."""
        with self._scheduler.change:
            order = [job for job in self._scheduler.order() if isinstance(job, SweepJob)]
            running = len(self._jobs) - len(order)
            positions = {job.run: running + index for index, job in enumerate(order)}
            active = {
                run: RunStatus(job.state, "", job.progress, positions.get(run, 0), frozenset(map(str, job.people)))
                for run, job in self._jobs.items()
            }
        return {key: active.get(run.id) or self._inactive(run) for key, run in stored.items()}

    def _inactive(self, run: Run) -> RunStatus:
        if run.state in ENDED:
            return RunStatus(run.state, run.message)
        return RunStatus("interrupted", ELSEWHERE if self.store.runs.is_computed(run.id) else run.message)

    @property
    def workers(self) -> int:
        """The number of cells computed at once."""
        return self._executor.workers if self._executor is not None else os.cpu_count() or 1

    def counts(self, asker: str | None = None) -> tuple[int, int]:
        """The numbers of running and of waiting sweeps, of one person or in all."""
        with self._scheduler.change:
            jobs = [job for job in self._jobs.values() if asker is None or asker in job.people]
            waiting = sum(job.state == "waiting" for job in jobs)
        return len(jobs) - waiting, waiting

    def _prepare(self, progress: Progress) -> None:
        try:
            machine_factor()
            self._workers()
        except Exception:  # a sweep that needs the workers will fail with a sentence
            log.exception("the workers did not start")

    def _workers(self) -> Executor:
        if self._executor is None:
            self._executor = self._start_executor()
            warm_up_worker(self._executor)
        return self._executor

    def compute(self, job: SweepJob, progress: Progress) -> None:
        """Compute a sweep until it ends, is stopped, or has used its turn."""
        began, counted = time.monotonic(), 0.0

        def watch(at: SweepProgress) -> None:
            nonlocal counted
            job.progress = at
            if job.stop.is_set():
                raise Cancelled
            if job.owner and at.spent - counted >= COUNT_SECONDS:
                self.count(job.owner, at.spent - counted)
                counted = at.spent
            over = time.monotonic() - began > TURN_SECONDS
            if over and at.computed + at.learners and self._scheduler.is_awaited(job):
                raise Paused

        try:
            compute_sweep(job.spec, self.store, self._workers(), job.run, watch)
        except Exception as error:
            if not isinstance(error, Cancelled) and STOPPING not in str(error):
                job.message = self._explain(job, error)
            log.info("sweep %s ends its turn: %s", job.run, type(error).__name__)
            raise
        log.info("sweep %s is done", job.run)

    def count(self, owner: str, seconds: float) -> None:
        """Count computing time of a person, and stop when today's is used up."""
        self.store.usage.add(owner, seconds)
        most = ServerLimits.from_environment().minutes
        if self.store.usage.of(owner) >= 60 * most:
            raise TimeIsUp(
                f"Your computing time for today, {most} min, is used up. Finished cells are kept; resume it tomorrow."
            )

    def finish(self, job: SweepJob, error: BaseException | None) -> None:
        """Write how a run ended, unless it was requested again, or was interrupted because the server stops."""
        if self._jobs.get(job.run) is not job:
            return
        del self._jobs[job.run]
        message = str(error) if isinstance(error, TimeIsUp) else job.message
        interrupted = self._scheduler.closed or not (isinstance(error, Cancelled) or message)
        try:
            if error is None or not interrupted:
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


@dataclass(frozen=True)
class SweepView:
    """A sweep at one moment, as one visitor sees it. ``status`` is None without a run."""

    spec: SweepSpec
    run: Run | None
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


class RunDesk:
    """Queue and store restricted to one visitor's permissions.

    The local user may do everything. A person may see, cancel, delete, rename and share their own runs, and see shared
    ones. The id of a spec means the visitor's own run of it.
    """

    def __init__(self, queue: SweepQueue, visitor: Visitor) -> None:
        self._queue, self.visitor, self.store = queue, visitor, queue.store
        if visitor.person:
            self.store = queue.store.seen_by(visitor.person, visitor.tokens)

    def look(self, specs: Mapping[str, SweepSpec]) -> dict[str, SweepView]:
        """Sweeps as they are now, by the ids of their runs or specs: one query for all runs, and one for all rows."""
        runs = self.store.runs.by_id(specs)
        statuses = self._queue.statuses(runs)
        grids = {asked: grid_of(spec).cells.keys() for asked, spec in specs.items()}
        results = self.store.cells.results({key for keys in grids.values() for key in keys})
        views = {}
        for asked, spec in specs.items():
            run, stored = runs.get(asked), frozenset(grids[asked] & results.keys())
            rows, cells = grid_table(spec, results), len(grids[asked])
            views[asked] = SweepView(spec, run, statuses.get(asked), self._is_mine(run), rows, stored, cells)
        return views

    def statuses(self, runs: Iterable[str]) -> dict[str, RunStatus]:
        """The states of those of these runs that the visitor may see."""
        return self._queue.statuses(self.store.runs.by_id(runs))

    def status(self, run: str) -> RunStatus | None:
        """The state of a run; None if there is none that the visitor may see."""
        return self.statuses([run]).get(run)

    def owns(self, run: str) -> bool:
        """Whether the visitor may change the run."""
        return self._is_mine(self.store.runs.by_id([run]).get(run))

    def _is_mine(self, run: Run | None) -> bool:
        return run is not None and self.visitor.person in ("", run.owner)

    def may_cancel(self, view: SweepView) -> bool:
        """Whether the visitor may cancel it: its owner; in single-user mode anyone, if the tab that asked is closed."""
        return view.mine and view.status is not None and self._may_withdraw(view.status)

    def _may_withdraw(self, status: RunStatus) -> bool:
        asked_here = bool(self.visitor.person) or self.visitor.asker in status.sessions
        return asked_here or not any(map(is_open, status.sessions))

    def submit(self, spec: SweepSpec, name: str = "") -> str:
        """Request a sweep as the visitor's own run; return its id."""
        check_run_time(self.store, self.visitor)
        return self._queue.submit(spec, self.visitor.asker, name, self.store)

    def cancel(self, run: str) -> None:
        """Cancel the visitor's request; in single-user mode cancel all requests."""
        resolved = self._owned(run)
        status = self._queue.status(resolved)
        if status is None or not status.active:
            return
        if not self._may_withdraw(status):
            raise StoreError("Another browser session started this run and is still open, so cancel it there.")
        self._queue.cancel(resolved, self.visitor.asker if self.visitor.asker in status.sessions else None)

    def delete(self, run: str) -> None:
        """Delete one of the visitor's runs, which can be undone."""
        self._queue.delete(self._owned(run), self.store)

    def wait(self, run: str, seconds: float) -> None:
        """Return when the run neither waits nor runs, or after this time."""
        self._queue.wait(run, seconds)

    def counts(self) -> tuple[int, int]:
        """The numbers of running and waiting sweeps: a person's, or all in single-user mode."""
        return self._queue.counts(self.visitor.person or None)

    @property
    def workers(self) -> int:
        """The number of cells computed at once."""
        return self._queue.workers

    def _owned(self, run: str) -> str:
        stored = self.store.runs.by_id([run]).get(run)
        if stored is None or not self._is_mine(stored):
            raise StoreError(NOT_YOURS.format(run))
        return stored.id


def check_run_time(store: Store, visitor: Visitor) -> None:
    """Refuse a computation if the visitor's time for today is used up."""
    most = ServerLimits.from_environment().minutes
    if visitor.person and store.usage.of(visitor.person) >= 60 * most:
        raise QueueFull(
            f"You have used your computing time for today, {most} min. More from midnight UTC. What is computed stays."
        )
