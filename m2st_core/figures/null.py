"""Null distributions and p-values: one test, and many tests at a glance."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import plotly.graph_objects as go

from m2st_core.figures.theme import NULL_COLOUR, OBSERVED_COLOUR, hatched, laid_out
from m2st_core.types import TestResult

BINS, FILLING_BINS = 50, 40
SHOWN_SHARE = 0.95  # of the null statistics always fits on the axis; a much longer tail is counted instead of drawn
GOLDEN_RATIO = 0.618  # spreads marks evenly without random numbers
OBSERVED_LINE = {"color": OBSERVED_COLOUR, "width": 3}


def null_figure(result: TestResult) -> go.Figure:
    """Draw a histogram of the null statistics and the observed statistic as a line."""
    kind = "random relabellings" if result.by_permutation else "quantiles of the reference distribution"
    count = f"{result.n_permutations} {kind}"
    count = f"all {result.n_permutations} other labellings" if result.enumerated else count
    low = min(float(result.null.min()), result.statistic)
    edge = low + 1.1 * (max(float(np.quantile(result.null, SHOWN_SHARE)), result.statistic) - low)
    long_tail = float(result.null.max()) - low > 2 * (edge - low) > 0
    beyond = f", {int((result.null > edge).sum())} of them further right" if long_tail else ""
    figure = go.Figure()
    figure.add_histogram(
        x=result.null, nbinsx=BINS, marker={"color": NULL_COLOUR}, name=f"if P=Q: {count}{beyond}",
        hovertemplate="%{x}: %{y}",
    )  # fmt: skip
    if long_tail:
        figure.update_traces(xbins={"start": low, "end": edge, "size": (edge - low) / BINS})
        figure.update_xaxes(range=[low, edge])
    figure.add_vline(x=result.statistic, line=OBSERVED_LINE)
    observed = f"observed: {result.statistic:.4g}"
    figure.add_scatter(x=[None], y=[None], mode="lines", line=OBSERVED_LINE, name=observed)  # the line's legend entry
    return laid_out(figure, x_title=f"statistic of {result.label}", y_title="count")


def filling_figure(null: np.ndarray, statistic: float, shown: int) -> go.Figure:
    """Draw the first ``shown`` null statistics on the axis of all, marking those that reach the observed one."""
    low, high = min(float(null.min()), statistic), max(float(null.max()), statistic)
    margin = 0.04 * (high - low) or 1.0
    bins = {"start": low, "end": high + margin, "size": (high - low + margin) / FILLING_BINS}
    drawn = null[:shown]
    figure = go.Figure()
    looks = (
        (drawn < statistic, "below the observed statistic", NULL_COLOUR, ""),
        (drawn >= statistic, "at least as large", OBSERVED_COLOUR, "x"),
    )
    for chosen, label, colour, pattern in looks:
        figure.add_histogram(
            x=drawn[chosen], xbins=bins, autobinx=False, name=f"{int(chosen.sum())} relabellings {label}",
            marker=hatched(colour, pattern), hovertemplate="%{x}: %{y}<extra></extra>",
        )  # fmt: skip
    figure.add_vline(x=statistic, line=OBSERVED_LINE)
    figure.update_layout(barmode="stack")
    figure.update_xaxes(range=[low - margin, high + 2 * margin])
    return laid_out(figure, x_title="MMD² (line: observed)", y_title="count", height=440)


def settling_figure(p_values: np.ndarray, shown: int, alpha: float) -> go.Figure:
    """Draw the p-value after 1, 2, … permutations, up to ``shown``, with α."""
    counts = np.arange(1, len(p_values) + 1)
    figure = go.Figure()
    figure.add_hline(y=alpha, line={"color": NULL_COLOUR, "dash": "dash"})
    figure.add_scatter(
        x=counts[:shown], y=p_values[:shown], mode="lines", name="p so far", line={"color": OBSERVED_COLOUR},
        hovertemplate="after %{x} permutations: p = %{y:.3f}<extra></extra>",
    )  # fmt: skip
    figure.update_xaxes(type="log", range=[0, np.log10(len(p_values))])
    figure.update_yaxes(range=[0, 1.05 * float(p_values.max())])
    return laid_out(figure, x_title="permutations B", y_title=f"p so far (dashed: α={alpha:g})", height=240)


def p_value_strip(groups: Mapping[str, np.ndarray], alpha: float, *, height: int = 420) -> go.Figure:
    """Draw one band of p-values per group: a cross if p is at most α, an open circle otherwise."""
    figure = go.Figure()
    figure.add_vrect(x0=0, x1=alpha, fillcolor=OBSERVED_COLOUR, opacity=0.12, line_width=0)
    figure.add_vline(x=alpha, line={"color": OBSERVED_COLOUR, "dash": "dash"})
    p_values = np.concatenate(list(groups.values()))
    offsets = [row + 0.6 * (np.arange(len(p)) * GOLDEN_RATIO % 1 - 0.5) for row, p in enumerate(groups.values())]
    places = np.concatenate(offsets)
    looks = ((True, "rejected", OBSERVED_COLOUR, "x"), (False, "not rejected", NULL_COLOUR, "circle-open"))
    for rejected, label, colour, symbol in looks:
        chosen = (p_values <= alpha) == rejected
        figure.add_scatter(
            x=p_values[chosen], y=places[chosen], mode="markers", name=f"{label} at α={alpha:g}",
            marker={"color": colour, "symbol": symbol, "size": 9}, hovertemplate="p = %{x:.3f}<extra></extra>",
        )  # fmt: skip
    laid_out(figure, x_title="p-value", y_title="", height=height)
    figure.update_xaxes(range=[-0.02, 1.02])
    return figure.update_yaxes(
        tickvals=list(range(len(groups))), ticktext=list(groups), range=[-0.5, len(groups) - 0.5]
    )
