"""The theory's bounds, term by term."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
import plotly.graph_objects as go

from m2st_core.figures.theme import COLOURS, DASHES, hatched, laid_out

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
