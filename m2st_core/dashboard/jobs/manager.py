"""Jobs and the workers that run them, free of streamlit: fair between people, and stopped with their session."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, Literal

from m2st_core.progress import Pace
from m2st_core.types import Cancelled, Progress

State = Literal["asked", "waiting", "running", "done", "failed", "cancelled"]
KEPT_JOBS, KEPT_ANSWERS = 16, 32  # for each session, and for everyone
PER_PERSON = 8  # jobs that wait or run
log = logging.getLogger(__name__)


class Job:
    """One computation. A worker calls ``function(progress)``, and the page shows the progress."""

    def __init__(self, function: Callable[[Progress], Any], state: State = "waiting") -> None:
        self.function = function
        self.state: State = state
        self.share, self.pace = 0.0, Pace()
        self.result: Any = None
        self.error = ""
        self.stop, self.ended = threading.Event(), threading.Event()
        self.person: Hashable = ""
        self.spend: Callable[[float], None] | None = None

    @property
    def active(self) -> bool:
        """Whether the job waits or runs."""
        return self.state in ("waiting", "running")

    @property
    def seconds_left(self) -> float | None:
        """An estimate from the pace so far."""
        return self.pace.left(self.share) if self.state == "running" else None

    def cancel(self) -> None:
        """Ask the work to stop at its next step."""
        self.stop.set()
        if self.state == "waiting":
            self.state = "cancelled"

    def wait(self, seconds: float) -> None:
        """Return when the job has ended, or after this time."""
        self.ended.wait(seconds)

    def finish(self, state: State, result: Any = None, error: str = "") -> None:
        """Record how the job ended."""
        self.result, self.error, self.state = result, error, state
        self.ended.set()

    def run(self) -> None:
        """Compute; called by the worker."""
        if self.state == "cancelled":
            return self.finish("cancelled")
        self.state, self.pace = "running", Pace()
        try:
            self.finish("done", self.function(self._progress))
        except Cancelled:
            self.finish("cancelled")
        except ValueError as error:  # bad input: its message is written for the user
            self.finish("failed", error=str(error))
        except Exception:
            reference = uuid.uuid4().hex[:8]
            log.exception("job %s failed", reference)
            sentence = f"Something went wrong on our side. Please try again; the log has it under {reference}."
            self.finish("failed", error=sentence)

    def _progress(self, step: int, total: int, value: float) -> None:
        self.share = step / total
        if self.stop.is_set():
            raise Cancelled


class JobManager:
    """The server's workers and the jobs of its sessions. Results of a ``question`` are kept for everyone.

    The next job is of the person for whom the fewest are running, and who had no turn for the longest time.
    """

    def __init__(self, workers: int = 2) -> None:
        self._jobs: OrderedDict[Hashable, Job] = OrderedDict()
        self._waiting: list[Job] = []
        self._running: Counter[Hashable] = Counter()
        self._turns: dict[Hashable, float] = {}  # time of each person's last turn
        self._answers: OrderedDict[Hashable, Any] = OrderedDict()
        self._closed = False
        self._change = threading.Condition(threading.RLock())  # a session may be collected at any moment
        for index in range(workers):
            threading.Thread(target=self._work, name=f"job worker {index}", daemon=True).start()

    def submit(
        self,
        key: Hashable,
        function: Callable[[Progress], Any],
        question: Hashable | None = None,
        person: str = "",
        spend: Callable[[float], None] | None = None,
    ) -> Job:
        """The job of this key in its present state, or a new one, which tells ``spend`` how long it ran."""
        with self._change:
            job = self._jobs.get(key)
            if job is None:
                job = Job(function if question is None else partial(self._answer, function, question))
                job.person, job.spend = person or _session_of(key), spend
                if question in self._answers:
                    self._answers.move_to_end(question)
                    job.finish("done", self._answers[question])
                elif self.counts(job.person)[2] >= PER_PERSON:
                    job.finish("failed", error=f"{PER_PERSON} computations of yours wait or run. Wait, or cancel one.")
                else:
                    self._waiting.append(job)
                    self._change.notify()
                self._jobs[key] = job
            self._jobs.move_to_end(key)
            self._forget_oldest(_session_of(key))
            return job

    def knows(self, key: Hashable, question: Hashable | None = None) -> bool:
        """Whether there is such a job, or an answer to the question."""
        with self._change:
            return key in self._jobs or (question is not None and question in self._answers)

    def counts(self, person: Hashable = None) -> tuple[int, int, int]:
        """The numbers of running and waiting jobs and their sum, of one person or in all."""
        with self._change:
            running = self._running.total() if person is None else self._running[person]
            waiting = sum(job.active and person in (None, job.person) for job in self._waiting)
            return running, waiting, running + waiting

    def _forget_oldest(self, session: Hashable) -> None:
        """Keep the latest jobs of a session; what runs, and what is another's, stays."""
        own = [key for key in self._jobs if _session_of(key) == session]
        for key in own[: max(0, len(own) - KEPT_JOBS)]:
            if not self._jobs[key].active:
                del self._jobs[key]

    def _work(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: self._waiting or self._closed)
                if self._closed:
                    return
                job = min(self._waiting, key=lambda job: (self._running[job.person], self._turns.get(job.person, 0)))
                self._waiting.remove(job)
                self._turns[job.person] = time.monotonic()
                self._running[job.person] += 1
            began = time.monotonic()
            job.run()
            with self._change:
                self._running[job.person] -= 1
                if not self.counts(job.person)[2]:
                    del self._running[job.person], self._turns[job.person]
            try:
                if job.spend is not None:
                    job.spend(time.monotonic() - began)
            except ValueError:  # the store cannot be written, and the worker must live on
                log.exception("the time of a job was not counted")
            del job  # an idle worker holds no data

    def _answer(self, function: Callable[[Progress], Any], question: Hashable, progress: Progress) -> Any:
        result = function(progress)
        self.keep(question, result)
        return result

    def keep(self, question: Hashable, answer: Any) -> None:
        """Keep the answer to a question for everyone."""
        with self._change:
            self._answers[question] = answer
            if len(self._answers) > KEPT_ANSWERS:
                self._answers.popitem(last=False)

    def drop(self, key: Hashable) -> None:
        """Stop and remove a job that has not succeeded, so that it can be started again."""
        with self._change:
            if key in self._jobs and self._jobs[key].state != "done":
                self._cancel(self._jobs.pop(key))

    def forget(self, session: str) -> None:
        """Stop and remove all jobs of a session, and with them the data they hold."""
        with self._change:
            for key in [key for key in self._jobs if _session_of(key) == session]:
                self._cancel(self._jobs.pop(key))

    def _cancel(self, job: Job) -> None:
        job.cancel()
        if job in self._waiting:
            self._waiting.remove(job)

    def close(self) -> None:
        """Stop all jobs and end the workers."""
        with self._change:
            self._closed = True
            for job in self._jobs.values():
                job.cancel()
            self._change.notify_all()


def _session_of(key: Hashable) -> Hashable:
    return key[0] if isinstance(key, tuple) else key
