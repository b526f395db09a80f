"""What the statistic would look like if nothing were going on, and where it was observed."""

from __future__ import annotations

import plotly.graph_objects as go

from m2st_core.figures.theme import NULL_COLOUR, OBSERVED_COLOUR, laid_out
from m2st_core.types import TestResult


def null_figure(result: TestResult) -> go.Figure:
    """Histogram of the null statistics with the observed one as a line."""
    kind = "random relabellings" if result.by_permutation else "quantiles of the reference distribution"
    figure = go.Figure()
    figure.add_histogram(
        x=result.null,
        nbinsx=50,
        marker={"color": NULL_COLOUR},
        name=f"if P=Q: {result.n_permutations} {kind}",
        hovertemplate="%{x}: %{y}",
    )
    figure.add_vline(x=result.statistic, line={"color": OBSERVED_COLOUR, "width": 3})
    figure.add_scatter(  # a line has no legend of its own
        x=[None],
        y=[None],
        mode="lines",
        line={"color": OBSERVED_COLOUR, "width": 3},
        name=f"observed: {result.statistic:.4g}",
    )
    return laid_out(figure, x_title=f"statistic of {result.method}", y_title="count")
