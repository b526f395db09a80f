"""Power lab: describe a sweep, see its cost, train, and watch the power curves appear."""

import re

import streamlit as st

from m2st_core.dashboard.jobs.sweep_queue import RunStatus
from m2st_core.dashboard.jobs.sweeps import cost_in_words, show_problems, start, sweep_queue, watch
from m2st_core.dashboard.power_lab.controls import ask_sweep, load_sweep
from m2st_core.dashboard.power_lab.results import show_code, show_results, show_training
from m2st_core.dashboard.widgets.page import SIDEBAR, choice_sentences, run_page
from m2st_core.sweeps.spec import SpecError, SweepSpec
from m2st_core.sweeps.store import StoreError


def linked_run() -> str | None:
    """The id of the run in the link. When it is new, its settings are loaded into the controls."""
    run = st.query_params.get("run", "")
    if not re.fullmatch("[0-9a-f]{12}", run):
        st.query_params.pop("run", None)
        return None
    if st.session_state.get("lab_run") != run:
        try:
            stored = sweep_queue().store.run(run)
        except StoreError as error:
            st.warning(str(error))
            st.query_params.pop("run", None)
            return None
        st.session_state["lab_run"] = run
        st.session_state["lab_foreign"] = stored is not None and not load_sweep(stored.spec)
    return run


def show_run(run: str, spec: SweepSpec) -> None:
    """Step 3: the results, as they are computed."""

    def results(status: RunStatus) -> None:
        show_results(spec, sweep_queue().store.rows(spec), "lab")

    watch(run, results, "lab")
    status = sweep_queue().status(run)
    if status is not None and not status.active:
        show_training(spec)


def main() -> None:
    """Show the page as numbered steps."""
    st.title("Power lab")
    st.write(f"How often does a test detect a difference? Choose settings in {SIDEBAR}, then train.")
    linked = linked_run()
    with st.sidebar:
        values = ask_sweep()
    if linked and st.session_state["lab_foreign"]:
        show_foreign(linked)
        return
    st.markdown(choice_sentences(values["preset"], values["methods"]))
    if not values["methods"] or not values["m_te"]:
        st.warning("Choose at least one method and one number of test rows.")
        return
    try:
        spec = SweepSpec.from_dict(values)
    except SpecError as error:
        show_problems("These settings cannot be run", error)
        return
    run = spec.run_id
    if linked and linked != run:
        if sweep_queue().store.run(linked) is None:
            st.warning(f"There is no run {linked!r} here. It may have been deleted. **Runs** lists all runs.")
        st.query_params.pop("run", None)
        st.session_state.pop("lab_run", None)
    if sweep_queue().status(run) is None:
        st.write(cost_in_words(spec))
        if st.button(
            "Train", type="primary", key="lab_go", help="Start this sweep. It continues when you close the tab."
        ):
            begin(spec)
        st.info("These settings have not been run yet: press **Train**.")
    else:
        st.query_params["run"] = run
        show_run(run, spec)
    show_code(spec)


def begin(spec: SweepSpec) -> None:
    """Step 2: put the sweep into the queue and its run into the link."""
    run = start(spec)
    if run is not None:
        st.session_state["lab_run"] = st.query_params["run"] = run
        st.session_state["lab_foreign"] = False
        st.rerun()


def show_foreign(run: str) -> None:
    """Show a run whose grid the controls cannot describe, such as one over several closenesses."""
    stored = sweep_queue().store.run(run)
    if stored is None:
        st.query_params.pop("run", None)
        st.rerun()
    st.info(f"**{stored.name}** has a larger grid than the controls can show. Here it is as it was run.")
    if st.button("Use the controls instead", help="Leave this run and describe another. The run stays in Runs."):
        st.query_params.pop("run", None)
        st.rerun()
    st.markdown(choice_sentences(stored.spec.preset, stored.spec.methods))
    show_run(run, stored.spec)
    show_code(stored.spec)


run_page(main)
