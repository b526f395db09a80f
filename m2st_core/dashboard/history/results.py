"""What the chosen runs have found: one in full, or several in one chart."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from m2st_core.dashboard.history.list import confirm_delete, show_run_tools
from m2st_core.dashboard.jobs.sweeps import sweep_queue, watch
from m2st_core.dashboard.power_lab.curves import show_training
from m2st_core.dashboard.power_lab.results import show_code, show_figure, show_results
from m2st_core.dashboard.widgets.page import chart, choice_sentences
from m2st_core.dashboard.widgets.shared import shared
from m2st_core.data import size_unit
from m2st_core.figures.power import compare_figure
from m2st_core.paper.published import with_published
from m2st_core.studies.power import DEFAULT, difference_names, overlaid, run_names, spec_differences, sweep_finding
from m2st_core.sweeps.store import Run
from m2st_core.sweeps.summary import summarise


def runs_finding(chosen: list[Run]) -> str:
    """Say what the chosen run has found, or how runs are used."""
    store = sweep_queue().store
    if len(chosen) == 1 and (found := _found(chosen[0])):
        return found
    kept = store.all_runs()
    if kept.empty:
        found = shared(sweep_finding, DEFAULT, sweep_queue().store.cells.rows(DEFAULT))
        return f"{found} These curves are shipped: there are no runs yet." if found else "There are no runs yet."
    newest = None if chosen else store.runs.get(kept.loc[kept["created"].idxmax(), "id"])
    if newest is not None and newest.state == "done" and (found := _found(newest)):
        return f"The newest of {len(kept)} run{'s' * (len(kept) != 1)}: {found}"
    runs = "One run is" if len(kept) == 1 else f"{len(kept)} runs are"
    return f"{runs} kept, with all results. Open one, or choose several to compare them."


def _found(run: Run) -> str:
    """What a run has found; empty if it has no results yet."""
    return shared(sweep_finding, run.spec, sweep_queue().store.cells.rows(run.spec))


def shipped_table() -> pd.DataFrame:
    """A summary of the curves that Power opens with."""
    return shared(with_published, shared(summarise, sweep_queue().store.cells.rows(DEFAULT)))


def show_shipped() -> None:
    """Show the shipped curves while there are no runs."""
    table = shipped_table()
    if not table.empty:
        st.header("The shipped curves of Power", anchor=False)
        show_figure(DEFAULT, table, "runs_shipped")


def show_one(run: Run) -> None:
    """Show one run: its results, a link to Power, and a button to delete it."""
    st.header(run_names({run.id: run.spec})[run.id] if run.name == run.spec.label else run.name, anchor=False)
    st.caption(choice_sentences(run.spec.preset, run.spec.methods))
    desk = sweep_queue()
    watch(desk, run.id, run.spec, lambda view: show_results(run.spec, view.rows, "runs"), "runs")
    show_training(desk.store, run.spec)
    show_code(run.spec)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.page_link(
            "pages/power.py",
            label="Open in Power",
            query_params={"run": run.id},
            help="Load the settings of this run into the controls, to change them and train again.",
        )
        show_run_tools(run)
        if desk.owns(run.id):
            with st.popover("Delete…", help="Delete this run. You are asked to confirm."):
                confirm_delete(run.id, run.name)


def compare(runs: list[Run]) -> None:
    """Show several runs: their curves in one chart, named by what differs, and where their settings differ."""
    named = _distinct(difference_names([run.spec for run in runs]))
    specs = dict(zip(named, (run.spec for run in runs), strict=True))
    st.header("Their curves", anchor=False)
    summary = overlaid(specs, sweep_queue().store)
    if summary.empty:
        st.caption("None of these runs has results yet.")
    else:
        units = {size_unit(run.spec.task) for run in runs}
        figure = compare_figure(summary, size_unit=units.pop() if len(units) == 1 else "(unit of each run)")
        alt = f"Rejection rates of {len(runs)} runs against the number of test rows, {len(figure.data)} curves."
        chart(figure, "runs_compare", alt)
    st.header("Where the settings differ", anchor=False)
    st.dataframe(spec_differences(specs), width="stretch", key="runs_differences")


def _distinct(names: list[str]) -> list[str]:
    """The names, numbered where they are the same."""
    return [name if names.count(name) == 1 else f"{name} ({index})" for index, name in enumerate(names, 1)]
