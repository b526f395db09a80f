"""The theory's bounds, term by term."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from m2st_core.figures.theme import (
    COLOURS,
    DASHES,
    MARKERS,
    NULL_COLOUR,
    PUBLISHED,
    colour_of,
    hatched,
    height_with,
    label_of,
    laid_out,
    look_of,
    one_line_each,
)

BAND = 0.2  # opacity
LAST = 2000  # in the legend; others have plotly's 1000


def power_figure(table: pd.DataFrame, *, published: bool = True, size_unit: str = "per mode") -> go.Figure:
    """Power against m_te with bands of ± one standard error; published points as open diamonds."""
    return _curves(table, "m_te", f"test rows m_te {size_unit}", published)


def tasks_figure(table: pd.DataFrame, *, published: bool = True) -> go.Figure:
    """Power against the number of meta-tasks N, one curve for each method and size."""
    return _curves(table, "n_tasks", "number of meta-tasks N", published, also=("m_te",))


def closeness_figure(table: pd.DataFrame, *, published: bool = True) -> go.Figure:
    """Power against the closeness C, one curve for each method and size."""
    return _curves(table, "closeness", "closeness C (small: meta-tasks like the target)", published, also=("m_te",))


def _curves(table: pd.DataFrame, x: str, x_title: str, published: bool, also: Sequence[str] = ()) -> go.Figure:
    figure = go.Figure()
    keys = [
        "method",
        *also,
        *(k for k in ("preset", "closeness", "n_tasks", "m_tr") if k != x and table[k].nunique() > 1),
    ]
    for labels, group in table.groupby(keys, dropna=False, sort=False):
        group = group.sort_values(x)
        method = str(labels[0])
        name = ", ".join(
            [
                label_of(method),
                *(
                    f"{k}={v:g}" if isinstance(v, (int, float)) else str(v)
                    for k, v in zip(keys[1:], labels[1:], strict=True)
                    if not pd.isna(v)
                ),
            ]
        )
        xs, rate, error = (group[column].astype(float) for column in (x, "rate", "error"))
        look = look_of(method)
        colour = look.colour
        figure.add_scatter(
            x=xs, y=rate, mode="lines+markers", name=name, legendgroup=name,
            line={"color": colour, "dash": look.dash}, marker={"symbol": look.marker, "size": 8},
            customdata=np.c_[error, group["repeats"]],
            hovertemplate="%{y:.3f} ± %{customdata[0]:.3f} (%{customdata[1]} repeats)<extra>" + name + "</extra>",
        )  # fmt: skip
        figure.add_scatter(
            x=[*xs, *xs[::-1]], y=[*(rate + error), *(rate - error)[::-1]], fill="toself", mode="lines",
            line={"width": 0}, fillcolor=colour, opacity=BAND, legendgroup=name, showlegend=False, hoverinfo="skip",
        )  # fmt: skip
        known = group.dropna(subset=["published"]) if published else group.iloc[:0]
        if len(known):
            first = not any(trace.legendgroup == "published" for trace in figure.data)
            figure.add_scatter(
                x=known[x].astype(float), y=known["published"], mode="markers", name="published", showlegend=first,
                legendgroup="published", legendrank=LAST, marker=PUBLISHED | {"color": colour},
                error_y={"array": known["published_error"], "color": colour},
                customdata=known["doubt"].where(known["doubt"] != "", "published"),
                hovertemplate="%{y:.3f}: %{customdata}<extra>" + name + "</extra>",
            )  # fmt: skip
    figure.update_yaxes(range=[-0.02, 1.02])
    names = sum(trace.showlegend is not False for trace in figure.data)
    return laid_out(figure, x_title=x_title, y_title="share of test samples rejected", height=height_with(names))


def type_1_figure(table: pd.DataFrame, alpha: float, band: tuple[float, float]) -> go.Figure:
    """Rejection rates under the null, with α and the band in which a valid test's rate lies 99 times of 100.

    Bars are the intervals of the columns ``low`` and ``high``, where the table has them.
    """
    figure = go.Figure()
    figure.add_vrect(x0=band[0], x1=band[1], fillcolor=NULL_COLOUR, opacity=BAND, line_width=0)
    figure.add_vline(x=alpha, line={"color": NULL_COLOUR, "dash": "dash"})
    labels = [label_of(str(method)) for method in table["method"]]
    if "m_te" in table and table["m_te"].nunique() > 1:
        labels = [f"{label}, m_te={size}" for label, size in zip(labels, table["m_te"], strict=True)]
    bars = None
    if "low" in table:
        up, down = table["high"] - table["rate"], table["rate"] - table["low"]
        bars = {"array": up, "arrayminus": down, "color": NULL_COLOUR, "thickness": 1.5}
    figure.add_scatter(
        x=table["rate"], y=labels, mode="markers", name="type-I error", error_x=bars,
        marker={"size": 11, "color": [colour_of(str(method)) for method in table["method"]]},
        hovertemplate="%{y}: %{x:.3f}<extra></extra>",
    )  # fmt: skip
    figure.update_xaxes(rangemode="tozero")
    return one_line_each(figure, len(labels), x_title=f"share rejected at α={alpha:g} if P = Q")


def ablation_figure(table: pd.DataFrame) -> go.Figure:
    """Bars of power with errors, in the order of the table, published values as open diamonds."""
    figure = go.Figure()
    figure.add_bar(
        x=table["method"].map(label_of), y=table["rate"], error_y={"array": table["error"]}, name="measured here",
        marker={"color": [colour_of(str(method)) for method in table["method"]]},
    )  # fmt: skip
    known = table.dropna(subset=["published"])
    if len(known):
        figure.add_scatter(
            x=known["method"].map(label_of), y=known["published"], mode="markers", name="published",
            marker=PUBLISHED | {"color": NULL_COLOUR},
        )  # fmt: skip
    figure.update_yaxes(range=[0, 1.02])
    return laid_out(figure, x_title="", y_title="power")


def training_figure(course: dict[str, list[float]]) -> go.Figure:
    """A learner's training curve: what it climbed, and what held-out rows said."""
    figure = go.Figure()
    for key, name, colour in (("train", "training rows", "#0072B2"), ("held_out", "held-out rows", "#D55E00")):
        if any(not np.isnan(value) for value in course[key]):
            figure.add_scatter(x=course["step"], y=course[key], mode="lines+markers", name=name, line={"color": colour})
    return laid_out(figure, x_title="training step", y_title="criterion")


FIGURES = {"power": power_figure, "closeness": power_figure, "tasks": tasks_figure, "ablation": ablation_figure}
"""The figure of each kind of experiment."""


WITHIN = ("preset", "closeness", "n_tasks", "m_tr")


def compare_figure(table: pd.DataFrame, *, size_unit: str = "") -> go.Figure:
    """Rejection rates against m_te with bars of one standard error; ``table`` is a summary with a column ``run``."""
    figure = go.Figure()
    for index, (run, rows) in enumerate(table.groupby("run", sort=False)):
        varying = [name for name in WITHIN if rows[name].nunique() > 1]
        for labels, group in rows.groupby(["method", *varying], dropna=False, sort=False):
            group = group.sort_values("m_te")
            method, *rest = labels
            details = [f"{k}={v}" for k, v in zip(varying, rest, strict=True) if not pd.isna(v)]
            figure.add_scatter(
                x=group["m_te"].astype(float),
                y=group["rate"].astype(float),
                error_y={"array": group["error"].astype(float), "width": 3},
                mode="lines+markers",
                name=", ".join([label_of(str(method)), *details, str(run)]),
                line={"color": colour_of(str(method)), "dash": DASHES[index % len(DASHES)]},
                marker={"symbol": MARKERS[index % len(MARKERS)], "size": 8},
                hovertemplate="%{y:.3f} ± %{error_y.array:.3f}",
            )
    figure.update_yaxes(range=[-0.02, 1.02])
    x_title, height = f"test rows m_te {size_unit}".strip(), height_with(len(figure.data))
    return laid_out(figure, x_title=x_title, y_title="share of test samples rejected", height=height)


PATTERNS = ("", "/", "x", ".", "\\")


def bound_terms_figure(table: pd.DataFrame) -> go.Figure:
    """Stacked bars: ``bound`` by ``term`` and ``value``; a term has one colour and one pattern in all bars."""
    figure = go.Figure()
    for index, (term, group) in enumerate(table.groupby("term", sort=False)):
        figure.add_bar(
            x=group["bound"], y=group["value"], name=str(term),
            hovertemplate=f"%{{x}}: %{{y:.3g}}<extra>{term}</extra>",
            marker=hatched(COLOURS[index % len(COLOURS)], PATTERNS[index % len(PATTERNS)]),
        )  # fmt: skip
    laid_out(figure, x_title="", y_title="bound on J* − J(k̂)", height=480)
    figure.update_layout(barmode="stack", legend_traceorder="normal")
    return figure


def bound_course_figure(sizes: list[int], courses: Mapping[str, list[float]], now: int) -> go.Figure:
    """Each bound against m on logarithmic axes, with a line at the m of now."""
    figure = go.Figure()
    figure.add_vline(x=now, line={"color": COLOURS[5], "dash": "dot"})
    for index, (name, values) in enumerate(courses.items()):
        figure.add_scatter(
            x=sizes, y=values, mode="lines", name=name, line={"color": COLOURS[index], "dash": DASHES[index]},
            hovertemplate="m=%{x}: %{y:.3g}<extra>" + name + "</extra>",
        )  # fmt: skip
    laid_out(figure, x_title="rows m of the target, per sample", y_title="bound on J* − J(k̂)", height=360)
    figure.update_xaxes(type="log")
    figure.update_yaxes(type="log")
    return figure
