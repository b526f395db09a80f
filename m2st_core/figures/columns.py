"""One column of an upload in both groups, and bars with names from files."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from m2st_core.figures.theme import P_COLOUR, Q_COLOUR, as_text, hatched, laid_out

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
