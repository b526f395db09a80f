"""History: all runs, named by what differs, to reopen, compare, resume, download or delete."""

import streamlit as st

import m2st_core
from m2st_core.dashboard.explore.history import (
    choose_runs,
    compare_runs,
    offer_undo,
    runs_finding,
    runs_table,
    show_one,
    show_shipped,
)
from m2st_core.dashboard.jobs.runs import RunDesk
from m2st_core.dashboard.jobs.sweeps import (
    check_sweep_limits,
    show_sweep_problems,
    start_sweep,
    sweep_cost_words,
    sweep_queue,
)
from m2st_core.dashboard.widgets.page import page_finding, page_title, run_page
from m2st_core.sweeps.spec import SpecError, SweepSpec

LARGEST_UPLOAD = 64 * 1024


def import_spec(desk: RunDesk) -> None:
    """Read a spec from a file and check it before it runs."""
    with st.expander("Import a spec"):
        file = st.file_uploader(
            "Spec (TOML)",
            "toml",
            key="runs_upload",
            max_upload_size=1,
            help="A file saved with Settings (TOML), at most 64 kB.",
        )
        if file is None:
            return
        if file.size > LARGEST_UPLOAD:
            st.error("This file is larger than 64 kB, but a spec has only a few lines. Choose another file.")
            return
        try:
            spec = SweepSpec.from_toml(file.getvalue().decode("utf-8"))
            check_sweep_limits(spec)
        except UnicodeDecodeError:
            st.error("This file is not text. A spec is a TOML file in UTF-8.")
        except SpecError as error:
            show_sweep_problems("This spec cannot be run", error)
        else:
            st.write(sweep_cost_words(desk.look({spec.run_id: spec})[spec.run_id], desk.workers))
            if st.button("Run it", type="primary", key="runs_import", help="Put this sweep in the queue.") and (
                run := start_sweep(desk, spec)
            ):
                st.session_state["runs_next"] = [run]
                st.rerun()


def main() -> None:
    """Show the page."""
    page_title("History")
    headline, desk = st.container(), sweep_queue()
    st.session_state.pop("lab_loaded", None)  # a link to Power that is followed from here loads its run anew
    if "runs_next" in st.session_state:
        st.session_state["runs_shown"] = st.session_state.pop("runs_next")
    offer_undo(desk)
    listed = runs_table(desk)
    chosen = choose_runs(desk, listed)
    with headline:
        page_finding(runs_finding(desk.store, listed, chosen))
    if len(chosen) == 1:
        show_one(desk, chosen[0])
    elif chosen:
        compare_runs(desk.store, chosen)
    elif "runs_linked" not in st.session_state:
        show_shipped()
    elif not st.session_state["runs_linked"]:
        st.info("Choose a run above to look at it, or several to compare them.")
    import_spec(desk)


run_page(main)
