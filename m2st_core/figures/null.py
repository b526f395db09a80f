"""What the statistic would look like if nothing were going on, and where it was observed."""

from __future__ import annotations

import numpy as np
import plotly.graph_objects as go

from m2st_core.figures.theme import NULL_COLOUR, OBSERVED_COLOUR, laid_out
from m2st_core.types import TestResult

BINS = 50
USUAL = 0.95  # of the null statistics are shown, and the observed one; a tail longer than these is only counted


def null_figure(result: TestResult) -> go.Figure:
    """Histogram of the null statistics with the observed one as a line; a very long tail is counted, not drawn."""
    kind = "random relabellings" if result.by_permutation else "quantiles of the reference distribution"
    count = f"{result.n_permutations} {kind}"
    count = f"all {result.n_permutations} other labellings" if result.enumerated else count
    low, high = float(result.null.min()), float(result.null.max())
    low = min(low, result.statistic)
    edge = low + 1.1 * (max(float(np.quantile(result.null, USUAL)), result.statistic) - low)
    long_tail = high - low > 2 * (edge - low) > 0
    more = f", {int((result.null > edge).sum())} of them further right" if long_tail else ""
    figure = go.Figure()
    figure.add_histogram(
        x=result.null,
        nbinsx=BINS,
        marker={"color": NULL_COLOUR},
        name=f"if P=Q: {count}{more}",
        hovertemplate="%{x}: %{y}",
    )
    if long_tail:
        figure.update_traces(xbins={"start": low, "end": edge, "size": (edge - low) / BINS})
        figure.update_xaxes(range=[low, edge])
    figure.add_vline(x=result.statistic, line={"color": OBSERVED_COLOUR, "width": 3})
    figure.add_scatter(  # a line has no legend of its own
        x=[None],
        y=[None],
        mode="lines",
        line={"color": OBSERVED_COLOUR, "width": 3},
        name=f"observed: {result.statistic:.4g}",
    )
    return laid_out(figure, x_title=f"statistic of {result.label}", y_title="count")
