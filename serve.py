"""The entry point of a served instance, ``streamlit run serve.py``: the same pages, where runs have owners."""

import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import streamlit as st
from starlette.middleware import Middleware

from m2st_core.dashboard.serving.gate import Gate, lifespan


def start_workers() -> None:
    """Start the workers. The server answers before they are there, so this loads what they need."""
    from m2st_core.dashboard.jobs.sweeps import server_queue

    server_queue()


@asynccontextmanager
async def life(server: object) -> AsyncIterator[None]:
    """Start the workers with the server, so that who resumes a run does not wait for them; end them with it."""
    threading.Thread(target=start_workers, daemon=True).start()
    async with lifespan(server):
        yield


os.environ.setdefault("M2ST_SERVED", "1")
app = st.App("app.py", middleware=[Middleware(Gate)], lifespan=life)
