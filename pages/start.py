"""Start: the problem, three doors, and the latest runs."""

import pandas as pd
import streamlit as st

from app import PAGES
from m2st_core.dashboard.widgets.page import chart, p_value_sentences, run_page
from m2st_core.figures.samples import samples_figure
from m2st_core.studies.synthetic import median_test, two_samples
from m2st_core.sweeps.store import Store

DELTA, SIZE = 0.7, 50
LATEST_RUNS = 5
DOORS = {
    "Learn": ("pages/learn.py", "Eight small steps from two samples to a test that learns from related ones."),
    "Explore": ("pages/power_lab.py", "How often does each test detect a difference, and with how many rows?"),
    "Test my data": (
        "pages/your_data.py",
        "From your files to a p-value with its assumptions, with or without earlier comparisons of the same kind.",
    ),
}


def redraw(seed: int) -> None:
    """Take the next seed."""
    st.session_state["start_seed"] = seed + 1


def show_problem() -> None:
    """Show the problem in a few sentences beside one live picture."""
    text, picture = st.columns([2, 3], gap="large")
    seed = st.session_state.setdefault("start_seed", 0)
    with text:
        st.markdown(
            "You have two small samples: **do they come from the same distribution?** A kernel test answers with a "
            "p-value, which is exact if the labels are arbitrary when there is no difference. But the test detects a "
            "difference only if its kernel, which measures how alike two rows are, is sensitive to it. Few rows are "
            "not enough to learn such a kernel. **Related comparisons** made earlier may be: that is meta two-sample "
            "testing."
        )
        st.button(
            "Draw again",
            on_click=redraw,
            args=(seed,),
            icon="🎲",
            help="Draw two new samples from the same P and Q, and test them.",
        )
        st.caption(p_value_sentences(median_test(DELTA, SIZE, seed)))
        st.caption(f"Here P and Q do differ, but a generic kernel (MMD-M) with {SIZE} rows per mode usually misses it.")
    with picture:
        x, y = two_samples(DELTA, SIZE, seed)
        chart(samples_figure(x, y), "start_samples", f"Scatter plot of two samples with {len(x)} rows each.")


def show_doors() -> None:
    """Show where to go from here."""
    for column, (name, (path, promise)) in zip(st.columns(len(DOORS), border=True), DOORS.items(), strict=True):
        title, icon = PAGES[path]
        with column:
            st.subheader(name)
            st.write(promise)
            st.page_link(path, label=f"Open “{title}”", icon=icon, help=promise)


def show_runs() -> None:
    """Show the latest runs."""
    st.subheader("Latest runs")
    try:
        runs = Store().runs().head(LATEST_RUNS)
    except ValueError as error:
        st.warning(str(error))
        return
    if runs.empty:
        st.info(
            "Nothing has been run yet: press **Train** in **Power lab**. Runs of `python -m m2st_core sweep` appear "
            "here too."
        )
        return
    cells = zip(runs["done"], runs["cells"], strict=True)
    table = {
        "Run": runs["name"],
        "State": runs["state"],
        "Cells done": [f"{done} of {count}" if count else "–" for done, count in cells],
        "Last change": pd.to_datetime(runs["updated"], unit="s").dt.strftime("%Y-%m-%d %H:%M UTC"),
        "Id": runs["id"],
    }
    st.dataframe(pd.DataFrame(table), hide_index=True, width="stretch")
    st.page_link("pages/runs.py", label="All runs", icon=PAGES["pages/runs.py"][1], help="Reopen, compare, resume.")


def main() -> None:
    """Show the page."""
    st.set_page_config(initial_sidebar_state="collapsed")
    st.title("Are these two samples different?")
    show_problem()
    show_doors()
    show_runs()


run_page(main)
