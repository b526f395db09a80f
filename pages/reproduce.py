"""Reproduce the paper: each figure and table, published beside ours, at once or computed here."""

import pandas as pd
import streamlit as st

from m2st_core.dashboard.guard import run_page
from m2st_core.dashboard.sweep_results import show_code, show_results
from m2st_core.dashboard.sweeps import cost_in_words, start, sweep_queue, watch
from m2st_core.experiments.committed import committed_rows
from m2st_core.experiments.paper import PAPER, PaperExperiment
from m2st_core.experiments.summary import published_gamma, published_table

SHORT = {"n_tasks": "N", "meta_source": "meta-tasks from"}
SCALES = {"Quick": "quick", "Full": "full"}


def pick_experiment() -> PaperExperiment:
    """Step 1: which one."""
    by_title = {experiment.title: experiment for experiment in PAPER.values()}
    title = st.selectbox(
        "Figure or table",
        list(by_title),
        key="paper_experiment",
        bind="query-params",
        help="What of the paper to look at. Experiments on synthetic data can be run here at once, those on CIFAR "
        "where the images are; the published numbers are always shown.",
    )
    return by_title[title]


def show_published(experiment: PaperExperiment) -> None:
    """The paper's numbers."""
    st.subheader("Published")
    if experiment.kind == "relatedness":
        gamma = published_gamma().rename(columns={"closeness": "closeness C", "gamma_hat": "γ̂"})
        st.dataframe(gamma, hide_index=True, width="content", key="paper_gamma")
        return
    table = published_table(experiment.name)
    if table.empty:
        st.caption("The paper shows this as a picture, without numbers.")
        return
    cells = [f"{r.power:.3f} ± {r.std_error:.3f}{' *' if r.doubt else ''}" for r in table.itertuples()]
    keys = [key for key in ("method", "meta_source", "n_tasks", "m_tr") if key == "method" or table[key].nunique() > 1]
    unit = table["size_unit"].iloc[0]
    columns = "m_te = " + table["m_te"].astype(str)
    wide = table.assign(cell=cells, column=columns).pivot_table("cell", keys, "column", "first", sort=False)
    wide = wide.reset_index().rename(columns=SHORT)
    st.dataframe(wide, hide_index=True, width="stretch", key="paper_published", placeholder="–")
    st.caption(f"Power ± standard error; sizes {unit}." + (" N is the number of meta-tasks." if "N" in wide else ""))
    for doubt in sorted(set(table["doubt"]) - {""}):
        st.caption(f"\\* not to be compared with ours: {doubt}.")


def show_committed(experiment: PaperExperiment) -> None:
    """Our full results, which come with the software."""
    rows: pd.DataFrame | None = committed_rows(experiment.name)
    if rows is None or experiment.full is None:
        return
    st.subheader("Ours, at full scale")
    st.caption("Computed before and delivered with the software: nothing has to be run to see this.")
    show_results(experiment.full, rows, "paper_committed", experiment.kind)


def show_own(experiment: PaperExperiment) -> None:
    """Step 2: run it here, through the same queue as every other sweep."""
    st.subheader("Ours, computed here")
    chosen = st.segmented_control(
        "Scale",
        list(SCALES),
        default="Quick",
        required=True,
        key="paper_scale",
        bind="query-params",
        help="Quick: 2 repeats × 20 test samples, which show the shape with wide bands. Full: the paper's 20 × 100, "
        "which may take hours.",
    )
    scale = SCALES[chosen]
    spec = experiment.spec(scale)
    if spec.missing_data:
        st.info(f"{spec.missing_data} Then this can be run here.")
        return
    run = spec.hash[:12]
    if sweep_queue().status(run) is None:
        st.write(cost_in_words(spec))
        name = f"{experiment.title}, {scale}"
        if st.button("Run", type="primary", key="paper_go", help="Start it. It goes on when you close the tab."):
            if start(spec, name):
                st.rerun()
        st.info("Not computed here yet: press **Run**. Cells that other runs have computed are not computed again.")
    else:
        rows = sweep_queue().store.rows
        watch(run, lambda status: show_results(spec, rows(spec), f"paper_{scale}", experiment.kind), "paper")
    show_code(spec)


def main() -> None:
    """The page, as numbered steps."""
    st.set_page_config(initial_sidebar_state="collapsed")  # it has no controls of this page
    st.title("Reproduce the paper")
    st.write("Each figure and table of *Meta Two-Sample Testing* (Liu, Xu, Lu, Sutherland, NeurIPS 2021), beside ours.")
    experiment = pick_experiment()
    if experiment.full is None:
        st.info(f"{experiment.title} can not be run here: {experiment.note}")
        if experiment.kind == "relatedness":
            help_ = "Our values with the published ones, and a quick measurement."
            st.page_link("pages/relatedness.py", label="Open “Relatedness”: ours beside it", icon="🧭", help=help_)
        show_published(experiment)
        return
    show_committed(experiment)
    show_own(experiment)
    show_published(experiment)


run_page(main)
