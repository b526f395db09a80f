"""The entry point: the frame around every page, its navigation and its status line."""

from pathlib import Path

import streamlit as st

import m2st_core
from m2st_core.dashboard.jobs.log import log_page, start_log
from m2st_core.dashboard.widgets.page import show_status

NAME = "Meta two-sample testing"
LAB = "Lab"
PAGES = {  # its title, and its group in the navigation if it has one
    "pages/home.py": ("Home", ""),
    "pages/learn.py": ("Learn", ""),
    "pages/test_my_data.py": ("Test my data", ""),
    "pages/paper.py": ("Paper", ""),
    "pages/power.py": ("Power", LAB),
    "pages/weights.py": ("Weights", LAB),
    "pages/relatedness.py": ("Relatedness", LAB),
    "pages/images.py": ("Images", LAB),
    "pages/one_test.py": ("One test", LAB),
    "pages/history.py": ("History", LAB),
}
LOOKS = Path(m2st_core.__file__).parent / "dashboard" / "widgets"


def show_tabs(pages: list[st.Page]) -> None:
    """Show the pages of the Lab side by side, and mark the Lab in the navigation."""
    st.html(LOOKS / "lab.css")
    with st.container(horizontal=True, gap="xsmall", key="lab_tabs"):
        for page in pages:
            st.page_link(page, width="content")


def main() -> None:
    """Run the chosen page."""
    start_log()
    groups: dict[str, list[st.Page]] = {}
    for path, (title, group) in PAGES.items():
        groups.setdefault(group, []).append(st.Page(path, title=title))
    page = st.navigation(groups, position="top")
    log_page(page.url_path or "home")
    st.set_page_config(page_title=f"{page.title} · {NAME}", page_icon=LOOKS / "logo.svg", layout="wide")
    st.logo(str(LOOKS / "logo.svg"), size="large")
    st.html(LOOKS / "page.css")
    if page in groups[LAB]:
        show_tabs(groups[LAB])
    page.run()
    show_status()


if __name__ == "__main__":
    main()
