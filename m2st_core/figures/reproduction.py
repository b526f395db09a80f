"""The paper beside this software: published numbers, the paper's algorithms and ours, as three layers of one figure.

Tables are summaries of sweeps by layer, "paper" and "ours"; ``published`` has the columns of the paper's tables.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from m2st_core.figures.power import BAND, LAST, type_1_figure
from m2st_core.figures.theme import (
    NULL_COLOUR,
    PUBLISHED,
    colour_of,
    height_with,
    label_of,
    laid_out,
    look_of,
    one_line_each,
)

SYMBOLS = {"paper": "circle", "ours": "square"}


def layers_figure(tables: Mapping[str, pd.DataFrame], published: pd.DataFrame, x: str, x_title: str) -> go.Figure:
    """Power against ``x``: published as open diamonds; lines as on every page."""
    figure = go.Figure()
    for table in tables.values():
        for method, group in table.groupby("method", sort=False):
            _add_curve(figure, str(method), group.sort_values(x), x)
    curves = {trace.legendgroup for trace in figure.data}
    for method, group in published.groupby("method", sort=False):
        own_name = str(method) not in curves  # without a curve in its colour it has to be named
        first = not any(trace.name == "published" for trace in figure.data)
        figure.add_scatter(
            x=group[x], y=group["power"], mode="markers", name=f"{method}, published" if own_name else "published",
            legendgroup=f"{method}, published" if own_name else "published", legendrank=LAST,
            showlegend=own_name or first,
            marker=PUBLISHED | {"color": colour_of(str(method))},
            error_y={"array": group["std_error"], "color": colour_of(str(method))},
            customdata=_notes(group), hovertemplate="%{y:.3f}%{customdata}<extra>" + f"{method}, published</extra>",
        )  # fmt: skip
    figure.update_yaxes(range=[-0.02, 1.02])
    names = sum(trace.showlegend is not False for trace in figure.data)
    return laid_out(figure, x_title=x_title, y_title="share of test samples rejected", height=height_with(names))


def _add_curve(figure: go.Figure, method: str, group: pd.DataFrame, x: str) -> None:
    """One method with its band of one standard error."""
    name, look = label_of(method), look_of(method)
    colour = look.colour
    xs, rate, error = (group[column].astype(float) for column in (x, "rate", "error"))
    figure.add_scatter(
        x=xs, y=rate, mode="lines+markers", name=name, legendgroup=name, line={"color": colour, "dash": look.dash},
        marker={"symbol": look.marker, "size": 8},
        customdata=np.c_[error, group["repeats"]],
        hovertemplate="%{y:.3f} ± %{customdata[0]:.3f} (%{customdata[1]} repeats)<extra>" + name + "</extra>",
    )  # fmt: skip
    figure.add_scatter(
        x=[*xs, *xs[::-1]], y=[*(rate + error), *(rate - error)[::-1]], fill="toself", mode="lines",
        line={"width": 0}, fillcolor=colour, opacity=BAND, legendgroup=name, showlegend=False, hoverinfo="skip",
    )  # fmt: skip


def layers_marks(tables: Mapping[str, pd.DataFrame], published: pd.DataFrame) -> go.Figure:
    """Power of each method at one size: published as open diamonds, the paper's algorithms as circles, ours as squares.

    Bars are one standard error.
    """
    figure = go.Figure()
    for layer, table in tables.items():
        methods = [str(method) for method in table["method"]]
        figure.add_scatter(
            x=table["rate"], y=[label_of(method) for method in methods], mode="markers",
            name="ours" if layer == "ours" else "the paper's algorithms, run by this software",
            marker={"symbol": SYMBOLS[layer], "size": 11, "color": [colour_of(method) for method in methods]},
            error_x={"array": table["error"], "color": NULL_COLOUR}, customdata=table["repeats"],
            hovertemplate="%{x:.3f} (%{customdata} repeats)<extra>%{y}</extra>",
        )  # fmt: skip
    figure.add_scatter(
        x=published["power"], y=published["method"], mode="markers", name="published", customdata=_notes(published),
        marker=PUBLISHED | {"color": [colour_of(str(method)) for method in published["method"]]},
        error_x={"array": published["std_error"], "color": NULL_COLOUR},
        hovertemplate="%{x:.3f}%{customdata}<extra>%{y}, published</extra>",
    )  # fmt: skip
    figure.update_xaxes(range=[-0.02, 1.02])
    names = {name for trace in figure.data for name in trace.y}
    return one_line_each(figure, len(names), x_title="share of test samples rejected", line=28)


def layers_type_1(tables: Mapping[str, pd.DataFrame], alpha: float, band: tuple[float, float]) -> go.Figure:
    """Type-I errors of both layers, ours below and named so."""
    table = pd.concat(tables.values(), ignore_index=True)
    names = [label_of(str(method)) for method in table["method"]]
    return type_1_figure(table, alpha, band).update_traces(y=names)


def _notes(published: pd.DataFrame) -> pd.Series:
    return published["doubt"].where(published["doubt"] == "", ": " + published["doubt"])
