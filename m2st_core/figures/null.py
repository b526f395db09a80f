"""Null distributions, p-values and type-I errors: of one test, of many, and while labels are shuffled."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from m2st_core.figures.theme import (
    NULL_COLOUR,
    OBSERVED_COLOUR,
    colour_of,
    equal_aspect,
    error_bars,
    hatched,
    laid_out,
    one_line_each,
    sample_looks,
    short_labels,
)
from m2st_core.testing.methods import label_of
from m2st_core.types import TestResult

BINS = 50
CROWDED = 0.5  # share of the null statistics in one bar that hides the others
SHOWN_SHARE = 0.95  # of the null statistics always fits on the axis; a much longer tail is counted instead of drawn
OBSERVED_LINE = {"color": OBSERVED_COLOUR, "width": 3}
GOLDEN_RATIO = 0.618  # spreads marks evenly without random numbers
ROW, DOT, DOT_BINS = 8, 10, 26  # sizes of rows and of dots in pixels, and piles of dots
SHUFFLED_ROWS = 50  # of each sample that are drawn
SLOW, FALLS = 3, (1.0, 0.5, 0.0)  # the dots of the first shuffles fall in three frames
ONE_BY_ONE, TOGETHER = 6, 20  # shuffles that have a frame each, and those in each frame after them


def null_figure(result: TestResult) -> go.Figure:
    """Draw a histogram of the null statistics with its tail coloured, and the observed statistic as a line.

    The tail is what the p-value counts. A heavy tail is drawn on a logarithmic axis, or ends in a last bar that holds
    all larger values: otherwise one bar would hide the rest.
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
    """The labellings that reach the observed statistic, and all that the p-value counts."""
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


def shuffle_figure(rows: np.ndarray, members: np.ndarray, statistics: np.ndarray, shown: int) -> go.Figure:
    """Draw labels that swap above a null distribution that fills, with Play and Pause.

    ``rows`` (N, 2) are called P where ``members`` (1+B, N) is true and have MMD² ``statistics`` (1+B,). The first of
    them are observed. The figure starts with the first ``shown`` shuffles. When all are shown, the labels are the
    observed ones again.
    """
    count = len(statistics) - 1
    drawn = np.concatenate([np.flatnonzero(side)[:SHUFFLED_ROWS] for side in (members[0], ~members[0])])
    centres, heights, top = _stacked(statistics)
    reached = statistics[1:] >= statistics[0]

    def state(step: int, falling: float = 0.0) -> list[dict[str, Any]]:
        """The traces after some shuffles: rows called P, rows called Q, dots, and the count. Size 0 hides."""
        called_p = members[step % count][drawn]
        sizes = (np.where(called, ROW, 0) for called in (called_p, ~called_p))
        above = heights + falling * top * (np.arange(count) == step - 1)
        dots = {"y": above, "marker": {"size": np.where(np.arange(count) < step, DOT, 0)}}
        return [*({"marker": {"size": size}} for size in sizes), dots, {"text": [_counted(reached[:step])]}]

    figure = go.Figure()
    *labels, dots, counter = state(shown)
    for look, label in zip(sample_looks(("called P", "called Q")), labels, strict=True):
        name, colour, marker = look
        figure.add_scatter(x=[None], y=[None], mode="markers", name=name, marker={"color": colour, "symbol": marker})
        figure.add_scatter(
            x=rows[drawn, 0], y=rows[drawn, 1], mode="markers", showlegend=False, hoverinfo="skip",
            marker=label["marker"] | {"color": colour, "symbol": marker, "opacity": 0.9},
        )  # fmt: skip
    below: dict[str, Any] = {"xaxis": "x2", "yaxis": "y2", "showlegend": False}
    colours = np.where(reached, OBSERVED_COLOUR, NULL_COLOUR).tolist()
    figure.add_scatter(
        x=centres, y=dots["y"], mode="markers", marker=dots["marker"] | {"color": colours, "opacity": 1},
        customdata=statistics[1:], hovertemplate="MMD² = %{customdata:.4f}<extra></extra>", **below,
    )  # fmt: skip
    low, high = min(centres.min(), statistics[0]), max(centres.max(), statistics[0])
    figure.add_scatter(
        x=[low], y=[1.35 * top], mode="text", textposition="middle right", textfont_size=15, hoverinfo="skip",
        **below, **counter,
    )  # fmt: skip
    figure.add_scatter(
        x=[statistics[0]] * 2, y=[0, 1.1 * top], mode="lines", line=OBSERVED_LINE, hoverinfo="skip", **below
    )
    rows_each = min(int(members[0].sum()), int((~members[0]).sum()))
    drawn_words = f"{SHUFFLED_ROWS} of {rows_each} rows each" if rows_each > SHUFFLED_ROWS else ""
    laid_out(figure, x_title="", y_title="", height=500).update_layout(legend_title_text=drawn_words)
    margin = 0.04 * (high - low) or 1.0
    figure.update_layout(
        xaxis_showticklabels=False,
        yaxis={"domain": [0.45, 1], "showticklabels": False},
        xaxis2={"anchor": "y2", "title": "MMD² (line: real labels)", "zeroline": False},
        yaxis2={"domain": [0, 0.4], "anchor": "x2", "range": [0, 1.5 * top], "visible": False},
    )
    figure.update_layout(xaxis2_range=[low - margin, high + margin])
    equal_aspect(figure, *np.ptp(rows, axis=0)).update_yaxes(scaleanchor=None, selector={"anchor": "x2"})
    return _animated(short_labels(figure, left=20), state, count)


def _animated(figure: go.Figure, state: Callable[[int, float], list[dict[str, Any]]], count: int) -> go.Figure:
    """Add frames of one shuffle and then of several; the first dots fall. Play starts with the real labels."""
    steps = [*range(1, min(count, ONE_BY_ONE)), *range(ONE_BY_ONE, count, TOGETHER), count]
    falls = [(step, falling) for step in steps for falling in (FALLS if step <= SLOW else (0.0,))]
    frames, pauses = [], []
    for step, falling in [(0, 0.0), *falls]:
        frames.append({"data": state(step, falling), "traces": [1, 3, 4, 5], "name": f"{step}-{falling}"})
        pauses.append(800 if step in (0, count) else 300 if step < ONE_BY_ONE else 400)
    figure.frames = frames
    still: dict[str, Any] = {"mode": "immediate", "transition": {"duration": 0}}
    play = [None, still | {"frame": [{"duration": pause, "redraw": True} for pause in pauses]}]
    pause = [[None], still | {"frame": {"duration": 0, "redraw": False}}]
    buttons = [
        {"label": label, "method": "animate", "args": arguments}
        for label, arguments in (("Play", play), ("Pause", pause))
    ]
    position = {"x": 1, "xanchor": "right", "y": 0.47, "yanchor": "top", "direction": "right"}
    return figure.update_layout(updatemenus=[{"type": "buttons", "showactive": False, "buttons": buttons} | position])


def _stacked(statistics: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Centres (B,) and heights (B,) of dots that pile up in bins, in their order, and the highest pile.

    The observed statistic separates two bins.
    """
    width = float(np.ptp(statistics)) / DOT_BINS or 1.0
    bins = np.floor((statistics[1:] - statistics[0]) / width)
    heights = np.array([np.sum(bins[:index] == bin_) for index, bin_ in enumerate(bins)]) + 0.5
    return statistics[0] + (bins + 0.5) * width, heights, float(heights.max())


def _counted(reached: np.ndarray) -> str:
    step, count = len(reached), int(reached.sum())
    shuffles = "shuffle" if step == 1 else "shuffles"
    return f"{step} {shuffles}, {count} at least as large: p = {1 + count}/{1 + step} = {(1 + count) / (1 + step):.2f}"


def p_value_strip(groups: Mapping[str, np.ndarray], alpha: float, yours: float, *, height: int = 420) -> go.Figure:
    """Draw one band of p-values per group: a cross if p is at most α, an open circle otherwise.

    A star in the last band marks the reader's p-value ``yours``.
    """
    figure = go.Figure()
    figure.add_vrect(x0=0, x1=alpha, fillcolor=OBSERVED_COLOUR, opacity=0.12, line_width=0)
    figure.add_vline(x=alpha, line={"color": OBSERVED_COLOUR, "dash": "dash"})
    p_values = np.concatenate(list(groups.values()))
    offsets = [row + 0.6 * (np.arange(len(p)) * GOLDEN_RATIO % 1 - 0.5) for row, p in enumerate(groups.values())]
    heights = np.concatenate(offsets)
    looks = ((True, "rejected", OBSERVED_COLOUR, "x"), (False, "not rejected", NULL_COLOUR, "circle-open"))
    for rejected, label, colour, symbol in looks:
        chosen = (p_values <= alpha) == rejected
        figure.add_scatter(
            x=p_values[chosen], y=heights[chosen], mode="markers", name=f"{label} at α={alpha:g}",
            marker={"color": colour, "symbol": symbol, "size": 9}, hovertemplate="p = %{x:.3f}<extra></extra>",
        )  # fmt: skip
    figure.add_scatter(
        x=[yours], y=[len(groups) - 1], mode="markers", name="your sample", hovertemplate="p = %{x:.2f}<extra></extra>",
        marker={"color": OBSERVED_COLOUR, "symbol": "star", "size": 18},
    )  # fmt: skip
    laid_out(figure, x_title="p-value", y_title="", height=height)
    figure.update_xaxes(range=[-0.02, 1.02])
    figure.update_yaxes(tickvals=list(range(len(groups))), ticktext=list(groups), range=[-0.5, len(groups) - 0.5])
    return short_labels(figure)
