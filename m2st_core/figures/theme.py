"""Colours and shapes, in one place. Okabe–Ito: distinct to the colour-blind, readable on light and on dark."""

from __future__ import annotations

import plotly.graph_objects as go

P_COLOUR, P_MARKER = "#0072B2", "circle"
Q_COLOUR, Q_MARKER = "#E69F00", "diamond"
NULL_COLOUR = "#8C8C8C"
OBSERVED_COLOUR = "#D55E00"


def laid_out(figure: go.Figure, *, x_title: str, y_title: str, height: int = 380) -> go.Figure:
    """The shared layout: transparent, legend above, no wasted margin."""
    figure.update_layout(
        height=height,
        margin={"l": 10, "r": 10, "t": 40, "b": 10},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        legend={"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0},
        hovermode="closest",
    )
    figure.update_xaxes(title=x_title, automargin=True, zeroline=False)
    figure.update_yaxes(title=y_title, automargin=True, zeroline=False)
    return figure
