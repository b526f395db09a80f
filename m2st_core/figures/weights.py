"""What learning a kernel from few or many rows is worth."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
import plotly.graph_objects as go

from m2st_core.figures.theme import (
    COLOURS,
    NULL_COLOUR,
    OBSERVED_COLOUR,
    colour_of,
    hatched,
    label_of,
    laid_out,
    one_line_each,
)

PATTERNS = ("", "x", "/")


def weights_figure(table: pd.DataFrame, methods: Mapping[str, str], *, x_title: str = "weight β") -> go.Figure:
    """Bars of each method's weights by ``kernel``, in the order of the table; ``methods`` names them by column.

    Each bar carries the row's number, so that a click on it says which kernel was meant.
    """
    figure = go.Figure()
    for (column, method), pattern in zip(methods.items(), PATTERNS, strict=False):
        name = f"{label_of(method)}: {column}"
        figure.add_bar(
            x=table[column], y=table["kernel"], orientation="h", name=name, customdata=table.index, showlegend=True,
            marker=hatched(colour_of(method), pattern), hovertemplate="%{y}: %{x:.3f}<extra>" + name + "</extra>",
        )  # fmt: skip
    figure.update_layout(barmode="group", bargap=0.25, clickmode="event+select")
    return one_line_each(figure, len(table), x_title=x_title, line=28)


def criterion_figure(table: pd.DataFrame, method: str) -> go.Figure:
    """Each kernel's Ĵ on the target's training rows, in the order of the table and in the colour of the method."""
    figure = go.Figure()
    figure.add_vline(x=0, line={"color": NULL_COLOUR, "dash": "dot"})
    figure.add_scatter(
        x=table["criterion"], y=table["kernel"], mode="markers", name="Ĵ", marker={"size": 10, "symbol": "diamond",
        "color": colour_of(method)}, hovertemplate="%{y}: Ĵ = %{x:.3f}<extra></extra>",
    )  # fmt: skip
    return one_line_each(figure, len(table), x_title="Ĵ on the training rows")


def weight_spread_figure(repeats: pd.DataFrame, method: str) -> go.Figure:
    """How a method's weights vary over training samples: a box and its points for each ``kernel``."""
    figure = go.Figure()
    for kernel, group in repeats.groupby("kernel", sort=False):
        figure.add_box(
            x=group["weight"], name=str(kernel), boxpoints="all", jitter=0.4, pointpos=0, marker={"size": 4},
            orientation="h", line={"color": colour_of(method), "width": 1.5}, showlegend=False,
        )  # fmt: skip
    return one_line_each(figure, repeats["kernel"].nunique(), x_title="weight β")


def share_figure(shares: pd.DataFrame) -> go.Figure:
    """The share of Feature-MKL's learned features against ``m_tr``: every training sample a mark, their mean a line."""
    mean = shares.groupby("m_tr")["share"].mean()
    figure = go.Figure()
    figure.add_scatter(
        x=shares["m_tr"], y=shares["share"], mode="markers", name="one training sample",
        marker={"color": NULL_COLOUR, "symbol": "circle-open", "size": 8},
    )  # fmt: skip
    figure.add_scatter(
        x=mean.index, y=mean, mode="lines+markers", name="mean",
        line={"color": colour_of("Feature-MKL")}, marker={"size": 10, "symbol": "diamond"},
    )  # fmt: skip
    laid_out(figure, x_title="training rows m_tr per mode", y_title="share of the learned features", height=400)
    figure.update_xaxes(type="log", tickvals=list(mean.index), ticktext=[f"{value:g}" for value in mean.index])
    figure.update_yaxes(range=[-0.02, 1.05])
    return figure


CURVES = {  # column: name, colour, dash, marker
    "train": ("Ĵ on training rows", COLOURS[0], "dash", "square"),
    "fresh": ("Ĵ on fresh rows", COLOURS[5], "dot", "diamond"),
    "power": ("power", COLOURS[2], "solid", "circle"),
}


def learning_size_figure(table: pd.DataFrame, now: int, floor: float) -> go.Figure:
    """Ĵ on training and on fresh rows, and power with its interval, against m_tr; the m_tr of now is a line.

    ``floor`` is the power without learning.
    """
    figure = go.Figure()
    figure.add_vline(x=now, line={"color": OBSERVED_COLOUR, "dash": "dot"})
    figure.add_hline(y=floor, line={"color": NULL_COLOUR, "dash": "dash"})
    for column, (name, colour, dash, symbol) in CURVES.items():
        bars = {}
        if column == "power":
            bars = {
                "array": table["high"] - table["power"],
                "arrayminus": table["power"] - table["low"],
                "thickness": 1,
            }
        figure.add_scatter(
            x=table["m_tr"], y=table[column], mode="lines+markers", name=name, error_y=bars,
            line={"color": colour, "dash": dash}, marker={"symbol": symbol, "size": 9},
            hovertemplate=f"m_tr=%{{x}}: %{{y:.3f}}<extra>{name}</extra>",
        )  # fmt: skip
    laid_out(figure, x_title="training rows m_tr per mode", y_title="Ĵ; power (dashed: MMD-M)", height=340)
    figure.update_xaxes(type="log", tickvals=list(table["m_tr"]), ticktext=[str(m) for m in table["m_tr"]])
    figure.update_yaxes(rangemode="tozero")
    return figure
