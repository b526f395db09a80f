"""Two samples, side by side in one plane."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from m2st_core.figures.theme import P_COLOUR, P_MARKER, Q_COLOUR, Q_MARKER, as_text, laid_out

SHOWN_ROWS = 1000


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
    directions = np.linalg.svd(centred, full_matrices=False)[2][:2]
    return centred @ directions.T, ("first principal component", "second principal component")
