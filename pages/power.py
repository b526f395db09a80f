"""Power: curves of the chosen settings, and the sweeps that compute them."""

import re

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

import m2st_core
from m2st_core.dashboard.jobs.runs import RunDesk
from m2st_core.dashboard.jobs.sweeps import NO_RUN, show_sweep_problems, start_sweep, sweep_queue
from m2st_core.dashboard.power.controls import LEVEL, ask_sweep, load_sweep
from m2st_core.dashboard.power.curves import look_at_curves, show_curves, show_training_curves
from m2st_core.dashboard.power.results import show_code, show_results
from m2st_core.dashboard.widgets.controls import ask_setting
from m2st_core.dashboard.widgets.page import choice_sentences, page_title, run_page
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


def checked(values: dict) -> SweepSpec | None:
    """The described sweep; None after showing its mistakes and a remedy."""
    if not values["methods"] or not values["m_te"]:
        st.warning("Choose at least one method and one number of test rows.")
        return None
    try:
        return SweepSpec.from_dict(values)
    except SpecError as error:
        show_sweep_problems("These settings cannot be run", error)
        return None


def begin(desk: RunDesk, spec: SweepSpec, level: bool) -> None:
    """Put the sweep into the queue, with the one under P = Q if asked for."""
    if start_sweep(desk, spec) is not None:
        if level:
            start_sweep(desk, spec.with_(null=True))
        st.rerun()


def main() -> None:
    """Show the page."""
    page_title("Power")
    headline, controls, body = st.container(), st.container(), st.container()
    desk = sweep_queue()
    large = linked_run(desk)
    more = st.expander("More settings")
    with controls:
        setting = ask_setting(more)
        values = ask_sweep(setting, more)
    with body:
        if large is not None:
            show_large(desk, large)
        elif (spec := checked(values)) is not None:
            show_sweep(desk, spec, headline)


def show_sweep(desk: RunDesk, spec: SweepSpec, headline: DeltaGenerator) -> None:
    """Show the curves of a sweep, with its run in the link if there is one."""
    level, views = bool(st.session_state[LEVEL.key]), look_at_curves(desk, spec)
    linked = views.null if level and views.power.status is None else views.power
    if linked.status is None:
        st.query_params.pop("run", None)
    else:
        run = linked.spec.run_id
        st.session_state[LOADED].setdefault(run, False)
        st.query_params["run"] = run
    show_curves(desk, views, level, headline, begin)
    with st.expander("Methods and their settings"):
        st.markdown(choice_sentences(spec.methods))
    show_training_curves(desk.store, spec)
    show_code(spec)


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
