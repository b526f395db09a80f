"""Power: curves of the chosen tests at the rail's setting, and the sweeps that compute what is not shipped."""

import re

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

import m2st_core
from m2st_core.dashboard.explore.curves import look_at_curves, show_curves, show_training_curves
from m2st_core.dashboard.explore.rail import ask_setting
from m2st_core.dashboard.explore.results import show_code, show_results
from m2st_core.dashboard.explore.sweeps import LEVEL, ask_methods, ask_precision, load_sweep
from m2st_core.dashboard.jobs.runs import RunDesk, SweepView
from m2st_core.dashboard.jobs.sweeps import NO_RUN, show_sweep_problems, sweep_queue
from m2st_core.dashboard.widgets.page import choice_sentences, page_title, run_page
from m2st_core.studies.explore import ExploreSetting
from m2st_core.sweeps.database import StoreError
from m2st_core.sweeps.spec import SpecError, SweepSpec
from m2st_core.sweeps.store import Run

LOADED = "lab_loaded"  # the runs that this session has loaded or written into its link


def linked_run(desk: RunDesk) -> Run | None:
    """Load the run in the link into the controls, once. Return it if its grid is too large for them.

    A link that this page wrote is never loaded: the controls have changed since, or are about to.
    """
    run = st.query_params.get("run", "")
    loaded = st.session_state.setdefault(LOADED, {})
    if not re.fullmatch("[0-9a-f]{12}", run):
        st.query_params.pop("run", None)
        return None
    if loaded.get(run) is False:
        return None
    try:
        stored = desk.store.runs.get(run)
    except StoreError as error:
        st.warning(str(error))
        stored = None
    else:
        if stored is None:
            st.warning(NO_RUN.format(run))
    if stored is None:
        st.query_params.pop("run", None)
        return None
    if run not in loaded:
        loaded[run] = not load_sweep(stored.spec)
    return stored if loaded[run] else None


def asked_sweep(setting: ExploreSetting, row: DeltaGenerator) -> SweepSpec | None:
    """Ask for tests, sizes and precision, and return the sweep; None after showing mistakes and a remedy."""
    values = ask_precision()
    methods = ask_methods(setting, min(values["m_te"], default=setting.m_te), row)
    if not methods or not values["m_te"]:
        st.warning("Choose at least one test and one number of test rows.")
        return None
    try:
        return setting.sweep(methods, **values | {"m_te": tuple(sorted(values["m_te"]))})
    except SpecError as error:
        show_sweep_problems("These settings cannot be run", error)
        return None


def main() -> None:
    """Show the page."""
    page_title("Power", sidebar=True)
    headline, row = st.container(), st.container(horizontal=True, vertical_alignment="center", key="tests_row")
    desk = sweep_queue()
    large = linked_run(desk)
    setting = ask_setting()
    if large is not None:
        show_large(desk, large)
    elif (spec := asked_sweep(setting, row)) is not None:
        level, views = bool(st.session_state[LEVEL.key]), look_at_curves(desk, spec)
        link_run(views.linked(level))
        show_curves(desk, views, level, headline, row, setting.m_te)
        with st.expander("Tests and their settings"):
            st.markdown(choice_sentences(spec.methods))
        show_training_curves(desk.store, spec)
        show_code(spec)


def link_run(view: SweepView | None) -> None:
    """Put the run of a sweep into the link, if there is one."""
    if view is None or view.status is None:
        st.query_params.pop("run", None)
        return
    st.session_state[LOADED].setdefault(view.spec.run_id, False)
    st.query_params["run"] = view.spec.run_id


def show_large(desk: RunDesk, run: Run) -> None:
    """Show a run whose grid the controls cannot describe, such as one over several closenesses."""
    st.info(f"**{run.name}** has a larger grid than the controls can show. Here it is as it was run.")
    if st.button("Use the controls instead", help="Leave this run and describe another. The run stays in History."):
        st.query_params.pop("run", None)
        st.rerun()
    st.markdown(choice_sentences(run.spec.methods))
    show_results(run.spec, desk.store.cells.rows(run.spec), "lab")
    show_code(run.spec)


run_page(main)
