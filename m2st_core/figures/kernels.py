"""Learned kernels: their weights, their Ĵ, their training, and the importance of columns and classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from m2st_core.figures.theme import (
    DIVERGING,
    NULL_COLOUR,
    OBSERVED_COLOUR,
    P_COLOUR,
    Q_COLOUR,
    WITH_RELATED,
    colour_of,
    equal_aspect,
    figure_label,
    hatched,
    laid_out,
)

EMPTY = "rgba(127,133,142,0.10)"  # behind a bar: the place of a click
CHOSEN = "rgba(109,59,191,0.22)"
PICTURES = 0.36  # of a chart's height, below its bars
RANKS = ("largest", "second", "third", "all others")


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


def mixture_figure(
    table: pd.DataFrame,
    height: int = 380,
    symbol: str = "Δ",
    *,
    measured: str = "beta",
    method: str = "Meta-MKL",
    pictures: np.ndarray | None = None,
) -> go.Figure:
    """Draw the weight of each base kernel, in the order of its task's strength: its mean over repeats, and each repeat.

    ``table`` has the columns kernel, repeat, beta (or another one that is ``measured``), and strength or, without it,
    name; β as used is drawn where it differs. A line is at the weight of a uniform mixture. With ``pictures``
    (K, g, g), each kernel has its witness below its bar. The last trace has a place to click for each kernel.
    """
    grouped = table.groupby("kernel")
    mean, strength = grouped[measured].mean(), grouped["strength"].mean()
    named = bool(strength.isna().any())
    full = list(grouped["name"].first()) if named else [f"{symbol} = {value:.3f}" for value in strength]
    figure = go.Figure()
    figure.add_bar(
        x=mean.index, y=mean, marker={"color": colour_of(method)}, showlegend=False, hoverinfo="skip", name="mean"
    )
    figure.add_scatter(
        x=table["kernel"], y=table[measured], mode="markers", showlegend=False, hoverinfo="skip", name="repeats",
        marker={"color": NULL_COLOUR, "symbol": "circle-open", "size": 6},
    )  # fmt: skip
    used = grouped["used"].mean() if measured == "beta" and "used" in table else mean
    if not np.allclose(used, mean):
        figure.add_scatter(
            x=mean.index, y=used, mode="markers", showlegend=False, hoverinfo="skip", name="used",
            marker={"symbol": "line-ew", "size": 26, "line": {"width": 4, "color": OBSERVED_COLOUR}},
        )  # fmt: skip
    uniform, top = (
        1 / max(1, len(mean)),
        max(1.06 if pictures is not None else 0.0, 1.06 * float(table[measured].max())),
    )
    if measured == "beta":
        figure.add_hline(y=uniform, line={"color": NULL_COLOUR, "dash": "dot", "width": 2})
    words = "mean β" if measured == "beta" else "mean share"
    values = [
        f"{words} = {value:.2f}" + (f", used: {at_test:.2f}" if not np.allclose(used, mean) else "")
        for value, at_test in zip(mean, used, strict=True)
    ]
    labels = [f"{figure_label(name)}: {value}" for name, value in zip(full, values, strict=True)]
    figure.add_bar(
        x=mean.index, y=[top] * len(mean), customdata=labels, showlegend=False, name="kernel",
        marker={"color": EMPTY}, hovertemplate="%{customdata}<extra></extra>",
        selected={"marker": {"color": CHOSEN, "opacity": 1}}, unselected={"marker": {"opacity": 1}},
    )  # fmt: skip
    for trace in figure.data[:-1]:
        trace.update(unselected={"marker": {"opacity": 1}})
    ticks = [figure_label(name, 12) for name in full] if named else [f"{value:.2f}" for value in strength]
    x_title = "" if named else f"{symbol} of the kernel's related task"
    laid_out(figure, x_title=x_title, y_title="β" if measured == "beta" else "share", height=height)
    figure.update_xaxes(tickvals=list(mean.index), ticktext=ticks, showgrid=False)
    figure.update_layout(margin_t=10, bargap=0.16, barmode="overlay", clickmode="event+select", dragmode=False)
    figure.update_yaxes(range=[0, top])
    if pictures is not None:
        _draw_pictures(figure, pictures)
    return figure


def _draw_pictures(figure: go.Figure, maps: np.ndarray) -> None:
    """Draw a small picture below each bar, its colours full at its own largest value."""
    count, lines, columns = maps.shape
    shown = maps / np.nan_to_num(np.abs(maps)).max(axis=(1, 2), keepdims=True).clip(min=1e-12)
    gap = np.full((lines, 1), np.nan)
    x = [k + offset for k in range(count) for offset in (*np.linspace(-0.42, 0.42, columns), 0.5)]
    z = np.concatenate([part for picture in shown for part in (picture, gap)], axis=1)
    figure.add_heatmap(
        x=x, y=np.arange(lines), z=z.round(3), zmin=-1, zmax=1, colorscale=DIVERGING, showscale=False,
        hoverinfo="skip", xaxis="x", yaxis="y2", name="pictures",
    )  # fmt: skip
    figure.data = (*figure.data[:-2], figure.data[-1], figure.data[-2])  # what is clicked stays last
    figure.update_layout(
        yaxis={"domain": [PICTURES + 0.03, 1]},
        yaxis2={"domain": [0, PICTURES], "visible": False, "fixedrange": True, "showgrid": False},
        xaxis={"anchor": "y2"},
    )


def rank_figure(ranked: pd.DataFrame, now: int, method: str, x_title: str, height: int) -> go.Figure:
    """Draw how much of the weight the largest kernel of a repeat has, the second, the third and all others, by m_tr.

    ``ranked`` has a row for each m_tr and a column for each rank. The size ``now`` is bold.
    """
    others = ranked.iloc[:, len(RANKS) - 1 :].sum(axis=1)
    figure, sizes = go.Figure(), [f"{size:g}" for size in ranked.index]
    ticks = [f"<b>{size:g}</b>" if size == now else f"{size:g}" for size in ranked.index]
    for place, (rank, shade) in enumerate(zip(RANKS, (1.0, 0.6, 0.35, 0.14), strict=True)):
        if place >= ranked.shape[1]:
            continue
        values = others if rank == RANKS[-1] else ranked[place]
        figure.add_bar(
            x=sizes, y=values, name=rank, showlegend=False,
            marker={"color": colour_of(method), "opacity": shade},
            text=[f"{100 * value:.0f} %" for value in values] if place == 0 else None, textposition="inside",
            insidetextanchor="middle", textfont={"color": "white", "size": 13}, textangle=0,
            hovertemplate=f"m_tr = %{{x}}, {rank}: %{{y:.0%}}<extra></extra>",
        )  # fmt: skip
    laid_out(figure, x_title=x_title, y_title="", height=height)
    figure.update_xaxes(type="category", tickvals=sizes, ticktext=ticks)
    figure.update_layout(barmode="stack", bargap=0.2, margin_t=4)
    return figure.update_yaxes(range=[0, 1.001], tickformat=".0%", nticks=3)


def map_figure(values: np.ndarray, axes: tuple[np.ndarray, np.ndarray], height: int) -> go.Figure:
    """Draw a witness (g, g) without scales: P's colour where it is positive, Q's where negative, nothing at NaN."""
    largest = float(np.nanmax(np.abs(values))) or 1.0
    figure = go.Figure()
    figure.add_heatmap(
        x=axes[0], y=axes[1], z=values, zmin=-largest, zmax=largest, colorscale=DIVERGING, showscale=False,
        hovertemplate="%{x:.2f}, %{y:.2f}: %{z:.2g}<extra></extra>", zsmooth=False,
    )  # fmt: skip
    figure.add_contour(
        x=axes[0], y=axes[1], z=values, contours={"start": 0, "end": 0, "size": 1, "coloring": "none"},
        line={"color": NULL_COLOUR, "dash": "dot", "width": 1.5}, showscale=False, hoverinfo="skip", showlegend=False,
    )  # fmt: skip
    laid_out(figure, x_title="", y_title="", height=height)
    figure.update_layout(margin={"l": 0, "r": 0, "t": 4, "b": 4})
    figure.update_xaxes(visible=False, fixedrange=True)
    figure.update_yaxes(visible=False, fixedrange=True)
    return equal_aspect(figure, float(np.ptp(axes[0])), float(np.ptp(axes[1])))
