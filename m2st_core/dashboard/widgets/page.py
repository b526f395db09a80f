"""The frame of every page: the guard around its script, its charts, and the status line of the sidebar."""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable
from pathlib import Path

import plotly.graph_objects as go
import streamlit as st
from streamlit import config
from streamlit.delta_generator import DeltaGenerator
from streamlit.runtime.pages_manager import PagesManager
from streamlit.runtime.scriptrunner import get_script_run_ctx

from m2st_core.dashboard.jobs.sweeps import sweep_queue
from m2st_core.device import device_words
from m2st_core.studies.synthetic import Rate
from m2st_core.sweeps.store import StoreError

POLL_SECONDS = 3.0
log = logging.getLogger(__name__)


def run_page(page: Callable[[], None]) -> None:
    """Run a page. Bad input is answered with its own sentence, and anything else with a reference into the log."""
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
        st.error(f"Something went wrong on our side. Please reload the page. The log has details under {reference}.")


def _outside_app() -> bool:
    """Whether Streamlit runs the page without app.py.

    A server that has just started and finds a folder pages/ does so: it takes app.py for one of the pages.
    """
    context = get_script_run_ctx()
    if context is None:
        return False
    pages = context.pages_manager.get_pages().values()
    return any(Path(page["script_path"]) == Path(context.main_script_path).resolve() for page in pages)


def show_status() -> None:
    """Say where computations run and how busy the queue is."""
    where = "a Dask cluster" if os.environ.get("M2ST_DASK") else f"{device_words()} of this server"
    with st.sidebar:
        st.caption(f"Computing on {where}.")
        _show_queue()


@st.fragment(run_every=POLL_SECONDS)
def _show_queue() -> None:
    try:
        running, waiting = sweep_queue().counts()
    except StoreError as error:
        st.caption(str(error))
        return
    st.caption(f"Sweeps: {running} running, {waiting} waiting." if running or waiting else "No sweep is running.")


def chart(figure: go.Figure, key: str, alt: str) -> None:
    """Draw a chart as wide as its column, with a text for readers who cannot see it."""
    st.plotly_chart(figure, width="stretch", key=key, alt=alt)


def clickable_chart(figure: go.Figure, key: str, alt: str) -> int | None:
    """Draw a chart and return the index, within its trace, of the point that was clicked."""
    state = st.plotly_chart(figure, width="stretch", key=key, alt=alt, on_select="rerun", selection_mode="points")
    points = state["selection"]["points"] if state else []
    return int(points[0]["point_index"]) if points else None


def noted_metric(column: DeltaGenerator, label: str, value: str, note: str | None, help: str) -> None:
    """Show a number in a column, with a grey note beneath."""
    column.metric(label, value, note, delta_color="off", delta_arrow="off", help=help)


def rate_metric(column: DeltaGenerator, label: str, rate: Rate, help: str) -> None:
    """Show a rejection rate in a column, with its 95 % interval beneath."""
    low, high = rate.interval
    noted_metric(column, label, f"{rate.share:.0%}", f"95 %: {low:.0%} – {high:.0%}", help)


def download(label: str, data: Callable[[], str], file_name: str, key: str) -> None:
    """Offer a file that is made when the button is pressed."""
    st.download_button(
        label, data, file_name, key=f"{key}_{label}", on_click="ignore", help=f"Save {file_name} on your computer."
    )
