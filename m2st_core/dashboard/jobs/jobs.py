"""Jobs of pages: a page starts one, leaves its previous one, polls while it runs, and shows how it ended."""

from __future__ import annotations

import gc
from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, Protocol, TypeVar

import streamlit as st

from m2st_core.dashboard.jobs.host import Once, at_session_end, host, poll_seconds, session_id
from m2st_core.dashboard.jobs.runs import check_run_time
from m2st_core.dashboard.jobs.scheduler import Job, Scheduler
from m2st_core.numbers import duration
from m2st_core.sweeps.cost import machine_factor
from m2st_core.sweeps.executors import Processes
from m2st_core.sweeps.store import Store
from m2st_core.testing.two_sample import two_sample_test
from m2st_core.types import Progress

SHIPPED = "Shipped result of this version. Other settings are computed when you choose them."
POLL_SECONDS, QUICK_SECONDS = 0.5, 0.8
Seen = TypeVar("Seen")
KEPT_JOBS, KEPT_ANSWERS = 16, 32  # for each session, and for everyone
PER_PERSON = 8  # jobs that wait or run
ASK_SECONDS = 60.0  # on the machine of the predictions: what takes longer starts on request, never by a link alone


class JobManager:
    """Jobs of pages by key, (session, page, settings). Answers to a ``question`` are kept for everyone."""

    def __init__(self, workers: int = 2) -> None:
        self.scheduler = Scheduler(workers, "job worker")
        self._jobs: OrderedDict[Hashable, Job] = OrderedDict()
        self._answers: OrderedDict[Hashable, Any] = OrderedDict()

    def submit(
        self,
        key: Hashable,
        function: Callable[[Progress], Any],
        question: Hashable | None = None,
        person: Hashable = None,
        spend: Callable[[float], None] | None = None,
    ) -> Job:
        """The job of this key in its present state, or a new one, which tells ``spend`` how long it ran."""
        person = person or _session_of(key)
        with self.scheduler.change:
            job = self._jobs.get(key)
            if job is None:
                work = function if question is None else partial(self._answer, function, question)
                job = self._jobs[key] = Job(work, [person], spend=spend)
                if question in self._answers:
                    self._answers.move_to_end(question)
                    job.result, job.state = self._answers[question], "done"
                    job.ended.set()
                elif sum(self.scheduler.counts(person)) >= PER_PERSON:
                    job.error = f"{PER_PERSON} computations of yours wait or run. Wait, or cancel one."
                    job.state = "failed"
                    job.ended.set()
                else:
                    self.scheduler.submit(job)
            self._jobs.move_to_end(key)
            self._forget_oldest(_session_of(key))
            return job

    def knows(self, key: Hashable, question: Hashable | None = None) -> bool:
        """Whether there is such a job, or an answer to the question."""
        with self.scheduler.change:
            return key in self._jobs or (question is not None and question in self._answers)

    def _forget_oldest(self, session: Hashable) -> None:
        """Keep the latest jobs of a session, and the active ones."""
        keys = [key for key in self._jobs if _session_of(key) == session]
        for key in keys[: max(0, len(keys) - KEPT_JOBS)]:
            if not self._jobs[key].active:
                del self._jobs[key]

    def _answer(self, function: Callable[[Progress], Any], question: Hashable, progress: Progress) -> Any:
        result = function(progress)
        self.keep(question, result)
        return result

    def keep(self, question: Hashable, answer: Any) -> None:
        """Keep the answer to a question for everyone."""
        with self.scheduler.change:
            self._answers[question] = answer
            if len(self._answers) > KEPT_ANSWERS:
                self._answers.popitem(last=False)

    def drop(self, key: Hashable) -> None:
        """Stop and remove a job that has not succeeded, so that it can be started again."""
        with self.scheduler.change:
            if key in self._jobs and self._jobs[key].state != "done":
                self.scheduler.cancel(self._jobs.pop(key))

    def forget(self, session: str) -> None:
        """Stop and remove all jobs of a session, and with them the data they hold."""
        with self.scheduler.change:
            for key in [key for key in self._jobs if _session_of(key) == session]:
                self.scheduler.cancel(self._jobs.pop(key))

    def close(self) -> None:
        """Stop all jobs."""
        self.scheduler.close()


def _session_of(key: Hashable) -> Hashable:
    return key[0] if isinstance(key, tuple) else key


@Once
def _study_processes() -> Processes:
    return Processes()


@Once
def job_manager() -> JobManager:
    """The server's one job manager. Its first job prepares what the first user would otherwise wait for.

    It also exempts all modules from garbage collection (0.2 s each time).
    """
    if not gc.get_freeze_count():  # once, and before sessions hold data: what is frozen is never collected
        gc.collect()
        gc.freeze()
    manager = JobManager()
    manager.submit("warm-up", _isolated(_warm_up))
    at_session_end(manager.forget)
    return manager


def _warm_up(progress: Progress) -> None:
    two_sample_test(range(10), range(1, 20, 2), progress=progress)


def _isolated(work: Callable[[Progress], Any]) -> Callable[[Progress], Any]:
    """The work; on a server for several people, in another process."""
    return partial(_study_processes().run, work) if host().isolates else work


def poll(
    first: Seen, look: Callable[[], Seen], active: Callable[[Seen], bool], show: Callable[[Seen], None],
    seconds: float = POLL_SECONDS,
) -> None:  # fmt: skip
    """Show what was seen first. While that is active, look again at intervals, and at last run the whole page again."""
    polling, unseen = active(first), [first]

    @st.fragment(run_every=poll_seconds(seconds) if polling else None)
    def fragment() -> None:
        seen = unseen.pop() if unseen else look()
        if polling and not active(seen):
            st.rerun()
        show(seen)

    fragment()


class Study(Hashable, Protocol):
    """Hashable settings that determine their result."""

    def run(self, progress: Progress) -> Any:
        """Compute the result."""


def watch_study(
    page: str, study: Study, doing: str, expected: float | None = None, shipped: Any = None, ask: str = ""
) -> Job:
    """Watch the job of a study. A shipped result, or one that another session has computed, is shown immediately.

    ``ask`` is what to say before it starts on request, even if it is quick.
    """
    if shipped is not None:
        job_manager().keep(study, shipped)
    return watch_job(page, study, _isolated(study.run), doing, study, expected, ask)


def watch_job(
    page: str, settings: Hashable, function: Callable[[Progress], Any], doing: str, question: Hashable | None = None,
    expected: float | None = None, ask: str = "",
) -> Job:  # fmt: skip
    """Show the progress of a job, with buttons to cancel and retry. ``expected`` seconds are shown at the start."""
    key = (session_id(), page, settings)
    previous = st.session_state.get(f"{page}_job")
    if previous not in (None, key):
        job_manager().drop(previous)
    if not job_manager().knows(key, question) and not _agreed(page, settings, expected, ask):
        st.session_state[f"{page}_job"] = None
        return Job(function, state="asked")
    st.session_state[f"{page}_job"] = key
    job = _submit(key, function, question)
    job.wait(QUICK_SECONDS)
    poll(job, lambda: job, lambda job: job.active, lambda job: _show(page, job, key, doing, expected))
    return job


def _submit(key: Hashable, function: Callable[[Progress], Any], question: Hashable | None) -> Job:
    """Start a job, on a served instance in the visitor's time for today."""
    manager, visitor = job_manager(), host().visitor()
    if not visitor.person or manager.knows(key, question):
        return manager.submit(key, function, question)
    store = Store()
    check_run_time(store, visitor)
    return manager.submit(key, function, question, visitor.person, partial(store.usage.add, visitor.person))


def _agreed(page: str, settings: Hashable, expected: float | None, ask: str) -> bool:
    """Whether to compute this now: it is quick and not to be asked for, or the user has agreed. Otherwise ask."""
    heavy = expected is not None and expected > ASK_SECONDS * machine_factor()
    if expected is None or not (heavy or ask) or st.session_state.get(f"{page}_agreed") == settings:
        return True
    st.info(f"{ask} This takes about **{duration(expected)}** with these settings.".strip())
    if st.button("Compute it", type="primary", key=f"{page}_compute", help="Start. You can cancel it at any time."):
        st.session_state[f"{page}_agreed"] = settings
        st.rerun()
    return False


def _show(page: str, job: Job, key: Hashable, doing: str, expected: float | None) -> None:
    if job.active:
        left = job.seconds_left or expected
        bar, button = st.columns([6, 1], vertical_alignment="bottom")
        bar.progress(job.share, doing + (f" About {duration(left)} left." if left else ""))
        if button.button("Cancel", key=f"{page}_cancel", help="Stop this computation. Nothing else is affected."):
            job_manager().scheduler.cancel(job)
        return
    if job.state == "cancelled":
        st.info("Cancelled. Change a setting, or run it again.")
    if job.state == "failed":
        st.error(job.error)
    if job.state != "done" and st.button("Run again", key=f"{page}_again", help="Start this computation again."):
        job_manager().drop(key)
        st.rerun()
