"""γ̂ against the closeness C, power against γ̂, and the theory's bounds beside what they bound."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from m2st_core.figures.power import name_ends
from m2st_core.figures.theme import (
    DASHES,
    NULL_COLOUR,
    OBSERVED_COLOUR,
    PUBLISHED,
    WITH_RELATED,
    WITHOUT_RELATED,
    colour_of,
    error_bars,
    figure_label,
    laid_out,
    look_of,
    one_line_each,
)
from m2st_core.testing.method import GREENS, GREYS
from m2st_core.testing.methods import label_of

CLOSENESS = "closeness C (small: related tasks like the target)"
FLOOR_NAME = "noise floor: two samples of one task"
FLOOR = {"fillcolor": "rgba(128, 128, 128, 0.2)", "line": {"color": NULL_COLOUR, "width": 1}, "fill": "tozeroy"}
HOVER = "C=%{x:g}: γ̂ = %{y:.3f}"
BOUND = "bound on J* − J(k̂)"
THEOREM_GREYS, THEOREM_DASHES = (GREENS[3], GREYS[2], GREYS[0], OBSERVED_COLOUR), ("dot", "dash", "dashdot", "solid")


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


def gamma_power_figure(table: pd.DataFrame, others: pd.DataFrame, now: float, height: int = 360) -> go.Figure:
    """Draw ``rate`` ± ``error`` against ``gamma``, a line per ``method``; the mark of C ``now`` is large.

    Tests without related tasks, ``others``, are horizontal bands: above them, history helps.
    """
    figure, ends = go.Figure(), dict[str, tuple[float, float, str]]()
    for row in others.itertuples():
        name, colour = label_of(row.method), colour_of(row.method)
        figure.add_hrect(y0=row.rate - row.error, y1=row.rate + row.error, fillcolor=colour, opacity=0.22, line_width=0)
        figure.add_hline(y=row.rate, line={"color": colour, "width": 2, "dash": "dot"})
        ends[name] = 1.0, row.rate, colour
    for method, rows in table.groupby("method", sort=False):
        name, colour = label_of(str(method)), colour_of(str(method))
        sizes = [15 if closeness == now else 9 for closeness in rows["closeness"].round(3)]
        figure.add_scatter(
            x=rows["gamma"], y=rows["rate"], mode="lines+markers", name=name, showlegend=False,
            customdata=rows["closeness"], error_y={"array": rows["error"], "color": colour, "thickness": 2, "width": 5},
            line={"color": colour, "width": 3}, marker={"size": sizes, "symbol": look_of(str(method)).marker},
            hovertemplate="C=%{customdata:g}, γ̂ = %{x:.3f}: power %{y:.2f}<extra>" + name + "</extra>",
        )  # fmt: skip
        ends[name] = float(rows["gamma"].iloc[-1]), float(rows["rate"].iloc[-1]), colour
    for gamma, closeness in table[["gamma", "closeness"]].drop_duplicates().itertuples(index=False):
        figure.add_annotation(x=gamma, y=0, yanchor="bottom", text=f"C = {closeness:g}", showarrow=False)
    laid_out(figure, x_title="γ̂ of the related tasks", y_title="power", height=height).update_layout(margin_t=10)
    spread = table["gamma"].max() - table["gamma"].min() or 0.02
    figure.update_xaxes(range=[table["gamma"].min() - 0.15 * spread, table["gamma"].max() + 0.1 * spread])
    return name_ends(figure.update_yaxes(range=[0, 1.02]), ends)


def theorem_figure(table: pd.DataFrame, x_title: str, now: int, height: int = 400) -> go.Figure:
    """Draw ``value`` ± ``error`` against ``rows`` on logarithmic axes, one curve per ``line``.

    Those without error are parts of the bound. Values that are not positive have no place. A line marks ``now``.
    """
    figure, ends = go.Figure(), dict[str, tuple[float, float, str]]()
    measured, bounds = iter((*GREENS[:2], WITHOUT_RELATED)), iter(zip(THEOREM_GREYS, THEOREM_DASHES, strict=True))
    for name, rows in table.groupby("line", sort=False):
        rows, name = rows[rows["value"] > 0], str(name)
        known = rows["error"].notna().any()
        colour, dash = (next(measured), "solid") if known else next(bounds)
        if rows.empty:
            continue
        figure.add_scatter(
            x=rows["rows"], y=rows["value"], mode="lines+markers" if known else "lines", name=name, showlegend=False,
            error_y={"array": rows["error"], "color": colour, "width": 4} if known else None,
            line={"color": colour, "dash": dash, "width": 3 if known else 2}, marker={"size": 8},
            hovertemplate="%{x:,} rows: %{y:.3g}<extra>" + name + "</extra>",
        )  # fmt: skip
        ends[name] = float(rows["rows"].iloc[-1]), np.log10(rows["value"].iloc[-1]), colour
    figure.add_vline(x=now, line={"color": NULL_COLOUR, "dash": "dot", "width": 1})
    laid_out(figure, x_title=x_title, y_title="J* − J(k̂), and its bound", height=height).update_layout(margin_t=10)
    figure.update_xaxes(type="log", tickvals=sorted(table["rows"].unique()), tickformat=",")
    figure.update_yaxes(type="log", exponentformat="power", dtick=1)
    return name_ends(figure, ends, step=0.33)


def task_gamma_figure(table: pd.DataFrame) -> go.Figure:
    """Draw γ̂ of each ``task`` as a bar, and the noise floor of each as a grey mark."""
    figure = go.Figure()
    names = table["task"].map(figure_label)
    figure.add_bar(
        x=table["gamma"], y=names, orientation="h", name="γ̂", marker={"color": WITH_RELATED},
        hovertemplate="%{y}: γ̂ = %{x:.3f}<extra></extra>",
    )  # fmt: skip
    figure.add_scatter(
        x=table["floor"], y=names, mode="markers", name=FLOOR_NAME,
        marker={"symbol": "line-ns", "size": 18, "line": {"width": 3, "color": OBSERVED_COLOUR}},
        hovertemplate="%{y}: noise floor %{x:.3f}<extra></extra>",
    )  # fmt: skip
    return one_line_each(figure, len(table), x_title="γ̂ to the most related of the other tasks")


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


def gamma_course_figure(table: pd.DataFrame, now: float, height: int = 300) -> go.Figure:
    """Draw γ̂ on fresh rows against C with the published one, its noise floor, and a ring at C ``now``."""
    figure = go.Figure()
    figure.add_scatter(
        x=table["closeness"], y=table["floor"], mode="lines", showlegend=False,
        hovertemplate="C=%{x:g}: noise floor %{y:.3f}<extra></extra>", **FLOOR,
    )  # fmt: skip
    published = _with_published(table)
    figure.add_scatter(
        x=table["closeness"], y=table["on_test_rows"], mode="lines+markers", showlegend=False,
        hovertemplate=f"{HOVER}<extra>measured</extra>", line={"color": WITH_RELATED, "width": 3}, marker={"size": 8},
    )  # fmt: skip
    if published is not None:
        figure.add_scatter(
            x=published["closeness"], y=published["published"], mode="markers", showlegend=False,
            hovertemplate=f"{HOVER}<extra>published</extra>", marker=PUBLISHED | {"color": WITHOUT_RELATED},
        )  # fmt: skip
    here = table[table["closeness"].round(3) == round(now, 3)]
    figure.add_vline(x=now, line={"color": OBSERVED_COLOUR, "dash": "dot"})
    if len(here):
        figure.add_scatter(
            x=here["closeness"], y=here["on_test_rows"], mode="markers", showlegend=False, hoverinfo="skip",
            marker={"symbol": "circle-open", "size": 18, "color": OBSERVED_COLOUR, "line": {"width": 3}},
        )  # fmt: skip
    laid_out(figure, x_title="closeness C", y_title="γ̂", height=height).update_layout(margin_t=10)
    return figure.update_yaxes(rangemode="tozero")


def _with_published(table: pd.DataFrame) -> pd.DataFrame | None:
    """The rows with a published γ̂, if there are any."""
    if "published" not in table:
        return None
    rows = table.dropna(subset=["published"])
    return rows if len(rows) else None
