"""The entry point: page configuration, navigation and the status line of the sidebar."""

import streamlit as st

from m2st_core.dashboard.learn.pictures import prepare_slow_pages
from m2st_core.dashboard.widgets.page import show_status

PAGES = {
    "pages/start.py": ("Start", "🏠"),
    "pages/learn.py": ("Learn", "🎓"),
    "pages/your_data.py": ("Your data", "🧪"),
    "pages/one_test.py": ("One test", "🔬"),
    "pages/power_lab.py": ("Power lab", "📈"),
    "pages/weights.py": ("Weights", "⚖️"),
    "pages/relatedness.py": ("Relatedness", "🧭"),
    "pages/images.py": ("Images", "🖼️"),
    "pages/reproduce.py": ("Reproduce the paper", "📄"),
    "pages/runs.py": ("Runs", "🗂️"),
}


def main() -> None:
    """Run the chosen page."""
    st.set_page_config(page_title="Meta two-sample testing", page_icon="🔬", layout="wide")
    pages = [st.Page(path, title=title, icon=icon) for path, (title, icon) in PAGES.items()]
    page = st.navigation(pages, position="top")
    page.run()
    show_status()
    prepare_slow_pages()


if __name__ == "__main__":
    main()
