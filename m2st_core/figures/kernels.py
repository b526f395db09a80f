"""Learned kernels: their weights, their Ĵ, their training, and the importance of columns and classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from m2st_core.figures.theme import (
    NULL_COLOUR,
    OBSERVED_COLOUR,
    P_COLOUR,
    Q_COLOUR,
    WITH_RELATED,
    colour_of,
    figure_label,
    hatched,
    laid_out,
    one_line_each,
)
from m2st_core.testing.methods import label_of

MARKS = ("", "circle-open", "diamond-open", "line-ns")
TRAINING_ROWS = "training rows m_tr per mode"


def weights_figure(table: pd.DataFrame, methods: Mapping[str, str], *, x_title: str = "weight β") -> go.Figure:
    """Draw weights by ``kernel``, in the order of the table: bars for the first of ``methods``, marks for the others.

    ``methods`` names them by column. A bar or mark has the index of its row, so that a click identifies the kernel.
    """
    figure = go.Figure()
    for index, (column, method) in enumerate(methods.items()):
        name = label_of(method) if len(methods) == 1 else f"{label_of(method)}: {column}"
        shared = {
            "x": table[column], "y": table["kernel"], "orientation": "h", "name": name, "showlegend": True,
            "hovertemplate": "%{y}: %{x:.3f}<extra>" + name + "</extra>",
        }  # fmt: skip
        if index == 0:
            figure.add_bar(marker={"color": colour_of(method)}, **shared)
        else:
            marker = {"color": NULL_COLOUR, "symbol": MARKS[index % len(MARKS)], "size": 11, "line": {"width": 2}}
            figure.add_scatter(mode="markers", marker=marker, **shared)
    figure.update_layout(bargap=0.3, clickmode="event+select")
    return one_line_each(figure, len(table), x_title=x_title, line=28)


def bars_figure(
    names: Sequence[str],
    values: Sequence[float] | np.ndarray,
    *,
    x_title: str,
    colour: str = P_COLOUR,
    spread: np.ndarray | None = None,
) -> go.Figure:
    """Draw horizontal bars, the first on top, with whiskers of ± ``spread``. Names are escaped."""
    lines, labels = list(range(len(names))), list(map(figure_label, names))
    whiskers = {} if spread is None else {"array": spread, "color": NULL_COLOUR}
    figure = go.Figure()
    figure.add_vline(x=0, line={"color": NULL_COLOUR, "width": 1})
    figure.add_bar(
        x=values, y=lines, orientation="h", marker={"color": colour}, showlegend=False, error_x=whiskers,
        customdata=labels,
        hovertemplate="%{customdata}: %{x:.3g}" + (" ± %{error_x.array:.2g}" if whiskers else "") + "<extra></extra>",
    )  # fmt: skip
    laid_out(figure, x_title=x_title, y_title="", height=120 + 26 * len(names))
    return figure.update_yaxes(tickvals=lines, ticktext=labels, autorange="reversed")


def criterion_figure(table: pd.DataFrame, method: str) -> go.Figure:
    """Draw each kernel's Ĵ on the target's training rows, in the order of the table and the method's colour."""
    figure = go.Figure()
    figure.add_vline(x=0, line={"color": NULL_COLOUR, "dash": "dot"})
    figure.add_scatter(
        x=table["criterion"], y=table["kernel"], mode="markers", name="Ĵ", marker={"size": 10, "symbol": "diamond",
        "color": colour_of(method)}, hovertemplate="%{y}: Ĵ = %{x:.3f}<extra></extra>",
    )  # fmt: skip
    return one_line_each(figure, len(table), x_title="Ĵ on the training rows")


def weight_spread_figure(repeats: pd.DataFrame, method: str) -> go.Figure:
    """Draw how a method's weights vary over training samples: a box with its points for each ``kernel``."""
    figure = go.Figure()
    for kernel, group in repeats.groupby("kernel", sort=False):
        figure.add_box(
            x=group["weight"], name=str(kernel), boxpoints="all", jitter=0.4, pointpos=0, marker={"size": 4},
            orientation="h", line={"color": colour_of(method), "width": 1.5}, showlegend=False,
        )  # fmt: skip
    return one_line_each(figure, repeats["kernel"].nunique(), x_title="weight β")


def share_figure(shares: pd.DataFrame) -> go.Figure:
    """Draw the weight of Feature-MKL's learned features against ``m_tr``: training samples as marks, their mean."""
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
    laid_out(figure, x_title=TRAINING_ROWS, y_title="share of the learned features", height=400)
    figure.update_xaxes(type="log", tickvals=list(mean.index), ticktext=[f"{value:g}" for value in mean.index])
    return figure.update_yaxes(range=[-0.02, 1.05])


def training_figure(course: dict[str, list[float]]) -> go.Figure:
    """Draw a training curve: the criterion on training rows and, where known, on held-out rows."""
    figure = go.Figure()
    for key, name, colour in (("train", "training rows", WITH_RELATED), ("held_out", "held-out rows", OBSERVED_COLOUR)):
        if not np.isnan(course[key]).all():
            figure.add_scatter(x=course["step"], y=course[key], mode="lines+markers", name=name, line={"color": colour})
    return laid_out(figure, x_title="training step", y_title="criterion")


def pair_figure(classes: Sequence[str], values: Mapping[tuple[str, str], float], symbol: str) -> go.Figure:
    """Draw one value per pair of classes as a symmetric matrix; pairs without a value stay empty."""
    position = {name: index for index, name in enumerate(classes)}
    table = np.full((len(classes), len(classes)), np.nan)
    for (a, b), value in values.items():
        table[position[a], position[b]] = table[position[b], position[a]] = value
    largest = float(np.nanmax(table)) if values else 0.0
    names = _as_categories(classes)
    figure = go.Figure()
    figure.add_heatmap(
        x=names, y=names, z=table, zmin=0, zmax=largest if largest > 0 else 1.0, xgap=2, ygap=2, hoverongaps=False,
        colorscale=((0.0, "rgba(140,140,140,0.25)"), (1.0, colour_of("Feature-MKL"))),
        colorbar={"title": {"text": symbol, "side": "top"}, "thickness": 12},
        hovertemplate="%{x} or %{y}: " + symbol + " = %{z:.3g}<extra></extra>",
    )  # fmt: skip
    laid_out(figure, x_title="class", y_title="class", height=380)
    figure.update_xaxes(type="category", showgrid=False, tickangle=0 if len(classes) <= 12 else -45)
    return figure.update_yaxes(type="category", showgrid=False, autorange="reversed")


def class_witness_figure(table: pd.DataFrame) -> go.Figure:
    """Draw the ``mean`` witness value of each ``class`` with its ``error``; ``share_p`` and ``share_q`` on hover."""
    of_p = table["mean"] >= 0
    figure = go.Figure()
    figure.add_vline(x=0, line={"color": NULL_COLOUR, "dash": "dot"})
    figure.add_bar(
        x=table["mean"], y=_as_categories(table["class"]), orientation="h",
        marker=hatched(np.where(of_p, P_COLOUR, Q_COLOUR), np.where(of_p, "", "/")),
        error_x={"array": table["error"], "color": NULL_COLOUR, "thickness": 1.5},
        customdata=np.c_[100 * table["share_p"], 100 * table["share_q"]], showlegend=False,
        hovertemplate="%{y}: %{x:.3g}<br>%{customdata[0]:.0f} % of x, %{customdata[1]:.0f} % of y<extra></extra>",
    )  # fmt: skip
    height = max(260, 90 + 26 * len(table))
    laid_out(figure, x_title="mean witness value (left: typical of Q, right: of P)", y_title="", height=height)
    return figure.update_yaxes(type="category", autorange="reversed")


def _as_categories(names: Sequence[str] | pd.Series) -> list[str]:
    """Prefix a zero-width space, so that plotly does not read a digit as a number."""
    return [f"\u200b{name}" for name in names]
