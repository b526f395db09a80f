"""What learning a kernel from few or many rows is worth."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from m2st_core.figures.theme import COLOURS, NULL_COLOUR, OBSERVED_COLOUR, laid_out

CURVES = {  # column: name, colour, dash, marker
    "train": ("Ĵ on training rows", COLOURS[0], "dash", "square"),
    "fresh": ("Ĵ on fresh rows", COLOURS[5], "dot", "diamond"),
    "power": ("power", COLOURS[2], "solid", "circle"),
}


def learning_size_figure(table: pd.DataFrame, now: int, floor: float) -> go.Figure:
    """Ĵ on training and on fresh rows, and power with its interval, against m_tr; the m_tr of now is a line.

    ``floor`` is the power without learning.
    """
    figure = go.Figure()
    figure.add_vline(x=now, line={"color": OBSERVED_COLOUR, "dash": "dot"})
    figure.add_hline(y=floor, line={"color": NULL_COLOUR, "dash": "dash"})
    for column, (name, colour, dash, symbol) in CURVES.items():
        bars = {}
        if column == "power":
            bars = {
                "array": table["high"] - table["power"],
                "arrayminus": table["power"] - table["low"],
                "thickness": 1,
            }
        figure.add_scatter(
            x=table["m_tr"], y=table[column], mode="lines+markers", name=name, error_y=bars,
            line={"color": colour, "dash": dash}, marker={"symbol": symbol, "size": 9},
            hovertemplate=f"m_tr=%{{x}}: %{{y:.3f}}<extra>{name}</extra>",
        )  # fmt: skip
    laid_out(figure, x_title="training rows m_tr per mode", y_title="Ĵ; power (dashed: MMD-M)", height=340)
    figure.update_xaxes(type="log", tickvals=list(table["m_tr"]), ticktext=[str(m) for m in table["m_tr"]])
    figure.update_yaxes(rangemode="tozero")
    return figure
