"""Reproduce the paper: each figure and table as published, as its algorithms give it here, and as ours do."""

import streamlit as st

from m2st_core.dashboard.jobs.sweeps import cost_in_words, start, sweep_queue, watch
from m2st_core.dashboard.power_lab.results import show_code, show_results
from m2st_core.dashboard.reproduce.layers import show_gamma, show_layers, show_published
from m2st_core.dashboard.widgets.page import run_page
from m2st_core.paper.experiments import PAPER, PaperExperiment

SCALES = {"Quick": "quick", "Full": "full"}
LAYERS = {"The paper's algorithms": "paper", "Ours": "ours"}


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


def show_own(experiment: PaperExperiment) -> None:
    """Step 3: run it here, through the same queue as every other sweep."""
    st.subheader("Computed here")
    with st.container(horizontal=True):
        layer = LAYERS[
            st.segmented_control(
                "Layer",
                list(LAYERS),
                default="The paper's algorithms",
                required=True,
                key="paper_layer",
                bind="query-params",
                help="The paper's algorithms run in preset `paper`, as its text says. Ours run in preset "
                "`recommended`, on the same samples.",
            )
        ]
        scale = SCALES[
            st.segmented_control(
                "Scale",
                list(SCALES),
                default="Quick",
                required=True,
                key="paper_scale",
                bind="query-params",
                help="Quick: 2 repeats × 20 test samples, which show the shape with wide bands. Full: the paper's "
                "20 × 100. The paper's algorithms take minutes at the quick scale and hours at the full one.",
            )
        ]
    spec = experiment.spec(scale, layer)
    if spec.missing_data:
        st.info(f"{spec.missing_data} Then this can be run here.")
        return
    heading = experiment.heading(scale, layer, spec.preset)
    st.caption(heading)
    run = spec.run_id
    if sweep_queue().status(run) is None:
        st.write(cost_in_words(spec))
        if st.button("Run", type="primary", key="paper_go", help="Start it. It goes on when you close the tab."):
            if start(spec, heading):
                st.rerun()
        st.info("Not computed here yet: press **Run**. Cells that other runs have computed are not computed again.")
    else:
        rows = sweep_queue().store.rows
        watch(run, lambda status: show_results(spec, rows(spec), f"paper_{scale}_{layer}", experiment.kind), "paper")
    show_code(spec)


def main() -> None:
    """The page, as numbered steps."""
    st.set_page_config(initial_sidebar_state="collapsed")  # it has no controls of this page
    st.title("Reproduce the paper")
    st.write(
        "Each figure and table of *Meta Two-Sample Testing* (Liu, Xu, Lu, Sutherland, NeurIPS 2021): as published, as "
        "the paper's algorithms give it when this software runs them, and as our own family of tests does."
    )
    experiment = pick_experiment()
    if experiment.kind == "relatedness":
        show_gamma(experiment)
        st.page_link(
            "pages/relatedness.py",
            label="Open “Relatedness” to measure it here",
            icon="🧭",
            help="What γ̂ means, its spread, and a quick measurement.",
        )
        return
    show_layers(experiment)
    show_own(experiment)
    show_published(experiment)


run_page(main)
