"""Paper: every figure and table of the paper, whether this software reproduces it, and each one in detail."""

from functools import partial

import pandas as pd
import streamlit as st

import m2st_core
from m2st_core.dashboard.explore.results import show_code
from m2st_core.dashboard.jobs.sweeps import start_sweep, sweep_cost_words, sweep_queue, watch_sweep
from m2st_core.dashboard.paper import COLOURS, figure_text, show_entry, show_numbers
from m2st_core.dashboard.widgets.controls import Control
from m2st_core.dashboard.widgets.page import chart, download, page_finding, page_title, run_page, shared
from m2st_core.paper.experiments import PAPER, PUBLISHED_RULES, Layer, PaperExperiment
from m2st_core.paper.gallery import Card, experiment_figure, free_choice, gallery, gallery_summary, paper_verdict
from m2st_core.paper.published import LEAST_REPEATS, with_published
from m2st_core.paper.results import take_over_results
from m2st_core.sweeps.spec import SweepSpec
from m2st_core.sweeps.summary import summarise
from m2st_core.types import EXACT

FLAGS = {"paper": "", "released": " --preset released", "tuned": " --preset tuned", "ours": " --ours"}  # of the shell
SCALES = {"quick": "Quick", "full": "Full"}
LAYERS = {"paper": "In the paper", "released": "In its code", "tuned": "Tuned", "ours": "Ours instead"}
LAYER = Control(
    "layer",
    "Algorithms as",
    "paper",
    "The paper's algorithms with the settings of its text, of its code, or tuned by us; or our own family instead. All "
    "run on the same samples.",
    tuple(LAYERS),
    shown=LAYERS.__getitem__,
    buttons=True,
    prefix="paper_",
)
SCALE = Control(
    "scale",
    "Scale",
    "quick",
    "Quick: 2 repeats × 20 test samples, which show the shape. Full: the paper's 20 × 100. The paper's algorithms take "
    "minutes at the quick scale and hours at the full one.",
    tuple(SCALES),
    shown=SCALES.__getitem__,
    buttons=True,
    prefix="paper_",
)
PUBLISHED = Control(
    "published",
    "p-values as published",
    False,
    "The share b/B of random labellings that reach the observed statistic, without the observed labelling itself: "
    "slightly too small. With these B and α = 0.05 it rejects the same samples as the exact (1+b)/(1+B), but for ties.",
    prefix="paper_",
)


def open_entry(name: str) -> None:
    """Put an experiment into the address, so that it can be linked, and left with the browser's Back."""
    st.query_params["experiment"] = name


def show_card(card: Card) -> None:
    """A card that opens its entry: its thumbnail, whether it agrees, and why."""
    experiment = card.experiment
    with st.container(key=f"paper_card_{experiment.name}", border=True, height="stretch", gap="small"):
        _open_button(card)
        what = experiment.title.partition(": ")[2]
        if card.picture:
            st.image(card.picture, what or None, width="stretch", alt=f"{experiment.title}, as a thumbnail")
        st.badge(card.badge, color=COLOURS[card.state])
        st.caption(card.sentence)


def _open_button(card: Card) -> None:
    """The button that opens an entry; on a card it covers the whole card."""
    experiment = card.experiment
    name, help_ = experiment.title.partition(": ")[0], f"Open {experiment.title}."
    key, action = f"paper_open_{experiment.name}", partial(open_entry, experiment.name)
    st.button(f"**{name}**", key=key, help=help_, type="tertiary", on_click=action)


def show_gallery() -> None:
    """All figures and tables at a glance."""
    cards = gallery()
    page_title("Paper")
    page_finding(shared(paper_verdict, cards))
    st.markdown(shared(gallery_summary, cards))
    st.caption(
        "*Meta Two-Sample Testing* (Liu, Xu, Lu, Sutherland, NeurIPS 2021). Open diamonds are published, lines and "
        "dots are the paper's algorithms run by this software. A number agrees if it lies within two standard errors; "
        "by chance about 1 in 20 does not. The sizes of one row share their learners, so they agree or differ "
        "together. The published errors probably cover one set of related tasks only; Tables 5 and 6 say how much that "
        "changes."
    )
    with st.container(key="gallery"):
        for card in cards:
            if card.run != "no":
                show_card(card)
    if rest := [card for card in cards if card.run == "no"]:
        st.markdown("**Not run at full scale yet.** The tables on CIFAR need CIFAR-10.1, and a GPU to be quick.")
        with st.container(horizontal=True, gap="small", key="gallery_rest"):
            for card in rest:
                _open_button(card)


def show_own(experiment: PaperExperiment) -> None:
    """Run the experiment here, through the same queue as every other sweep."""
    st.header("Run it here", anchor=False)
    with st.container(horizontal=True):
        layer, scale = LAYER.draw(), SCALE.draw()
    spec = experiment.spec(scale, layer)
    with st.container(horizontal=True):
        if layer in PUBLISHED_RULES and PUBLISHED.draw():
            spec = spec.with_(rule=PUBLISHED_RULES[layer])
    if spec.missing_data:
        st.info(f"{spec.missing_data} Then you can run this here.")
        return
    heading = experiment.heading(scale, layer)
    st.caption(heading)
    published = " --p-value published" if spec.rule != EXACT else ""
    st.code(f"python -m m2st_core paper {experiment.name} --scale {scale}{FLAGS[layer]}{published}", language="bash")
    desk, run = sweep_queue(), spec.run_id
    if desk.status(run) is None:
        taken = 0 if desk.store.database.read_only else take_over_results(desk.store, spec)
        cost = sweep_cost_words(desk.look({run: spec})[run], desk.workers)
        st.write(f"{f'{taken} cells come with this software. ' if taken else ''}{cost}")
        if st.button("Run", type="primary", key="paper_go", help="Start. It continues when you close the tab."):
            if start_sweep(desk, spec, heading):
                st.rerun()
    else:
        watch_sweep(desk, run, spec, lambda view: show_run(experiment, spec, layer, view.rows), "paper")
    show_code(spec)


def show_run(experiment: PaperExperiment, spec: SweepSpec, layer: Layer, rows: pd.DataFrame) -> None:
    """Show what has been computed here beside the published numbers."""
    if rows.empty:
        st.caption("No points yet. They appear here as soon as they are computed.")
        return
    name, _ = free_choice(experiment)
    size = max(getattr(spec, name)) if name else None
    key, shown = f"paper_{spec.run_id}", {layer: rows}
    chart(experiment_figure(experiment, shown, size), f"{key}_chart", figure_text(experiment, shown, size))
    few = f" Standard errors need {LEAST_REPEATS} repeats." if rows["repeat"].nunique() < LEAST_REPEATS else ""
    st.caption(f"Open diamonds: published, 2021. All other marks were computed here.{few}")
    show_numbers(with_published(summarise(rows)), f"{key}_numbers", with_n=len(spec.n_tasks) > 1)
    download("Cells (CSV)", partial(rows.to_csv, index=False), f"{spec.run_id}-cells.csv", key)


def main() -> None:
    """Show the experiment that the link names, or all of them."""
    experiment = PAPER.get(st.query_params.get("experiment", ""))
    if experiment is None:
        show_gallery()
    else:
        show_entry(experiment)
        if experiment.full is not None:
            show_own(experiment)


run_page(main)
