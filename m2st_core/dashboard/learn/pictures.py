"""The pictures of the course, one function per step. Each takes the seed and the values of the step's controls."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import streamlit as st

from m2st_core.dashboard.jobs.jobs import job_manager
from m2st_core.dashboard.widgets.page import chart, rate_metric
from m2st_core.device import resolve_device
from m2st_core.figures.null import filling_figure, p_value_strip, settling_figure
from m2st_core.figures.relatedness import bound_course_figure, bound_terms_figure, closeness_power_figure, gamma_figure
from m2st_core.figures.samples import heat_figure, samples_figure
from m2st_core.figures.weights import learning_size_figure, training_figure, weights_figure
from m2st_core.paper.published import measured_gamma, measured_learning, published_gamma
from m2st_core.studies import synthetic
from m2st_core.studies.relatedness import BoundSettings, bound_courses, bound_table, witness_p_values
from m2st_core.studies.weights import MIXTURES, WeightsResult, WeightsStudy
from m2st_core.types import Progress

HEIGHT = 540
TESTS = 60
META_TESTS = 40
TEST_SIZE = 50
ALPHA = 0.05
MEDIAN_POWER = 0.225  # power of MMD-M with 100 rows per mode, from docs/power.md
MEASURED_CLOSENESSES = (0.1, 0.3, 0.5)  # three, so that a slower machine keeps up


def show_samples(seed: int, delta: float, size: int, revealed: bool) -> None:
    """Step 1: two samples, and the synthetic.truth behind them."""
    x, y = synthetic.two_samples(delta, size, seed)
    alt = f"Scatter plot of two HDGM samples with Δ={delta:g}, {len(x)} rows each."
    if revealed:
        figure = heat_figure(synthetic.truth(delta), synthetic.AXIS, name="log p/q", sample=(x, y), height=HEIGHT)
        chart(figure, "learn1_truth", alt + " Behind them, where P is denser than Q and where Q is denser than P.")
    else:
        chart(samples_figure(x, y).update_layout(height=HEIGHT), "learn1_samples", alt)


def show_witness(seed: int, width: float, delta: float, size: int) -> None:
    """Step 2: the witness function of a Gaussian kernel."""
    view = synthetic.gaussian_view(delta, size, width, seed)
    left, right = st.columns(2)
    left.metric("MMD²", f"{view.mmd2:.4f}", help="The difference that this kernel measures: about 0 if P = Q.")
    right.metric("Ĵ", f"{view.criterion:.3f}", help="MMD² over its standard deviation. A larger Ĵ gives more power.")
    figure = heat_figure(
        view.witness, synthetic.AXIS, name="witness f̂", sample=synthetic.two_samples(delta, size, seed), height=HEIGHT
    )
    chart(figure, "learn2_witness", f"Heat map of the witness function of a Gaussian kernel with σ²={width:g}.")


def show_permutations(seed: int, shown: int, delta: float, size: int) -> None:
    """Step 3: the null distribution after some permutations, and the p-value so far."""
    result = synthetic.median_test(delta, size, seed)
    permutations = 1 + np.arange(len(result.null))
    p_values = (1 + np.cumsum(result.null >= result.statistic)) / (1 + permutations)
    left, right = st.columns(2)
    left.metric("p-value so far", f"{p_values[shown - 1]:.3f}", help="(1 + relabellings that reach MMD²) / (1 + all).")
    right.metric("Smallest possible p", f"{1 / (1 + shown):.3f}", help="1/(B+1): few permutations, no small p.")
    alt = f"Histogram of MMD² under {shown} random relabellings; observed {result.statistic:.3g}."
    chart(filling_figure(result.null, result.statistic, shown), "learn3_null", alt)
    chart(settling_figure(p_values, shown, ALPHA), "learn3_p", f"The p-value after 1 to {shown} permutations.")


def show_power(seed: int, delta: float, size: int, alpha: float) -> None:
    """Step 4: the p-values of many tests, with and without a difference."""
    power, level = (
        synthetic.Rate(synthetic.repeated_tests(delta, size, TESTS, seed, null), alpha) for null in (False, True)
    )
    left, right = st.columns(2)
    rate_metric(left, "Power", power, f"Share of {TESTS} tests that reject when P ≠ Q, with Wilson's 95 % interval.")
    rate_metric(right, "Type-I error", level, f"Share of {TESTS} tests that reject although P = Q: about α or less.")
    groups = {"P = Q": level.p_values, "P ≠ Q": power.p_values}
    alt = (
        f"{TESTS} p-values with P ≠ Q, {power.share:.0%} rejected, and {TESTS} with P = Q, {level.share:.0%} rejected."
    )
    chart(p_value_strip(groups, alpha, height=HEIGHT), "learn4_strip", alt)


def show_training(seed: int, size: int) -> None:
    """Step 5: a deep kernel trained on few rows."""
    training = synthetic.train_deep(synthetic.DELTA, size, 2 * TEST_SIZE, TESTS, seed)
    trained = synthetic.Rate(training.p_values, ALPHA)
    median = synthetic.Rate(synthetic.repeated_tests(synthetic.DELTA, 2 * TEST_SIZE, TESTS, seed, False), ALPHA)
    left, right = st.columns(2)
    tests = f"Share of {TESTS} fresh tests with {2 * TEST_SIZE} rows per mode that reject, with its 95 % interval."
    rate_metric(left, "Power, learned", trained, tests)
    rate_metric(
        right, "Power, MMD-M", median, "As many tests with a Gaussian kernel of median width: nothing is learned."
    )
    figure = training_figure({"step": training.step, "train": training.train, "held_out": training.fresh})
    figure.update_layout(height=380, yaxis_title="Ĵ")
    figure.data[1].update(name="fresh rows", line_dash="dot", marker_symbol="diamond", marker_size=8)
    alt = f"Ĵ reaches {training.train[-1]:.2f} on training rows and {training.fresh[-1]:.2f} on fresh rows."
    chart(figure, "learn5_course", alt)
    alt = "Over m_tr: Ĵ on training rows falls, Ĵ on fresh rows and power rise; 30 training samples for each m_tr."
    chart(learning_size_figure(measured_learning(), size, MEDIAN_POWER), "learn5_sizes", alt)
    st.caption(
        "The first chart is computed now, with this seed: means over 3 training samples. The second was measured with "
        "30 training samples for each m_tr. Its dotted line marks the chosen m_tr."
    )


@st.cache_data(max_entries=synthetic.KEPT, show_spinner=False)
def learn_from_related(n_tasks: int, closeness: float, seed: int) -> tuple[WeightsResult, np.ndarray]:
    """The mixture of Feature-MKL for 50 training rows per mode, and p-values of Meta-Witness."""
    study = WeightsStudy(closeness, n_tasks, 50, synthetic.DELTA, 50, 1, (), seed)
    learner = study.learn()
    witness = replace(learner, method="Meta-Witness")  # Feature-MKL learns the same features
    method = witness.bound(resolve_device("cpu"))
    return study.adapt(learner), synthetic.many_tests(method, synthetic.DELTA, False, TEST_SIZE, META_TESTS, seed)


def show_related(seed: int, view: str, n_tasks: int, closeness: float) -> None:
    """Step 6: features and weights learned from related tasks."""
    weights, p_values = learn_from_related(n_tasks, closeness, seed)
    median = synthetic.Rate(synthetic.repeated_tests(synthetic.DELTA, TEST_SIZE, META_TESTS, seed, False), ALPHA)
    left, right = st.columns(2)
    tests = f"Meta-Witness (ours): share of {META_TESTS} tests with {TEST_SIZE} rows per mode that reject."
    rate_metric(left, "Power with related tasks", synthetic.Rate(p_values, ALPHA), tests)
    rate_metric(right, "Power without", median, "MMD-M: as many tests of the same size, without related tasks.")
    features = weights.features
    if view == "weights" or features is None:
        chart(weights_figure(weights.table, MIXTURES["Feature-MKL"]), "learn6_weights", "Bars of β by base kernel.")
        return
    learned, name = (
        (features.leading, "leading feature ψ") if view == "feature" else (weights.mixture, "mixture's witness f̂")
    )
    left, right = st.columns(2)
    with left:
        chart(heat_figure(learned, synthetic.AXIS, name=name, height=420), "learn6_learned", f"Heat map of the {name}.")
    with right:
        chart(
            heat_figure(synthetic.truth(synthetic.DELTA), synthetic.AXIS, name="truth: log p/q", height=420),
            "learn6_truth",
            "Heat map of log p/q.",
        )
    if view == "feature":
        sizes = ", ".join(f"{size:.3f}" for size in np.sqrt(features.prior[:3]))
        st.caption(
            f"Expected differences along ψ₁, ψ₂ and ψ₃ in standard deviations: {sizes}. The sign of ψ is arbitrary."
        )


@st.cache_data(max_entries=synthetic.KEPT, show_spinner=False)
def closeness_rates(n_tasks: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Power of Meta-Witness and its interval at each measured closeness."""
    rates = [
        synthetic.Rate(witness_p_values(c, n_tasks, TEST_SIZE, META_TESTS, seed), ALPHA) for c in MEASURED_CLOSENESSES
    ]
    return np.array([rate.share for rate in rates]), np.array([rate.interval for rate in rates])


def show_closeness(seed: int, n_tasks: int) -> None:
    """Step 7: γ̂ and power against the closeness."""
    gamma = gamma_figure(published_gamma(), measured_gamma(), height=360)
    chart(gamma, "learn7_gamma", "γ̂ against the closeness C: published and measured values grow with C.")
    rates, intervals = closeness_rates(n_tasks, seed)
    floor = synthetic.Rate(synthetic.repeated_tests(synthetic.DELTA, TEST_SIZE, META_TESTS, seed, False), ALPHA).share
    figure = closeness_power_figure(np.array(MEASURED_CLOSENESSES), rates, intervals, floor)
    chart(figure, "learn7_power", "Power against C: " + ", ".join(f"{rate:.0%}" for rate in rates) + ".")
    st.caption(
        "In the first chart, bars reach up to the least related task, and γ̂ inside the grey band is noise. The second "
        f"shows Meta-Witness (ours) with {TEST_SIZE} rows per mode and Wilson's 95 % intervals."
    )


def show_bounds(seed: int, gamma: float, n: int, m: int, n_tasks: int, parameters: int, s: float) -> None:
    """Step 8: three bounds, without anything random."""
    settings = BoundSettings(gamma, n, m, n_tasks, parameters, s)
    table = bound_table(settings)
    sums = ", ".join(f"{bound} {value:.0f}" for bound, value in table.groupby("bound")["value"].sum().items())
    chart(bound_terms_figure(table), "learn8_terms", f"Stacked bars of three bounds: {sums}")
    sizes, courses = bound_courses(settings)
    chart(bound_course_figure(sizes, courses, m), "learn8_course", "The three bounds fall as m grows.")
    st.caption(
        "ξ and ζ are known up to a constant, which is taken as 1 here. Trust how the terms change, not how large they "
        "are. Beside them a small γ is too thin to see."
    )


def _compute_first_pictures(progress: Progress) -> None:
    synthetic.train_deep(synthetic.DELTA, 10, 2 * TEST_SIZE, TESTS, 0)
    progress(1, 3, 0.0)
    learn_from_related(40, 0.3, 0)
    progress(2, 3, 0.0)
    closeness_rates(20, 0)


@st.cache_resource(show_spinner=False)
def prepare_slow_pages() -> None:
    """Compute once per server, in the background, what the slower pages show at first."""
    study = WeightsStudy()
    job_manager().submit("the first weights", study.run, study)
    job_manager().submit("the course's first pictures", _compute_first_pictures)
