"""Power lab: describe a sweep, see what it will cost, train, and watch the power curves come in."""

import re

import streamlit as st

from m2st_core.dashboard.jobs.sweep_queue import RunStatus
from m2st_core.dashboard.jobs.sweeps import cost_in_words, show_problems, start, sweep_queue, watch
from m2st_core.dashboard.power_lab.controls import ask_sweep, load_controls
from m2st_core.dashboard.power_lab.results import show_code, show_results, show_training
from m2st_core.dashboard.widgets.page import run_page
from m2st_core.dashboard.widgets.words import SIDEBAR, chosen_in_words
from m2st_core.sweeps.spec import SpecError, SweepSpec
from m2st_core.sweeps.store import StoreError


def linked_run() -> str | None:
    """The run that the link names; its settings move into the controls the first time it is seen."""
    run = st.query_params.get("run", "")
    if not re.fullmatch("[0-9a-f]{12}", run):
        st.query_params.pop("run", None)
        return None
    if st.session_state.get("lab_run") != run:
        try:
            found = sweep_queue().store.run(run)
        except StoreError as error:
            st.warning(str(error))
            st.query_params.pop("run", None)
            return None
        st.session_state["lab_run"] = run
        st.session_state["lab_foreign"] = found is not None and not load_controls(found.spec)
    return run


def show_run(run: str, spec: SweepSpec) -> None:
    """Step 3: the results, as they come."""

    def results(status: RunStatus) -> None:
        show_results(spec, sweep_queue().store.rows(spec), "lab")

    watch(run, results, "lab")
    status = sweep_queue().status(run)
    if status is not None and not status.active:
        show_training(spec)


def main() -> None:
    """The page, as numbered steps."""
    st.title("Power lab")
    st.write(f"How often does a test find a difference that is there? Choose settings in {SIDEBAR}, then train.")
    linked = linked_run()
    with st.sidebar:
        values = ask_sweep()
    if linked and st.session_state["lab_foreign"]:
        show_foreign(linked)
        return
    st.markdown(chosen_in_words(values["preset"], values["methods"]))
    if not values["methods"] or not values["m_te"]:
        st.warning("Choose at least one method and one number of test rows.")
        return
    try:
        spec = SweepSpec.from_dict(values)
    except SpecError as error:
        show_problems("These settings can not be run", error)
        return
    run = spec.run_id
    if linked and linked != run:
        if sweep_queue().store.run(linked) is None:
            st.warning(f"There is no run {linked!r} here. It may have been deleted; **Runs** lists what there is.")
        st.query_params.pop("run", None)
        st.session_state.pop("lab_run", None)
    known = sweep_queue().status(run)
    if known is None:
        st.write(cost_in_words(spec))
        if st.button(
            "Train", type="primary", key="lab_go", help="Start this sweep. It goes on when you close the tab."
        ):
            begin(spec)
        st.info("Nothing has been computed for these settings yet: press **Train**.")
    else:
        st.query_params["run"] = run
        show_run(run, spec)
    show_code(spec)


def begin(spec: SweepSpec) -> None:
    """Step 2: into the queue, and into the link."""
    run = start(spec)
    if run is not None:
        st.session_state["lab_run"] = st.query_params["run"] = run
        st.session_state["lab_foreign"] = False
        st.rerun()


def show_foreign(run: str) -> None:
    """A run whose grid the controls can not describe, such as one over several closenesses."""
    found = sweep_queue().store.run(run)
    if found is None:
        st.query_params.pop("run", None)
        st.rerun()
    st.info(f"**{found.name}** has a larger grid than the controls can show; here it is as it was run.")
    if st.button("Use the controls instead", help="Leave this run and describe another. The run stays in Runs."):
        st.query_params.pop("run", None)
        st.rerun()
    st.markdown(chosen_in_words(found.spec.preset, found.spec.methods))
    show_run(run, found.spec)
    show_code(found.spec)


run_page(main)
