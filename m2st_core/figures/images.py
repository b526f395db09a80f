"""Images side by side, weights of class pairs, and what a kernel thinks of each class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from m2st_core.figures.theme import NULL_COLOUR, P_COLOUR, Q_COLOUR, colour_of, hatched, laid_out

GAP = 2  # pixels between images, before they are enlarged
GRID_HEIGHT = 40  # pixels that an image has at least


def image_grid(images: np.ndarray, columns: int) -> np.ndarray:
    """Images (n, c, h, w) in [0, 1] as one picture (H, W, 4) of bytes, row by row; gaps are transparent."""
    count, channels, height, width = images.shape
    scale = max(1, -(-GRID_HEIGHT // height))
    columns = min(columns, count)
    lines = -(-count // columns)
    shown = np.clip(images, 0, 1).transpose(0, 2, 3, 1)
    shown = np.repeat(shown, 3, axis=-1) if channels == 1 else shown[..., :3]
    shown = (255 * shown).round().astype(np.uint8).repeat(scale, axis=1).repeat(scale, axis=2)
    tall, wide = height * scale + GAP, width * scale + GAP
    picture = np.zeros((lines * tall - GAP, columns * wide - GAP, 4), dtype=np.uint8)
    for index, image in enumerate(shown):
        top, left = index // columns * tall, index % columns * wide
        place = picture[top : top + height * scale, left : left + width * scale]
        place[..., :3], place[..., 3] = image, 255
    return picture


def pair_figure(classes: Sequence[str], values: Mapping[tuple[str, str], float], symbol: str) -> go.Figure:
    """What there is about the kernel of each pair of classes, as a symmetric matrix; other pairs stay empty."""
    place = {name: index for index, name in enumerate(classes)}
    table = np.full((len(classes), len(classes)), np.nan)
    for (a, b), value in values.items():
        table[place[a], place[b]] = table[place[b], place[a]] = value
    largest = float(np.nanmax(table)) if values else 0.0
    figure = go.Figure()
    names = [f"\u200b{name}" for name in classes]  # a digit must not become a number on the axis
    figure.add_heatmap(
        x=names, y=names, z=table, zmin=0, zmax=largest if largest > 0 else 1.0, xgap=2, ygap=2, hoverongaps=False,
        colorscale=((0.0, "rgba(140,140,140,0.25)"), (1.0, colour_of("Feature-MKL"))),
        colorbar={"title": {"text": symbol, "side": "top"}, "thickness": 12},
        hovertemplate="%{x} or %{y}: " + symbol + " = %{z:.3g}<extra></extra>",
    )  # fmt: skip
    laid_out(figure, x_title="class", y_title="class", height=380)
    figure.update_xaxes(type="category", showgrid=False, tickangle=0 if len(classes) <= 12 else -45)
    figure.update_yaxes(type="category", showgrid=False, autorange="reversed")
    return figure


def class_witness_figure(table: pd.DataFrame) -> go.Figure:
    """Columns ``class``, ``mean``, ``error``, ``share_p``, ``share_q``: the mean witness value of each class."""
    colours = np.where(table["mean"] >= 0, P_COLOUR, Q_COLOUR)
    figure = go.Figure()
    figure.add_vline(x=0, line={"color": NULL_COLOUR, "dash": "dot"})
    figure.add_bar(
        x=table["mean"], y=[f"\u200b{name}" for name in table["class"]], orientation="h",
        marker=hatched(colours, np.where(table["mean"] >= 0, "", "/")),
        error_x={"array": table["error"], "color": NULL_COLOUR, "thickness": 1.5},
        customdata=np.c_[100 * table["share_p"], 100 * table["share_q"]], showlegend=False,
        hovertemplate="%{y}: %{x:.3g}<br>%{customdata[0]:.0f} % of x, %{customdata[1]:.0f} % of y<extra></extra>",
    )  # fmt: skip
    height = max(260, 90 + 26 * len(table))
    laid_out(figure, x_title="mean witness value (left: typical of Q, right: of P)", y_title="", height=height)
    figure.update_yaxes(type="category", autorange="reversed")
    return figure
