"""How much a p-value owes to the random split: information about an answer, never a new answer."""

from __future__ import annotations

import streamlit as st

from m2st_core.dashboard.upload_state import Brought, say
from m2st_core.dashboard.watching import watch_job
from m2st_core.experiments.own_data import Outcome, other_splits
from m2st_core.testing import METHODS
from m2st_core.types import Progress

FURTHER = 10
QUICK = 30.0  # seconds that may be spent unasked
ONLY_TO_KNOW = (
    "This is information about the answer above, which stays what it is. Picking a split by its p-value would make the "
    "test invalid. To rely less on one split, declare more of them in step 3 beforehand."
)


def show_splits(state: Brought, outcome: Outcome) -> None:
    """What the split alone does to the p-value of a primary test that splits."""
    result = outcome.analysis.primary
    if not METHODS[result.method].needs_split:
        return
    if result.split_p_values:
        st.caption(
            f"The p-values of the {len(result.split_p_values)} random splits, in the order drawn: "
            f"{', '.join(f'{p:.3g}' for p in result.split_p_values)}."
        )
        return
    known = state.memory.get("other splits")
    key = state.outcome[0] if state.outcome else None
    if known is None or known[0] != key:
        quick = result.seconds * FURTHER < QUICK
        asked = quick or st.session_state.get("data_splits_asked") == key
        if not asked:
            st.button(
                f"Show what {FURTHER} further splits give",
                key="data_other_splits",
                on_click=lambda: st.session_state.update(data_splits_asked=key),
                help=f"About {result.seconds * FURTHER:.0f} s. {ONLY_TO_KNOW}",
            )
            return

        def work(progress: Progress) -> tuple[float, ...]:
            try:
                return other_splits(outcome, FURTHER, progress=progress)
            except ValueError as error:
                raise ValueError(say(str(error))) from None

        job = watch_job("data_splits", key, work, f"{result.label} under {FURTHER} further splits…")
        if job.state != "done":
            return
        state.memory["other splits"] = (key, job.result)
    p_values = (result.p_value, *state.memory["other splits"][1])
    st.caption(
        f"With {FURTHER} further random splits of the same rows, the split alone moves p between {min(p_values):.3g} "
        f"and {max(p_values):.3g}. {ONLY_TO_KNOW}"
    )
