"""Where two samples differ, and whether related tasks help to see it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from m2st_core.figures.heat import SHOWN_ROWS, heat_figure
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
