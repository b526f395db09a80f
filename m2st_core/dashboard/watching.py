"""A page's one job: start it, leave the previous one, poll while it runs, and say how it ended."""

from __future__ import annotations

import uuid
import weakref
from collections.abc import Callable, Hashable
from typing import Any, Protocol

import streamlit as st

from m2st_core.dashboard.jobs import Job, JobManager, job_manager
from m2st_core.types import Progress

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
