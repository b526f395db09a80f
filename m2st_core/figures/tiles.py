"""Rows that are images: tiles of both groups, and the difference of their mean images."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from m2st_core.figures.samples import GROUP_LETTERS
from m2st_core.figures.theme import DIVERGING, as_text, laid_out

SHOWN_TILES, TILE_COLUMNS = 30, 6  # images of a group, and images in a line
BELOW = {"y": -0.02, "yanchor": "top"}


def tiles_figure(x: np.ndarray, y: np.ndarray, *, names: tuple[str, str]) -> go.Figure:
    """Draw grey images (n, h, w) and (m, h, w) of both groups as tiles, dark where a value is large."""
    shown = [part[:SHOWN_TILES] for part in (x, y)]
    lines = max(-(-len(part) // TILE_COLUMNS) for part in shown)
    figure = make_subplots(1, 2, subplot_titles=[as_text(name) for name in names], horizontal_spacing=0.06)
    span = {"zmin": min(map(np.min, shown)), "zmax": max(map(np.max, shown))}
    for place, part in enumerate(shown, 1):
        figure.add_heatmap(
            z=_mosaic(part, lines), colorscale="gray", reversescale=True, showscale=False, hoverinfo="skip", **span,
            row=1, col=place,
        )  # fmt: skip
        figure.update_xaxes(row=1, col=place, scaleanchor="y" if place == 1 else "y2", constrain="domain")
    laid_out(figure, x_title="", y_title="", height=90 + 62 * lines)
    figure.update_xaxes(visible=False)
    return figure.update_yaxes(visible=False, autorange="reversed", constrain="domain")


def _mosaic(images: np.ndarray, lines: int) -> np.ndarray:
    """Return images (n, h, w) in lines of six, NaN between them and where there are fewer."""
    height, width = images.shape[1:]
    cells = np.full((lines * TILE_COLUMNS, height + 1, width + 1), np.nan)
    cells[: len(images), :-1, :-1] = images
    grid = cells.reshape(lines, TILE_COLUMNS, height + 1, width + 1).swapaxes(1, 2)
    return grid.reshape(lines * (height + 1), TILE_COLUMNS * (width + 1))


def pixels_figure(values: np.ndarray, *, names: tuple[str, str]) -> go.Figure:
    """Draw a difference (h, w) per pixel: P's colour where P has more, Q's where Q has more."""
    limit = float(np.nanmax(np.abs(values))) or 1.0
    more = f"more in {as_text(names[0], GROUP_LETTERS)} (+) or in {as_text(names[1], GROUP_LETTERS)} (−)"
    figure = go.Figure()
    figure.add_heatmap(
        z=values, zmin=-limit, zmax=limit, colorscale=DIVERGING, xgap=1, ygap=1,
        colorbar={"title": {"text": more, "side": "top"}, "orientation": "h", "thickness": 10} | BELOW,
        hovertemplate="line %{y}, column %{x}: %{z:.3g}<extra></extra>",
    )  # fmt: skip
    laid_out(figure, x_title="", y_title="")
    figure.update_xaxes(visible=False, scaleanchor="y", constrain="domain")
    return figure.update_yaxes(visible=False, autorange="reversed", constrain="domain")
