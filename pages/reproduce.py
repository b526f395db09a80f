"""Reproduce the paper: each figure and table as published, as its algorithms give it here, and with our methods."""

import streamlit as st

from m2st_core.dashboard.jobs.sweeps import cost_in_words, start, sweep_queue, watch
from m2st_core.dashboard.power_lab.results import show_code, show_results
from m2st_core.dashboard.reproduce.comparison import show_comparison, show_gamma, show_published
from m2st_core.dashboard.widgets.controls import Control
from m2st_core.dashboard.widgets.page import run_page
from m2st_core.paper.experiments import PAPER, PaperExperiment

SCALES = {"quick": "Quick", "full": "Full"}
LAYERS = {"paper": "The paper's algorithms", "ours": "Ours"}
EXPERIMENT = Control(
    "experiment",
    "Figure or table",
    next(iter(PAPER)),
    "The published numbers are always shown. Experiments on synthetic data can be run here at once, those on CIFAR "
    "where the images are available.",
    tuple(PAPER),
    shown=lambda name: PAPER[name].title,
    prefix="paper_",
)
LAYER = Control(
    "layer",
    "Layer",
    "paper",
    "The paper's algorithms run in preset `paper`, as its text says. Ours run in preset `recommended`, on the same "
    "samples.",
    tuple(LAYERS),
    shown=LAYERS.__getitem__,
    buttons=True,
    prefix="paper_",
)
SCALE = Control(
    "scale",
    "Scale",
    "quick",
    "Quick: 2 repeats × 20 test samples, which show the shape with wide bands. Full: the paper's 20 × 100. The paper's "
    "algorithms take minutes at the quick scale and hours at the full one.",
    tuple(SCALES),
    shown=SCALES.__getitem__,
    buttons=True,
    prefix="paper_",
)


def show_own(experiment: PaperExperiment) -> None:
    """Step 3: run the experiment here, through the same queue as every other sweep."""
    st.subheader("Computed here")
    with st.container(horizontal=True):
        layer, scale = LAYER.draw(), SCALE.draw()
    spec = experiment.spec(scale, layer)
    if spec.missing_data:
        st.info(f"{spec.missing_data} Then you can run this here.")
        return
    heading = experiment.heading(scale, layer, spec.preset)
    st.caption(heading)
    run = spec.run_id
    if sweep_queue().status(run) is None:
        st.write(cost_in_words(spec))
        if st.button("Run", type="primary", key="paper_go", help="Start. It continues when you close the tab."):
            if start(spec, heading):
                st.rerun()
        st.info("Not computed here yet: press **Run**. Cells of earlier runs are not computed again.")
    else:
        rows = sweep_queue().store.rows
        watch(run, lambda status: show_results(spec, rows(spec), f"paper_{scale}_{layer}", experiment.kind), "paper")
    show_code(spec)


def main() -> None:
    """Show the page as numbered steps."""
    st.set_page_config(initial_sidebar_state="collapsed")  # the sidebar has no controls here
    st.title("Reproduce the paper")
    st.write(
        "Each figure and table of *Meta Two-Sample Testing* (Liu, Xu, Lu, Sutherland, NeurIPS 2021): as published, as "
        "the paper's algorithms give it when this software runs them, and with our own family of tests."
    )
    experiment = PAPER[EXPERIMENT.draw()]
    if experiment.kind == "relatedness":
        show_gamma(experiment)
        st.page_link(
            "pages/relatedness.py",
            label="Open “Relatedness” to measure it here",
            icon="🧭",
            help="What γ̂ means, its spread, and a quick measurement.",
        )
        return
    show_comparison(experiment)
    show_own(experiment)
    show_published(experiment)


run_page(main)
