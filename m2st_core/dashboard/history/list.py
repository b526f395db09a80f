"""The list of all runs, named by what differs, the choice among them, and their deletion."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from m2st_core.dashboard.host import host
from m2st_core.dashboard.jobs.sweeps import CELL, STATE_ICONS, sweep_queue
from m2st_core.studies.power import run_names
from m2st_core.sweeps.spec import SweepSpec
from m2st_core.sweeps.store import LONGEST_NAME, UNKNOWN, Run

MOST_COMPARED = 6
DELETED = "run_deleted"  # in the session's state: id and name of the run that was deleted last


def all_runs() -> pd.DataFrame:
    """Every run, the newest first, with its state in the queue and a name that says what differs."""
    queue = sweep_queue()
    frame = queue.store.all_runs()
    current = frame["state"] != UNKNOWN
    specs = {run: SweepSpec.from_json(text) for run, text in frame.loc[current, ["id", "spec"]].itertuples(index=False)}
    names, statuses = run_names(specs), queue.statuses(specs)
    present = {run: statuses[run].state if run in statuses else "deleted" for run in specs}
    states = [present.get(run, state) for run, state in zip(frame["id"], frame["state"], strict=True)]
    unnamed = {
        run for run, name in zip(frame["id"], frame["name"], strict=True) if run in specs and name == specs[run].label
    }
    shown = [names[run] if run in unnamed else name for run, name in zip(frame["id"], frame["name"], strict=True)]
    return pd.DataFrame(
        {
            "run": frame["id"],
            "name": shown,
            "state": [f"{STATE_ICONS.get(state, '')} {state}" for state in states],
            "done": (frame["done"] / frame["cells"].clip(lower=1)).astype(float),
            "cells": frame["cells"],
            "last change": pd.to_datetime(frame["updated"], unit="s", utc=True),
            "open": [f"power?run={run}" if new else None for run, new in zip(frame["id"], current, strict=True)],
            "note": frame["message"].where(~current, ""),
        }
    )


def choose_runs() -> list[Run]:
    """List all runs and ask which to show. The link keeps the choice."""
    history = all_runs()
    if history.empty:
        st.info("What you train in **Power** appears here, with all its results. You can also import a spec below.")
        return []
    config = {
        "done": st.column_config.ProgressColumn(format="percent", help="Share of the cells computed so far."),
        "cells": st.column_config.Column(help=f"Number of cells. Each is {CELL}."),
        "last change": st.column_config.DatetimeColumn(format="D MMM YYYY, HH:mm"),
        "open": st.column_config.LinkColumn(display_text="Open in Power", help="Load its settings into the controls."),
    }
    hidden = {"run"} if history["note"].any() else {"run", "note"}
    st.dataframe(
        history.drop(columns=list(hidden)), hide_index=True, width="stretch", key="runs_table", column_config=config
    )
    labels = {row.run: f"{row.name} · {row.state}" for row in history.itertuples(index=False)}
    linked = [run for run in st.query_params.get_all("run") if run in labels][:MOST_COMPARED]
    if linked and linked != st.session_state.get("runs_linked"):  # a new link, not the one this page wrote
        st.session_state["runs_shown"] = linked
    shown = [run for run in st.session_state.get("runs_shown", [history["run"].iloc[0]]) if run in labels]
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
    older = history[history["note"] != ""].set_index("run")
    for run in chosen:
        if run in older.index:
            show_older(run, older.loc[run])
    runs = [sweep_queue().store.runs.get(run) for run in chosen if run not in older.index]
    return [run for run in runs if run is not None]


def show_older(run: str, row: pd.Series) -> None:
    """Say why a run of an older version is not shown, and offer to delete it."""
    st.warning(row["note"])
    with st.popover("Delete…", key=f"runs_older_{run}", help="Delete this run. You are asked to confirm."):
        confirm_delete(run, row["name"])


def confirm_delete(run: str, name: str) -> None:
    """Ask for confirmation, then delete the run."""
    later = "For a week this can be undone. Then the results that no other run shares are deleted, too."
    st.write(f"**{name}** ({run}) will be deleted. {later}")
    if st.button("Delete it", type="primary", key=f"runs_delete_{run}", help="Delete this run now."):
        try:
            sweep_queue().delete(run)
        except ValueError as error:
            st.error(str(error))
        else:
            st.session_state[DELETED] = (run, name)
            st.rerun()


def show_run_tools(run: Run) -> None:
    """Rename or share a run, or say that it is another's."""
    desk = sweep_queue()
    if not desk.owns(run.id):
        st.caption("Somebody shares this run with you. You can read it.")
        return
    with st.popover("Rename…", help="Give this run another name."):
        name = st.text_input("Name", run.name, max_chars=LONGEST_NAME, key=f"run_name_{run.id}")
        if st.button("Rename it", key=f"run_rename_{run.id}", help="Keep this name."):
            desk.store.runs.rename(run.id, name)
            st.rerun()
    host().show_sharing(run.id)


def offer_undo() -> None:
    """After a deletion, offer to undo it."""
    if DELETED not in st.session_state:
        return
    run, name = st.session_state[DELETED]
    with st.container(horizontal=True, vertical_alignment="center"):
        st.write(f"Deleted: **{name}**. It can be restored for a week.")
        if st.button("Undo", key="run_undo", help="Restore the run with all its results."):
            del st.session_state[DELETED]
            sweep_queue().store.runs.restore(run)
            st.rerun()
