"""Null distributions, p-values and type-I errors: one test, and many tests at a glance."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from m2st_core.figures.theme import (
    NULL_COLOUR,
    OBSERVED_COLOUR,
    colour_of,
    error_bars,
    hatched,
    laid_out,
    one_line_each,
)
from m2st_core.testing.methods import label_of
from m2st_core.types import TestResult

BINS = 50
CROWDED = 0.5  # share of the null statistics in one bar that hides the others
SHOWN_SHARE = 0.95  # of the null statistics always fits on the axis; a much longer tail is counted instead of drawn
OBSERVED_LINE = {"color": OBSERVED_COLOUR, "width": 3}


def null_figure(result: TestResult) -> go.Figure:
    """Draw a histogram of the null statistics with its tail coloured, and the observed statistic as a line.

    The tail is what the p-value counts. A heavy tail is drawn on a logarithmic axis, or ends in a last bar that holds
    all that is further right: otherwise one bar would hide the rest.
    """
    null, observed = result.null[np.isfinite(result.null)], result.statistic
    low, high = min(float(null.min()), observed), max(float(null.max()), observed)
    edge = low + 1.1 * (max(float(np.quantile(null, SHOWN_SHARE)), observed) - low)
    crowded = high - low > 2 * (edge - low) or np.histogram(null, BINS)[0].max() > CROWDED * len(null)
    log = bool(low > 0 and high > 0 and crowded)
    edge = edge if crowded and not log and edge > low else high
    edges = np.geomspace(low, high * 1.001, BINS + 1) if log else np.linspace(low, edge or low, BINS + 1)
    edges = edges if edges[-1] > edges[0] else np.linspace(low - 0.5, low + 0.5, BINS + 1)
    reaches = _reaches(null, result)
    figure = go.Figure()
    for chosen, name, colour, pattern in (
        (~reaches, _kind(result), NULL_COLOUR, ""),
        (reaches, _tail(result), OBSERVED_COLOUR, "/"),
    ):
        counts = np.histogram(np.clip(null[chosen], edges[0], edges[-1]), edges)[0]
        figure.add_bar(
            x=(edges[1:] + edges[:-1]) / 2, y=counts, width=np.diff(edges), name=name, marker=hatched(colour, pattern),
            hovertemplate="%{x:.3g}: %{y}<extra></extra>",
        )  # fmt: skip
    figure.add_vline(x=observed, line=OBSERVED_LINE)
    line = f"observed: {observed:.4g}"
    figure.add_scatter(x=[None], y=[None], mode="lines", line=OBSERVED_LINE, name=line)  # the line's legend entry
    figure.update_layout(barmode="stack", bargap=0)
    if log:
        figure.update_xaxes(type="log", range=[np.log10(edges[0]), np.log10(edges[-1] * 1.1)])
    beyond = " (last bar: all beyond)" if edges[-1] < high else ""
    return laid_out(figure, x_title=f"statistic of {result.label}{beyond}", y_title="labellings")


def _reached(result: TestResult) -> tuple[int, int]:
    """How many labellings reach the observed statistic, among how many, as the p-value counts them."""
    among = len(result.null) + result.counts_itself
    if result.split_p_values:  # the p-value combines several splits; the null is of one
        return int((result.null >= result.statistic).sum()) + result.counts_itself, among
    return round(result.p_value * among), among


def _reaches(null: np.ndarray, result: TestResult) -> np.ndarray:
    """Mark as many of the largest null statistics as the p-value counts, so that ties within rounding agree with it."""
    count = _reached(result)[0] - result.counts_itself  # the observed labelling is not among them
    marks = np.zeros(len(null), dtype=bool)
    marks[np.argsort(-null, kind="stable")[: max(0, count)]] = True
    return marks


def _kind(result: TestResult) -> str:
    if not result.by_permutation:
        return "if P = Q: the reference distribution"
    return "if P = Q: all other labellings" if result.enumerated else "if P = Q: random labellings"


def _tail(result: TestResult) -> str:
    """Say how many labellings reach the observed statistic, in the numbers of the p-value."""
    if not result.by_permutation:
        return f"at least as large: p = {result.p_value:.3g}"
    reached, among = _reached(result)
    return (
        f"at least as large: {reached:,} of {among:,}{',<br>the observed one included' if result.counts_itself else ''}"
    )


def type_1_figure(table: pd.DataFrame, alpha: float, band: tuple[float, float]) -> go.Figure:
    """Draw rejection rates under the null hypothesis, with α and the band that holds 99 % of valid tests.

    Error bars run from ``low`` to ``high``, where the table has these columns.
    """
    figure = go.Figure()
    figure.add_vrect(x0=band[0], x1=band[1], fillcolor=NULL_COLOUR, opacity=0.2, line_width=0)
    figure.add_vline(x=alpha, line={"color": NULL_COLOUR, "dash": "dash"})
    labels = table["method"].map(label_of)
    if table["m_te"].nunique() > 1:
        labels += ", m_te=" + table["m_te"].astype(str)
    bars = None
    if "low" in table:
        bars = error_bars(table["rate"], table["low"], table["high"], color=NULL_COLOUR, thickness=1.5)
    figure.add_scatter(
        x=table["rate"], y=labels, mode="markers", name="type-I error", error_x=bars,
        marker={"size": 11, "color": table["method"].map(colour_of)}, hovertemplate="%{y}: %{x:.3f}<extra></extra>",
    )  # fmt: skip
    figure.update_xaxes(rangemode="tozero")
    return one_line_each(figure, len(labels), x_title="share rejected if P = Q")
