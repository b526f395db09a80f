"""The course on learning: why few rows do not teach a kernel, and how related tasks do."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import streamlit as st

from m2st_core.dashboard.learn.course import ALPHA, TESTS, Choice, Lesson, size_choice
from m2st_core.dashboard.widgets.controls import chart, rate_metric
from m2st_core.device import resolve_device
from m2st_core.figures.samples import heat_figure
from m2st_core.figures.weights import learning_size_figure, training_figure, weights_figure
from m2st_core.paper.published import measured_learning
from m2st_core.studies.lessons import AXIS, DELTA, KEPT, Rate, learn_deep, many_tests, repeated_tests, truth
from m2st_core.studies.weights import MIXTURES, WeightsFound, WeightsStudy

CLOSENESSES = (0.1, 0.2, 0.3, 0.4, 0.5)
META_TESTS = 40
TEST_SIZE = 50
MEDIAN_POWER = 0.225  # of MMD-M with 100 rows per mode, from docs/power.md
VIEWS = ("Feature ψ", "Weights β", "Witness")
TASKS_HELP = "How many related comparisons, each with 50 rows per mode, teach the kernel. More tell its shape better."


def show_learning(seed: int, size: int) -> None:
    """Step 5."""
    learning = learn_deep(DELTA, size, 2 * TEST_SIZE, TESTS, seed)
    learned = Rate(learning.p_values, ALPHA)
    median = Rate(repeated_tests(DELTA, 2 * TEST_SIZE, TESTS, seed, False), ALPHA)
    columns = st.columns(2)
    with columns[0]:
        tests = (
            f"Share of {TESTS} fresh tests with {2 * TEST_SIZE} rows per mode that reject, with Wilson's 95 % interval."
        )
        rate_metric("Power, learned", learned, tests)
    with columns[1]:
        rate_metric("Power, MMD-M", median, "As many tests with a Gaussian kernel of median width: nothing is learned.")
    course = {"step": learning.step, "train": learning.train, "held_out": learning.fresh}
    alt = (
        f"While the kernel learns, Ĵ on its training rows goes to {learning.train[-1]:.2f} and on fresh rows to "
        f"{learning.fresh[-1]:.2f}."
    )
    figure = training_figure(course).update_layout(height=380, yaxis_title="Ĵ")
    figure.data[1].update(name="fresh rows", line_dash="dot", marker_symbol="diamond", marker_size=8)
    chart(figure, "learn5_course", alt)
    alt = "Over m_tr: Ĵ on training rows falls, Ĵ on fresh rows and power rise; 30 training samples for each m_tr."
    chart(learning_size_figure(measured_learning(), size, MEDIAN_POWER), "learn5_sizes", alt)
    st.caption(
        "First chart: this seed, now, means of 3 training samples. Second: 30 training samples for each m_tr; the "
        "dotted line is the m_tr of now."
    )


@st.cache_data(max_entries=KEPT, show_spinner=False)
def related_tasks_found(n_tasks: int, closeness: float, seed: int) -> tuple[WeightsFound, np.ndarray]:
    """What Feature-MKL makes of the meta-tasks and 50 training rows per mode; and Meta-Witness's p-values."""
    study = WeightsStudy(closeness, n_tasks, 50, DELTA, 50, 1, (), seed)
    learner = study.learn()
    method = replace(learner, method="Meta-Witness").bound(resolve_device("cpu"))
    return study.adapt(learner), many_tests(method, DELTA, False, TEST_SIZE, META_TESTS, seed)


def show_related(seed: int, view: str, n_tasks: int, closeness: float) -> None:
    """Step 6."""
    found, p_values = related_tasks_found(n_tasks, closeness, seed)
    meta = Rate(p_values, ALPHA)
    median = Rate(repeated_tests(DELTA, TEST_SIZE, META_TESTS, seed, False), ALPHA)
    columns = st.columns(2)
    with columns[0]:
        tests = (
            f"Meta-Witness (ours): share of {META_TESTS} tests with {TEST_SIZE} rows per mode that reject, with its "
            "interval."
        )
        rate_metric("Power with meta-tasks", meta, tests)
    with columns[1]:
        rate_metric("Power without", median, "MMD-M: as many tests of the same size, no meta-tasks.")
    if view == VIEWS[1]:
        chart(weights_figure(found.table, MIXTURES["Feature-MKL"]), "learn6_weights", "Bars of β by base kernel.")
        return
    assert found.features is not None
    learned = found.features.leading if view == VIEWS[0] else found.mixture
    name = "leading feature ψ" if view == VIEWS[0] else "mixture's witness f̂"
    left, right = st.columns(2)
    with left:
        chart(heat_figure(learned, AXIS, name=name, height=420), "learn6_learned", f"Heat map: the {name}.")
    with right:
        chart(heat_figure(truth(DELTA), AXIS, name="truth: log p/q", height=420), "learn6_truth", "Heat map: log p/q.")
    if view == VIEWS[0]:
        sizes = ", ".join(f"{np.sqrt(size):.3f}" for size in found.features.prior)
        st.caption(f"Expected differences along ψ₁, ψ₂, … in standard deviations: {sizes}. ψ's sign is arbitrary.")


LEARNING = (
    Lesson(
        "Why learning fails with few rows",
        "A learned kernel can see what a generic one does not. It climbs Ĵ on its **training rows**; with few of them "
        "it learns their noise: Ĵ there soars while Ĵ on **fresh rows**, which is what power follows, stays or falls.",
        (
            r"\hat J_\lambda=\widehat{\mathrm{MMD}}{}^2_u\big/\sqrt{\hat\sigma^2+\lambda}",
            r"\hat k=\arg\max_{k\in\mathcal K}\hat J_\lambda(S^{tr}_P,S^{tr}_Q;k)",
            r"k_\omega(x,y)=[(1-\epsilon)\,\kappa(\phi(x),\phi(y))+\epsilon]\,q(x,y)",
        ),
        (size_choice(5, 10, (5, 10, 25, 50, 100, 200, 400), "Training rows m_tr per mode"),),
        show_learning,
        "Move m_tr from 5 to 400. When do the two curves meet, and when does learning beat the median heuristic?",
    ),
    Lesson(
        "Related tasks to the rescue",
        "Many small comparisons of the same kind share what differs in them. They teach **base kernels**; the target's "
        "few rows only have to find the weights **β**. The paper's Meta-MKL learns a deep kernel from each of some "
        "tasks. Our Feature-MKL, shown here, learns **features ψ** along which P and Q tend to differ, and mixes "
        "kernels on them.",
        (
            r"k_\beta=\sum_i\beta_i k_i",
            r"k_i(x,y)=(A_i\psi(x))^\top A_i\psi(y)\ \text{(Feature-MKL)}",
            r"\Delta_i=(0.6-C)+0.1\,i/N",
        ),
        (
            Choice(
                "learn6_view",
                "Look at",
                VIEWS[0],
                VIEWS,
                "ψ beside the truth, the weights β, or what the mixture sees.",
            ),
            Choice("learn6_tasks", "Meta-tasks N", 40, (5, 10, 20, 40), TASKS_HELP),
            Choice(
                "learn6_closeness",
                "Closeness C",
                0.3,
                CLOSENESSES,
                "Small: meta-tasks much like the target. Large: they teach less, and power falls.",
            ),
        ),
        show_related,
        "With how many meta-tasks does ψ begin to look like the truth? No row of the target was used for it.",
    ),
)
