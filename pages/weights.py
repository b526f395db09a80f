"""Weights: how a mixture weighs its base kernels for a target, why, and how much this varies."""

import pandas as pd
import streamlit as st

import m2st_core
from m2st_core.dashboard.jobs.jobs import SHIPPED, watch_study
from m2st_core.dashboard.widgets.controls import Control, ask_controls, ask_setting, controls_under
from m2st_core.dashboard.widgets.page import (
    chart,
    choice_sentences,
    clickable_chart,
    latest_of_page,
    page_finding,
    page_title,
    run_page,
    show_folded,
)
from m2st_core.figures.kernels import criterion_figure, share_figure, weight_spread_figure, weights_figure
from m2st_core.figures.samples import heat_figure
from m2st_core.figures.theme import short_labels
from m2st_core.studies.synthetic import AXIS
from m2st_core.studies.weights import MIXTURES, LearnedFeatures, WeightsResult, WeightsStudy
from m2st_core.testing.methods import label_of

DEFAULT = WeightsStudy()
MOST_BARS, LEAST_WEIGHT = 12, 0.005
KERNELS = {
    "Feature-MKL": "**Δ=…** are kernels of single related tasks on learned features, and **all tasks** is their "
    "aggregate. The **Gaussian** ones are generic, in case the target differs in another way.",
    "Meta-MKL · tuned": "**Δ=…** are the deep kernels of single related tasks. Bars: β as learned. Circles: β as used, "
    "80 % of it uniform. Diamonds: Meta-Best1, which tests with the one kernel of the largest Ĵ. Lines: Meta-MKL-A, "
    "which weighs all equally.",
}
VIEWS = {"influence": "share of the statistic's spread", "beta": "β"}
METHOD = Control(
    "method",
    "Mixture",
    DEFAULT.method,
    "Feature-MKL mixes kernels on learned features, which takes seconds. Meta-MKL · tuned mixes the paper's deep "
    "kernels, trained with our settings, which takes about a minute.",
    tuple(MIXTURES),
    shown=label_of,
    buttons=True,
    prefix="weights_",
)
M_TR = Control(
    "m_tr",
    "Training rows m_tr, per mode",
    DEFAULT.m_tr,
    "Target rows from which β is learned. With fewer rows β is noisier, and the test relies on the related tasks.",
    DEFAULT.sizes,
    prefix="weights_",
)
CONTROLS = (
    Control(
        "rows_per_task",
        "Rows per related task, per mode",
        DEFAULT.rows_per_task,
        "More rows give better kernels. Each sample has two modes, so twice as many rows.",
        (20, 50, 100, 200),
    ),
    Control(
        "repeats",
        "Training samples",
        DEFAULT.repeats,
        "Training samples drawn to show how β varies. More show it better and take longer.",
        (5, 10, 20, 40),
    ),
)
VIEW = Control(
    "view",
    "Show",
    "influence",
    "β multiplies the raw kernel, and narrow kernels have small values. The share is what each kernel contributes.",
    tuple(VIEWS),
    shown=VIEWS.__getitem__,
    buttons=True,
    prefix="weights_",
)


def show_weights(result: WeightsResult, study: WeightsStudy, view: str) -> None:
    """Show the weights of the first training sample, largest first, and beside them what a kernel sees."""
    columns, title, by = MIXTURES[study.method], "weight β", "learned"
    table = result.table
    if view == "influence":
        table = table.assign(learned=table["influence"])
        columns, title = {"learned": study.method}, "share of the statistic's spread"
    table = table.sort_values(by, ascending=False, kind="stable").head(MOST_BARS)
    if len(columns) == 1:
        table = table[table[by] >= min(LEAST_WEIGHT, table[by].max())]
    bars, kernel, mixture = st.columns([5, 4, 4], gap="medium")
    with bars:
        names = " and ".join(dict.fromkeys(columns.values()))
        alt = f"Bars: the weights of {names}, for each base kernel, the largest first."
        clicked = clickable_chart(
            weights_figure(table.reset_index(drop=True), columns, x_title=title), f"weights_bars_{study.method}", alt
        )
    row = int(table.index[0 if clicked is None else min(clicked, len(table) - 1)])
    name = str(result.table["kernel"][row])
    with kernel:
        st.markdown(f"**What “{name}” sees**")
        figure = heat_figure(result.witnesses[row], AXIS, name=name, sample=result.sample, height=400)
        chart(short_labels(figure), "weights_kernel", f"Heat map of the witness function of the kernel {name}.")
    with mixture:
        st.markdown("**What the mixture sees**")
        figure = heat_figure(result.mixture, AXIS, name="mixture", sample=result.sample, height=400)
        chart(short_labels(figure), "weights_mixture", "Heat map of the witness function of the learned mixture.")
    hidden = len(result.table) - len(table)
    left_out = f" {hidden} other kernels have little or no weight." if hidden else ""
    st.caption(
        f"Click a bar to see through its kernel. {KERNELS[study.method]} {tasks_sentence(result, study)}{left_out}"
    )


def tasks_sentence(result: WeightsResult, study: WeightsStudy) -> str:
    """Say why there are fewer kernels of single tasks than tasks."""
    own = int(result.table["task"].notna().sum())
    if own >= study.n_tasks:
        return f"All {study.n_tasks} tasks have a kernel of their own."
    shape = "All of them shape the features." if study.learns_features else "All of them train their common start."
    return (
        f"{own} of the {study.n_tasks} tasks, drawn at random, have a kernel of their own: more would not help. {shape}"
    )


def show_variation(result: WeightsResult, study: WeightsStudy) -> None:
    """Show how β varies with the training sample and its size, and Ĵ of each kernel."""
    if result.features is not None:
        show_shares(result.features)
    left, right = st.columns(2, gap="large")
    with left:
        st.header("Each kernel's Ĵ", anchor=False)
        alt = "Ĵ of each base kernel on the training rows."
        chart(criterion_figure(result.table, study.method), "weights_criterion", alt)
    with right:
        st.header("β over training samples", anchor=False)
        alt = f"Box plots of each kernel's weight over {study.repeats} training samples."
        chart(weight_spread_figure(result.repeats, study.method), "weights_spread", alt)


def show_more(result: WeightsResult, study: WeightsStudy) -> None:
    """Offer what is behind the weights: three more charts, and the numbers."""
    show_folded("How β varies, and why", "weights_variation", lambda: show_variation(result, study))
    columns = MIXTURES[study.method]
    names = {column: label_of(name) if len(columns) == 1 else f"{name}: {column}" for column, name in columns.items()}
    table = result.table.rename(columns=names)
    show_folded("Table", "weights_table", lambda: show_table(table))


def show_table(table: pd.DataFrame) -> None:
    """Show all numbers of the first training sample."""
    st.dataframe(table, hide_index=True, width="stretch")


def show_shares(features: LearnedFeatures) -> None:
    """Show how the share of the learned features changes with the number of training rows."""
    st.header("How far the learned features are trusted", anchor=False)
    chart(share_figure(features.shares), "weights_share", "Share of the learned features against m_tr per mode.")
    st.caption(f"Their share of the statistic's spread if P = Q. The Gaussian kernels have the rest. {features.senses}")


def explain_mixtures() -> None:
    """Say what the two mixtures learn, and from what."""
    st.markdown(
        r"Two tests mix kernels learned from related tasks, $k_\beta=\sum_i\beta_i k_i$. They learn β from a few "
        "training rows of the target. Meta-MKL maximises Ĵ, the signal over noise that determines power. "
        "Feature-MKL also estimates how similar the target is to the related tasks.\n\n"
        + choice_sentences(list(MIXTURES))
    )


def main() -> None:
    """Show the page."""
    page_title("Weights")
    said, place, body = st.container(), st.container(), st.container()
    more = st.expander("More settings")
    with place:
        setting = ask_setting(more, ("hdgm",))
        left, middle, right = st.columns(3, vertical_alignment="bottom")
        with left:
            method = METHOD.draw()
        with middle:
            m_tr = M_TR.draw()
        with right:
            view = VIEW.draw()
    with more:
        values = ask_controls(controls_under("weights_", *CONTROLS))
    study = WeightsStudy(
        method=method,
        closeness=setting.closeness,
        n_tasks=setting.n_tasks,
        delta=float(setting.settings["delta"]),
        m_tr=m_tr,
        seed=setting.seed,
        **values,
    )
    with body:
        job = watch_study("weights", study, "Learning from the related tasks…", study.expected_seconds, study.shipped())
        shown = latest_of_page("weights", study, job.result if job.state == "done" else None)
        with said:
            waiting = "Nothing is computed yet." if job.state == "asked" else "Learning from the related tasks…"
            page_finding(f"{shown.before}{shown.result.finding(shown.settings)}" if shown else waiting)
        if shown is not None:
            with shown.marked():
                show_weights(shown.result, shown.settings, view)
            if shown.settings.shipped() is not None:
                st.caption(SHIPPED)
            show_more(shown.result, shown.settings)
    show_folded("What is mixed", "weights_mixed", explain_mixtures)


run_page(main)
