"""History: the list of all runs, the choice among them, and one run in full or several in one chart."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from m2st_core.dashboard.explore.curves import show_training_curves
from m2st_core.dashboard.explore.results import show_code, show_figure, show_results
from m2st_core.dashboard.jobs.host import host
from m2st_core.dashboard.jobs.runs import RunDesk
from m2st_core.dashboard.jobs.sweeps import CELL, STATE_ICONS, watch_sweep
from m2st_core.dashboard.widgets.page import chart, choice_sentences, shared
from m2st_core.data import size_unit
from m2st_core.figures.power import compare_figure
from m2st_core.paper.published import with_published
from m2st_core.studies.explore import DEFAULT_SWEEP, shipped_rows
from m2st_core.studies.power import (
    difference_names,
    overlaid_power,
    run_names,
    spec_differences,
    sweep_finding,
)
from m2st_core.sweeps.spec import SweepSpec
from m2st_core.sweeps.store import LONGEST_NAME, UNKNOWN, Run, Store
from m2st_core.sweeps.summary import summarise

MOST_COMPARED = 6
DELETED = "run_deleted"  # in the session's state: id and name of the run that was deleted last


def runs_table(desk: RunDesk) -> pd.DataFrame:
    """Every run, the newest first, with its present state and a name that says what differs."""
    stored = desk.store.all_runs()
    is_known = stored["state"] != UNKNOWN
    texts = stored.loc[is_known, ["id", "text"]].itertuples(index=False)
    specs = {run: SweepSpec.from_json(text) for run, text in texts}
    names, statuses = run_names(specs), desk.statuses(specs)
    present = {run: statuses[run].state if run in statuses else "deleted" for run in specs}
    states = [present.get(run, state) for run, state in zip(stored["id"], stored["state"], strict=True)]
    given = dict(zip(stored["id"], stored["name"], strict=True))
    unnamed = {run: names[run] for run, spec in specs.items() if given[run] == spec.label}
    return pd.DataFrame(
        {
            "run": stored["id"],
            "name": [unnamed.get(run, name) for run, name in given.items()],
            "state": [f"{STATE_ICONS.get(state, '')} {state}" for state in states],
            "done": (stored["done"] / stored["cells"].clip(lower=1)).astype(float),
            "cells": stored["cells"],
            "last change": pd.to_datetime(stored["updated"], unit="s", utc=True),
            "open": [f"power?run={run}" if run in specs else None for run in given],
            "note": stored["message"].where(~is_known, ""),
            "created": stored["created"],
        }
    )


def choose_runs(desk: RunDesk, listed: pd.DataFrame) -> list[Run]:
    """List all runs and ask which to show. The link keeps the choice."""
    if listed.empty:
        st.info("What you train in **Power** appears here, with all its results. You can also import a spec below.")
        return []
    config = {
        "done": st.column_config.ProgressColumn(format="percent", help="Share of the cells computed so far."),
        "cells": st.column_config.Column(help=f"Number of cells. Each is {CELL}."),
        "last change": st.column_config.DatetimeColumn(format="D MMM YYYY, HH:mm"),
        "open": st.column_config.LinkColumn(display_text="Open in Power", help="Load its settings into the controls."),
    }
    hidden = ["run", "created", *([] if listed["note"].any() else ["note"])]
    table = listed.drop(columns=hidden)
    st.dataframe(table, hide_index=True, width="stretch", key="runs_table", column_config=config)
    labels = {row.run: f"{row.name} · {row.state}" for row in listed.itertuples(index=False)}
    linked = [run for run in st.query_params.get_all("run") if run in labels][:MOST_COMPARED]
    if linked and linked != st.session_state.get("runs_linked"):  # a new link, not the one this page wrote
        st.session_state["runs_shown"] = linked
    shown = [run for run in st.session_state.get("runs_shown", [listed["run"].iloc[0]]) if run in labels]
    st.session_state["runs_shown"] = shown
    chosen = st.multiselect(
        "Runs to look at",
        list(labels),
        key="runs_shown",
        format_func=lambda run: labels[run],
        max_selections=MOST_COMPARED,
        help="One run is shown in full, and two to six are compared. The link in the address bar keeps the choice.",
    )
    st.query_params["run"] = st.session_state["runs_linked"] = chosen
    notes = listed[listed["note"] != ""].set_index("run")
    for run in chosen:
        if run in notes.index:
            _show_unknown(desk, run, notes.loc[run])
    runs = [desk.store.runs.get(run) for run in chosen if run not in notes.index]
    return [run for run in runs if run is not None]


def _show_unknown(desk: RunDesk, run: str, row: pd.Series) -> None:
    """Say why a run of another version is not shown, and offer to delete it."""
    st.warning(row["note"])
    with st.popover("Delete…", key=f"runs_unknown_{run}", help="Delete this run. You are asked to confirm."):
        _confirm_delete(desk, run, row["name"])


def _confirm_delete(desk: RunDesk, run: str, name: str) -> None:
    """Ask for confirmation, then delete the run."""
    later = "For a week this can be undone. Then the results that no other run shares are deleted, too."
    st.write(f"**{name}** ({run}) will be deleted. {later}")
    if st.button("Delete it", type="primary", key=f"runs_delete_{run}", help="Delete this run now."):
        try:
            desk.delete(run)
        except ValueError as error:
            st.error(str(error))
        else:
            st.session_state[DELETED] = (run, name)
            st.rerun()


def offer_undo(desk: RunDesk) -> None:
    """After a deletion, offer to undo it."""
    if DELETED not in st.session_state:
        return
    run, name = st.session_state[DELETED]
    with st.container(horizontal=True, vertical_alignment="center"):
        st.write(f"Deleted: **{name}**. It can be restored for a week.")
        if st.button("Undo", key="run_undo", help="Restore the run with all its results."):
            del st.session_state[DELETED]
            desk.store.runs.restore(run)
            st.rerun()


def runs_finding(store: Store, listed: pd.DataFrame, chosen: list[Run]) -> str:
    """The finding of the chosen run, or of the newest one; otherwise a sentence on how to use the list."""
    if len(chosen) == 1 and (sentence := _finding(store, chosen[0].spec)):
        return sentence
    if listed.empty:
        sentence = shared(sweep_finding, DEFAULT_SWEEP, shared(shipped_rows, DEFAULT_SWEEP))
        return f"{sentence} These curves are shipped: there are no runs yet." if sentence else "There are no runs yet."
    newest = listed.loc[listed["created"].idxmax()]
    run = store.runs.get(newest["run"]) if not chosen and not newest["note"] else None
    if run is not None and run.state == "done" and (sentence := _finding(store, run.spec)):
        return f"The newest of {len(listed)} run{'s' * (len(listed) != 1)}: {sentence}"
    runs = "One run is" if len(listed) == 1 else f"{len(listed)} runs are"
    return f"{runs} kept, with all results. Open one, or choose several to compare them."


def _finding(store: Store, spec: SweepSpec) -> str:
    """The finding of a sweep; empty without results."""
    return shared(sweep_finding, spec, store.cells.rows(spec))


def show_shipped() -> None:
    """Show the shipped curves while there are no runs."""
    table = shared(with_published, shared(summarise, shared(shipped_rows, DEFAULT_SWEEP)))
    if not table.empty:
        st.header("The shipped curves of Power", anchor=False)
        show_figure(DEFAULT_SWEEP, table, "runs_shipped")


def show_one(desk: RunDesk, run: Run) -> None:
    """Show one run: its results, a link to Power, and buttons to rename, share and delete it."""
    st.header(run_names({run.id: run.spec})[run.id] if run.name == run.spec.label else run.name, anchor=False)
    st.caption(choice_sentences(run.spec.methods))
    watch_sweep(desk, run.id, run.spec, lambda view: show_results(run.spec, view.rows, "runs"), "runs")
    show_training_curves(desk.store, run.spec)
    show_code(run.spec)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.page_link(
            "pages/power.py",
            label="Open in Power",
            query_params={"run": run.id},
            help="Load the settings of this run into the controls, to change them and train again.",
        )
        if desk.owns(run.id):
            _show_tools(desk, run)
        else:
            st.caption("This run is shared with you. You can read it.")


def _show_tools(desk: RunDesk, run: Run) -> None:
    """Offer to rename, share and delete a run."""
    with st.popover("Rename…", help="Give this run another name."):
        name = st.text_input("Name", run.name, max_chars=LONGEST_NAME, key=f"run_name_{run.id}")
        if st.button("Rename it", key=f"run_rename_{run.id}", help="Keep this name."):
            desk.store.runs.rename(run.id, name)
            st.rerun()
    host().show_sharing(run.id)
    with st.popover("Delete…", help="Delete this run. You are asked to confirm."):
        _confirm_delete(desk, run.id, run.name)


def compare_runs(store: Store, runs: list[Run]) -> None:
    """Show several runs: their curves in one chart, named by what differs, and where their settings differ."""
    named = _distinct(difference_names([run.spec for run in runs]))
    specs = dict(zip(named, (run.spec for run in runs), strict=True))
    st.header("Their curves", anchor=False)
    summary = overlaid_power(specs, store)
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
