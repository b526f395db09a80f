"""What first visitors see on the slower pages, computed once when the server has its first visitor."""

from __future__ import annotations

import numpy as np
import streamlit as st

from m2st_core.dashboard.jobs.jobs import job_manager
from m2st_core.dashboard.learn.course import ALPHA, FIRST_STEPS, TESTS, Choice, Lesson
from m2st_core.dashboard.learn.learning import LEARNING, META_TESTS, TASKS_HELP, TEST_SIZE, related_tasks_found
from m2st_core.dashboard.widgets.controls import chart
from m2st_core.figures.relatedness import bound_course_figure, bound_terms_figure, closeness_power_figure, gamma_figure
from m2st_core.paper.published import measured_gamma, published_gamma
from m2st_core.studies.lessons import DELTA, KEPT, Rate, learn_deep, repeated_tests
from m2st_core.studies.relatedness import witness_p_values
from m2st_core.studies.theory import BoundSettings, bound_courses, bound_table
from m2st_core.studies.weights import WeightsStudy
from m2st_core.types import Progress

MEASURED_NOW = (0.1, 0.3, 0.5)  # closenesses: three, so that a slower machine keeps up


@st.cache_data(max_entries=KEPT, show_spinner=False)
def closeness_rates(n_tasks: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Meta-Witness's power and interval at some closenesses."""
    rates = [Rate(witness_p_values(c, n_tasks, TEST_SIZE, META_TESTS, seed), ALPHA) for c in MEASURED_NOW]
    return np.array([rate.share for rate in rates]), np.array([rate.interval for rate in rates])


def show_closeness(seed: int, n_tasks: int) -> None:
    """Step 7."""
    gamma = gamma_figure(published_gamma(), measured_gamma(), height=360)
    chart(gamma, "learn7_gamma", "γ̂ against the closeness C: published and measured values grow with C.")
    rates, intervals = closeness_rates(n_tasks, seed)
    floor = Rate(repeated_tests(DELTA, TEST_SIZE, META_TESTS, seed, False), ALPHA).share
    figure = closeness_power_figure(np.array(MEASURED_NOW), rates, intervals, floor)
    chart(figure, "learn7_power", "Power against C: " + ", ".join(f"{r:.0%}" for r in rates) + ".")
    st.caption(
        "First chart: bars reach up to the least related task, and γ̂ inside the grey band is noise. Second: "
        f"Meta-Witness (ours) with {TEST_SIZE} rows per mode, and Wilson's 95 % intervals."
    )


def show_bounds(seed: int, gamma: float, n: int, m: int, n_tasks: int, parameters: int, s: float) -> None:
    """Step 8: nothing here is random."""
    settings = BoundSettings(gamma, n, m, n_tasks, parameters, s)
    table = bound_table(settings)
    alt = "Stacked bars of three bounds: " + ", ".join(
        f"{b} {v:.0f}" for b, v in table.groupby("bound")["value"].sum().items()
    )
    chart(bound_terms_figure(table), "learn8_terms", alt)
    sizes, courses = bound_courses(settings)
    chart(bound_course_figure(sizes, courses, m), "learn8_course", "The three bounds fall as m grows.")
    st.caption(
        "ξ and ζ are known up to a constant, taken as 1 here: how the terms move is right, their height means nothing. "
        "Beside them a small γ is too thin to see."
    )


THEORY = (
    Lesson(
        "How related is related?",
        "Two tasks are **γ-related** if no kernel does much better on one than on the other. As the meta-tasks move "
        "away from the target (C grows), γ̂ grows and power falls. The first chart has γ̂, published and "
        "measured; the second has power, measured now.",
        (
            r"\gamma=\sup_{k\in\mathcal K}\lvert J(P,Q;k)-J(P',Q';k)\rvert",
            r"\hat\gamma=\min_i\max_t\hat\gamma_{it}",
        ),
        (Choice("learn7_tasks", "Meta-tasks N", 20, (10, 20, 40), TASKS_HELP),),
        show_closeness,
        "Does the meta-learned test ever fall below the one without meta-tasks? That would be negative transfer.",
    ),
    Lesson(
        "What the theory promises",
        "With high probability the learned kernel's J is within 2(γ + ξₙ + …) of the best one's. Learning a deep "
        "kernel on the target pays for all its D parameters with m rows; with meta-tasks that price is paid with n "
        "rows, and m rows only find β.",
        (
            r"J^*-J(\hat k_\beta)\le 2(\gamma+\xi_n+\xi_m)\ \text{(Meta-MKL)}",
            r"J^*-J(\hat k)\le 2(\gamma+\xi_n+\zeta_m)\ \text{(one best)}",
            r"\xi_m=O\!\Big(\tfrac{1}{s^2m^{1/3}}\big[\tfrac1s+\sqrt{D\log m}+L_k\big]\Big)",
        ),
        (
            Choice(
                "learn8_gamma",
                "Relatedness γ",
                0.1,
                (0.0, 0.05, 0.1, 1.0, 10.0, 50.0),
                "How far the most related task is from the target; 0: not at all. Bounds with meta-tasks grow by 2γ.",
            ),
            Choice(
                "learn8_n",
                "Rows n per meta-task, per sample",
                10_000,
                (100, 1_000, 10_000, 100_000),
                "More rows: base kernels nearer to their best, so ξₙ falls.",
            ),
            Choice(
                "learn8_m",
                "Rows m of the target, per sample",
                100,
                (50, 100, 200, 500, 1_000, 5_000),
                "What β, or one kernel, is chosen with. More rows: every term with m falls.",
            ),
            Choice(
                "learn8_tasks",
                "Base kernels N",
                10,
                (2, 5, 10, 20, 50, 100),
                "More kernels: more weights to learn, a nearer best one.",
            ),
            Choice(
                "learn8_parameters",
                "Parameters D",
                1_000,
                (10, 100, 1_000, 10_000),
                "Of the deep kernel: what direct learning has to find. More of them: a larger price.",
            ),
            Choice(
                "learn8_s",
                "Smallest deviation s",
                0.3,
                (0.1, 0.2, 0.3, 0.5, 1.0),
                "Of the kernels' statistics. Small s makes every term large.",
            ),
        ),
        show_bounds,
        "Which term dominates Meta-MKL's bound with 100 rows of the target? What would more meta-rows change?",
    ),
)

LESSONS = FIRST_STEPS + LEARNING + THEORY


def prepare(progress: Progress) -> None:
    """Compute what the slower steps show at first, so that who arrives there finds it."""
    learn_deep(DELTA, 10, 2 * TEST_SIZE, TESTS, 0)
    progress(1, 3, 0.0)
    related_tasks_found(40, 0.3, 0)
    progress(2, 3, 0.0)
    closeness_rates(20, 0)


@st.cache_resource(show_spinner=False)
def get_ready() -> None:
    """Behind whatever that visitor asked for."""
    study = WeightsStudy()
    job_manager().submit("the first weights", study.run, study)
    job_manager().submit("the course's first pictures", prepare)
