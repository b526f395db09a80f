"""The sidebar's status line."""

from __future__ import annotations

import os

import streamlit as st

from m2st_core.dashboard.sweeps import sweep_queue
from m2st_core.device import device_words
from m2st_core.experiments.store import StoreError

POLL_SECONDS = 3.0


def show_status() -> None:
    """Where the computations run, and how busy the queue is."""
    where = "a Dask cluster" if os.environ.get("M2ST_DASK") else f"{device_words()} of this server"
    with st.sidebar:
        st.caption(f"Computing on {where}.")
        _queue_state()


@st.fragment(run_every=POLL_SECONDS)
def _queue_state() -> None:
    try:
        running, waiting = sweep_queue().counts()
    except StoreError as error:
        st.caption(str(error))
        return
    st.caption(f"Sweeps: {running} running, {waiting} waiting." if running or waiting else "No sweep is running.")
