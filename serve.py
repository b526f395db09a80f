"""The entry point of a served instance, ``streamlit run serve.py``: the same pages, where runs have owners."""

import os

import streamlit as st
from starlette.middleware import Middleware

from m2st_core.dashboard.serving.gate import Gate, lifespan

os.environ.setdefault("M2ST_SERVED", "1")
app = st.App("app.py", middleware=[Middleware(Gate)], lifespan=lifespan)
