"""What every page runs in: the app around it, and no traceback for any user."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from pathlib import Path

import streamlit as st
from streamlit import config
from streamlit.runtime.pages_manager import PagesManager
from streamlit.runtime.scriptrunner import get_script_run_ctx

log = logging.getLogger(__name__)


def run_page(page: Callable[[], None]) -> None:
    """Run a page. Bad input is said in its own words; surprises get a reference, under which the log has the rest."""
    if _outside_app() and not config.get_option("global.appTest"):
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


def _outside_app() -> bool:
    """Whether streamlit shows the page without app.py, as it does in a server that has just started and has a pages/.

    It then takes app.py for one of the pages.
    """
    context = get_script_run_ctx()
    if context is None:
        return False
    pages = context.pages_manager.get_pages().values()
    return any(Path(page["script_path"]) == Path(context.main_script_path).resolve() for page in pages)
