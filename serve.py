"""The entry point of a server for several people, ``streamlit run serve.py``: the same pages; runs have owners."""

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import streamlit as st
from starlette.middleware import Middleware

from m2st_core.dashboard.jobs.host import register_host
from m2st_core.dashboard.jobs.jobs import job_manager
from m2st_core.dashboard.jobs.log import start_log
from m2st_core.dashboard.jobs.sweeps import server_queue
from m2st_core.paper.gallery import gallery
from m2st_core.serving.gate import Gate, lifespan
from m2st_core.serving.visitors import SharedHost


def prepare() -> None:
    """Start the workers, and draw the gallery of Paper. The server answers before that is done."""
    job_manager()
    server_queue().started.wait()
    gallery()


@asynccontextmanager
async def life(server: object) -> AsyncIterator[None]:
    """Prepare with the server what its first visitor would wait for; end its workers with it."""
    threading.Thread(target=prepare, daemon=True).start()
    async with lifespan(server):
        yield


register_host(SharedHost())
start_log()
app = st.App("app.py", middleware=[Middleware(Gate)], lifespan=life)
