"""Two samples, side by side in one plane."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from m2st_core.figures.theme import P_COLOUR, P_MARKER, Q_COLOUR, Q_MARKER, laid_out

SHOWN_ROWS = 1000


def samples_figure(x: np.ndarray, y: np.ndarray) -> go.Figure:
    """At most 1,000 rows of each sample, (n, d) and (m, d): two columns as they are, more by principal components."""
    plane, axes = _plane(np.concatenate([x, y]))
    figure = go.Figure()
    parts = ((plane[: len(x)], "x ~ P", P_COLOUR, P_MARKER), (plane[len(x) :], "y ~ Q", Q_COLOUR, Q_MARKER))
    for rows, name, colour, marker in parts:
        figure.add_scatter(
            x=rows[:SHOWN_ROWS, 0],
            y=rows[:SHOWN_ROWS, 1],
            mode="markers",
            name=f"{name} ({len(rows)} rows)",
            marker={"color": colour, "symbol": marker, "size": 7, "opacity": 0.85},
            hovertemplate="%{x:.2f}, %{y:.2f}",
        )
    return laid_out(figure, x_title=axes[0], y_title=axes[1])


def _plane(pooled: np.ndarray) -> tuple[np.ndarray, tuple[str, str]]:
    """Two coordinates per row, chosen without looking at the labels."""
    if pooled.shape[1] == 2:
        return pooled, ("column 1", "column 2")
    centred = pooled - pooled.mean(axis=0)
    directions = np.linalg.svd(centred, full_matrices=False)[2][:2]
    return centred @ directions.T, ("first principal component", "second principal component")
