"""β and what it rests on: one row of the table for each base kernel."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from m2st_core.figures.theme import NULL_COLOUR, colour_of, laid_out

LOOKS = {  # column: method, colour, pattern
    "learned": ("Meta-MKL", colour_of("Meta-MKL"), ""),
    "best one": ("Meta-Best1", colour_of("Meta-Best1"), "x"),
    "uniform": ("Meta-MKL-A", NULL_COLOUR, "/"),
}


def weights_figure(table: pd.DataFrame, *, y_title: str = "weight β") -> go.Figure:
    """Bars of the columns ``learned``, ``best one`` and ``uniform`` by ``kernel``, in the order of the table.

    Each bar carries the row's number, so that a click on it says which kernel was meant.
    """
    figure = go.Figure()
    for column, (method, colour, pattern) in LOOKS.items():
        figure.add_bar(
            x=table["kernel"], y=table[column], name=f"{column} ({method})", customdata=table.index,
            marker={"color": colour, "pattern": {"shape": pattern}},
            hovertemplate="%{x}: %{y:.3f}<extra>" + column + "</extra>",
        )  # fmt: skip
    laid_out(figure, x_title="", y_title=y_title, height=420)
    figure.update_layout(barmode="group", clickmode="event+select")
    figure.update_xaxes(type="category", tickangle=-45)
    return figure


def criterion_figure(table: pd.DataFrame) -> go.Figure:
    """Each kernel's Ĵ on the target's training rows, in the order of the table."""
    figure = go.Figure()
    figure.add_hline(y=0, line={"color": NULL_COLOUR, "dash": "dot"})
    figure.add_scatter(
        x=table["kernel"], y=table["criterion"], mode="markers", name="Ĵ", marker={"size": 10, "symbol": "diamond",
        "color": colour_of("Meta-MKL")}, hovertemplate="%{x}: Ĵ = %{y:.3f}<extra></extra>",
    )  # fmt: skip
    laid_out(figure, x_title="", y_title="Ĵ on the training rows", height=360)
    figure.update_xaxes(type="category", tickangle=-45)
    return figure


def weight_spread_figure(repeats: pd.DataFrame, *, y_title: str = "weight β") -> go.Figure:
    """How a weight varies over training samples: a box and its points for each ``kernel``."""
    figure = go.Figure()
    for kernel, group in repeats.groupby("kernel", sort=False):
        figure.add_box(
            y=group["weight"], name=str(kernel), boxpoints="all", jitter=0.4, pointpos=0, marker={"size": 4},
            line={"color": colour_of("Meta-MKL"), "width": 1.5}, showlegend=False,
        )  # fmt: skip
    laid_out(figure, x_title="", y_title=y_title, height=400)
    figure.update_xaxes(tickangle=-45)
    return figure


def share_figure(shares: pd.DataFrame) -> go.Figure:
    """The share of the meta-tasks' kernels against ``m_tr``: every training sample a mark, their mean a line."""
    mean = shares.groupby("m_tr")["share"].mean()
    figure = go.Figure()
    figure.add_scatter(
        x=shares["m_tr"], y=shares["share"], mode="markers", name="one training sample",
        marker={"color": NULL_COLOUR, "symbol": "circle-open", "size": 8},
    )  # fmt: skip
    figure.add_scatter(
        x=mean.index, y=mean, mode="lines+markers", name="mean",
        line={"color": colour_of("Meta-MKL")}, marker={"size": 10, "symbol": "diamond"},
    )  # fmt: skip
    laid_out(figure, x_title="training rows m_tr per mode", y_title="share of the meta-tasks' kernels", height=400)
    figure.update_xaxes(type="log", tickvals=list(mean.index), ticktext=[f"{value:g}" for value in mean.index])
    figure.update_yaxes(range=[-0.02, 1.05])
    return figure
