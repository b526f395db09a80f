"""Explore: the paper on one screen: power, β and γ̂ at one setting, and the sentence that joins them."""

import streamlit as st

import m2st_core
from m2st_core.dashboard.explore.curves import look_at_curves, precision_words
from m2st_core.dashboard.explore.rail import ask_setting
from m2st_core.dashboard.explore.results import show_figure
from m2st_core.dashboard.jobs.sweeps import sweep_queue
from m2st_core.dashboard.widgets.page import chart, page_finding, page_title, run_page, shared
from m2st_core.figures.kernels import mixture_figure
from m2st_core.figures.relatedness import gamma_course_figure
from m2st_core.paper.published import with_published
from m2st_core.studies.explore import (
    GRID,
    PAPER_TESTS,
    SMALL_GRID,
    ExploreSetting,
    overview_sentence,
    shipped_gamma,
    shipped_mixture,
    shipped_settings,
)
from m2st_core.sweeps.summary import summarise
from m2st_core.testing.methods import label_of
from m2st_core.types import in_words

HEIGHT, SMALL = 455, 170


def show_power(setting: ExploreSetting) -> None:
    """Show power against m_te, and what is not shipped at this setting."""
    curves = look_at_curves(sweep_queue(), setting.sweep(PAPER_TESTS), others=()).power
    st.session_state["overview_rows"] = curves.rows
    st.markdown("**Power**", help="The share of samples in which a test finds the difference, by the rows it tests.")
    if not curves.rows.empty:
        table = shared(with_published, shared(summarise, curves.rows))
        show_figure(curves.spec, table, "overview", marked=setting.m_te, height=HEIGHT)
        st.caption(f"{precision_words(curves.rows)}. Bands: ± one standard error. Open diamonds: published numbers.")
    if curves.missing:
        names = in_words(list(map(label_of, curves.missing)))
        where = shipped_settings(setting.task)
        near = f" Shipped: {where}." if where else ""
        st.info(f"Not computed at this setting: {names}.{near}")
        st.page_link("pages/power.py", label="Compute them in Power", help="Power has this setting and says how long.")


def show_mixture(setting: ExploreSetting) -> None:
    """Show β of Meta-MKL by the Δ of the related task behind each kernel."""
    symbol = "ρ" if setting.task == SMALL_GRID.task else "Δ"
    st.markdown("**β of Meta-MKL**", help="The weight of each related task's kernel in the mixture, over repeats.")
    mixed = shared(shipped_mixture, setting)
    if mixed is None:
        st.caption("β is shipped for HDGM with Δ = 0.7, as in the paper's text. **β weights** computes it elsewhere.")
        st.page_link("pages/weights.py", label="Compute β", help="Opens β weights with this setting.")
        return
    figure = shared(mixture_figure, mixed.table, SMALL, symbol)
    largest = mixed.mean.max()
    chart(figure, "overview_beta", f"β of {len(mixed.mean)} kernels over repeats; the largest mean is {largest:.2f}.")
    st.caption(
        f"{mixed.table['repeat'].nunique()} repeats (circles). Dotted: Meta-MKL-A, {1 / len(mixed.mean):.2g} each."
    )


def show_gamma(setting: ExploreSetting) -> None:
    """Show γ̂ against C, with the chosen C marked."""
    st.markdown("**γ̂ against C**", help="How far the most related of the tasks is from the target. Grey: noise alone.")
    gamma = shared(shipped_gamma, setting)
    if gamma.empty:
        st.caption("γ̂ is shipped for HDGM with Δ = 0.7. **γ̂ relatedness** measures it elsewhere.")
        st.page_link("pages/relatedness.py", label="Measure γ̂", help="Opens γ̂ relatedness with this setting.")
        return
    figure = shared(gamma_course_figure, gamma, setting.closeness, SMALL)
    values = "; ".join(f"C = {row.closeness:g}: {row.on_test_rows:.3f}" for row in gamma.itertuples())
    chart(figure, "overview_gamma", f"γ̂ against C. {values}.")
    st.caption(f"Measured with N = {gamma['n_tasks'].iloc[0]:g} tasks. Diamonds: published. Grey: noise alone.")


def main() -> None:
    """Show the page."""
    page_title("Explore", sidebar=True)
    headline, (left, right) = st.container(), st.columns([3, 2], gap="medium")
    setting = ask_setting((GRID.task, SMALL_GRID.task))
    with left:
        show_power(setting)
    with right:
        show_mixture(setting)
        show_gamma(setting)
    rows = st.session_state["overview_rows"]
    sentence = overview_sentence(setting, rows, shared(shipped_gamma, setting), shared(shipped_mixture, setting))
    with headline:
        page_finding(sentence or "No test has been run at this setting yet.")


run_page(main)
