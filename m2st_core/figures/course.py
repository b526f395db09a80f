"""The pictures of the course: labels that swap, tests at a glance, and power against training rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from m2st_core.figures.theme import (
    NULL_COLOUR,
    OBSERVED_COLOUR,
    WITHOUT_HISTORY,
    equal_aspect,
    error_bars,
    laid_out,
    sample_looks,
    short_labels,
)

GOLDEN_RATIO = 0.618  # spreads marks evenly without random numbers
ROW, DOT, DOT_BINS = 8, 10, 26  # sizes of rows and of dots in pixels, and piles of dots
SHUFFLED_ROWS = 50  # of each sample that are drawn
SLOW, FALLS = 3, (1.0, 0.5, 0.0)  # the dots of the first shuffles fall in three frames
ONE_BY_ONE, TOGETHER = 6, 20  # shuffles that have a frame each, and those in each frame after them
GROUP_STEP = 12  # columns from one group of dots to the next
OBSERVED_LINE = {"color": OBSERVED_COLOUR, "width": 3}


def shuffle_figure(rows: np.ndarray, members: np.ndarray, statistics: np.ndarray, shown: int) -> go.Figure:
    """Draw labels that swap above a null distribution that fills, with Play and Pause.

    ``rows`` (N, 2) are called P where ``members`` (1+B, N) is true and have MMD² ``statistics`` (1+B,). The first of
    them are observed. The figure starts with the first ``shown`` shuffles. When all are shown, the labels are the
    observed ones again.
    """
    count = len(statistics) - 1
    drawn = np.concatenate([np.flatnonzero(side)[:SHUFFLED_ROWS] for side in (members[0], ~members[0])])
    places, heights, top = _stacked(statistics)
    reached = statistics[1:] >= statistics[0]

    def state(step: int, falling: float = 0.0) -> list[dict[str, Any]]:
        """The traces after some shuffles: rows called P, rows called Q, dots, and the count. Size 0 hides."""
        called_p = members[step % count][drawn]
        sizes = (np.where(called, ROW, 0) for called in (called_p, ~called_p))
        above = heights + falling * top * (np.arange(count) == step - 1)
        dots = {"y": above, "marker": {"size": np.where(np.arange(count) < step, DOT, 0)}}
        return [*({"marker": {"size": size}} for size in sizes), dots, {"text": [_counted(reached[:step])]}]

    figure = go.Figure()
    *labels, dots, counter = state(shown)
    for look, label in zip(sample_looks(("called P", "called Q")), labels, strict=True):
        name, colour, marker = look
        figure.add_scatter(x=[None], y=[None], mode="markers", name=name, marker={"color": colour, "symbol": marker})
        figure.add_scatter(
            x=rows[drawn, 0], y=rows[drawn, 1], mode="markers", showlegend=False, hoverinfo="skip",
            marker=label["marker"] | {"color": colour, "symbol": marker, "opacity": 0.9},
        )  # fmt: skip
    below: dict[str, Any] = {"xaxis": "x2", "yaxis": "y2", "showlegend": False}
    colours = np.where(reached, OBSERVED_COLOUR, NULL_COLOUR).tolist()
    figure.add_scatter(
        x=places, y=dots["y"], mode="markers", marker=dots["marker"] | {"color": colours, "opacity": 1},
        customdata=statistics[1:], hovertemplate="MMD² = %{customdata:.4f}<extra></extra>", **below,
    )  # fmt: skip
    low, high = min(places.min(), statistics[0]), max(places.max(), statistics[0])
    figure.add_scatter(
        x=[low], y=[1.35 * top], mode="text", textposition="middle right", textfont_size=15, hoverinfo="skip",
        **below, **counter,
    )  # fmt: skip
    figure.add_scatter(
        x=[statistics[0]] * 2, y=[0, 1.1 * top], mode="lines", line=OBSERVED_LINE, hoverinfo="skip", **below
    )
    rows_each = min(int(members[0].sum()), int((~members[0]).sum()))
    drawn_words = f"{SHUFFLED_ROWS} of {rows_each} rows each" if rows_each > SHUFFLED_ROWS else ""
    laid_out(figure, x_title="", y_title="", height=500).update_layout(legend_title_text=drawn_words)
    margin = 0.04 * (high - low) or 1.0
    figure.update_layout(
        xaxis_showticklabels=False,
        yaxis={"domain": [0.45, 1], "showticklabels": False},
        xaxis2={"anchor": "y2", "title": "MMD² (line: real labels)", "zeroline": False},
        yaxis2={"domain": [0, 0.4], "anchor": "x2", "range": [0, 1.5 * top], "visible": False},
    )
    figure.update_layout(xaxis2_range=[low - margin, high + margin])
    equal_aspect(figure, *np.ptp(rows, axis=0)).update_yaxes(scaleanchor=None, selector={"anchor": "x2"})
    return _animated(short_labels(figure, left=20), state, count)


def _animated(figure: go.Figure, state: Callable[[int, float], list[dict[str, Any]]], count: int) -> go.Figure:
    """Add frames of one shuffle and then of several; the first dots fall. Play starts with the real labels."""
    steps = [*range(1, min(count, ONE_BY_ONE)), *range(ONE_BY_ONE, count, TOGETHER), count]
    falls = [(step, falling) for step in steps for falling in (FALLS if step <= SLOW else (0.0,))]
    frames, pauses = [], []
    for step, falling in [(0, 0.0), *falls]:
        frames.append({"data": state(step, falling), "traces": [1, 3, 4, 5], "name": f"{step}-{falling}"})
        pauses.append(800 if step in (0, count) else 300 if step < ONE_BY_ONE else 400)
    figure.frames = frames
    still: dict[str, Any] = {"mode": "immediate", "transition": {"duration": 0}}
    play = [None, still | {"frame": [{"duration": pause, "redraw": True} for pause in pauses]}]
    pause = [[None], still | {"frame": {"duration": 0, "redraw": False}}]
    buttons = [
        {"label": label, "method": "animate", "args": arguments}
        for label, arguments in (("Play", play), ("Pause", pause))
    ]
    place = {"x": 1, "xanchor": "right", "y": 0.47, "yanchor": "top", "direction": "right"}
    return figure.update_layout(updatemenus=[{"type": "buttons", "showactive": False, "buttons": buttons} | place])


def _stacked(statistics: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Places (B,) and heights (B,) of dots that pile up in bins, in their order, and the highest pile.

    The observed statistic separates two bins.
    """
    width = float(np.ptp(statistics)) / DOT_BINS or 1.0
    bins = np.floor((statistics[1:] - statistics[0]) / width)
    heights = np.array([np.sum(bins[:index] == own) for index, own in enumerate(bins)]) + 0.5
    return statistics[0] + (bins + 0.5) * width, heights, float(heights.max())


def _counted(reached: np.ndarray) -> str:
    step, count = len(reached), int(reached.sum())
    shuffles = "shuffle" if step == 1 else "shuffles"
    return f"{step} {shuffles}, {count} at least as large: p = {1 + count}/{1 + step} = {(1 + count) / (1 + step):.2f}"


def found_figure(groups: Mapping[str, tuple[np.ndarray, str]], *, height: int = 380) -> go.Figure:
    """Draw each group's tests as ten columns of dots: full where the test found the difference, else open.

    Groups have names in one or more lines, results (n,) and a colour. A dot's place is the same in every group.
    """
    figure = go.Figure()
    for group, (name, (found, colour)) in enumerate(groups.items()):
        columns, lines = np.arange(len(found)) % 10 + group * GROUP_STEP, -(np.arange(len(found)) // 10)
        for chosen, symbol, words in ((found, "circle", "found"), (~found, "circle-open", "missed")):
            figure.add_scatter(
                x=columns[chosen], y=lines[chosen], mode="markers", showlegend=False, name=words,
                marker={"color": colour if symbol == "circle" else NULL_COLOUR, "symbol": symbol, "size": 11},
                hovertemplate=f"{words}<extra></extra>",
            )  # fmt: skip
        figure.add_annotation(
            x=4.5 + group * GROUP_STEP, y=1, yanchor="bottom", showarrow=False, font={"size": 15},
            text=f"<b>{int(found.sum())} of {len(found)}</b><br>{name}",
        )  # fmt: skip
    laid_out(figure, x_title="", y_title="", height=height)
    figure.update_xaxes(visible=False, range=[-1, GROUP_STEP * len(groups) - 2])
    figure.update_yaxes(visible=False, range=[-9.7, 4])
    return figure


def learning_figure(
    rows: Sequence[int], powers: np.ndarray, intervals: np.ndarray, now: int, floor: float
) -> go.Figure:
    """Draw power with intervals (k, 2) against training rows on fixed axes; ``floor`` is the power without learning."""
    figure = go.Figure()
    figure.add_scatter(
        x=[rows[0], rows[-1]], y=[floor, floor], mode="lines", name="not learned (MMD-M)",
        line={"color": WITHOUT_HISTORY, "dash": "dot", "width": 3}, hovertemplate="power %{y:.0%}<extra></extra>",
    )  # fmt: skip
    figure.add_scatter(
        x=list(rows), y=powers, mode="lines+markers", name="learned from own rows",
        line={"color": WITHOUT_HISTORY, "width": 3},
        marker={"size": [18 if row == now else 9 for row in rows]},
        error_y=error_bars(powers, intervals[:, 0], intervals[:, 1], thickness=1),
        hovertemplate="%{x} training rows: power %{y:.0%}<extra></extra>",
    )  # fmt: skip
    laid_out(figure, x_title="training rows per sample", y_title="power", height=440)
    figure.update_xaxes(type="log", tickvals=list(rows), ticktext=[str(row) for row in rows])
    return figure.update_yaxes(range=[0, 1], tickformat=".0%")


def p_value_strip(groups: Mapping[str, np.ndarray], alpha: float, own: float, *, height: int = 420) -> go.Figure:
    """Draw one band of p-values per group: a cross if p is at most α, an open circle otherwise.

    A star in the last band marks one's ``own`` p-value.
    """
    figure = go.Figure()
    figure.add_vrect(x0=0, x1=alpha, fillcolor=OBSERVED_COLOUR, opacity=0.12, line_width=0)
    figure.add_vline(x=alpha, line={"color": OBSERVED_COLOUR, "dash": "dash"})
    p_values = np.concatenate(list(groups.values()))
    offsets = [row + 0.6 * (np.arange(len(p)) * GOLDEN_RATIO % 1 - 0.5) for row, p in enumerate(groups.values())]
    places = np.concatenate(offsets)
    looks = ((True, "rejected", OBSERVED_COLOUR, "x"), (False, "not rejected", NULL_COLOUR, "circle-open"))
    for rejected, label, colour, symbol in looks:
        chosen = (p_values <= alpha) == rejected
        figure.add_scatter(
            x=p_values[chosen], y=places[chosen], mode="markers", name=f"{label} at α={alpha:g}",
            marker={"color": colour, "symbol": symbol, "size": 9}, hovertemplate="p = %{x:.3f}<extra></extra>",
        )  # fmt: skip
    figure.add_scatter(
        x=[own], y=[len(groups) - 1], mode="markers", name="your sample", hovertemplate="p = %{x:.2f}<extra></extra>",
        marker={"color": OBSERVED_COLOUR, "symbol": "star", "size": 18},
    )  # fmt: skip
    laid_out(figure, x_title="p-value", y_title="", height=height)
    figure.update_xaxes(range=[-0.02, 1.02])
    figure.update_yaxes(tickvals=list(range(len(groups))), ticktext=list(groups), range=[-0.5, len(groups) - 0.5])
    return short_labels(figure)
