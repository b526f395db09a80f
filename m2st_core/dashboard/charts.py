"""Charts and numbers as every page shows them, and what was clicked in them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import plotly.graph_objects as go
import streamlit as st

from m2st_core.dashboard.lessons import Rate
from m2st_core.dashboard.words import interval_in_words


def chart(figure: go.Figure, key: str, alt: str) -> None:
    """A chart as wide as its column, with text for those who can not see it."""
    st.plotly_chart(figure, width="stretch", key=key, alt=alt)


def clickable_chart(figure: go.Figure, key: str, alt: str) -> int | None:
    """The same, and the number of the point, within its trace, that was clicked."""
    state = st.plotly_chart(figure, width="stretch", key=key, alt=alt, on_select="rerun", selection_mode="points")
    return clicked_point(state)


def clicked_point(state: Mapping[str, Any]) -> int | None:
    """The first selected point of a chart's state; None if nothing is selected.

    >>> clicked_point({"selection": {"points": [{"point_index": 3}]}}), clicked_point({"selection": {"points": []}})
    (3, None)
    """
    points = state["selection"]["points"] if state else []
    return int(points[0]["point_index"]) if points else None


def rate_metric(label: str, rate: Rate, help: str) -> None:
    """A share of tests that reject, with its interval beneath."""
    words = interval_in_words(rate.interval)
    st.metric(label, f"{rate.share:.0%}", words, delta_color="off", delta_arrow="off", help=help)
