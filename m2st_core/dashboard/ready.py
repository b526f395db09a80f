"""What first visitors see on the slower pages, computed once when the server has its first visitor."""

from __future__ import annotations

import streamlit as st

from m2st_core.dashboard.course_theory import prepare
from m2st_core.dashboard.jobs import job_manager
from m2st_core.dashboard.weights_study import WeightsStudy


@st.cache_resource(show_spinner=False)
def get_ready() -> None:
    """Behind whatever that visitor asked for."""
    study = WeightsStudy()
    job_manager().submit("the first weights", study.run, study)
    job_manager().submit("the course's first pictures", prepare)
