"""γ̂ against the closeness C, its spread, and what it means for power."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from m2st_core.figures.theme import COLOURS, NULL_COLOUR, PUBLISHED, laid_out

CURVES = {  # column: name, colour, dash, marker
    "on_training_rows": ("on the rows that chose the kernel", COLOURS[0], "dash", "square"),
    "on_test_rows": ("on fresh rows", COLOURS[2], "solid", "circle"),
}
FLOOR_NAME = "noise floor: two samples of one task"
FLOOR_FILL = "rgba(128, 128, 128, 0.2)"
HOVER = "C=%{x:g}: γ̂ = %{y:.3f}"


def gamma_figure(published: pd.DataFrame, ours: pd.DataFrame, *, height: int = 460) -> go.Figure:
    """γ̂ against C: the published points, and ours on both halves; bars span the tasks' largest γ̂_it on fresh rows.

    A grey band reaches up to the noise floor of γ̂ on fresh rows, the column ``floor``.
    """
    figure = go.Figure()
    figure.add_scatter(
        x=ours["closeness"], y=ours["floor"], mode="lines", name=FLOOR_NAME, fill="tozeroy", fillcolor=FLOOR_FILL,
        line={"color": NULL_COLOUR, "width": 1}, hovertemplate="C=%{x:g}: noise floor %{y:.3f}",
    )  # fmt: skip
    figure.add_scatter(
        x=published["closeness"], y=published["gamma_hat"], mode="lines+markers", name="published",
        marker=PUBLISHED | {"color": COLOURS[5]}, line={"color": COLOURS[5], "dash": "dot"}, hovertemplate=HOVER,
    )  # fmt: skip
    for column, (name, colour, dash, symbol) in CURVES.items():
        spread = {}
        if column == "on_test_rows":
            bars = {"array": ours["highest"] - ours[column], "arrayminus": ours[column] - ours["lowest"]}
            spread = {"error_y": bars | {"color": colour, "thickness": 1}}
        figure.add_scatter(
            x=ours["closeness"], y=ours[column], mode="lines+markers", name=f"run here, {name}", hovertemplate=HOVER,
            line={"color": colour, "dash": dash}, marker={"symbol": symbol, "size": 9}, **spread,
        )  # fmt: skip
    figure.update_yaxes(rangemode="tozero")
    return laid_out(figure, x_title="closeness C (small: meta-tasks like the target)", y_title="γ̂", height=height)


def gamma_spread_figure(values: pd.DataFrame) -> go.Figure:
    """Every γ̂_it: columns ``closeness``, ``task``, ``restart``, ``gamma``, ``floor``; the γ̂ that they give is a line.

    γ̂ = min_i max_t γ̂_it, so each task's largest mark counts, and of those the smallest.
    """
    figure = go.Figure()
    for index, (closeness, group) in enumerate(values.groupby("closeness")):
        worst = group.groupby("task")["gamma"].transform("max") == group["gamma"]
        tasks = group["task"].astype("category").cat.codes
        place = index + 0.7 * ((tasks + 0.5) / (tasks.max() + 1) - 0.5)
        for chosen, label, symbol in ((~worst, "a restart", "circle-open"), (worst, "the task's largest", "diamond")):
            figure.add_scatter(
                x=place[chosen], y=group["gamma"][chosen], mode="markers", name=label, legendgroup=label,
                showlegend=index == 0, customdata=group["task"][chosen],
                marker={"symbol": symbol, "size": 9, "color": COLOURS[0] if symbol == "diamond" else NULL_COLOUR},
                hovertemplate=f"C={closeness:g}, %{{customdata}}: %{{y:.3f}}<extra>{label}</extra>",
            )  # fmt: skip
        floor = group["floor"].iloc[0]
        figure.add_scatter(
            x=[index - 0.45, index + 0.45], y=[floor, floor], mode="lines", name=FLOOR_NAME, legendgroup=FLOOR_NAME,
            showlegend=index == 0, fill="tozeroy", fillcolor=FLOOR_FILL, line={"color": NULL_COLOUR, "width": 1},
            hovertemplate="noise floor %{y:.3f}<extra></extra>",
        )  # fmt: skip
        gamma = group["gamma"][worst].min()
        figure.add_scatter(
            x=[index - 0.45, index + 0.45], y=[gamma, gamma], mode="lines", name="γ̂", legendgroup="γ̂",
            showlegend=index == 0, line={"color": COLOURS[5], "width": 3}, hovertemplate="γ̂ = %{y:.3f}<extra></extra>",
        )  # fmt: skip
    laid_out(figure, x_title="closeness C", y_title="γ̂<sub>it</sub> on fresh rows", height=400)
    names = [f"{closeness:g}" for closeness in sorted(values["closeness"].unique())]
    figure.update_xaxes(tickvals=list(range(len(names))), ticktext=names)
    return figure


def gamma_power_figure(table: pd.DataFrame) -> go.Figure:
    """Power against γ̂, a mark for each closeness: ``gamma``, ``closeness``, ``rate``, and its interval low, high.

    A grey band reaches up to the median of ``floor``, the noise floor of γ̂.
    """
    table = table.sort_values("gamma")
    places = [("top right", "bottom left")[index % 2] for index in range(len(table))]  # neighbours may be close
    low, high = float(table["gamma"].min()), float(table["gamma"].max())
    margin = 0.2 * (high - low) or 0.01
    figure = go.Figure()
    figure.add_scatter(
        x=table["gamma"], y=table["rate"], mode="markers+lines+text", text=[f"C={c:g}" for c in table["closeness"]],
        textposition=places, name="Meta-Witness", marker={"size": 10, "symbol": "diamond", "color": COLOURS[0]},
        line={"color": COLOURS[0], "dash": "dot"}, hovertemplate="γ̂ = %{x:.3f}: power %{y:.2f}<extra></extra>",
        error_y={"array": table["high"] - table["rate"], "arrayminus": table["rate"] - table["low"], "thickness": 1},
    )  # fmt: skip
    floor = float(table["floor"].median())
    figure.add_vrect(x0=0, x1=floor, fillcolor=FLOOR_FILL, line_width=0, layer="below", annotation_text="noise floor")
    figure.update_xaxes(range=[low - margin, high + margin])
    figure.update_yaxes(range=[-0.1, 1.1])
    return laid_out(figure, x_title="γ̂ on fresh rows", y_title="power", height=400)


def closeness_power_figure(closeness: np.ndarray, rates: np.ndarray, intervals: np.ndarray, floor: float) -> go.Figure:
    """Power against C with intervals (k, 2), and that of a test without meta-tasks as a line."""
    figure = go.Figure()
    figure.add_hline(y=floor, line={"color": NULL_COLOUR, "dash": "dash"}, annotation_text="MMD-M, no meta-tasks")
    figure.add_scatter(
        x=closeness, y=rates, mode="lines+markers", name="Meta-Witness", line={"color": COLOURS[2]},
        marker={"size": 10},
        error_y={"array": intervals[:, 1] - rates, "arrayminus": rates - intervals[:, 0], "thickness": 1},
        hovertemplate="C=%{x:g}: power %{y:.2f}<extra></extra>",
    )  # fmt: skip
    figure.update_yaxes(range=[0, 1.05])
    return laid_out(figure, x_title="closeness C (small: meta-tasks like the target)", y_title="power", height=360)
