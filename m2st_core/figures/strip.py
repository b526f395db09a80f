"""Many tests at a glance: every p-value is a mark."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import plotly.graph_objects as go

from m2st_core.figures.theme import NULL_COLOUR, OBSERVED_COLOUR, laid_out

GOLDEN = 0.618  # spreads marks evenly without drawing lots


def p_value_strip(groups: Mapping[str, np.ndarray], alpha: float, *, height: int = 420) -> go.Figure:
    """One band of p-values for each group; those at most α are crosses, the others open circles."""
    figure = go.Figure()
    figure.add_vrect(x0=0, x1=alpha, fillcolor=OBSERVED_COLOUR, opacity=0.12, line_width=0)
    figure.add_vline(x=alpha, line={"color": OBSERVED_COLOUR, "dash": "dash"})
    levels = np.concatenate([p for p in groups.values()])
    places = np.concatenate(
        [row + 0.6 * (np.arange(len(p)) * GOLDEN % 1 - 0.5) for row, p in enumerate(groups.values())]
    )
    looks = ((True, "rejected", OBSERVED_COLOUR, "x"), (False, "not rejected", NULL_COLOUR, "circle-open"))
    for rejected, label, colour, symbol in looks:
        chosen = (levels <= alpha) == rejected
        figure.add_scatter(
            x=levels[chosen], y=places[chosen], mode="markers", name=f"{label} at α={alpha:g}",
            marker={"color": colour, "symbol": symbol, "size": 9}, hovertemplate="p = %{x:.3f}<extra></extra>",
        )  # fmt: skip
    laid_out(figure, x_title="p-value", y_title="", height=height)
    figure.update_xaxes(range=[-0.02, 1.02])
    figure.update_yaxes(tickvals=list(range(len(groups))), ticktext=list(groups), range=[-0.5, len(groups) - 0.5])
    return figure
