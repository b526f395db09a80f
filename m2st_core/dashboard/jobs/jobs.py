"""A page's one job: start it, leave the previous one, poll while it runs, and say how it ended."""

from __future__ import annotations

import gc
import logging
import threading
import time
import uuid
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Literal, Protocol

import streamlit as st

from m2st_core.testing.two_sample import two_sample_test
from m2st_core.types import Cancelled, Progress

State = Literal["waiting", "running", "done", "failed", "cancelled"]
KEPT_JOBS = KEPT_ANSWERS = 64
log = logging.getLogger(__name__)


class Job:
    """One computation. ``function(progress)`` runs in a worker; its progress is what the page shows."""

    def __init__(self, function: Callable[[Progress], Any]) -> None:
        self.function = function
        self.state: State = "waiting"
        self.share = 0.0
        self.result: Any = None
        self.error = ""
        self._began = 0.0
        self._stop = threading.Event()
        self._ended = threading.Event()

    @property
    def active(self) -> bool:
        """Whether there is something to wait for."""
        return self.state in ("waiting", "running")

    @property
    def seconds_left(self) -> float | None:
        """An estimate from the pace so far."""
        if self.state != "running" or self.share <= 0:
            return None
        return (time.monotonic() - self._began) * (1 - self.share) / self.share

    def cancel(self) -> None:
        """Ask the work to stop at its next step."""
        self._stop.set()
        if self.state == "waiting":
            self.state = "cancelled"

    def wait(self, seconds: float) -> None:
        """Return when the job has ended, or after this long."""
        self._ended.wait(seconds)

    def finish(self, result: Any) -> None:
        """Take over an answer that is known already."""
        self.result, self.state = result, "done"
        self._ended.set()

    def run(self) -> None:
        """Called by the worker."""
        if self.state == "waiting":
            self.state, self._began = "running", time.monotonic()
            self._work()
        self._ended.set()

    def _work(self) -> None:
        try:
            self.result = self.function(self._progress)
            self.state = "done"
        except Cancelled:
            self.state = "cancelled"
        except ValueError as error:  # bad input: its message is written for the user
            self.error, self.state = str(error), "failed"
        except Exception:  # the user gets a sentence and an id, the log gets the rest
            reference = uuid.uuid4().hex[:8]
            log.exception("job %s failed", reference)
            self.error = f"Something went wrong on our side. Please try again; the log has it under {reference}."
            self.state = "failed"

    def _progress(self, step: int, total: int, value: float) -> None:
        self.share = step / total
        if self._stop.is_set():
            raise Cancelled


class JobManager:
    """One per server: a few workers, and the latest jobs by key, so that the same question is answered once.

    A job belongs to one session. The answer to a ``question`` that has nothing of the session's in it is kept for all.
    """

    def __init__(self, workers: int = 2) -> None:
        self._pool = ThreadPoolExecutor(workers)
        self._jobs: OrderedDict[Hashable, Job] = OrderedDict()
        self._answers: OrderedDict[Hashable, Any] = OrderedDict()
        self._lock = threading.RLock()  # a session may be collected, and forgotten, at any moment

    def submit(self, key: Hashable, function: Callable[[Progress], Any], question: Hashable | None = None) -> Job:
        """The job of this key, in whatever state it is; a new one if there is none."""
        with self._lock:
            job = self._jobs.get(key)
            if job is None:
                job = Job(function if question is None else partial(self._answer, function, question))
                if question in self._answers:
                    self._answers.move_to_end(question)
                    job.finish(self._answers[question])
                else:
                    self._pool.submit(job.run)
                self._jobs[key] = job
            self._jobs.move_to_end(key)
            while len(self._jobs) > KEPT_JOBS:
                self._jobs.popitem(last=False)[1].cancel()
            return job

    def _answer(self, function: Callable[[Progress], Any], question: Hashable, progress: Progress) -> Any:
        result = function(progress)
        with self._lock:
            self._answers[question] = result
            if len(self._answers) > KEPT_ANSWERS:
                self._answers.popitem(last=False)
        return result

    def drop(self, key: Hashable) -> None:
        """Stop and forget a job that has not succeeded, so that it can be started anew."""
        with self._lock:
            job = self._jobs.get(key)
            if job is not None and job.state != "done":
                job.cancel()
                del self._jobs[key]

    def forget(self, owner: Hashable) -> None:
        """Stop and forget all jobs whose key begins with this owner, and with them the data they hold."""
        with self._lock:
            for key in [key for key in self._jobs if isinstance(key, tuple) and key[0] == owner]:
                self._jobs.pop(key).cancel()


@st.cache_resource
def job_manager() -> JobManager:
    """The server's one job manager; its first jobs are what would otherwise keep the first user waiting."""
    manager = JobManager()
    manager.submit("warm-up", _warm_up)
    return manager


def _warm_up(progress: Progress) -> None:
    """Streamlit collects garbage after each run, polls included: 0.2 s for all modules, unless they are set aside."""
    gc.collect()
    gc.freeze()
    two_sample_test(range(10), range(1, 20, 2), progress=progress)


POLL_SECONDS = 0.5
QUICK_SECONDS = 0.8
FIRST_ESTIMATE = 0.03  # share of the work after which its pace tells something


class Session:
    """Lives in a browser session's state, and takes the session's jobs along when it goes."""

    def __init__(self, manager: JobManager) -> None:
        self.id = uuid.uuid4().hex
        weakref.finalize(self, manager.forget, self.id)


class Study(Hashable, Protocol):
    """Settings, hashable, that say all there is to say about their result."""

    def run(self, progress: Progress) -> Any:
        """The result."""


def watch_study(page: str, study: Study, doing: str) -> Job:
    """The job of a study, as ``watch_job`` has it; whoever asks for the same study gets the result at once."""
    return watch_job(page, study, study.run, doing, study)


def watch_job(
    page: str, settings: Hashable, function: Callable[[Progress], Any], doing: str, question: Hashable | None = None
) -> Job:
    """The job of these settings, with its progress and a way to cancel or retry it; results are the page's to show.

    Settings of another session, or of another page, never share a job with these. Jobs end with their session.
    """
    if "session" not in st.session_state:
        st.session_state["session"] = Session(job_manager())
    key = (st.session_state["session"].id, page, settings)
    previous = st.session_state.get(f"{page}_job")
    if previous not in (None, key):
        job_manager().drop(previous)
    st.session_state[f"{page}_job"] = key
    job = job_manager().submit(key, function, question)
    job.wait(QUICK_SECONDS)
    polling = job.active

    @st.fragment(run_every=POLL_SECONDS if polling else None)
    def progress() -> None:
        if polling and not job.active:
            st.rerun()  # the whole page once more, now without polling
        _show(page, job, key, doing)

    progress()
    return job


def _show(page: str, job: Job, key: Hashable, doing: str) -> None:
    if job.active:
        left = job.seconds_left if job.share >= FIRST_ESTIMATE else None
        st.progress(job.share, doing + (f" about {left:.0f} s left" if left else ""))
        if st.button("Cancel", key=f"{page}_cancel", help="Stop this computation. Nothing else is affected."):
            job.cancel()
        return
    if job.state == "cancelled":
        st.info("Cancelled. Change a setting, or run it again.")
    if job.state == "failed":
        st.error(job.error)
    if job.state != "done" and st.button("Run again", key=f"{page}_again", help="Start this computation anew."):
        job_manager().drop(key)
        st.rerun()
