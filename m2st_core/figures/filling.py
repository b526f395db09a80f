"""The permutation null as it fills up, and the p-value as it settles."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from m2st_core.figures.theme import NULL_COLOUR, OBSERVED_COLOUR, hatched, laid_out

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
