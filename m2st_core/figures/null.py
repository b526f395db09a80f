"""Many tests at a glance: every p-value is a mark."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import plotly.graph_objects as go

from m2st_core.figures.theme import NULL_COLOUR, OBSERVED_COLOUR, hatched, laid_out
from m2st_core.types import TestResult

BINS = 50
USUAL = 0.95  # of the null statistics are shown, and the observed one; a tail longer than these is only counted


def null_figure(result: TestResult) -> go.Figure:
    """Histogram of the null statistics with the observed one as a line; a very long tail is counted, not drawn."""
    kind = "random relabellings" if result.by_permutation else "quantiles of the reference distribution"
    count = f"{result.n_permutations} {kind}"
    count = f"all {result.n_permutations} other labellings" if result.enumerated else count
    low, high = float(result.null.min()), float(result.null.max())
    low = min(low, result.statistic)
    edge = low + 1.1 * (max(float(np.quantile(result.null, USUAL)), result.statistic) - low)
    long_tail = high - low > 2 * (edge - low) > 0
    more = f", {int((result.null > edge).sum())} of them further right" if long_tail else ""
    figure = go.Figure()
    figure.add_histogram(
        x=result.null,
        nbinsx=BINS,
        marker={"color": NULL_COLOUR},
        name=f"if P=Q: {count}{more}",
        hovertemplate="%{x}: %{y}",
    )
    if long_tail:
        figure.update_traces(xbins={"start": low, "end": edge, "size": (edge - low) / BINS})
        figure.update_xaxes(range=[low, edge])
    figure.add_vline(x=result.statistic, line={"color": OBSERVED_COLOUR, "width": 3})
    figure.add_scatter(  # a line has no legend of its own
        x=[None],
        y=[None],
        mode="lines",
        line={"color": OBSERVED_COLOUR, "width": 3},
        name=f"observed: {result.statistic:.4g}",
    )
    return laid_out(figure, x_title=f"statistic of {result.label}", y_title="count")


FILLING_BINS = 40


def filling_figure(null: np.ndarray, statistic: float, shown: int, *, height: int = 440) -> go.Figure:
    """The first ``shown`` relabelled statistics as a histogram, on the axis of all; those that reach it are marked."""
    low, high = min(float(null.min()), statistic), max(float(null.max()), statistic)
    margin = 0.04 * (high - low) or 1.0
    bins = {"start": low, "end": high + margin, "size": (high - low + margin) / FILLING_BINS}
    part = null[:shown]
    figure = go.Figure()
    looks = (
        (part < statistic, "below the observed one", NULL_COLOUR, ""),
        (part >= statistic, "reach it", OBSERVED_COLOUR, "x"),
    )
    for chosen, label, colour, pattern in looks:
        figure.add_histogram(
            x=part[chosen], xbins=bins, autobinx=False, name=f"{int(chosen.sum())} relabellings {label}",
            marker=hatched(colour, pattern), hovertemplate="%{x}: %{y}<extra></extra>",
        )  # fmt: skip
    figure.add_vline(x=statistic, line={"color": OBSERVED_COLOUR, "width": 3})
    figure.update_layout(barmode="stack")
    figure.update_xaxes(range=[low - margin, high + 2 * margin])
    return laid_out(figure, x_title="MMD² (the line is the observed one)", y_title="count", height=height)


def settling_figure(p_values: np.ndarray, shown: int, alpha: float) -> go.Figure:
    """The p-value after 1, 2, … permutations, up to those shown, with α."""
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


GOLDEN = 0.618  # spreads marks evenly without drawing lots


def p_value_strip(groups: Mapping[str, np.ndarray], alpha: float, *, height: int = 420) -> go.Figure:
    """One band of p-values for each group; those at most α are crosses, the others open circles."""
    figure = go.Figure()
    figure.add_vrect(x0=0, x1=alpha, fillcolor=OBSERVED_COLOUR, opacity=0.12, line_width=0)
    figure.add_vline(x=alpha, line={"color": OBSERVED_COLOUR, "dash": "dash"})
    levels = np.concatenate([p for p in groups.values()])
    places = np.concatenate(
        [row + 0.6 * (np.arange(len(p)) * GOLDEN % 1 - 0.5) for row, p in enumerate(groups.values())]
    )
    looks = ((True, "rejected", OBSERVED_COLOUR, "x"), (False, "not rejected", NULL_COLOUR, "circle-open"))
    for rejected, label, colour, symbol in looks:
        chosen = (levels <= alpha) == rejected
        figure.add_scatter(
            x=levels[chosen], y=places[chosen], mode="markers", name=f"{label} at α={alpha:g}",
            marker={"color": colour, "symbol": symbol, "size": 9}, hovertemplate="p = %{x:.3f}<extra></extra>",
        )  # fmt: skip
    laid_out(figure, x_title="p-value", y_title="", height=height)
    figure.update_xaxes(range=[-0.02, 1.02])
    figure.update_yaxes(tickvals=list(range(len(groups))), ticktext=list(groups), range=[-0.5, len(groups) - 0.5])
    return figure
