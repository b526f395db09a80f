"""Problems of an upload, each with buttons that solve it."""

from __future__ import annotations

import streamlit as st

from m2st_core.dashboard.your_data.state import as_text
from m2st_core.data.tables.assembled import Assembled
from m2st_core.data.tables.encoding import Cleaning
from m2st_core.data.tables.suspects import Identifier, identifiers, incomplete_rows

NO_BLOCK = "(none)"
DROP, FILL, REFUSE = "Drop rows", "Fill in medians", "Stop"
MISSING_WORDS = {"refuse": REFUSE, "drop rows": DROP, "median and indicator": FILL}


def offer_repair(problem: str, made: Assembled, cleaning: Cleaning, missing_key: str) -> None:
    """Show why the data cannot be tested. If cells are missing, buttons drop their rows or fill them in."""
    gaps = incomplete_rows(made, cleaning) if cleaning.missing == "refuse" else 0
    st.error(as_text(problem))
    if not gaps:
        return
    rows = f"{gaps:,} row{'s' * (gaps != 1)}"
    with st.container(horizontal=True):
        _button(f"Drop {rows}", "data_drop", missing_key, "drop rows", "Leave out every row with a missing cell.")
        help_ = "Put the column's median into each missing cell, and add a column that marks these cells."
        _button(FILL, "data_fill", missing_key, "median and indicator", help_)


def offer_blocks(made: Assembled, cleaning: Cleaning, block_key: str, left_out_key: str) -> None:
    """Show columns that look like identifiers, and offer to use them as blocks or to leave them out."""
    for number, found in enumerate(identifiers(made)):
        if found.column not in (*cleaning.left_out, cleaning.block):
            st.warning(as_text(found.sentence))
            _offer(found, number, cleaning, block_key, left_out_key)


def _offer(found: Identifier, number: int, cleaning: Cleaning, block_key: str, left_out_key: str) -> None:
    with st.container(horizontal=True):
        if found.in_both:
            help_ = "Labels are then permuted within each unit only, which is right for repeated measurements."
            _button(f"Use {as_text(found.column)} as the block", f"data_block_{number}", block_key, found.column, help_)
        help_ = "Do not compare this column. If rows of one unit repeat within a group, keep one of them."
        left_out = [*cleaning.left_out, found.column]
        _button(f"Leave {as_text(found.column)} out", f"data_leave_{number}", left_out_key, left_out, help_)


def _button(label: str, key: str, widget: str, value: str | list[str], help: str) -> None:
    """Draw a button that sets another widget."""
    st.button(label, key=key, on_click=lambda: st.session_state.update({widget: value}), help=help)
