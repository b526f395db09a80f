"""History: all runs, named by what differs, to reopen, compare, resume, download or delete."""

import pandas as pd
import streamlit as st

from m2st_core.dashboard.jobs.sweeps import (
    CELL,
    STATE_ICONS,
    check_limits,
    cost_in_words,
    show_problems,
    start,
    sweep_queue,
    watch,
)
from m2st_core.dashboard.power_lab.results import show_code, show_results, show_training
from m2st_core.dashboard.serving.tools import DELETED, offer_undo, show_run_tools
from m2st_core.dashboard.widgets.page import chart, choice_sentences, finding, page_title, run_page
from m2st_core.data import size_unit
from m2st_core.figures.power import compare_figure
from m2st_core.studies.power import (
    difference_names,
    overlaid,
    power_finding,
    run_names,
    spec_differences,
)
from m2st_core.sweeps.spec import SpecError, SweepSpec
from m2st_core.sweeps.store import SENTENCES, Run
from m2st_core.sweeps.summary import summarise

LARGEST_UPLOAD = 64 * 1024
MOST_COMPARED = 6


def all_runs() -> pd.DataFrame:
    """Every run, the newest first, with its state in the queue and a name that says what differs."""
    queue = sweep_queue()
    frame = queue.store.runs()
    current = ~frame["state"].isin(SENTENCES)
    specs = {run: SweepSpec.from_json(text) for run, text in frame.loc[current, ["id", "spec"]].itertuples(index=False)}
    names, states = run_names(specs), []
    for run, state in zip(frame["id"], frame["state"], strict=True):
        if state not in SENTENCES:
            status = queue.status(run)
            state = "deleted" if status is None else status.state
        states.append(f"{STATE_ICONS.get(state, '')} {state}")
    unnamed = {
        run for run, name in zip(frame["id"], frame["name"], strict=True) if run in specs and name == specs[run].label
    }
    shown = [names[run] if run in unnamed else name for run, name in zip(frame["id"], frame["name"], strict=True)]
    return pd.DataFrame(
        {
            "run": frame["id"],
            "name": shown,
            "state": states,
            "done": (frame["done"] / frame["cells"].clip(lower=1)).astype(float),
            "cells": frame["cells"],
            "last change": pd.to_datetime(frame["updated"], unit="s", utc=True),
            "open": [f"power?run={run}" if new else None for run, new in zip(frame["id"], current, strict=True)],
            "note": frame["message"].where(~current, ""),
        }
    )


def show_history() -> list[Run]:
    """List all runs and ask which to show. The link keeps the choice."""
    history = all_runs()
    if history.empty:
        st.info("There are no runs yet. Start one in **Power** or in **Paper**, or import a spec below.")
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
    runs = [sweep_queue().store.run(run) for run in chosen if run not in older.index]
    return [run for run in runs if run is not None]


def show_older(run: str, row: pd.Series) -> None:
    """Say why a run of an older version is not shown, and offer to delete it."""
    st.warning(row["note"])
    with st.popover("Delete…", key=f"runs_older_{run}", help="Delete this run. You are asked to confirm."):
        confirm_delete(run, row["name"])


def show_one(run: Run) -> None:
    """Show one run: its results, a link to Power, and a button to delete it."""
    st.header(run_names({run.id: run.spec})[run.id] if run.name == run.spec.label else run.name, anchor=False)
    st.caption(choice_sentences(run.spec.preset, run.spec.methods))
    watch(run.id, lambda status: show_results(run.spec, sweep_queue().store.rows(run.spec), "runs"), "runs")
    show_training(run.spec)
    show_code(run.spec)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.page_link(
            "pages/power.py",
            label="Open in Power",
            query_params={"run": run.id},
            help="Load the settings of this run into the controls, to change them and train again.",
        )
        show_run_tools(run)
        if sweep_queue().owns(run.id):
            with st.popover("Delete…", help="Delete this run. You are asked to confirm."):
                confirm_delete(run.id, run.name)


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
    table = spec_differences(specs)
    marks = table.pop("differs")
    styled = table.style.apply(lambda row: ["font-weight: bold" if marks[row.name] else ""] * len(row), axis=1)
    st.dataframe(styled, width="stretch", key="runs_differences")


def _distinct(names: list[str]) -> list[str]:
    """The names, numbered where they are the same."""
    return [name if names.count(name) == 1 else f"{name} ({index})" for index, name in enumerate(names, 1)]


def import_spec() -> None:
    """Step 3: read a spec from a file and check it before it runs."""
    with st.expander("Import a spec"):
        file = st.file_uploader(
            "Spec (TOML)", "toml", key="runs_upload", help="A file saved with Settings (TOML), at most 64 kB."
        )
        if file is None:
            return
        if file.size > LARGEST_UPLOAD:
            st.error("This file is larger than 64 kB, but a spec has only a few lines. Choose another file.")
            return
        try:
            spec = SweepSpec.from_toml(file.getvalue().decode("utf-8"))
            check_limits(spec)
        except UnicodeDecodeError:
            st.error("This file is not text. A spec is a TOML file in UTF-8.")
        except SpecError as error:
            show_problems("This spec cannot be run", error)
        else:
            st.write(cost_in_words(spec))
            if st.button("Run it", type="primary", key="runs_import", help="Put this sweep in the queue.") and (
                run := start(spec)
            ):
                st.session_state["runs_next"] = [run]
                st.rerun()


def main() -> None:
    """Show the page."""
    page_title("History")
    said = st.container()
    st.session_state.pop("lab_loaded", None)  # a link to Power that is followed from here loads its run anew
    if "runs_next" in st.session_state:
        st.session_state["runs_shown"] = st.session_state.pop("runs_next")
    offer_undo()
    chosen = show_history()
    with said:
        finding(sentence(chosen))
    if len(chosen) == 1:
        show_one(chosen[0])
    elif chosen:
        compare(chosen)
    elif st.session_state.get("runs_linked") == []:
        st.info("Choose a run above to look at it, or several to compare them.")
    import_spec()


def sentence(chosen: list[Run]) -> str:
    """Say what the chosen run has found, or how runs are used."""
    if len(chosen) == 1 and not chosen[0].spec.null:
        spec = chosen[0].spec
        found = power_finding(summarise(sweep_queue().store.rows(spec)), size_unit(spec.task))
        if found:
            return found
    return "Every run is kept with all its results. Open one, or choose several to compare them."


run_page(main)
