"""Images side by side, weights of class pairs, and what a kernel thinks of each class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from m2st_core.figures.samples import SHOWN_ROWS, heat_figure
from m2st_core.figures.theme import (
    NULL_COLOUR,
    P_COLOUR,
    P_MARKER,
    Q_COLOUR,
    Q_MARKER,
    as_text,
    colour_of,
    hatched,
    label_of,
    laid_out,
)

SHOWN_COLUMNS = 20
SHORT_NAME = 14  # letters of a group in a title that a narrow screen has to hold


def importance_figure(names: Sequence[str], loss: np.ndarray, spread: np.ndarray) -> go.Figure:
    """Bars of what each column, most important first, takes away when shuffled; whiskers over shuffles; at most 20."""
    shown = [as_text(name) for name in names[:SHOWN_COLUMNS]]
    places = list(range(len(shown)))
    figure = go.Figure()
    figure.add_bar(
        x=loss[:SHOWN_COLUMNS], y=places, orientation="h", name="loss", marker={"color": P_COLOUR}, showlegend=False,
        error_x={"array": spread[:SHOWN_COLUMNS], "color": NULL_COLOUR}, customdata=shown,
        hovertemplate="%{customdata}: %{x:.2f} ± %{error_x.array:.2f}<extra></extra>",
    )  # fmt: skip
    figure.add_vline(x=0, line={"color": NULL_COLOUR, "width": 1})
    laid_out(figure, x_title="loss when shuffled (SD if P = Q)", y_title="", height=120 + 26 * len(shown))
    figure.update_yaxes(tickvals=places, ticktext=shown, autorange="reversed")
    return figure


def witness_figure(
    values: np.ndarray,
    axes: Sequence[np.ndarray],
    names: Sequence[str],
    sample: tuple[np.ndarray, np.ndarray],
    labels: tuple[str, str] = ("x ~ P", "y ~ Q"),
) -> go.Figure:
    """The witness over two columns, or along one, with both samples' rows, (n, 2) and (m, 2), or (n, 1) and (m, 1)."""
    name = f"more of {as_text(labels[0], SHORT_NAME)} (+) or of {as_text(labels[1], SHORT_NAME)} (−)"
    if len(axes) == 2:
        both = (names[0], names[1])
        return heat_figure(values, axes[0], name=name, sample=sample, second_axis=axes[1], titles=both, labels=labels)
    figure = go.Figure()
    figure.add_hline(y=0, line={"color": NULL_COLOUR, "dash": "dot"})
    figure.add_scatter(x=axes[0], y=values, mode="lines", name="witness", line={"color": NULL_COLOUR, "width": 3})
    looks = ((as_text(labels[0]), P_COLOUR, P_MARKER, 1.0), (as_text(labels[1]), Q_COLOUR, Q_MARKER, -1.0))
    edge = 1.15 * (float(np.abs(values).max()) or 1.0)
    for rows, (label, colour, marker, side) in zip(sample, looks, strict=True):
        shown = rows[:SHOWN_ROWS, 0]
        figure.add_scatter(
            x=shown, y=np.full(len(shown), side * edge), mode="markers", name=label,
            marker={"color": colour, "symbol": marker, "size": 7, "opacity": 0.6}, hovertemplate="%{x:.3g}",
        )  # fmt: skip
    return laid_out(figure, x_title=as_text(names[0]), y_title=name)


def history_figure(table: pd.DataFrame) -> go.Figure:
    """Power on tasks left out, by ``method``, with its interval from ``low`` to ``high``; hatched without history."""
    figure = go.Figure()
    for uses, label, pattern in ((True, "with the other tasks' help", ""), (False, "without", "/")):
        part = table[table["uses_history"] == uses]
        figure.add_bar(
            x=part["method"].map(label_of), y=part["power"], name=label, customdata=part[["low", "high", "tests"]],
            marker=hatched([colour_of(method) for method in part["method"]], pattern),
            error_y={
                "array": part["high"] - part["power"], "arrayminus": part["power"] - part["low"], "color": NULL_COLOUR,
                "thickness": 3,
            },
            hovertemplate="%{x}: %{y:.2f}, %{customdata[0]:.2f} to %{customdata[1]:.2f}, %{customdata[2]} tests",
        )  # fmt: skip
    laid_out(figure, x_title="", y_title="power on tasks left out")
    figure.update_yaxes(range=[0, 1.05])
    return figure


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
