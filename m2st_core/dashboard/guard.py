"""What every page runs in: the app around it, and no traceback for any user."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable

import streamlit as st
from streamlit import config
from streamlit.runtime.pages_manager import PagesManager

log = logging.getLogger(__name__)


def run_page(page: Callable[[], None]) -> None:
    """Run a page. Bad input is said in its own words; surprises get a reference, under which the log has the rest."""
    if PagesManager.uses_pages_directory and not config.get_option("global.appTest"):
        # A link straight to a page of a server that has just started: streamlit has not run app.py yet, and would
        # show the page without it.
        PagesManager.uses_pages_directory = False
        st.rerun()
    try:
        page()
    except ValueError as error:
        log.warning("a page could not be shown", exc_info=error)
        st.error(str(error))
    except Exception as error:
        reference = uuid.uuid4().hex[:8]
        log.error("a page failed, reference %s", reference, exc_info=error)
        st.error(f"Something went wrong on our side. Please reload the page; the log has it under {reference}.")
