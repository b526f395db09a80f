"""The first half of the course: samples, witness, permutations, power."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import streamlit as st

from m2st_core.dashboard.widgets.controls import chart, rate_metric
from m2st_core.figures.null import filling_figure, p_value_strip, settling_figure
from m2st_core.figures.samples import heat_figure, samples_figure
from m2st_core.studies.lessons import (
    AXIS,
    Rate,
    gaussian_view,
    median_test,
    p_values_so_far,
    repeated_tests,
    truth,
    two_samples,
)


@dataclass(frozen=True)
class Choice:
    """A slider over a few values, or a switch if they are False and True; bound to the URL."""

    key: str
    label: str
    default: Any
    options: tuple[Any, ...]
    help: str

    def ask(self) -> Any:
        """Show it; its value."""
        if isinstance(self.default, bool):
            return st.toggle(self.label, self.default, key=self.key, bind="query-params", help=self.help)
        if isinstance(self.default, str):
            chosen = st.segmented_control(
                self.label,
                self.options,
                default=self.default,
                required=True,
                key=self.key,
                bind="query-params",
                help=self.help,
            )
            return chosen or self.default  # an address with an empty value selects none
        return st.select_slider(
            self.label, self.options, self.default, key=self.key, bind="query-params", help=self.help
        )


@dataclass(frozen=True)
class Lesson:
    """One screen. ``show(seed, *values)`` draws; the values are those of the controls, in their order."""

    title: str
    idea: str
    formulas: tuple[str, ...]
    controls: tuple[Choice, ...]
    show: Callable[..., None]
    try_this: str

    def reset(self) -> None:
        """Every control back to its default; the seed stays."""
        for control in self.controls:
            st.session_state[control.key] = control.default


def delta_choice(step: int, default: float = 0.7) -> Choice:
    """Δ, for any step."""
    values = tuple(round(0.05 * index, 2) for index in range(20))
    help = "How strongly Q's columns are correlated. 0: P and Q are the same. Larger: easier to tell apart."
    return Choice(f"learn{step}_delta", "Difference Δ", default, values, help)


def size_choice(step: int, default: int, options: tuple[int, ...], label: str = "Rows m per mode") -> Choice:
    """A sample size per mode, for any step."""
    help = "Each sample has two modes, so twice as many rows. More rows show smaller differences."
    return Choice(f"learn{step}_size", label, default, options, help)


HEIGHT = 540
TESTS = 60
ALPHA = 0.05


def show_samples(seed: int, delta: float, size: int, revealed: bool) -> None:
    """Step 1."""
    x, y = two_samples(delta, size, seed)
    alt = f"Scatter plot of two HDGM samples with Δ={delta:g}, {len(x)} rows each."
    if revealed:
        figure = heat_figure(truth(delta), AXIS, name="log p/q", sample=(x, y), height=HEIGHT)
        chart(figure, "learn1_truth", alt + " Behind them, where P is denser than Q and where Q is denser than P.")
    else:
        chart(samples_figure(x, y).update_layout(height=HEIGHT), "learn1_samples", alt)


def show_witness(seed: int, width: float, delta: float, size: int) -> None:
    """Step 2."""
    view = gaussian_view(delta, size, width, seed)
    columns = st.columns(2)
    columns[0].metric("MMD²", f"{view.mmd2:.4f}", help="The difference that this kernel sees; about 0 if P = Q.")
    columns[1].metric(
        "Ĵ", f"{view.criterion:.3f}", help="MMD² over its standard deviation: the larger, the more power."
    )
    figure = heat_figure(view.witness, AXIS, name="witness f̂", sample=two_samples(delta, size, seed), height=HEIGHT)
    chart(figure, "learn2_witness", f"Heat map of the witness function of a Gaussian kernel with σ²={width:g}.")


def show_permutations(seed: int, shown: int, delta: float, size: int) -> None:
    """Step 3."""
    result = median_test(delta, size, seed)
    p_values = p_values_so_far(result)
    columns = st.columns(2)
    columns[0].metric("p-value so far", f"{p_values[shown - 1]:.3f}", help="(1 + relabellings that reach) / (1 + all).")
    columns[1].metric(
        "Smallest possible p", f"{1 / (1 + shown):.3f}", help="1/(B+1): few permutations can not say much."
    )
    figure = filling_figure(result.null, result.statistic, shown)
    chart(
        figure, "learn3_null", f"Histogram of MMD² under {shown} random relabellings; observed {result.statistic:.3g}."
    )
    chart(settling_figure(p_values, shown, ALPHA), "learn3_p", f"The p-value after 1 to {shown} permutations.")


def show_power(seed: int, delta: float, size: int, alpha: float) -> None:
    """Step 4."""
    power, level = (Rate(repeated_tests(delta, size, TESTS, seed, null), alpha) for null in (False, True))
    columns = st.columns(2)
    with columns[0]:
        rate_metric("Power", power, f"Share of {TESTS} tests that reject, P ≠ Q, with Wilson's 95 % interval.")
    with columns[1]:
        rate_metric("Type-I error", level, f"Share of {TESTS} tests that reject although P = Q: about α or less.")
    groups = {"P = Q": level.p_values, "P ≠ Q": power.p_values}
    alt = (
        f"{TESTS} p-values with P different from Q, {power.share:.0%} rejected; {TESTS} with P = Q, {level.share:.0%}."
    )
    chart(p_value_strip(groups, alpha, height=HEIGHT), "learn4_strip", alt)


WIDTHS = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
SIZES = (10, 20, 50, 100, 200, 400)

FIRST_STEPS = (
    Lesson(
        "Two samples",
        "Rows of **P** are circles, rows of **Q** diamonds. Were they drawn from the same distribution? Both have the "
        "same means and spreads; only how the two columns go together differs, and in opposite ways in the two modes.",
        (
            r"P=\tfrac12\mathcal N(0,I)+\tfrac12\mathcal N(\tfrac12\mathbf 1,I)",
            r"Q=\tfrac12\mathcal N(0,\Sigma_{-\Delta})+\tfrac12\mathcal N(\tfrac12\mathbf 1,\Sigma_{\Delta})",
            r"\Sigma_\Delta=\begin{bmatrix}1&\Delta\\\Delta&1\end{bmatrix}",
        ),
        (
            delta_choice(1),
            size_choice(1, 100, SIZES),
            Choice(
                "learn1_truth_shown",
                "Reveal the truth",
                False,
                (False, True),
                "Colour the plane by log p/q: where P is denser, and where Q is. In practice nobody knows it.",
            ),
        ),
        show_samples,
        "Set Δ to 0 and to 0.95. From which Δ on do *you* see a difference with 100 rows per mode?",
    ),
    Lesson(
        "What a kernel sees",
        "A kernel says how alike two rows are. Its **witness function** is high where it sees more of P and low where "
        "it sees more of Q. A narrow kernel sees every row by itself, a wide one only the means: neither sees the "
        "difference.",
        (
            r"k(x,y)=\exp\!\left(-\lVert x-y\rVert^2/\sigma^2\right)",
            r"\hat f(\cdot)=\tfrac1m\sum_i k(\cdot,x_i)-\tfrac1m\sum_j k(\cdot,y_j)",
        ),
        (
            Choice(
                "learn2_width",
                "Kernel width σ²",
                1.0,
                WIDTHS,
                "How far rows still count as alike. Small: fine detail and noise. Large: only coarse differences.",
            ),
            delta_choice(2),
            size_choice(2, 100, SIZES),
        ),
        show_witness,
        "Find the width with the largest Ĵ, then re-seed: is it still the best?",
    ),
    Lesson(
        "The permutation null",
        "If P = Q, the labels mean nothing: shuffle them and compute MMD² again. The **p-value** is the share of "
        "labellings, the observed one among them, that reach the observed MMD². If rows are exchangeable when P = Q, "
        "as independent draws are, then p ≤ α has at most probability α at every sample size.",
        (r"p=\frac{1+b}{1+B},\quad b=\#\{\mathrm{MMD}^2_{\pi}\ge \mathrm{MMD}^2\}",),
        (
            Choice(
                "learn3_shown",
                "Permutations shown B",
                99,
                (1, 2, 5, 9, 19, 49, 99, 199, 299, 499, 749, 999),
                "How many random relabellings have been made so far. Move it to the right to fill the histogram.",
            ),
            delta_choice(3),
            size_choice(3, 100, SIZES[:-1]),
        ),
        show_permutations,
        "Start at B=1 and move right. When does the decision at α = 0.05 stop changing?",
    ),
    Lesson(
        "Power is repeated testing",
        f"Draw {TESTS} fresh pairs and test each. The share that rejects when P ≠ Q is the test's **power**; when P = "
        "Q it is the **type-I error**, at most α. Here the kernel is a Gaussian one of median width (MMD-M), with 99 "
        "permutations.",
        (r"\text{power}=\Pr\nolimits_{P\ne Q}(p\le\alpha)", r"\Pr\nolimits_{P=Q}(p\le\alpha)\le\alpha"),
        (
            delta_choice(4),
            size_choice(4, 50, (10, 20, 50, 100, 150)),
            Choice(
                "learn4_alpha",
                "Level α",
                0.05,
                (0.01, 0.05, 0.1, 0.2),
                "Reject when p ≤ α. A larger α gives more power and more false alarms.",
            ),
        ),
        show_power,
        "How many rows does power 80 % need at Δ = 0.7? Does the type-I error change with the number of rows?",
    ),
)
