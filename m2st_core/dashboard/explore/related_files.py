"""γ̂ of the session's uploaded related tasks, by task."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import pandas as pd
import streamlit as st

from m2st_core.analysis.related import gamma_by_task, gamma_sentence
from m2st_core.dashboard.widgets.page import as_text, chart
from m2st_core.dashboard.your_data.state import UserData, user_data
from m2st_core.data.tables.prepare import Prepared
from m2st_core.figures.relatedness import task_gamma_figure
from m2st_core.learners.relatedness import Relatedness

MOST_TASKS = 12  # uploaded tasks whose γ̂ is measured
DOING = "Training kernels…"
MEASURE = "relatedness_files_asked"  # the digest of the files that the button was pressed for


def show_uploaded_gamma() -> None:
    """Show γ̂ of each uploaded related task to the most related of the others, or where to bring some."""
    st.header("Your own related tasks", anchor=False)
    state = user_data()
    data, problem = _prepared(state)
    related = data.related if data is not None else None
    if data is None or related is None or len(related.names) < 2:
        st.markdown(problem or "Bring your data with at least two related tasks, and γ̂ is measured between them.")
        st.page_link("pages/test_my_data.py", label="Test my data", help="Upload files, or take an example.")
        return
    st.markdown(
        "Each related task is compared with the others, without any label of your own data, so you may choose the "
        "test by it. γ̂ to your data itself stands after the test, in **Test my data**."
    )
    known = state.recall("relatedness_files", data.digest) is not None
    label = f"Measure γ̂ of {min(len(related.names), MOST_TASKS)} related tasks"
    if not known and st.button(label, key="relatedness_files_go", help="Takes some seconds for each task."):
        st.session_state[MEASURE] = data.digest
    if known or st.session_state.get(MEASURE) == data.digest:
        work = partial(gamma_by_task, related, related.names[:MOST_TASKS])
        found: dict[str, Relatedness] | None = state.compute(
            "relatedness_files", data.digest, work, "Training kernels…"
        )
        if found is not None:
            _show_left_out(found)


def _prepared(state: UserData) -> tuple[Prepared | None, str]:
    """The upload, its related tasks without the target's rows; None, with what is open about it, if it is not ready."""
    upload = state.upload
    if upload is None:
        return None, ""
    try:
        return state.prepared(upload).separated(), ""
    except ValueError as error:
        return None, f"Your files have an open question: {as_text(str(error))}"


def _show_left_out(found: Mapping[str, Relatedness]) -> None:
    """Show γ̂ by task."""
    table = pd.DataFrame(
        [(name, one.gamma(), one.floor) for name, one in found.items()], columns=["task", "gamma", "floor"]
    )
    st.markdown(as_text(gamma_sentence(found)))
    if len(table):
        values = "; ".join(f"{row.task}: {row.gamma:.3f}" for row in table.itertuples())
        chart(task_gamma_figure(table), "relatedness_files_chart", f"γ̂ by related task. {values}.")
