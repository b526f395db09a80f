"""Relatedness: γ̂ against the closeness C, its spread, and what it means for power."""

import streamlit as st

from m2st_core.dashboard.jobs.jobs import watch_study
from m2st_core.dashboard.widgets import controls
from m2st_core.dashboard.widgets.controls import chart
from m2st_core.dashboard.widgets.page import run_page
from m2st_core.dashboard.widgets.words import SIDEBAR
from m2st_core.figures.relatedness import gamma_figure, gamma_power_figure, gamma_spread_figure
from m2st_core.paper.published import measured_gamma, published_gamma
from m2st_core.studies.relatedness import RelatednessFound, RelatednessStudy

CLOSENESSES = (0.1, 0.2, 0.3, 0.4, 0.5)
COMMAND = "python -m m2st_core paper gamma"


def ask() -> RelatednessStudy:
    """Step 1: the settings."""
    with st.sidebar:
        rows = controls.pick_from(
            "Rows per mode and half",
            "relatedness_rows",
            (50, 100, 250, 500),
            100,
            "One half chooses the kernel, the other is fresh. More rows: γ̂ is less noisy and takes longer. The paper "
            "has 2,000.",
        )
        tasks = controls.pick_from(
            "Tasks i",
            "relatedness_tasks",
            (2, 3, 5, 10),
            3,
            "Drawn from 100 meta-tasks. γ̂ takes the most related, so more tasks make it smaller.",
        )
        restarts = controls.pick_from(
            "Restarts t",
            "relatedness_restarts",
            (2, 3, 5, 10),
            3,
            "Kernels per task. γ̂ takes the worst, so more restarts make it larger. The paper has 10.",
        )
        steps = controls.pick_from(
            "Steps",
            "relatedness_steps",
            (20, 40, 60, 100),
            40,
            "How long each kernel learns to set the tasks apart. More find a larger difference.",
        )
        n_tasks = controls.pick_from(
            "Meta-tasks N for the power",
            "relatedness_n_tasks",
            (10, 20, 40, 100),
            40,
            "Related tasks that teach the test, with 50 rows per mode each. More give more power.",
        )
        m_te = controls.pick_from(
            "Test rows m_te per mode",
            "relatedness_m_te",
            (25, 50, 100),
            50,
            "Rows of each tested sample. More rows give more power.",
        )
        seed = controls.pick_seed()
    return RelatednessStudy(CLOSENESSES, rows, tasks, restarts, steps, n_tasks, m_te, 60, seed)


def show_known() -> None:
    """The published curve and our committed one, at once."""
    left, right = st.columns([3, 2], gap="large")
    with left:
        ours = measured_gamma()
        low, high = ours["on_test_rows"].min(), ours["on_test_rows"].max()
        alt = f"γ̂ against C: published from 0.035 to 0.134, measured on fresh rows from {low:.3f} to {high:.3f}."
        chart(gamma_figure(published_gamma(), ours), "relatedness_known", alt)
    with right:
        st.latex(r"\hat\gamma_{it}=\big\lvert\hat J(\text{target};k_{it})-\hat J(\text{task }i;k_{it})\big\rvert")
        st.latex(r"\hat\gamma=\min_i\max_t\hat\gamma_{it}")
        st.markdown(
            "$k_{it}$ is a deep kernel that tells target and task i apart as well as it can, from random start t. The "
            "paper evaluates on the rows that chose the kernel (squares), we also on fresh rows (circles). Bars span "
            "the tasks' largest $\\hat\\gamma_{it}$. The grey band reaches up to the noise floor: 19 of 20 pairs of "
            "samples of one task have a $\\hat\\gamma$ inside it. It shrinks with the rows."
        )
        st.caption(
            f"Measured: 2,000 rows per sample and half, 10 tasks, 10 restarts (3 for the floor), 100 steps; `{COMMAND}`"
        )


def floor_sentence(found: RelatednessFound) -> str:
    """Which γ̂ are more than noise, in words."""
    curve = found.curve
    out = [f"{row.closeness:g}" for row in curve.itertuples() if row.gamma > row.floor]
    low, high = curve["floor"].min(), curve["floor"].max()
    named = f"stands out at C = {', '.join(out)} only" if out else "stands out at no C"
    named = "stands out at every C" if len(out) == len(curve) else named
    return (
        f"The noise floor, {low:.2f} to {high:.2f}, is what two samples of one task with as many rows give by chance. "
        f"γ̂ {named}. Where it does not, it does not tell how related the tasks are: use more rows."
    )


def show_found(found: RelatednessFound, study: RelatednessStudy) -> None:
    """What the settings gave."""
    alt = "γ̂ against C with these settings: " + ", ".join(f"{gamma:.3f}" for gamma in found.curve["gamma"]) + "."
    chart(gamma_figure(published_gamma(), found.curve), "relatedness_ours", alt)
    st.markdown(floor_sentence(found))
    left, right = st.columns(2, gap="large")
    with left:
        st.subheader("The spread over tasks and restarts")
        chart(gamma_spread_figure(found.values), "relatedness_spread", "Every γ̂_it by closeness, with the resulting γ̂.")
    with right:
        st.subheader("Power against γ̂")
        chart(gamma_power_figure(found.curve), "relatedness_power", "Power of Meta-Witness against γ̂, by closeness.")
        st.caption(
            f"Meta-Witness (ours) learned from N={study.n_tasks} meta-tasks; {study.tests} tests with "
            f"m_te={study.m_te} per mode; Wilson's 95 % intervals."
        )
    with st.expander("Table"):
        st.dataframe(found.curve, hide_index=True, width="stretch")


def main() -> None:
    """The page, as numbered steps."""
    st.title("Relatedness")
    st.write(
        "How much can a kernel that suits a meta-task disappoint on the target? γ̂ estimates it, above a noise floor "
        "that falls with the number of rows. The target is HDGM with Δ=0.7; closeness C sets how far the meta-tasks' Δ "
        "lies below it. The power beside it is that of Meta-Witness (ours), which learns features."
    )
    show_known()
    study = ask()
    st.subheader("Measure it here")
    wanted = st.toggle(
        "Measure with the settings of the sidebar",
        key="relatedness_run",
        bind="query-params",
        help="Takes about half a minute with the defaults, in the background; it can be cancelled.",
    )
    if not wanted:
        st.info(f"Switch this on to estimate γ̂, its spread and the power at each C; the sizes are in {SIDEBAR}.")
        return
    job = watch_study("relatedness", study, "Climbing and testing…")
    if job.state == "done":
        show_found(job.result, study)


run_page(main)
