"""Several runs in one figure: a method keeps its colour, a run has its own line and marker."""

from __future__ import annotations

import pandas as pd
import plotly.graph_objects as go

from m2st_core.figures.theme import DASHES, MARKERS, colour_of, height_with, label_of, laid_out

WITHIN = ("preset", "closeness", "n_tasks", "m_tr")


def compare_figure(table: pd.DataFrame, *, size_unit: str = "") -> go.Figure:
    """Rejection rates against m_te with bars of one standard error; ``table`` is a summary with a column ``run``."""
    figure = go.Figure()
    for index, (run, rows) in enumerate(table.groupby("run", sort=False)):
        varying = [name for name in WITHIN if rows[name].nunique() > 1]
        for labels, group in rows.groupby(["method", *varying], dropna=False, sort=False):
            group = group.sort_values("m_te")
            method, *rest = labels
            details = [f"{k}={v}" for k, v in zip(varying, rest, strict=True) if not pd.isna(v)]
            figure.add_scatter(
                x=group["m_te"].astype(float),
                y=group["rate"].astype(float),
                error_y={"array": group["error"].astype(float), "width": 3},
                mode="lines+markers",
                name=", ".join([label_of(str(method)), *details, str(run)]),
                line={"color": colour_of(str(method)), "dash": DASHES[index % len(DASHES)]},
                marker={"symbol": MARKERS[index % len(MARKERS)], "size": 8},
                hovertemplate="%{y:.3f} ± %{error_y.array:.3f}",
            )
    figure.update_yaxes(range=[-0.02, 1.02])
    x_title, height = f"test rows m_te {size_unit}".strip(), height_with(len(figure.data))
    return laid_out(figure, x_title=x_title, y_title="share of test samples rejected", height=height)
