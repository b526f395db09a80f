"""Power and type-I error of methods, measured here and published.

A layered figure shows the paper beside this software: published numbers, the paper's algorithms ("paper") and our
methods ("ours"). Its ``tables`` are summaries of sweeps by layer; ``published`` has the columns of the paper's tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from m2st_core.figures.theme import (
    DASHES,
    MARKERS,
    NULL_COLOUR,
    PUBLISHED,
    WITHOUT_RELATED,
    colour_of,
    error_bars,
    hatched,
    laid_out,
    look_of,
    one_line_each,
)
from m2st_core.testing.methods import label_of

BAND, GHOST, PINNED = 0.2, 0.25, 0.6  # opacity
LAST = 2000  # rank in the legend; plotly's default is 1000
SETTINGS = ("closeness", "n_tasks", "m_tr")  # named in the legend where they vary
LAYERS = {
    "paper": ("the paper's algorithms, run by this software", "circle"),
    "released": ("the same as in the paper's code", "circle-dot"),
    "tuned": ("the same, tuned", "circle-open"),
    "ours": ("ours", "square"),
}
MOST_ENDS = 14  # curves that are named at their ends; more have a legend
NAME_STEP = 0.048  # of power, between two names
GROUP_STEP = 12  # columns from one group of dots to the next
REJECTED = "share of test samples rejected"


def power_figure(
    table: pd.DataFrame, size_unit: str = "per mode", sizes: Sequence[int] = (), marked: int | None = None
) -> go.Figure:
    """Draw power against m_te with bands of ± one standard error; published values are open diamonds.

    The axis spans ``sizes``, so that it stays while the curves fill it. A line marks the size ``marked``.
    """
    figure = _power_curves(table, "m_te", f"test rows m_te {size_unit}")
    spanned = [*sizes, *table["m_te"].astype(float)]
    if spanned:
        margin = 0.03 * (max(spanned) - min(spanned)) or 1
        figure.update_xaxes(range=[min(spanned) - margin, max(spanned) + margin])
    if marked is not None and spanned and min(spanned) <= marked <= max(spanned):
        figure.add_vline(x=marked, line={"color": NULL_COLOUR, "dash": "dot", "width": 1})
    return figure


def total_rows_figure(table: pd.DataFrame, *, size_unit: str = "per mode") -> go.Figure:
    """Draw power against all rows of the target: m_te, and m_tr for methods that split."""
    rows = table["m_te"].astype("Float64") + table["m_tr"].fillna(0)
    shown = table.drop(columns="m_te").assign(rows=rows, m_tr=pd.NA)
    return _power_curves(shown, "rows", f"all target rows {size_unit}, training rows included")


def tasks_figure(table: pd.DataFrame) -> go.Figure:
    """Draw power against the number N of related tasks, one curve per method and size."""
    return _power_curves(table, "n_tasks", "number of related tasks N", also=("m_te",))


def _power_curves(table: pd.DataFrame, x: str, x_title: str, also: Sequence[str] = ()) -> go.Figure:
    figure = go.Figure()
    keys = ["method", *also, *(key for key in SETTINGS if key != x and table[key].nunique() > 1)]
    ends: dict[str, tuple[float, float, str]] = {}
    for (method, *values), group in table.groupby(keys, dropna=False, sort=False):
        group, name = group.sort_values(x), _named(method, keys[1:], values)
        _add_curve(figure, method, name, group, x)
        ends[name] = float(group[x].iloc[-1]), float(group["rate"].iloc[-1]), colour_of(method)
        points = group.dropna(subset=["published"]) if "published" in group else group[:0]
        if len(points):
            points = points.drop(columns="error").rename(columns={"published": "power", "published_error": "std_error"})
            _add_published(figure, method, points, x)
    if len(ends) > MOST_ENDS:
        return _rejection_layout(figure, x_title)
    name_ends(_rejection_layout(figure, x_title), ends).layout.margin.t = 10
    for trace in figure.data:
        trace.showlegend = False
    return figure


def name_ends(figure: go.Figure, ends: Mapping[str, tuple[float, float, str]], step: float = NAME_STEP) -> go.Figure:
    """Write each curve's name to the right of its end (x, y, colour), moved apart where ends are closer than a step."""
    heights = _spread([rate for _, rate, _ in ends.values()], step)
    for (name, (_, _, colour)), height in zip(ends.items(), heights, strict=True):
        figure.add_annotation(
            x=1, xref="paper", y=height, text=f'<span style="color:{colour}">{name}</span>', xanchor="left",
            yanchor="middle", showarrow=False, xshift=6, font={"size": 13},
        )  # fmt: skip
    longest = max(map(len, ends), default=0)
    figure.layout.margin.r = max(figure.layout.margin.r, min(200, 16 + 8 * longest))
    return figure


def _spread(values: Sequence[float], step: float) -> list[float]:
    """The values, moved as little as a pass from below and one from above need for gaps of at least ``step``.

    >>> [round(float(value), 2) for value in _spread([0.5, 0.51, 0.9], 0.1)]
    [0.46, 0.56, 0.9]
    """
    order = np.argsort(values, kind="stable")
    groups: list[list[float]] = []  # centre and count of names that touch
    for value in np.asarray(values, dtype=float)[order]:
        groups.append([value, 1])
        while len(groups) > 1 and groups[-1][0] - groups[-2][0] < step * (groups[-1][1] + groups[-2][1]) / 2:
            centre, count = groups.pop()
            before, number = groups[-1]
            groups[-1] = [(centre * count + before * number) / (count + number), count + number]
    placed = [centre + (index - (count - 1) / 2) * step for centre, count in groups for index in range(int(count))]
    result = np.empty(len(placed))
    result[order] = placed
    return [float(value) for value in result]


def add_earlier(figure: go.Figure, table: pd.DataFrame, name: str, *, pinned: bool) -> None:
    """Add curves of other settings, named in a legend by method and settings: pinned ones are thin, others pale."""
    figure.layout.margin.t, figure.layout.showlegend = 40, True
    for method, group in table.groupby("method", sort=False):
        group, label = group.sort_values("m_te"), f"{'' if pinned else 'pale: '}{label_of(method)}, {name}"
        figure.add_scatter(
            x=group["m_te"].astype(float), y=group["rate"].astype(float), mode="lines",
            name=label, legendgroup=label, opacity=PINNED if pinned else GHOST, legendrank=LAST,
            line={"color": colour_of(method), "dash": look_of(method).dash, "width": 2 if pinned else 4},
            hovertemplate="%{y:.3f}<extra>" + label + "</extra>",
        )  # fmt: skip


def compare_figure(table: pd.DataFrame, *, size_unit: str = "") -> go.Figure:
    """Draw rejection rates against m_te with error bars of one standard error, one line style per ``run``."""
    figure = go.Figure()
    for index, (run, rows) in enumerate(table.groupby("run", sort=False)):
        varying = [key for key in SETTINGS if rows[key].nunique() > 1]
        for (method, *values), group in rows.groupby(["method", *varying], dropna=False, sort=False):
            group = group.sort_values("m_te")
            figure.add_scatter(
                x=group["m_te"].astype(float), y=group["rate"].astype(float), mode="lines+markers",
                error_y={"array": group["error"].astype(float), "width": 3},
                name=f"{_named(method, varying, values)}, {run}",
                line={"color": colour_of(method), "dash": DASHES[index % len(DASHES)]},
                marker={"symbol": MARKERS[index % len(MARKERS)], "size": 8},
                hovertemplate="%{y:.3f} ± %{error_y.array:.3f}",
            )  # fmt: skip
    return _rejection_layout(figure, f"test rows m_te {size_unit}".strip())


def layers_figure(tables: Mapping[str, pd.DataFrame], published: pd.DataFrame, x: str, x_title: str) -> go.Figure:
    """Draw power against ``x`` for all layers; published values are open diamonds."""
    figure = go.Figure()
    for table in tables.values():
        for method, group in table.groupby("method", sort=False):
            _add_curve(figure, method, label_of(method), group.sort_values(x), x)
    curves = {trace.legendgroup for trace in figure.data}
    for method, group in published.groupby("method", sort=False):
        _add_published(figure, method, group, x, named=method not in curves)
    return _rejection_layout(figure, x_title)


def _named(method: str, keys: Sequence[str], values: Sequence[object]) -> str:
    """Return a legend entry: the method's label and the settings that vary."""
    settings = [v if isinstance(v, str) else f"{k}={v:g}" for k, v in zip(keys, values, strict=True) if not pd.isna(v)]
    return ", ".join([label_of(method), *settings])


def _add_curve(figure: go.Figure, method: str, name: str, group: pd.DataFrame, x: str) -> None:
    """Add a curve with its band of one standard error."""
    look = look_of(method)
    xs, rate, error = (group[column].astype(float) for column in (x, "rate", "error"))
    figure.add_scatter(
        x=xs, y=rate, mode="lines+markers", name=name, legendgroup=name, line={"color": look.colour, "dash": look.dash},
        marker={"symbol": look.marker, "size": 8}, customdata=np.c_[error, group["repeats"]],
        hovertemplate="%{y:.3f} ± %{customdata[0]:.3f} (%{customdata[1]} repeats)<extra>" + name + "</extra>",
    )  # fmt: skip
    figure.add_scatter(
        x=[*xs, *xs[::-1]], y=[*(rate + error), *(rate - error)[::-1]], fill="toself", mode="lines", line={"width": 0},
        fillcolor=look.colour, opacity=BAND, legendgroup=name, showlegend=False, hoverinfo="skip",
    )  # fmt: skip


def _add_published(figure: go.Figure, method: str, points: pd.DataFrame, x: str, named: bool = False) -> None:
    """Add published values: under the method's own name, or under one legend entry shared by all."""
    name, colour = f"{method}, published" if named else "published", colour_of(method)
    figure.add_scatter(
        x=points[x].astype(float), y=points["power"], mode="markers", name=name, legendgroup=name, legendrank=LAST,
        showlegend=not any(trace.legendgroup == name for trace in figure.data),
        marker=PUBLISHED | {"color": colour}, error_y={"array": points["std_error"], "color": colour},
        customdata=_doubts(points), hovertemplate=f"%{{y:.3f}}%{{customdata}}<extra>{method}, published</extra>",
    )  # fmt: skip


def _doubts(published: pd.DataFrame) -> pd.Series:
    return published["doubt"].where(published["doubt"] == "", ": " + published["doubt"])


def _rejection_layout(figure: go.Figure, x_title: str) -> go.Figure:
    figure.update_yaxes(range=[-0.02, 1.02])
    names = sum(trace.showlegend is not False for trace in figure.data)
    height = 380 + 12 * max(0, names - 5)  # the legend wraps on a narrow screen
    return laid_out(figure, x_title=x_title, y_title=REJECTED, height=height)


def layers_marks(tables: Mapping[str, pd.DataFrame], published: pd.DataFrame) -> go.Figure:
    """Draw power at one size: published as open diamonds, the paper's algorithms as circles, ours as squares.

    Error bars are one standard error.
    """
    figure = go.Figure()
    for layer, table in tables.items():
        name, symbol = LAYERS[layer]
        figure.add_scatter(
            x=table["rate"], y=table["method"].map(label_of), mode="markers", name=name,
            marker={"symbol": symbol, "size": 11, "color": table["method"].map(colour_of)},
            error_x={"array": table["error"], "color": NULL_COLOUR}, customdata=table["repeats"],
            hovertemplate="%{x:.3f} (%{customdata} repeats)<extra>%{y}</extra>",
        )  # fmt: skip
    figure.add_scatter(
        x=published["power"], y=published["method"], mode="markers", name="published", customdata=_doubts(published),
        marker=PUBLISHED | {"color": published["method"].map(colour_of)},
        error_x={"array": published["std_error"], "color": NULL_COLOUR},
        hovertemplate="%{x:.3f}%{customdata}<extra>%{y}, published</extra>",
    )  # fmt: skip
    figure.update_xaxes(range=[-0.02, 1.02])
    names = {name for trace in figure.data for name in trace.y}
    return one_line_each(figure, len(names), x_title=REJECTED, line=28)


def ablation_figure(table: pd.DataFrame) -> go.Figure:
    """Draw bars of power with standard errors, in the order of the table; published values are open diamonds."""
    figure = go.Figure()
    figure.add_bar(
        x=table["method"].map(label_of), y=table["rate"], error_y={"array": table["error"]}, name="measured here",
        marker={"color": table["method"].map(colour_of)},
    )  # fmt: skip
    points = table.dropna(subset=["published"])
    if len(points):
        marker = PUBLISHED | {"color": NULL_COLOUR}
        names = points["method"].map(label_of)
        figure.add_scatter(x=names, y=points["published"], mode="markers", name="published", marker=marker)
    figure.update_yaxes(range=[0, 1.02])
    return laid_out(figure, x_title="", y_title="power")


def left_out_figure(table: pd.DataFrame) -> go.Figure:
    """Draw power on left-out tasks by ``method``, from ``low`` to ``high``; hatched if no related task is used."""
    figure = go.Figure()
    for related, label, pattern in ((True, "with the other related tasks", ""), (False, "without", "/")):
        rows = table[table["uses_related_tasks"] == related]
        figure.add_bar(
            x=rows["method"].map(label_of), y=rows["power"], name=label, customdata=rows[["low", "high", "tests"]],
            marker=hatched(rows["method"].map(colour_of), pattern),
            error_y=error_bars(rows["power"], rows["low"], rows["high"], color=NULL_COLOUR, thickness=3),
            hovertemplate="%{x}: %{y:.2f}, %{customdata[0]:.2f} to %{customdata[1]:.2f}, %{customdata[2]} tests",
        )  # fmt: skip
    figure.update_yaxes(range=[0, 1.05])
    return laid_out(figure, x_title="", y_title="power on left-out tasks")


def found_figure(groups: Mapping[str, tuple[np.ndarray, str]], *, height: int = 380) -> go.Figure:
    """Draw each group's tests as ten columns of dots: full where the test found the difference, else open.

    Groups map names, of one or more lines, to results (n,) and a colour. A sample's dot has the same position in every
    group.
    """
    figure = go.Figure()
    for group, (name, (rejected, colour)) in enumerate(groups.items()):
        count = len(rejected)
        columns, lines = np.arange(count) % 10 + group * GROUP_STEP, -(np.arange(count) // 10)
        for chosen, symbol, words in ((rejected, "circle", "found"), (~rejected, "circle-open", "missed")):
            figure.add_scatter(
                x=columns[chosen], y=lines[chosen], mode="markers", showlegend=False, name=words,
                marker={"color": colour if symbol == "circle" else NULL_COLOUR, "symbol": symbol, "size": 11},
                hovertemplate=f"{words}<extra></extra>",
            )  # fmt: skip
        figure.add_annotation(
            x=4.5 + group * GROUP_STEP, y=1, yanchor="bottom", showarrow=False, font={"size": 15},
            text=f"<b>{int(rejected.sum())} of {count}</b><br>{name}",
        )  # fmt: skip
    laid_out(figure, x_title="", y_title="", height=height)
    figure.update_xaxes(visible=False, range=[-1, GROUP_STEP * len(groups) - 2])
    figure.update_yaxes(visible=False, range=[-9.7, 4])
    return figure


def learning_figure(
    rows: Sequence[int], powers: np.ndarray, intervals: np.ndarray, now: int, floor: float
) -> go.Figure:
    """Draw power with intervals (k, 2) against training rows on fixed axes. ``floor`` is power without learning."""
    figure = go.Figure()
    figure.add_scatter(
        x=[rows[0], rows[-1]], y=[floor, floor], mode="lines", name="not learned (MMD-M)",
        line={"color": WITHOUT_RELATED, "dash": "dot", "width": 3}, hovertemplate="power %{y:.0%}<extra></extra>",
    )  # fmt: skip
    figure.add_scatter(
        x=list(rows), y=powers, mode="lines+markers", name="learned from own rows",
        line={"color": WITHOUT_RELATED, "width": 3},
        marker={"size": [18 if row == now else 9 for row in rows]},
        error_y=error_bars(powers, intervals[:, 0], intervals[:, 1], thickness=1),
        hovertemplate="%{x} training rows: power %{y:.0%}<extra></extra>",
    )  # fmt: skip
    laid_out(figure, x_title="training rows per sample", y_title="power", height=440)
    figure.update_xaxes(type="log", tickvals=list(rows), ticktext=[str(row) for row in rows])
    return figure.update_yaxes(range=[0, 1], tickformat=".0%")


FIGURES = {"power": power_figure, "closeness": power_figure, "tasks": tasks_figure, "ablation": ablation_figure}
"""The figure of each kind of experiment."""
