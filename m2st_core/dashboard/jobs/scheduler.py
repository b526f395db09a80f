"""Scheduling of computations, free of streamlit: threads that compute jobs in fair turns between people."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from typing import Any, Literal

from m2st_core.progress import Pace
from m2st_core.sweeps.work import Paused
from m2st_core.types import Cancelled, Progress

State = Literal["asked", "waiting", "running", "done", "failed", "cancelled"]
log = logging.getLogger(__name__)


class Job:
    """One computation, requested by some people. ``spend`` is told how long it took."""

    def __init__(
        self,
        work: Callable[[Progress], Any],
        people: Iterable[Hashable] = (),
        *,
        state: State = "waiting",
        spend: Callable[[float], None] | None = None,
    ) -> None:
        self.work, self.people, self.spend = work, set(people), spend
        self.state: State = state
        self.share, self.pace = 0.0, Pace()
        self.result: Any = None
        self.error = ""
        self.stop, self.ended = threading.Event(), threading.Event()

    @property
    def active(self) -> bool:
        """Whether the job waits or runs."""
        return self.state in ("waiting", "running")

    @property
    def seconds_left(self) -> float | None:
        """An estimate from the pace so far."""
        return self.pace.left(self.share) if self.state == "running" else None

    def wait(self, seconds: float) -> None:
        """Return when the job has ended, or after this time."""
        self.ended.wait(seconds)

    def compute(self) -> None:
        """Do the work; called on a thread of the scheduler."""
        began, self.pace = time.monotonic(), Pace()
        try:
            self.result = self.work(self._progress)
        finally:
            if self.spend is not None:
                try:
                    self.spend(time.monotonic() - began)
                except ValueError:  # the store cannot be written, but the result is there
                    log.exception("the time of a job was not counted")

    def _progress(self, step: int, total: int, value: float) -> None:
        self.share = step / total
        if self.stop.is_set():
            raise Cancelled

    def finish(self, error: BaseException | None) -> None:
        """Record how the job ended. Of errors, only messages of bad input are for the user."""
        if isinstance(error, ValueError):
            self.error = str(error)
        elif error is not None and not isinstance(error, Cancelled):
            reference = uuid.uuid4().hex[:8]
            log.error("job %s failed", reference, exc_info=error)
            self.error = f"Something went wrong on our side. Please try again; the log has it under {reference}."


class Scheduler:
    """Threads that compute jobs. A job that raises ``Paused`` continues in its next turn.

    Next is the job of the person with the fewest running jobs, and of these the one whose last turn is oldest.
    """

    def __init__(self, workers: int, name: str) -> None:
        self.change = threading.Condition(threading.RLock())  # a session may be collected at any moment, in any thread
        self.closed = False
        self._jobs: list[Job] = []  # that wait or run, in the order of the requests
        self._turns: dict[Hashable, float] = {}  # time of each person's last turn
        numbered = (f"{name} {index}" for index in range(workers))
        self._threads = [threading.Thread(target=self._work, name=each, daemon=True) for each in numbered]
        for thread in self._threads:
            thread.start()

    def submit(self, job: Job) -> Job:
        """Let the job wait for its turn."""
        with self.change:
            self._jobs.append(job)
            self.change.notify()
        return job

    def cancel(self, job: Job) -> None:
        """End a waiting job, and ask a running one to stop at its next step."""
        with self.change:
            job.stop.set()
            if job.state == "waiting" and job in self._jobs:
                self._end(job, Cancelled())

    def counts(self, person: Hashable = None) -> tuple[int, int]:
        """The numbers of running and of waiting jobs, of one person or in all."""
        with self.change:
            states = Counter(job.state for job in self._jobs if person is None or person in job.people)
        return states["running"], states["waiting"]

    def order(self) -> list[Job]:
        """Waiting jobs in the order in which they will start, as far as it is known now."""
        with self.change:
            waiting, turns, order = self._waiting(), dict(self._turns), list[Job]()
            while waiting:
                job = self._first(waiting, turns)
                turns |= dict.fromkeys(job.people, max(turns.values(), default=0.0) + 1)
                waiting.remove(job)
                order.append(job)
        return order

    def is_awaited(self, job: Job) -> bool:
        """Whether jobs of other people wait for this one."""
        with self.change:
            return any(not other.people & job.people for other in self._waiting())

    def close(self, seconds: float = 0.0) -> bool:
        """Stop all jobs and the threads; return whether these have ended within some seconds."""
        with self.change:
            self.closed = True
            for job in list(self._jobs):
                self.cancel(job)
            self.change.notify_all()
        ends = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, ends - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def _waiting(self) -> list[Job]:
        return [job for job in self._jobs if job.state == "waiting"]

    def _first(self, waiting: list[Job], turns: dict[Hashable, float]) -> Job:
        running = Counter(person for job in self._jobs if job.state == "running" for person in job.people)

        def rank(job: Job) -> tuple[int, float]:
            return min(((running[person], turns.get(person, 0.0)) for person in job.people), default=(0, 0.0))

        return min(waiting, key=rank)

    def _work(self) -> None:
        while self._take_turn():
            pass

    def _take_turn(self) -> bool:
        """Compute the next job, as soon as there is one. It is not referred to afterwards, as it may hold data."""
        with self.change:
            self.change.wait_for(lambda: self.closed or self._waiting())
            if self.closed:
                return False
            job = self._first(self._waiting(), self._turns)
            job.state = "running"
            self._turns |= dict.fromkeys(job.people, time.monotonic())
        error: BaseException | None = None
        try:
            job.compute()
        except Exception as raised:
            error = raised
        with self.change:
            if isinstance(error, Paused) and not job.stop.is_set():
                job.state = "waiting"
            else:
                self._end(job, error)
        return True

    def _end(self, job: Job, error: BaseException | None) -> None:
        self._jobs.remove(job)
        people = {person for other in self._jobs for person in other.people}
        self._turns = {person: turn for person, turn in self._turns.items() if person in people}
        job.finish(error)
        job.state = "done" if error is None else "cancelled" if isinstance(error, Cancelled) else "failed"
        job.ended.set()
