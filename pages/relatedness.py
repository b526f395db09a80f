"""Relatedness: γ̂ against the closeness C, its spread, and what it means for power."""

import pandas as pd
import streamlit as st

import m2st_core
from m2st_core.dashboard.jobs.jobs import watch_study
from m2st_core.dashboard.widgets.controls import Control, ask_controls, ask_setting, controls_under
from m2st_core.dashboard.widgets.page import (
    chart,
    latest_of_page,
    page_finding,
    page_title,
    run_page,
    shared,
    show_folded,
)
from m2st_core.figures.relatedness import gamma_figure, gamma_power_figure, gamma_spread_figure
from m2st_core.numbers import duration
from m2st_core.paper.published import measured_gamma, published_gamma
from m2st_core.studies.relatedness import RelatednessResult, RelatednessStudy, gamma_finding, order_sentence

COMMAND = "python -m m2st_core paper gamma"
SIZES = (
    Control(
        "rows",
        "Rows per mode and half",
        100,
        "One half chooses the kernel, the other is held out. More rows make γ̂ less noisy and take longer. The paper "
        "uses 2,000.",
        (50, 100, 250, 500),
    ),
    Control(
        "tasks",
        "Tasks i",
        3,
        "Drawn from 100 related tasks. γ̂ is the value of the most related one, so more tasks make it smaller.",
        (2, 3, 5, 10),
    ),
    Control(
        "restarts",
        "Restarts t",
        3,
        "Kernels per task. γ̂ takes the worst of them, so more restarts make it larger. The paper uses 10.",
        (2, 3, 5, 10),
    ),
    Control(
        "steps",
        "Steps",
        40,
        "Training steps of each kernel that separates the tasks. More steps find a larger difference.",
        (20, 40, 60, 100),
    ),
    Control(
        "m_te", "Test rows m_te per mode", 50, "Rows of each tested sample. More rows give more power.", (25, 50, 100)
    ),
)
SHIPPED_DELTA = 0.7  # of the measured curve
MEASURE = Control(
    "run",
    "Measure it with this setting",
    False,
    "Trains kernels at five values of C, in the background. You can cancel it.",
    prefix="relatedness_",
)


def show_committed(closeness: float) -> None:
    """Show the published curve and the one measured for this software."""
    left, right = st.columns([3, 2], gap="large")
    with left:
        ours = measured_gamma()
        low, high = ours["on_test_rows"].min(), ours["on_test_rows"].max()
        alt = f"γ̂ against C: published from 0.035 to 0.134, measured on fresh rows from {low:.3f} to {high:.3f}."
        figure = shared(gamma_figure, published_gamma(), ours, now=closeness, height=400)
        chart(figure, "relatedness_known", alt)
    with right:
        st.markdown(
            "**What it means for you.** γ̂ is how much signal a kernel taught by a related task may lose on your "
            "target. If it is small, the related tasks help. If it is large, a test without them may do as well."
        )
        st.markdown(order_sentence(ours))
        st.caption(
            f"Target: HDGM, Δ=0.7. 2,000 rows per sample and half, 10 tasks, 10 restarts, 100 steps: `{COMMAND}`"
        )
        show_folded("The maths", "relatedness_maths", show_maths)


def show_maths() -> None:
    """Show how γ̂ is defined and drawn."""
    st.latex(r"\hat\gamma_{it}=\big\lvert\hat J(\text{target};k_{it})-\hat J(\text{task }i;k_{it})\big\rvert")
    st.latex(r"\hat\gamma=\min_i\max_t\hat\gamma_{it}")
    st.markdown(
        "$k_{it}$ is a deep kernel trained from random start t to separate the target from task i. The paper "
        "evaluates it on its training rows (squares). We also evaluate it on fresh rows (circles). Bars span "
        "the tasks' largest $\\hat\\gamma_{it}$. Of 20 pairs of samples of one task, 19 have a $\\hat\\gamma$ "
        "inside the grey band, the noise floor. It shrinks as rows are added."
    )


def floor_sentences(result: RelatednessResult) -> str:
    """Say which γ̂ are above the noise floor."""
    curve = result.curve
    above = [f"{row.closeness:g}" for row in curve.itertuples() if row.gamma > row.floor]
    low, high = curve["floor"].min(), curve["floor"].max()
    where = f"stands out at C = {', '.join(above)} only" if above else "stands out at no C"
    where = "stands out at every C" if len(above) == len(curve) else where
    return (
        f"The noise floor, {low:.2f} to {high:.2f}, is the γ̂ that two samples of one task with as many rows give by "
        f"chance. γ̂ {where}. Below the floor it does not tell how related the tasks are: use more rows."
    )


def show_result(result: RelatednessResult, study: RelatednessStudy, closeness: float) -> None:
    """Show γ̂, its spread and the power beside it."""
    gammas = ", ".join(f"{gamma:.3f}" for gamma in result.curve["gamma"])
    figure = gamma_figure(published_gamma(), result.curve, now=closeness)
    chart(figure, "relatedness_ours", f"γ̂ against C, measured now: {gammas}.")
    st.markdown(f"{floor_sentences(result)} {order_sentence(result.curve)}")
    nearest = min(result.senses, key=lambda measured: abs(measured - closeness))
    st.markdown(f"At C = {nearest:g}: {result.senses[nearest]}")
    left, right = st.columns(2, gap="large")
    with left:
        st.header("The spread over tasks and restarts", anchor=False)
        chart(gamma_spread_figure(result.values), "relatedness_spread", "Every γ̂_it by closeness, with γ̂ itself.")
    with right:
        st.header("Power against γ̂", anchor=False)
        chart(gamma_power_figure(result.curve), "relatedness_power", "Power of Meta-Witness against γ̂, by closeness.")
        st.caption(
            f"Meta-Witness (ours) learned from N={study.n_tasks} related tasks; {study.tests} tests with "
            f"m_te={study.m_te} per mode; Wilson's 95 % intervals."
        )
    show_folded("Table", "relatedness_table", lambda: show_table(result.curve))


def show_table(curve: pd.DataFrame) -> None:
    """Show the numbers behind γ̂."""
    st.dataframe(curve, hide_index=True, width="stretch")


def main() -> None:
    """Show the page."""
    page_title("Relatedness")
    said, place, body = st.container(), st.container(), st.container()
    more = st.expander("More settings")
    with place:
        setting = ask_setting(more, ("hdgm",))
    with more:
        values = ask_controls(controls_under("relatedness_", *SIZES))
    delta = float(setting.settings["delta"])
    study = RelatednessStudy(n_tasks=setting.n_tasks, seed=setting.seed, delta=delta, **values)
    with body:
        show_committed(setting.closeness)
        st.header("Measure it here", anchor=False)
        curve, before = measured_gamma(), "" if delta == SHIPPED_DELTA else f"For Δ = {SHIPPED_DELTA:g}, not yours: "
        if MEASURE.draw():
            doing = "Training kernels and testing…"
            job = watch_study("relatedness", study, doing, study.expected_seconds)
            shown = latest_of_page("relatedness", study, job.result if job.state == "done" else None)
            if shown is not None:
                curve, before = shown.result.curve, shown.before
                with shown.marked():
                    show_result(shown.result, shown.settings, setting.closeness)
        else:
            st.caption(f"For this Δ and N, at five values of C: about {duration(study.expected_seconds)}.")
    with said:
        page_finding(before + gamma_finding(curve, setting.closeness))


run_page(main)
