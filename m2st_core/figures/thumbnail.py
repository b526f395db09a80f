"""Thumbnails: a figure as a small SVG of its curves and marks, quick to draw in a list of many."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from m2st_core.figures.theme import NULL_COLOUR, PUBLISHED

WIDTH, HEIGHT, MARGIN = 240, 110, 8
DASHES = {"dot": "2 3", "dash": "6 3", "dashdot": "6 3 2 3", "longdashdot": "9 3 2 3"}


def thumbnail(figure: go.Figure) -> str:
    """Draw lines and marks of a scatter figure, without text and in colours for light and dark backgrounds."""
    traces = [trace for trace in figure.data if trace.hoverinfo != "skip" and trace.fill is None and len(trace.x)]
    names = list(dict.fromkeys(str(y) for trace in traces for y in trace.y if isinstance(y, str)))
    xs = [np.asarray(trace.x, float) for trace in traces]
    ys = [np.asarray([-names.index(y) if isinstance(y, str) else y for y in trace.y], float) for trace in traces]
    across = _scale(figure.layout.xaxis.range, xs, MARGIN, WIDTH - MARGIN)
    up = _scale(None if names else figure.layout.yaxis.range, ys, HEIGHT - MARGIN, MARGIN)
    parts = [f'<path d="M{MARGIN / 2} 0V{HEIGHT - MARGIN / 2}H{WIDTH}" fill="none" stroke="{NULL_COLOUR}"/>']
    for trace, x, y in zip(traces, xs, ys, strict=True):
        points = list(zip(across(x), up(y), strict=True))
        parts += [_line(trace, points)] if "lines" in trace.mode and len(points) > 1 else []
        colours = trace.marker.color
        one = trace.line.color if colours is None or "lines" in trace.mode else colours
        each = [one or NULL_COLOUR] * len(points) if one is None or isinstance(one, str) else one
        parts += [_mark(trace, *point, colour) for point, colour in zip(points, each, strict=True)]
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size}>{"".join(parts)}</svg>'


def _scale(bounds: Sequence[float] | None, values: Sequence[np.ndarray], first: float, last: float) -> Any:
    """A function from the axis to pixels. Without bounds, the axis holds zero to the largest, or all values."""
    everything = np.concatenate(values) if values else np.zeros(1)
    low, high = bounds or (everything.min(), everything.max())
    margin = 0 if bounds else 0.08 * (high - low) or 0.5
    low, high = low - margin, high + margin
    return lambda value: first + (value - low) / (high - low) * (last - first)


def _line(trace: go.Scatter, points: Sequence[tuple[float, float]]) -> str:
    dash = DASHES.get(trace.line.dash or "", "none")
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    colour = trace.line.color or NULL_COLOUR
    return f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6" stroke-dasharray="{dash}"/>'


def _mark(trace: go.Scatter, x: float, y: float, colour: str) -> str:
    if trace.marker.symbol == PUBLISHED["symbol"]:
        diamond = f"M{x:.1f} {y - 4:.1f}l4 4l-4 4l-4 -4z"
        return f'<path d="{diamond}" fill="none" stroke="{colour}" stroke-width="1.4"/>'
    radius = 1.8 if "lines" in trace.mode and len(trace.x) > 1 else 3.5
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}" fill="{colour}"/>'
