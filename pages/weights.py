"""Weights: how a mixture weighs its base kernels for a target, why, and how much this varies."""

import streamlit as st

from m2st_core.dashboard.jobs.jobs import watch_study
from m2st_core.dashboard.widgets.controls import SEED, Control, ask, under
from m2st_core.dashboard.widgets.page import SIDEBAR, chart, choice_sentences, clickable_chart, run_page
from m2st_core.figures.samples import heat_figure
from m2st_core.figures.weights import criterion_figure, share_figure, weight_spread_figure, weights_figure
from m2st_core.studies.synthetic import AXIS
from m2st_core.studies.weights import MIXTURES, PRESET, LearnedFeatures, WeightsResult, WeightsStudy
from m2st_core.testing.methods import label_of

DEFAULT = WeightsStudy()
KERNELS = {
    "Feature-MKL": "**Δ=…** are kernels of single related tasks on learned features. **all tasks** is their aggregate. "
    "The **Gaussian** ones are generic, in case the target differs in another way than the related tasks.",
    "Meta-MKL": "**Δ=…** are the deep kernels of single related tasks. Meta-Best1 tests with the one that has the "
    "largest Ĵ, and Meta-MKL-A weighs all of them equally.",
}
VIEWS = {"beta": "β", "influence": "share of the statistic"}
METHOD = Control(
    "method",
    "Mixture",
    DEFAULT.method,
    "Feature-MKL mixes kernels on learned features, which takes seconds. Meta-MKL mixes the paper's deep kernels, "
    "trained with our settings, which takes about a minute.",
    tuple(MIXTURES),
    shown=label_of,
    buttons=True,
    prefix="weights_",
)
CONTROLS = (
    Control(
        "delta",
        "Target Δ",
        DEFAULT.delta,
        "The difference between the target's P and Q. At 0 they are the same, and there is nothing to find.",
        bounds=(0.0, 0.95, 0.05),
    ),
    Control(
        "closeness",
        "Closeness C",
        DEFAULT.closeness,
        "Related tasks have Δ from 0.6−C to 0.7−C. With a small C they are much like the paper's target Δ=0.7.",
        (0.1, 0.2, 0.3, 0.4, 0.5),
    ),
    Control(
        "n_tasks",
        "Related tasks N",
        DEFAULT.n_tasks,
        "The number of related comparisons to learn from. Ten of them, drawn at random, give a base kernel each.",
        (10, 20, 40, 100),
    ),
    Control(
        "rows_per_task",
        "Rows per related task, per mode",
        DEFAULT.rows_per_task,
        "More rows give better kernels. Each sample has two modes, so twice as many rows.",
        (20, 50, 100, 200),
    ),
    Control(
        "m_tr",
        "Training rows m_tr, per mode",
        DEFAULT.m_tr,
        "Target rows from which β is learned. With fewer rows β is noisier, and the test relies on the related tasks.",
        DEFAULT.sizes,
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
    "Show weights as",
    "beta",
    "β multiplies the raw kernel, and narrow kernels have small values. The share is what each kernel contributes.",
    tuple(VIEWS),
    shown=VIEWS.__getitem__,
    buttons=True,
    prefix="weights_",
)


def show_weights(result: WeightsResult, method: str) -> int:
    """Show β of the first training sample. Return the row that was clicked, or else that of the largest Ĵ."""
    st.subheader("The weights β")
    table, columns, title = result.table, MIXTURES[method], "weight β"
    if VIEW.draw() == "influence":
        table, columns = table.assign(learned=table["influence"]), {"learned": method}
        title = "share of the statistic's spread"
    alt = f"Bars: the weights of {' and '.join(columns.values())}, for each base kernel."
    clicked = clickable_chart(weights_figure(table, columns, x_title=title), f"weights_bars_{method}", alt)
    share = ""
    if result.features is not None:
        share = (
            f" With these training rows, the learned features have a share of **{result.features.share:.0%}**. It "
            "measures what each kernel contributes to the spread of the statistic if P = Q."
        )
    st.caption(f"Click a bar to see the witness function of its kernel. {KERNELS[method]}{share}")
    return int(table["criterion"].argmax()) if clicked is None else clicked


def show_witnesses(result: WeightsResult, row: int) -> None:
    """Show the chosen kernel beside the mixture."""
    kernel = str(result.table["kernel"][row])
    st.subheader(f"What “{kernel}” sees, and what the mixture sees")
    left, right = st.columns(2)
    with left:
        figure = heat_figure(result.witnesses[row], AXIS, name=kernel, sample=result.sample, height=420)
        chart(figure, "weights_kernel", f"Heat map of the witness function of the kernel {kernel}.")
    with right:
        figure = heat_figure(result.mixture, AXIS, name="mixture", sample=result.sample, height=420)
        chart(figure, "weights_mixture", "Heat map of the witness function of the learned mixture.")


def show_variation(result: WeightsResult, study: WeightsStudy) -> None:
    """Show Ĵ of each kernel, and how β varies with the training sample and its size."""
    left, right = st.columns(2, gap="large")
    with left:
        st.subheader("Each kernel's Ĵ")
        alt = "Ĵ of each base kernel on the training rows."
        chart(criterion_figure(result.table, study.method), "weights_criterion", alt)
    with right:
        st.subheader("β over training samples")
        alt = f"Box plots of each kernel's weight over {study.repeats} training samples."
        chart(weight_spread_figure(result.repeats, study.method), "weights_spread", alt)
    if result.features is not None:
        show_shares(result.features)
    with st.expander("Table"):
        names = {column: label_of(method) for column, method in MIXTURES[study.method].items()}
        st.dataframe(result.table.rename(columns=names), hide_index=True, width="stretch")


def show_shares(features: LearnedFeatures) -> None:
    """Show how the share of the learned features changes with the number of training rows."""
    st.subheader("How far the learned features are trusted")
    chart(share_figure(features.shares), "weights_share", "Share of the learned features against m_tr per mode.")
    st.caption(
        "The contribution of kernels on learned features to the spread of the statistic if P = Q. The generic Gaussian "
        "kernels have the rest."
    )


def main() -> None:
    """Show the page as numbered steps."""
    st.title("Weights")
    st.markdown(
        r"Two tests mix kernels learned from related tasks, $k_\beta=\sum_i\beta_i k_i$. They learn the weights β from "
        "a few training rows of the target. Meta-MKL maximises Ĵ, the signal over noise that determines power. "
        "Feature-MKL also estimates how similar the target is to the related tasks. Here the target is HDGM(Δ). "
        f"Settings are in {SIDEBAR}."
    )
    method = METHOD.draw()
    with st.sidebar:
        study = WeightsStudy(method=method, **ask((*under("weights_", *CONTROLS), SEED)))
    st.caption(choice_sentences(PRESET.name, list(MIXTURES)))
    job = watch_study("weights", study, "Learning from the related tasks…")
    if job.state == "done":
        show_witnesses(job.result, show_weights(job.result, study.method))
        show_variation(job.result, study)


run_page(main)
