"""No user ever sees a traceback."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable

import streamlit as st

log = logging.getLogger(__name__)


def run_guarded(page: Callable[[], None]) -> None:
    """Run a page. Bad input is said in its own words; surprises get a reference, under which the log has the rest."""
    try:
        page()
    except ValueError as error:
        log.warning("a page could not be shown", exc_info=error)
        st.error(str(error))
    except Exception as error:
        reference = uuid.uuid4().hex[:8]
        log.error("a page failed, reference %s", reference, exc_info=error)
        st.error(f"Something went wrong on our side. Please reload the page; the log has it under {reference}.")
