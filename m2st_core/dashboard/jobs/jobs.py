"""Jobs of pages: a page starts one, leaves its previous one, polls while it runs, and shows how it ended."""

from __future__ import annotations

import gc
import logging
import threading
import uuid
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Literal, Protocol

import streamlit as st

from m2st_core.sweeps.summary import Pace, duration
from m2st_core.testing.two_sample import two_sample_test
from m2st_core.types import Cancelled, Progress

State = Literal["waiting", "running", "done", "failed", "cancelled"]
KEPT_JOBS = KEPT_ANSWERS = 64
POLL_SECONDS, QUICK_SECONDS = 0.5, 0.8
log = logging.getLogger(__name__)


class Job:
    """One computation. A worker calls ``function(progress)``, and the page shows the progress."""

    def __init__(self, function: Callable[[Progress], Any]) -> None:
        self.function = function
        self.state: State = "waiting"
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
    """The server's workers and latest jobs, each of one session. Results of a ``question`` are kept for everyone."""

    def __init__(self, workers: int = 2) -> None:
        self._pool = ThreadPoolExecutor(workers)
        self._jobs: OrderedDict[Hashable, Job] = OrderedDict()
        self._answers: OrderedDict[Hashable, Any] = OrderedDict()
        self._lock = threading.RLock()  # a session may be collected, and its jobs dropped, at any moment

    def submit(self, key: Hashable, function: Callable[[Progress], Any], question: Hashable | None = None) -> Job:
        """The job of this key in its present state, or a new one."""
        with self._lock:
            job = self._jobs.get(key)
            if job is None:
                job = Job(function if question is None else partial(self._answer, function, question))
                if question in self._answers:
                    self._answers.move_to_end(question)
                    job.finish("done", self._answers[question])
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
        """Stop and remove a job that has not succeeded, so that it can be started again."""
        with self._lock:
            if key in self._jobs and self._jobs[key].state != "done":
                self._jobs.pop(key).cancel()

    def forget(self, session: str) -> None:
        """Stop and remove all jobs of a session, and with them the data they hold."""
        with self._lock:
            for key in [key for key in self._jobs if isinstance(key, tuple) and key[0] == session]:
                self._jobs.pop(key).cancel()


@st.cache_resource
def job_manager() -> JobManager:
    """The server's one job manager. Its first job prepares what the first user would otherwise wait for."""
    manager = JobManager()
    manager.submit("warm-up", _warm_up)
    return manager


def _warm_up(progress: Progress) -> None:
    """Test once, and exempt all modules from the garbage collection that streamlit runs after every poll (0.2 s)."""
    gc.collect()
    gc.freeze()
    two_sample_test(range(10), range(1, 20, 2), progress=progress)


class Session:
    """A browser session, kept in its state. Its jobs end with it."""

    def __init__(self) -> None:
        self.id = uuid.uuid4().hex
        weakref.finalize(self, job_manager().forget, self.id)


def session_id() -> str:
    """The id of the browser session that runs this script."""
    if "session" not in st.session_state:
        st.session_state["session"] = Session()
    return str(st.session_state["session"].id)


def poll(active: Callable[[], bool], show: Callable[[], None], seconds: float = POLL_SECONDS) -> None:
    """Show something repeatedly while it is active, then run the whole page once more."""
    polling = active()

    @st.fragment(run_every=seconds if polling else None)
    def fragment() -> None:
        if polling and not active():
            st.rerun()
        show()

    fragment()


class Study(Hashable, Protocol):
    """Hashable settings that determine their result."""

    def run(self, progress: Progress) -> Any:
        """Compute the result."""


def watch_study(page: str, study: Study, doing: str, expected: float | None = None) -> Job:
    """Watch the job of a study. Any session that asks for the same study gets its result at once."""
    return watch_job(page, study, study.run, doing, study, expected)


def watch_job(
    page: str, settings: Hashable, function: Callable[[Progress], Any], doing: str, question: Hashable | None = None,
    expected: float | None = None,
) -> Job:  # fmt: skip
    """Show the progress of a job, with buttons to cancel and retry. ``expected`` seconds are said at the start."""
    key = (session_id(), page, settings)
    previous = st.session_state.get(f"{page}_job")
    if previous not in (None, key):
        job_manager().drop(previous)
    st.session_state[f"{page}_job"] = key
    job = job_manager().submit(key, function, question)
    job.wait(QUICK_SECONDS)
    poll(lambda: job.active, lambda: _show(page, job, key, doing, expected))
    return job


def _show(page: str, job: Job, key: Hashable, doing: str, expected: float | None) -> None:
    if job.active:
        left = job.seconds_left or expected
        bar, button = st.columns([6, 1], vertical_alignment="bottom")
        bar.progress(job.share, doing + (f" About {duration(left)} left." if left else ""))
        if button.button("Cancel", key=f"{page}_cancel", help="Stop this computation. Nothing else is affected."):
            job.cancel()
        return
    if job.state == "cancelled":
        st.info("Cancelled. Change a setting, or run it again.")
    if job.state == "failed":
        st.error(job.error)
    if job.state != "done" and st.button("Run again", key=f"{page}_again", help="Start this computation again."):
        job_manager().drop(key)
        st.rerun()
