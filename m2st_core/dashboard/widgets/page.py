"""The frame of every page: the guard around its script, its title, its charts, and the status line below."""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

import plotly.graph_objects as go
import streamlit as st
from streamlit import config
from streamlit.delta_generator import DeltaGenerator
from streamlit.runtime.pages_manager import PagesManager
from streamlit.runtime.scriptrunner import get_script_run_ctx

from m2st_core.analysis.answer import unbroken
from m2st_core.analysis.correction import Analysis
from m2st_core.dashboard.jobs.jobs import job_manager
from m2st_core.dashboard.jobs.sweeps import sweep_queue
from m2st_core.dashboard.serving.sessions import poll_seconds
from m2st_core.dashboard.serving.tools import admit, show_who
from m2st_core.device import device_words
from m2st_core.studies.synthetic import Rate
from m2st_core.sweeps.database import StoreError
from m2st_core.sweeps.spec import origin_of
from m2st_core.testing.method import ORIGINS
from m2st_core.testing.methods import label_of
from m2st_core.types import TestResult

POLL_SECONDS = 3.0
ONLY_DOWNLOAD = {"modeBarButtons": [["toImage"]], "displaylogo": False, "toImageButtonOptions": {"scale": 2}}
log = logging.getLogger(__name__)


def run_page(page: Callable[[], None]) -> None:
    """Run a page. Bad input is answered with its own sentence, and anything else with a reference into the log."""
    if _outside_app() and not config.get_option("global.appTest"):
        PagesManager.uses_pages_directory = False
        st.rerun()
    job_manager()  # it starts before there is a session to hold data
    try:
        if admit():
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
    if (context := get_script_run_ctx()) is None:
        return False
    pages = context.pages_manager.get_pages().values()
    return any(Path(page["script_path"]) == Path(context.main_script_path).resolve() for page in pages)


def page_title(title: str, *, sidebar: bool = False) -> None:
    """Show the page's title, its only h1. The sidebar starts closed, unless it has controls."""
    st.set_page_config(initial_sidebar_state="auto" if sidebar else "collapsed")
    st.title(title, anchor=False)


def finding(sentence: str) -> None:
    """Show the page's one sentence, computed from its numbers, directly under the title."""
    st.container(key="finding").markdown(unbroken(sentence))


def show_status() -> None:
    """Say below the page where computations run and, while there are any, how many sweeps."""
    where = "a Dask cluster" if os.environ.get("M2ST_DASK") else f"{device_words()} of this server"
    busy = bool(_sweeps())
    with st.container(horizontal=True):
        st.caption(f"Computing on {where}.", width="content")
        st.fragment(_show_queue, run_every=poll_seconds(POLL_SECONDS) if busy else None)(busy)
    show_who()


def _sweeps() -> str:
    """The sweeps that run and wait; empty without any."""
    try:
        running, waiting = sweep_queue().counts()
    except StoreError as error:
        return str(error)
    return f"Sweeps: {running} running, {waiting} waiting." if running or waiting else ""


def _show_queue(polled: bool) -> None:
    sweeps = _sweeps()
    if polled and not sweeps:
        st.rerun()  # without a timer
    st.caption(sweeps or "No sweep is running.", width="content")


def chart(figure: go.Figure, key: str, alt: str) -> None:
    """Draw a chart as wide as its column, with a text for readers who cannot see it."""
    st.plotly_chart(figure, width="stretch", key=key, alt=alt, config=ONLY_DOWNLOAD)


def clickable_chart(figure: go.Figure, key: str, alt: str) -> int | None:
    """Draw a chart and return the index, within its trace, of the point that was clicked."""
    state = st.plotly_chart(
        figure, width="stretch", key=key, alt=alt, on_select="rerun", selection_mode="points", config=ONLY_DOWNLOAD
    )
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


METHOD_MARKS = (
    f"Marked **(ours)**: {ORIGINS['ours']}. **Meta-…** and **AGT-…** without the mark, and MMD-D w/ AC: "
    f"{ORIGINS['paper']}. All others: {ORIGINS['no history']}."
)
PRESET_MEANINGS = {
    "recommended": "our own settings, for all tests",
    "paper": "the settings of the paper's text, which train much longer",
    "released": "the settings of the paper's published code, which train much longer",
}


def choice_sentences(preset: str, methods: Sequence[str]) -> str:
    """A list that says what the preset means and where each of the methods comes from."""
    lines = [f"Preset **{preset}**: {PRESET_MEANINGS[preset]}."]
    for origin in reversed(ORIGINS):
        labels = [label_of(method) for method in methods if origin_of(method) == origin]
        lines += [f"**{', '.join(labels)}**: {ORIGINS[origin]}."] if labels else []
    return "\n".join(f"- {line}" for line in lines)


def p_text(result: TestResult) -> str:
    """The p-value, as an upper bound where more permutations could lower it."""
    return f"{'≤ ' if result.at_floor and not result.enumerated else ''}{result.p_value:.3g}"


def error_text(result: TestResult) -> str | None:
    """The Monte-Carlo error of the p-value; None at its floor, or if no permutation was drawn."""
    drawn = result.by_permutation and not result.enumerated and not result.at_floor
    return f"± {result.p_value_se:.1g}" if drawn else None


def p_value_sentences(result: TestResult) -> str:
    """Say what the p-value means, and no more than that."""
    level, (n, m) = f"α = {result.alpha:g}", result.n_test
    if result.rejected:
        decision = f"That is at most {level}: **evidence of a difference**, with {n} and {m} test rows."
    else:
        decision = (
            f"That is more than {level}: **no evidence of a difference** with {n} and {m} test rows. "
            "This does not show that P and Q are the same."
        )
    return f"{origin_sentences(result)} {decision}"


def origin_sentences(result: TestResult) -> str:
    """Say how the p-value was computed."""
    p, drawn = result.p_value, result.n_permutations
    if result.split_p_values:
        return (
            f"The rows were split at random {len(result.split_p_values)} times, and each split gave a p-value, from "
            f"{min(result.split_p_values):.3g} to {max(result.split_p_values):.3g}. Twice the smallest of their "
            f"running medians is a valid p-value for all of them together: {result.p_words}."
        )
    if not result.by_permutation:
        return (
            f"If P and Q were the same, a statistic at least this large would occur with probability about {p:.3g}. "
            "This approximation holds for large samples; the p-value is not exact."
        )
    if result.enumerated:
        counted = (
            f"Of all {drawn + 1:,} labellings of these rows, {round(p * (drawn + 1)):,} give a statistic at least as "
            f"large as the observed one: {result.p_words}."
        )
    elif result.exact:
        counted = (
            f"Among {drawn + 1:,} labellings (the observed one and {drawn:,} random ones), {round(p * (drawn + 1)):,} "
            f"gave a statistic at least as large as the observed one: {result.p_words}."
        )
    else:
        counted = (
            f"Of {drawn:,} random labellings, {round(p * drawn):,} reached the observed statistic: p = {p:.3g}. "
            "This preset leaves the observed labelling out, which makes p slightly too small."
        )
    return f"If P and Q were the same, the labels would be arbitrary. {counted}"


def decision_sentences(analysis: Analysis) -> str:
    """Say what the primary p-value means, and what was decided after the declared correction."""
    if analysis.decision not in analysis.corrected:
        return p_value_sentences(analysis.primary)
    evidence = "evidence" if analysis.rejected else "no evidence"
    return (
        f"{origin_sentences(analysis.primary)} Corrected together with all secondary tests, p = "
        f"{analysis.decision.adjusted_p_value:.3g} against α = {analysis.primary.alpha:g}: "
        f"**{evidence} of a difference**."
    )
