"""One column of an upload in both groups, and bars with names from files."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from m2st_core.figures.theme import (
    DIVERGING,
    NULL_COLOUR,
    P_COLOUR,
    P_MARKER,
    Q_COLOUR,
    Q_MARKER,
    as_text,
    hatched,
    laid_out,
)

SHOWN_ROWS = 1000
TEACHING_ROWS = 1000  # from which the components are found


def samples_figure(
    x: np.ndarray,
    y: np.ndarray,
    *,
    names: tuple[str, str] = ("x ~ P", "y ~ Q"),
    columns: tuple[str, str] = ("column 1", "column 2"),
) -> go.Figure:
    """At most 1,000 rows of each sample, (n, d) and (m, d): two columns as they are, more by principal components."""
    pooled = np.concatenate([x, y])
    plane, axes = (pooled, columns) if pooled.shape[1] == 2 else _plane(pooled)
    figure = go.Figure()
    first, second = map(as_text, names)
    parts = ((plane[: len(x)], first, P_COLOUR, P_MARKER), (plane[len(x) :], second, Q_COLOUR, Q_MARKER))
    for rows, name, colour, marker in parts:
        figure.add_scatter(
            x=rows[:SHOWN_ROWS, 0],
            y=rows[:SHOWN_ROWS, 1],
            mode="markers",
            name=f"{name} ({len(rows)} rows)",
            marker={"color": colour, "symbol": marker, "size": 7, "opacity": 0.85},
            hovertemplate="%{x:.2f}, %{y:.2f}",
        )
    return laid_out(figure, x_title=as_text(axes[0]), y_title=as_text(axes[1]))


def _plane(pooled: np.ndarray) -> tuple[np.ndarray, tuple[str, str]]:
    """Two coordinates per row, chosen without looking at the labels."""
    centred = pooled - pooled.mean(axis=0)
    if pooled.shape[1] == 1:
        return np.column_stack([pooled, np.zeros(len(pooled))]), ("the one column", "")
    some = centred[:: -(-len(centred) // TEACHING_ROWS)]  # of both samples, evenly
    directions = np.linalg.svd(some, full_matrices=False)[2][:2]
    return centred @ directions.T, ("first principal component", "second principal component")


CLIPPED = 0.02  # of the places, those with the largest values, share the strongest colour
HEAT_ROWS = 300
AXIS_TITLE = 72  # pixels that the horizontal axis takes; the colour bar comes below


def heat_figure(
    values: np.ndarray,
    axis: np.ndarray,
    *,
    name: str,
    sample: tuple[np.ndarray, np.ndarray] | None = None,
    height: int = 480,
    second_axis: np.ndarray | None = None,
    titles: tuple[str, str] = ("column 1", "column 2"),
    labels: tuple[str, str] = ("x ~ P", "y ~ Q"),
) -> go.Figure:
    """Values (h, g) at places (axis[column], second_axis[row]): P's colour where positive, Q's where negative.

    The dotted line is where the function is zero. Rows of the samples (n, 2), (m, 2), at most 300 each, lie on top.
    """
    rows_axis = axis if second_axis is None else second_axis
    limit = float(np.quantile(np.abs(values), 1 - CLIPPED)) or 1.0
    below = {"y": -AXIS_TITLE / (height - 2.5 * AXIS_TITLE), "yanchor": "top"}
    figure = go.Figure()
    figure.add_heatmap(
        x=axis, y=rows_axis, z=values, zmin=-limit, zmax=limit, colorscale=DIVERGING, zsmooth="best", name=name,
        colorbar={"title": {"text": name, "side": "top"}, "orientation": "h", "thickness": 10} | below,
        hovertemplate="%{x:.2f}, %{y:.2f}: %{z:.3g}<extra></extra>",
    )  # fmt: skip
    figure.add_contour(
        x=axis, y=rows_axis, z=values, contours={"start": 0, "end": 0, "size": 1, "coloring": "none"}, name="zero",
        line={"color": NULL_COLOUR, "dash": "dot", "width": 1.5}, showscale=False, hoverinfo="skip", showlegend=False,
    )  # fmt: skip
    first, second = map(as_text, labels)
    looks = ((first, P_COLOUR, P_MARKER), (second, Q_COLOUR, Q_MARKER))
    for rows, (label, colour, marker) in zip(sample or (), looks, strict=False):
        figure.add_scatter(
            x=rows[:HEAT_ROWS, 0], y=rows[:HEAT_ROWS, 1], mode="markers", name=label, hoverinfo="skip",
            marker={"color": colour, "symbol": marker, "size": 6, "line": {"color": "white", "width": 0.7}},
        )  # fmt: skip
    figure.update_xaxes(range=[axis[0], axis[-1]], showgrid=False)
    figure.update_yaxes(range=[rows_axis[0], rows_axis[-1]], showgrid=False)
    return laid_out(figure, x_title=as_text(titles[0]), y_title=as_text(titles[1]), height=height)


COLUMN_BINS = 30
HATCH = "/"  # Q's bars, for those who do not see its colour


def numbers_figure(x: np.ndarray, y: np.ndarray, *, column: str, names: tuple[str, str]) -> go.Figure:
    """The share of each group's values (n,), (m,) in common bins."""
    pooled = np.concatenate([x, y])
    low, high = (float(pooled.min()), float(pooled.max())) if pooled.size else (0.0, 1.0)
    edges = np.linspace(low, high if high > low else low + 1, COLUMN_BINS + 1)
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
            marker=hatched(colour, pattern),
        )  # fmt: skip
    return figure


def bars_figure(names: Sequence[str], values: Sequence[float], *, x_title: str, colour: str = P_COLOUR) -> go.Figure:
    """Bars from left to right, the first on top."""
    places = list(range(len(names)))
    figure = go.Figure()
    figure.add_bar(
        x=list(values), y=places, orientation="h", marker={"color": colour}, showlegend=False,
        hovertemplate="%{x:.3g}<extra></extra>",
    )  # fmt: skip
    laid_out(figure, x_title=x_title, y_title="", height=120 + 26 * len(names))
    return figure.update_yaxes(tickvals=places, ticktext=list(map(as_text, names)), autorange="reversed")
