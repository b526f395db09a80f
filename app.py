"""The entry point: the frame around every page, its navigation and its status line."""

from pathlib import Path

import streamlit as st

import m2st_core
from m2st_core.dashboard.jobs.log import log_page, start_log
from m2st_core.dashboard.widgets.page import show_status

NAME = "Meta two-sample testing"
PAGES = {  # in the navigation
    "pages/home.py": "Home",
    "pages/learn.py": "Learn",
    "pages/explore.py": "Explore",
    "pages/paper.py": "Paper",
    "pages/test_my_data.py": "Test my data",
}
TABS = {  # of Explore, which is the first of them
    "pages/explore.py": "Overview",
    "pages/power.py": "Power",
    "pages/weights.py": "β weights",
    "pages/relatedness.py": "γ̂ relatedness",
    "pages/one_test.py": "One test",
    "pages/images.py": "Images",
    "pages/history.py": "History",
}
LOOKS = Path(m2st_core.__file__).parent / "dashboard" / "widgets"


def show_tabs(pages: dict[str, st.Page]) -> None:
    """Show the tabs of Explore side by side, and mark Explore in the navigation."""
    st.html(LOOKS / "explore.css")
    with st.container(horizontal=True, gap="xsmall", key="explore_tabs"):
        for path, title in TABS.items():
            st.page_link(pages[path], label=title, width="content")


def main() -> None:
    """Run the chosen page."""
    start_log()
    pages = {path: st.Page(path, title=title) for path, title in PAGES.items()}
    hidden = {
        path: st.Page(path, title=title, visibility="hidden") for path, title in TABS.items() if path not in pages
    }
    page = st.navigation([*pages.values(), *hidden.values()], position="top")
    log_page(page.url_path or "home")
    st.set_page_config(page_title=f"{page.title} · {NAME}", page_icon=LOOKS / "logo.svg", layout="wide")
    st.logo(str(LOOKS / "logo.svg"), size="large")
    st.html(LOOKS / "page.css")
    if page in hidden.values() or page == pages["pages/explore.py"]:
        show_tabs(pages | hidden)
    page.run()
    show_status()


if __name__ == "__main__":
    main()
