"""Weights: which base kernels a mixture weighs how much for a target, why, and how steadily."""

import streamlit as st

from m2st_core.dashboard.jobs.jobs import watch_study
from m2st_core.dashboard.widgets import controls
from m2st_core.dashboard.widgets.controls import chart, clickable_chart
from m2st_core.dashboard.widgets.page import run_page
from m2st_core.dashboard.widgets.words import SIDEBAR, chosen_in_words
from m2st_core.figures.samples import heat_figure
from m2st_core.figures.weights import criterion_figure, share_figure, weight_spread_figure, weights_figure
from m2st_core.studies.lessons import AXIS
from m2st_core.studies.weights import MIXTURES, PRESET, LearnedFeatures, WeightsFound, WeightsStudy
from m2st_core.sweeps.spec import label_of

DEFAULT = WeightsStudy()
KERNELS = {
    "Feature-MKL": "**Δ=…** are kernels of single meta-tasks on learned features, **all tasks** is their aggregate, "
    "and the **Gaussian** ones are generic: they stand by in case the target differs in another way than the "
    "meta-tasks.",
    "Meta-MKL": "**Δ=…** are the deep kernels of single meta-tasks. Meta-Best1 tests with the one that has the largest "
    "Ĵ, and Meta-MKL-A with all of them alike.",
}


def ask() -> WeightsStudy:
    """Step 1: the settings."""
    method = st.segmented_control(
        "Mixture",
        list(MIXTURES),
        default=DEFAULT.method,
        required=True,
        key="weights_method",
        bind="query-params",
        format_func=label_of,
        help="Feature-MKL mixes kernels on learned features, which takes seconds. Meta-MKL mixes the paper's deep "
        "kernels, trained with our settings, which takes about a minute.",
    )
    with st.sidebar:
        delta = st.slider(
            "Target Δ",
            0.0,
            0.95,
            DEFAULT.delta,
            0.05,
            key="weights_delta",
            bind="query-params",
            help="The target's difference. 0: P and Q are the same, and no kernel has anything to find.",
        )
        closeness = controls.pick_from(
            "Closeness C",
            "weights_closeness",
            (0.1, 0.2, 0.3, 0.4, 0.5),
            DEFAULT.closeness,
            "Meta-tasks have Δ from 0.6−C to 0.7−C. Small C: much like the paper's target Δ=0.7.",
        )
        n_tasks = controls.pick_from(
            "Meta-tasks N",
            "weights_tasks",
            (10, 20, 40, 100),
            DEFAULT.n_tasks,
            "How many related comparisons teach the kernels; ten of them, at random, give a base kernel each.",
        )
        rows = controls.pick_from(
            "Rows per meta-task, per mode",
            "weights_rows",
            (20, 50, 100, 200),
            DEFAULT.rows_per_task,
            "More rows teach better kernels. Each sample has twice as many, as there are two modes.",
        )
        m_tr = controls.pick_from(
            "Training rows m_tr, per mode",
            "weights_m_tr",
            DEFAULT.sizes,
            DEFAULT.m_tr,
            "Target rows from which β is learned. Fewer: β is noisier, and the test leans on the meta-tasks.",
        )
        repeats = controls.pick_from(
            "Training samples",
            "weights_repeats",
            (5, 10, 20, 40),
            DEFAULT.repeats,
            "How many times a training sample is drawn, to see how β varies. More show it better and take longer.",
        )
        seed = controls.pick_seed()
    return WeightsStudy(closeness, n_tasks, rows, delta, m_tr, repeats, DEFAULT.sizes, seed, method or DEFAULT.method)


def show_weights(found: WeightsFound, method: str) -> int:
    """β of the first training sample; the kernel that was clicked, or else the one with the largest Ĵ."""
    st.subheader("The weights β")
    views = ("β", "share of the statistic")
    view = st.segmented_control(
        "Show weights as",
        views,
        default=views[0],
        required=True,
        key="weights_view",
        bind="query-params",
        help="β multiplies the raw kernel, and narrow kernels have small values; the share says what each contributes.",
    )
    shares = view == views[1]
    table = found.table if not shares else found.table.assign(learned=found.table["influence"])
    alt = f"Bars: the weights of {' and '.join(MIXTURES[method].values())}, for each base kernel."
    shown = {"learned": method} if shares else MIXTURES[method]
    figure = weights_figure(table, shown, x_title="share of the statistic's spread" if shares else "weight β")
    clicked = clickable_chart(figure, f"weights_bars_{method}", alt)
    share = ""
    if found.features is not None:
        share = (
            f" The training rows give the learned features a share of **{found.features.share:.0%}** here, measured by "
            "what each kernel contributes to the statistic's spread if P = Q."
        )
    st.caption(f"Click a bar to see what its kernel sees. {KERNELS[method]}{share}")
    return int(found.table["criterion"].argmax()) if clicked is None else clicked


def show_witnesses(found: WeightsFound, row: int) -> None:
    """The chosen kernel beside the mixture."""
    kernel = str(found.table["kernel"][row])
    st.subheader(f"What “{kernel}” sees, and what the mixture sees")
    left, right = st.columns(2)
    with left:
        figure = heat_figure(found.witnesses[row], AXIS, name=kernel, sample=found.sample, height=420)
        chart(figure, "weights_kernel", f"Heat map of the witness function of the kernel {kernel}.")
    with right:
        figure = heat_figure(found.mixture, AXIS, name="mixture", sample=found.sample, height=420)
        chart(figure, "weights_mixture", "Heat map of the witness function of the learned mixture.")


def show_variation(found: WeightsFound, study: WeightsStudy) -> None:
    """Over training samples, and with their size."""
    left, right = st.columns(2, gap="large")
    with left:
        st.subheader("Each kernel's Ĵ")
        chart(
            criterion_figure(found.table, study.method),
            "weights_criterion",
            "Ĵ of each base kernel on the training rows.",
        )
    with right:
        st.subheader("β over training samples")
        alt = f"Box plots of each kernel's weight over {study.repeats} training samples."
        chart(weight_spread_figure(found.repeats, study.method), "weights_spread", alt)
    if found.features is not None:
        show_trust(found.features)
    with st.expander("Table"):
        names = {column: label_of(method) for column, method in MIXTURES[study.method].items()}
        st.dataframe(found.table.rename(columns=names), hide_index=True, width="stretch")


def show_trust(features: LearnedFeatures) -> None:
    """How the share of the learned features grows, which the paper's mixtures do not have."""
    st.subheader("How far the learned features are trusted")
    chart(share_figure(features.shares), "weights_share", "Share of the learned features against m_tr per mode.")
    st.caption(
        "What the kernels on learned features contribute to the statistic's spread if P = Q; the generic Gaussian "
        "kernels have the rest."
    )


def main() -> None:
    """The page, as numbered steps."""
    st.title("Weights")
    st.markdown(
        r"Two tests mix kernels that related tasks taught, $k_\beta=\sum_i\beta_i k_i$. The weights β come from a few "
        "training rows of the target: Meta-MKL's maximise Ĵ, the signal over noise that power grows with, and "
        "Feature-MKL's also ask how far the target is like the related tasks. Here the target is HDGM(Δ). "
        f"Settings are in {SIDEBAR}."
    )
    study = ask()
    st.caption(chosen_in_words(PRESET.name, list(MIXTURES)))
    job = watch_study("weights", study, "Learning from the meta-tasks…")
    if job.state == "done":
        show_witnesses(job.result, show_weights(job.result, study.method))
        show_variation(job.result, study)


run_page(main)
