"""γ̂ against the closeness C, its spread, its relation to power, and the theory's bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
import plotly.graph_objects as go

from m2st_core.figures.theme import (
    DASHES,
    NULL_COLOUR,
    OBSERVED_COLOUR,
    PUBLISHED,
    WITH_RELATED,
    WITHOUT_RELATED,
    error_bars,
    laid_out,
    short_labels,
)
from m2st_core.testing.method import GREENS
from m2st_core.testing.methods import label_of

CLOSENESS = "closeness C (small: related tasks like the target)"
FLOOR_NAME = "noise floor: two samples of one task"
FLOOR = {"fillcolor": "rgba(128, 128, 128, 0.2)", "line": {"color": NULL_COLOUR, "width": 1}, "fill": "tozeroy"}
HOVER = "C=%{x:g}: γ̂ = %{y:.3f}"
BOUND = "bound on J* − J(k̂)"


def neighbours_figure(target: float, related: Sequence[float], symbol: str, bounds: tuple[float, float]) -> go.Figure:
    """Draw the size of the difference between P and Q in each related task and in the target, on one axis."""
    figure = go.Figure()
    looks = (
        (related, f"{len(related)} related tasks", WITH_RELATED, "line-ns"),
        ([target], "the target", OBSERVED_COLOUR, "star"),
    )
    for values, name, colour, marker in looks:
        figure.add_scatter(
            x=values, y=[0] * len(values), mode="markers", name=name,
            marker={"symbol": marker, "size": 16, "color": colour, "line": {"color": colour, "width": 2}},
            hovertemplate=f"{name}: {symbol} = %{{x:.2f}}<extra></extra>",
        )  # fmt: skip
    margin = 0.03 * (bounds[1] - bounds[0])
    laid_out(figure, x_title=f"how strongly P and Q differ: {symbol}", y_title="", height=140)
    figure.update_xaxes(range=[bounds[0] - margin, bounds[1] + margin], fixedrange=True)
    figure.update_yaxes(visible=False, range=[-1, 1], fixedrange=True)
    return short_labels(figure, left=10)


def gamma_figure(
    published: pd.DataFrame, ours: pd.DataFrame, *, height: int = 460, now: float | None = None
) -> go.Figure:
    """Draw γ̂ against C: published, and measured on both halves; error bars span the tasks' largest γ̂_it.

    A grey band reaches up to the noise floor of γ̂ on fresh rows, the column ``floor``. A line marks C ``now``.
    """
    spread = error_bars(ours["on_test_rows"], ours["lowest"], ours["highest"], color=WITH_RELATED, thickness=1)
    curves = (
        (published, "gamma_hat", "published", WITHOUT_RELATED, "dot", PUBLISHED, None),
        (ours, "on_training_rows", "measured, on the kernel's training rows", GREENS[1], "dash", "square", None),
        (ours, "on_test_rows", "measured, on fresh rows", WITH_RELATED, "solid", "circle", spread),
    )
    figure = go.Figure()
    figure.add_scatter(
        x=ours["closeness"], y=ours["floor"], mode="lines", name=FLOOR_NAME,
        hovertemplate="C=%{x:g}: noise floor %{y:.3f}", **FLOOR,
    )  # fmt: skip
    for table, column, name, colour, dash, symbol, bars in curves:
        marker = symbol | {"color": colour} if isinstance(symbol, dict) else {"symbol": symbol, "size": 9}
        figure.add_scatter(
            x=table["closeness"], y=table[column], mode="lines+markers", name=name, hovertemplate=HOVER,
            line={"color": colour, "dash": dash}, marker=marker, error_y=bars,
        )  # fmt: skip
    if now is not None:
        figure.add_vline(x=now, line={"color": NULL_COLOUR, "dash": "dot"})
    figure.update_yaxes(rangemode="tozero")
    return laid_out(figure, x_title=CLOSENESS, y_title="γ̂", height=height)


def gamma_spread_figure(values: pd.DataFrame) -> go.Figure:
    """Draw every γ̂_it in columns ``closeness``, ``task``, ``restart``, ``gamma``, ``floor``, and γ̂ as a line.

    γ̂ = min_i max_t γ̂_it: the smallest, over tasks, of each task's largest value.
    """
    figure = go.Figure()
    for index, (closeness, group) in enumerate(values.groupby("closeness")):
        first, width = index == 0, [index - 0.45, index + 0.45]
        largest = group.groupby("task")["gamma"].transform("max") == group["gamma"]
        tasks = group["task"].astype("category").cat.codes
        position = index + 0.7 * ((tasks + 0.5) / (tasks.max() + 1) - 0.5)
        looks = (
            (~largest, "a restart", "circle-open", NULL_COLOUR),
            (largest, "the task's largest", "diamond", WITH_RELATED),
        )
        for chosen, label, symbol, colour in looks:
            figure.add_scatter(
                x=position[chosen], y=group["gamma"][chosen], mode="markers", name=label, legendgroup=label,
                showlegend=first, customdata=group["task"][chosen],
                marker={"symbol": symbol, "size": 9, "color": colour},
                hovertemplate=f"C={closeness:g}, %{{customdata}}: %{{y:.3f}}<extra>{label}</extra>",
            )  # fmt: skip
        figure.add_scatter(
            x=width, y=[group["floor"].iloc[0]] * 2, mode="lines", name=FLOOR_NAME, legendgroup=FLOOR_NAME,
            showlegend=first, hovertemplate="noise floor %{y:.3f}<extra></extra>", **FLOOR,
        )  # fmt: skip
        figure.add_scatter(
            x=width, y=[group["gamma"][largest].min()] * 2, mode="lines", name="γ̂", legendgroup="γ̂", showlegend=first,
            line={"color": OBSERVED_COLOUR, "width": 3}, hovertemplate="γ̂ = %{y:.3f}<extra></extra>",
        )  # fmt: skip
    laid_out(figure, x_title="closeness C", y_title="γ̂<sub>it</sub> on fresh rows", height=400)
    names = [f"{closeness:g}" for closeness in sorted(values["closeness"].unique())]
    return figure.update_xaxes(tickvals=list(range(len(names))), ticktext=names)


def gamma_power_figure(table: pd.DataFrame) -> go.Figure:
    """Draw ``rate``, from ``low`` to ``high``, against ``gamma``, one mark per ``closeness``.

    A grey band reaches up to the median of ``floor``, the noise floor of γ̂.
    """
    table = table.sort_values("gamma")
    sides = [("top right", "bottom left")[index % 2] for index in range(len(table))]  # neighbours may be close
    low, high = float(table["gamma"].min()), float(table["gamma"].max())
    margin = 0.2 * (high - low) or 0.01
    figure = go.Figure()
    figure.add_scatter(
        x=table["gamma"], y=table["rate"], mode="markers+lines+text", text=[f"C={c:g}" for c in table["closeness"]],
        textposition=sides, name=label_of("Meta-Witness"),
        marker={"size": 10, "symbol": "diamond", "color": WITH_RELATED},
        line={"color": WITH_RELATED, "dash": "dot"}, hovertemplate="γ̂ = %{x:.3f}: power %{y:.2f}<extra></extra>",
        error_y=error_bars(table["rate"], table["low"], table["high"], thickness=1),
    )  # fmt: skip
    figure.add_vrect(
        x0=0, x1=float(table["floor"].median()), fillcolor=FLOOR["fillcolor"], line_width=0, layer="below",
        annotation_text="noise floor",
    )  # fmt: skip
    figure.update_xaxes(range=[low - margin, high + margin])
    figure.update_yaxes(range=[-0.1, 1.1])
    return laid_out(figure, x_title="γ̂ on fresh rows", y_title="power", height=400)


def bound_course_figure(sizes: list[int], courses: Mapping[str, list[float]], now: int) -> go.Figure:
    """Draw each bound against m on logarithmic axes, with a line at the present m."""
    figure = go.Figure()
    figure.add_vline(x=now, line={"color": OBSERVED_COLOUR, "dash": "dot"})
    colours = (WITHOUT_RELATED, GREENS[1], GREENS[0])  # only the first has no related tasks
    for (name, values), colour, dash in zip(courses.items(), colours, DASHES, strict=False):
        figure.add_scatter(
            x=sizes, y=values, mode="lines", name=name, line={"color": colour, "dash": dash},
            hovertemplate="m=%{x}: %{y:.3g}<extra>" + name + "</extra>",
        )  # fmt: skip
    laid_out(figure, x_title="rows m of the target, per sample", y_title=BOUND, height=360)
    figure.update_xaxes(type="log")
    return figure.update_yaxes(type="log")
