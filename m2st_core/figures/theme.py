"""Colours, markers and layout shared by all figures.

Some colours have a meaning on every page. They are distinct to colour-blind readers. Their contrast is at least 3:1
with a light and with a dark background. Text takes the page's own colour (dashboard/widgets/page.css).
"""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from m2st_core.testing.method import GREENS, GREYS, Look
from m2st_core.testing.methods import METHODS

P_COLOUR, P_MARKER = "#0072B2", "circle"
Q_COLOUR, Q_MARKER = "#D97A00", "diamond"
WITH_RELATED, WITHOUT_RELATED = GREENS[0], GREYS[0]  # tests that learn from related tasks, and all others
NULL_COLOUR = GREYS[0]
OBSERVED_COLOUR = "#C2337A"
PUBLISHED = {"symbol": "diamond-open", "size": 11, "line": {"width": 2}}  # the paper's numbers
DIVERGING = (  # Q's colour below zero, P's above, transparent at zero to suit light and dark backgrounds
    (0.0, "rgba(217,122,0,1)"),
    (0.5, "rgba(217,122,0,0)"),
    (0.5, "rgba(0,114,178,0)"),
    (1.0, "rgba(0,114,178,1)"),
)
MARKERS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "star")
DASHES = ("solid", "dash", "dot", "dashdot")
LARGEST_STRETCH = 4.0  # of one span by the other, up to which one unit has the same length on both axes

UNKNOWN_LOOK = Look(NULL_COLOUR, "circle-open", "longdashdot")  # such as the limit's


def look_of(method: str) -> Look:
    """The look of a method, the same in every figure; grey for a name without a method."""
    return METHODS[method].look if method in METHODS else UNKNOWN_LOOK


def colour_of(method: str) -> str:
    """Return the colour of a method."""
    return look_of(method).colour


def sample_looks(names: tuple[str, str]) -> tuple[tuple[str, str, str], tuple[str, str, str]]:
    """Return (label, colour, marker) of the sample from P and of the sample from Q."""
    return (figure_label(names[0]), P_COLOUR, P_MARKER), (figure_label(names[1]), Q_COLOUR, Q_MARKER)


def hatched(colour: object, shape: object) -> dict[str, object]:
    """Return a bar's marker: its colour, and a white pattern for readers who cannot see the colour ("" is none)."""
    return {"color": colour, "pattern": {"shape": shape, "fillmode": "overlay", "fgcolor": "white", "size": 6}}


def error_bars(value: pd.Series, low: pd.Series, high: pd.Series, **look: object) -> dict[str, object]:
    """Return error bars from ``low`` to ``high`` around ``value``."""
    return {"array": high - value, "arrayminus": value - low, **look}


def figure_label(words: object, longest: int = 40) -> str:
    """Escape words from a file so that plotly shows every character, and shorten them.

    >>> figure_label("<b>a</b> & b")
    '&lt;b&gt;a&lt;/b&gt; &amp; b'
    """
    short = " ".join(str(words).split())
    short = short if len(short) <= longest else short[: longest - 1] + "…"
    return short.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("$", "&#36;")


def laid_out(figure: go.Figure, *, x_title: str, y_title: str, height: int = 380) -> go.Figure:
    """Apply the shared layout: transparent background, legend above, narrow margins."""
    layout = figure.layout  # set property by property: plotly's updates take five times as long
    layout.height, layout.hovermode = height, "closest"
    layout.margin = {"l": 10, "r": 10, "t": 40, "b": 10}
    layout.paper_bgcolor = layout.plot_bgcolor = "rgba(0,0,0,0)"
    layout.legend = layout.legend.to_plotly_json() | {"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0}
    named = [*((axis, x_title) for axis in figure.select_xaxes()), *((axis, y_title) for axis in figure.select_yaxes())]
    for axis, title in named:
        axis.title.text, axis.automargin, axis.zeroline = title, True, False
        axis.ticklabeloverflow = "allow"  # plotly would measure every label again to hide those that do not fit
    return figure


def short_labels(figure: go.Figure, *, left: int = 60) -> go.Figure:
    """Reserve fixed margins for the axes: to fit labels of unknown length, plotly draws a chart three times."""
    figure.layout.margin.l, figure.layout.margin.b = left, 50
    for axis in (*figure.select_xaxes(), *figure.select_yaxes()):
        axis.automargin = False
    return figure


def equal_aspect(figure: go.Figure, x_span: float, y_span: float) -> go.Figure:
    """Keep shapes as they are at any width: one unit has the same length on both axes.

    Columns whose spans are too different for that fill a square.
    """
    stretch = x_span / y_span if x_span > 0 and y_span > 0 else 1.0
    ratio = 1.0 if 1 / LARGEST_STRETCH <= stretch <= LARGEST_STRETCH else stretch
    figure.update_xaxes(constrain="domain")
    return figure.update_yaxes(scaleanchor="x", scaleratio=ratio, constrain="domain")


def one_line_each(figure: go.Figure, count: int, *, x_title: str, line: int = 24) -> go.Figure:
    """Apply the layout for ``count`` names down the left side, the first on top."""
    laid_out(figure, x_title=x_title, y_title="", height=120 + line * count)
    return figure.update_yaxes(type="category", autorange="reversed", dtick=1)
