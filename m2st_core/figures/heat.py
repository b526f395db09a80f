"""A function on the plane, with the samples it came from."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from m2st_core.figures.theme import DIVERGING, NULL_COLOUR, P_COLOUR, P_MARKER, Q_COLOUR, Q_MARKER, as_text, laid_out

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
