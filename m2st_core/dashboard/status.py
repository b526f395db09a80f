"""The sidebar's status line."""

from __future__ import annotations

import streamlit as st

from m2st_core.device import resolve_device


def show_status() -> None:
    """Where the computations run."""
    device = resolve_device()
    st.sidebar.caption(f"Computing on the {'GPU' if device.type == 'cuda' else 'CPU'} of this server.")
