"""γ̂: how far the related tasks are from the target, what it means for power, and what the theorem makes of it."""

import pandas as pd
import streamlit as st

import m2st_core
from m2st_core.dashboard.explore.rail import ask_setting
from m2st_core.dashboard.explore.related_files import show_uploaded_gamma
from m2st_core.dashboard.jobs.jobs import watch_study
from m2st_core.dashboard.widgets.controls import Control
from m2st_core.dashboard.widgets.page import chart, page_finding, page_title, run_page, shared, show_folded
from m2st_core.data import TASKS
from m2st_core.figures.relatedness import gamma_course_figure, gamma_power_figure, theorem_figure
from m2st_core.numbers import duration
from m2st_core.studies.explore import ExploreSetting, shipped_gamma, shipped_settings
from m2st_core.studies.relatedness import (
    RelatednessStudy,
    gamma_finding,
    power_by_closeness,
    sizes_words,
    with_gamma,
)
from m2st_core.studies.theorem import theorem_view
from m2st_core.tasks import IndependentTask
from m2st_core.testing.methods import label_of

FAMILIES = tuple(name for name, task in TASKS.items() if issubclass(task, IndependentTask))
DEFINITION = (
    "**γ̂** says how much one kernel's signal-to-noise ratio J can differ between a related task and the target: "
    "where it is small, a kernel that works there works here."
)
ROWS = Control(
    "rows",
    "Rows of each sample and half",
    2_000,
    "One half chooses the kernels, on the other γ̂ is measured. With fewer rows, noise hides γ̂. The paper has 4,000.",
    (250, 500, 1_000, 2_000),
    prefix="relatedness_",
)
ASKED = "relatedness_asked"  # the study that the button was pressed for
HEIGHT = 360


def measured_gamma(setting: ExploreSetting) -> pd.DataFrame | None:
    """Offer to measure γ̂ at this setting. Return the result, once it is there."""
    with st.container(horizontal=True, vertical_alignment="center"):
        place = st.container(width="content")
        with st.popover("Precision", help="The rows on which γ̂ is measured."):
            rows = ROWS.draw()
    study = RelatednessStudy(setting.task, setting.parameters, setting.n_tasks, setting.seed, rows)
    seconds = duration(study.expected_seconds)
    label = f"Measure this setting · about {seconds}"
    help_ = "Train kernels that separate target and related tasks, at three values of C. You can cancel it."
    if place.button(label, type="primary", key="relatedness_measure", help=help_):
        st.session_state[ASKED] = study
    if st.session_state.get(ASKED) != study:
        return None
    job = watch_study("relatedness", study, "Training kernels…")
    return job.result if job.state == "done" else None


def show_course(setting: ExploreSetting, gamma: pd.DataFrame, source: str) -> None:
    """Show γ̂ against C."""
    st.markdown("**γ̂ against C**")
    if gamma.empty:
        st.info("γ̂ is shipped for HDGM with Δ = 0.7. Measure it here with the button below.")
        return
    values = "; ".join(f"C = {row.closeness:g}: {row.on_test_rows:.3f}" for row in gamma.itertuples())
    figure = shared(gamma_course_figure, gamma, setting.closeness, HEIGHT)
    chart(figure, "relatedness_course", f"γ̂ against C. {values}.")
    st.caption(source)


def show_power(setting: ExploreSetting, gamma: pd.DataFrame, power: pd.DataFrame) -> None:
    """Show power against γ̂, over the bands of tests without related tasks."""
    st.markdown("**Power against γ̂**")
    joined = with_gamma(power, gamma)
    if joined.empty:
        where = shipped_settings(setting.task)
        near = f" Shipped: {where}." if where else ""
        st.info(f"Power over all C is not shipped at this setting.{near}")
        st.page_link("pages/power.py", label="Compute it in Power", help="Power has this setting and says how long.")
        return
    others = power[power["closeness"].isna()]
    values = "; ".join(
        f"{label_of(row.method)} at C = {row.closeness:g}: {row.rate:.2f}" for row in joined.itertuples()
    )
    figure = gamma_power_figure(joined, others, setting.closeness, HEIGHT)
    chart(figure, "relatedness_power", f"Power against γ̂. {values}.")
    st.caption(f"Above the bands, history helps. {sizes_words(setting, power)}. Bars and bands: ± standard error.")


def show_maths() -> None:
    """Show how γ̂ is defined and drawn."""
    st.latex(r"\gamma=\sup_k\,\lvert J(P,Q;k)-J(P',Q';k)\rvert,\qquad J=\mathrm{MMD}^2/\sigma")
    st.latex(r"\hat\gamma=\min_i\max_t\ \lvert\hat J(\text{target};k_{it})-\hat J(\text{task }i;k_{it})\rvert")
    st.markdown(
        "$k_{it}$ is a deep kernel, trained from random start t on one half of the rows to separate the target from "
        "task i. γ̂ is measured on the other half; diamonds are the paper's, on its training rows. Two samples of one "
        "task stay below the grey noise floor in 19 of 20 cases."
    )


def show_theorem(setting: ExploreSetting) -> None:
    """Show what the theorem bounds, as measured, beside the bound."""
    st.header("The theorem beside what happens", anchor=False)
    view = shared(theorem_view, setting)
    if view is None:
        st.caption("It was measured for HDGM with Δ = 0.7.")
        return
    st.markdown(view.sentence)
    sides = (("n", view.by_n, view.n, "related task"), ("m", view.by_m, view.m, "target"))
    for column, (name, table, now, whose) in zip(st.columns(2, gap="medium"), sides, strict=True):
        figure = shared(theorem_figure, table, f"rows {name} of each sample of the {whose}", now)
        with column:
            chart(figure, f"relatedness_theorem_{name}", f"J* − J(k̂) and its bound, as {name} grows.")
    st.caption(
        f"C = {view.closeness:g}, the measured value nearest to yours. J is that of fresh rows; J* is that of the best "
        "kernel learned from 8,000 rows of the target. ξ is known up to a constant, which is 1 here. Bars: ± standard "
        "error between repeats: `python -m m2st_core bench theorem`"
    )
    show_folded("The theorem as a formula", "relatedness_theorem_maths", show_bound)


def show_bound() -> None:
    """Show the theorem."""
    st.latex(r"J(k^*)-J(\hat k_\beta)\le 2(\gamma+\xi_n+\xi_m)")
    st.latex(r"\xi_m=O\!\Big(\tfrac{1}{s^2m^{1/3}}\big[\tfrac1s+\sqrt{D\log m}+L_k\big]\Big)")
    st.markdown(
        "$D$ is the number of parameters: those of the network for $\\xi_n$, of kernels for $\\xi_m$. $s$ is the "
        "smallest deviation σ of a kernel, here of those that were learned, which flatters the bound."
    )


def main() -> None:
    """Show the page."""
    page_title("γ̂ relatedness", sidebar=True)
    headline, charts, below = st.container(), st.container(), st.container()
    setting = ask_setting(FAMILIES)
    with below:
        found = measured_gamma(setting)
    gamma = shared(shipped_gamma, setting) if found is None else found
    source = (
        "Measured now, on fresh rows."
        if found is not None
        else ("On 2,000 fresh rows. Diamonds: published. Grey: noise floor. `python -m m2st_core paper gamma`")
    )
    power = shared(power_by_closeness, setting)
    with headline:
        page_finding(gamma_finding(setting, gamma, power))
        st.markdown(DEFINITION)
    with charts:
        left, right = st.columns(2, gap="medium")
        with left:
            show_course(setting, gamma, source)
        with right:
            show_power(setting, gamma, power)
        show_folded("How γ̂ is defined", "relatedness_maths", show_maths)
    show_theorem(setting)
    show_uploaded_gamma()


run_page(main)
