"""The sidebar's status line."""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable
from pathlib import Path

import streamlit as st
from streamlit import config
from streamlit.runtime.pages_manager import PagesManager
from streamlit.runtime.scriptrunner import get_script_run_ctx

from m2st_core.dashboard.jobs.sweeps import sweep_queue
from m2st_core.device import device_words
from m2st_core.sweeps.store import StoreError

log = logging.getLogger(__name__)


def run_page(page: Callable[[], None]) -> None:
    """Run a page. Bad input is said in its own words; surprises get a reference, under which the log has the rest."""
    if _outside_app() and not config.get_option("global.appTest"):
        PagesManager.uses_pages_directory = False
        st.rerun()
    try:
        page()
    except ValueError as error:
        log.warning("a page could not be shown", exc_info=error)
        st.error(str(error))
    except Exception as error:
        reference = uuid.uuid4().hex[:8]
        log.error("a page failed, reference %s", reference, exc_info=error)
        st.error(f"Something went wrong on our side. Please reload the page; the log has it under {reference}.")


def _outside_app() -> bool:
    """Whether streamlit shows the page without app.py, as it does in a server that has just started and has a pages/.

    It then takes app.py for one of the pages.
    """
    context = get_script_run_ctx()
    if context is None:
        return False
    pages = context.pages_manager.get_pages().values()
    return any(Path(page["script_path"]) == Path(context.main_script_path).resolve() for page in pages)


POLL_SECONDS = 3.0


def show_status() -> None:
    """Where the computations run, and how busy the queue is."""
    where = "a Dask cluster" if os.environ.get("M2ST_DASK") else f"{device_words()} of this server"
    with st.sidebar:
        st.caption(f"Computing on {where}.")
        _queue_state()


@st.fragment(run_every=POLL_SECONDS)
def _queue_state() -> None:
    try:
        running, waiting = sweep_queue().counts()
    except StoreError as error:
        st.caption(str(error))
        return
    st.caption(f"Sweeps: {running} running, {waiting} waiting." if running or waiting else "No sweep is running.")
