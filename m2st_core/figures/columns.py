"""One column of an upload in both groups, and bars with names from files."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from m2st_core.figures.theme import (
    NULL_COLOUR,
    P_COLOUR,
    P_MARKER,
    Q_COLOUR,
    Q_MARKER,
    as_text,
    laid_out,
)

BINS = 30
HATCH = "/"  # Q's bars, for those who do not see its colour


def numbers_figure(x: np.ndarray, y: np.ndarray, *, column: str, names: tuple[str, str]) -> go.Figure:
    """The share of each group's values (n,), (m,) in common bins."""
    pooled = np.concatenate([x, y])
    low, high = (float(pooled.min()), float(pooled.max())) if pooled.size else (0.0, 1.0)
    edges = np.linspace(low, high if high > low else low + 1, BINS + 1)
    middles = (edges[1:] + edges[:-1]) / 2
    shares = [np.histogram(values, edges)[0] / max(len(values), 1) for values in (x, y)]
    figure = _two_bars(middles, shares, names)
    laid_out(figure, x_title=as_text(column), y_title="share of the group", height=300)
    return figure.update_layout(barmode="overlay", bargap=0.05)


def levels_figure(
    levels: Sequence[str], shares: tuple[np.ndarray, np.ndarray], *, column: str, names: tuple[str, str]
) -> go.Figure:
    """The share of each group's cells that have each of these levels."""
    figure = _two_bars(np.arange(len(levels)), shares, names)
    laid_out(figure, x_title=as_text(column), y_title="share of the group", height=300)
    return figure.update_xaxes(tickvals=list(range(len(levels))), ticktext=[as_text(level, 20) for level in levels])


def _two_bars(places: np.ndarray, shares: Sequence[np.ndarray], names: tuple[str, str]) -> go.Figure:
    figure = go.Figure()
    for name, share, colour, pattern in zip(names, shares, (P_COLOUR, Q_COLOUR), ("", HATCH), strict=True):
        figure.add_bar(
            x=places, y=share, name=as_text(name), opacity=0.65, hovertemplate="%{y:.1%}<extra></extra>",
            marker={"color": colour, "pattern": {"shape": pattern}},
        )  # fmt: skip
    return figure


def bars_figure(
    names: Sequence[str],
    values: Sequence[float],
    *,
    x_title: str,
    low: Sequence[float] | None = None,
    high: Sequence[float] | None = None,
    colours: Sequence[str] | str = P_COLOUR,
) -> go.Figure:
    """Bars from left to right, the first on top; ``low`` and ``high`` end their error bars."""
    places = list(range(len(names)))
    numbers = np.asarray(values, dtype=float)
    error = None
    if low is not None and high is not None:
        error = {
            "type": "data", "symmetric": False, "array": np.asarray(high) - numbers,
            "arrayminus": numbers - np.asarray(low), "color": NULL_COLOUR,
        }  # fmt: skip
    figure = go.Figure()
    figure.add_bar(
        x=numbers, y=places, orientation="h", marker={"color": colours}, error_x=error, showlegend=False,
        hovertemplate="%{x:.3g}<extra></extra>",
    )  # fmt: skip
    laid_out(figure, x_title=x_title, y_title="", height=110 + 26 * len(names))
    figure.update_yaxes(tickvals=places, ticktext=[as_text(name, 32) for name in names], autorange="reversed")
    return figure


def witness_line_figure(
    values: np.ndarray, axis: np.ndarray, rows: tuple[np.ndarray, np.ndarray], *, column: str, names: tuple[str, str]
) -> go.Figure:
    """The witness along one column, with the rows of both groups beneath it."""
    figure = go.Figure()
    figure.add_hline(y=0, line={"color": NULL_COLOUR, "dash": "dot"})
    figure.add_scatter(x=axis, y=values, mode="lines", name="witness", line={"color": NULL_COLOUR, "width": 2})
    reach = float(np.abs(values).max()) or 1.0
    looks = ((P_COLOUR, P_MARKER, -1.2), (Q_COLOUR, Q_MARKER, -1.35))
    for name, own, (colour, marker, at) in zip(names, rows, looks, strict=True):
        figure.add_scatter(
            x=own, y=np.full(len(own), at * reach), mode="markers", name=as_text(name), hoverinfo="skip",
            marker={"color": colour, "symbol": marker, "size": 7, "opacity": 0.6},
        )  # fmt: skip
    return laid_out(figure, x_title=as_text(column), y_title="witness")
