"""Start: what the problem is, three doors, and the last runs."""

import streamlit as st

from app import PAGES
from m2st_core.dashboard.runs.list import last_runs
from m2st_core.dashboard.widgets.controls import chart
from m2st_core.dashboard.widgets.page import run_page
from m2st_core.dashboard.widgets.words import p_value_in_words
from m2st_core.figures.samples import samples_figure
from m2st_core.studies.lessons import median_test, two_samples

DELTA, SIZE = 0.7, 50
DOORS = (  # the first of the pages that is there
    ("Learn", "Eight small steps from two samples to a test that learns from related ones.", ("pages/learn.py",)),
    (
        "Explore",
        "How often does which test find a difference, with how many rows?",
        ("pages/power_lab.py", "pages/weights.py"),
    ),
    (
        "Test my data",
        "From your files to an answer with its assumptions, with or without a history of similar comparisons.",
        ("pages/your_data.py", "pages/one_test.py"),
    ),
)


def redraw(seed: int) -> None:
    """The next seed for the picture."""
    st.session_state["start_seed"] = seed + 1


def show_problem() -> None:
    """Three sentences and one live picture."""
    words, picture = st.columns([2, 3], gap="large")
    seed = st.session_state.setdefault("start_seed", 0)
    with words:
        st.markdown(
            "You have two small samples: **do they come from the same distribution?** A kernel test answers with a "
            "p-value, which is exact if the labels would be arbitrary without a difference. But it finds a difference "
            "only if its kernel, which says how alike two rows are, looks in the right place, and few rows teach it "
            "little about where. **Related comparisons** that you have seen before may teach it more: that is meta "
            "two-sample testing."
        )
        st.button(
            "Draw again",
            on_click=redraw,
            args=(seed,),
            icon="🎲",
            help="Two new samples from the same P and Q, tested anew.",
        )
        st.caption(p_value_in_words(median_test(DELTA, SIZE, seed)))
        st.caption(
            f"Here P and Q do differ, and a generic kernel (MMD-M) with {SIZE} rows per mode misses it most of the "
            "time."
        )
    with picture:
        x, y = two_samples(DELTA, SIZE, seed)
        chart(samples_figure(x, y), "start_samples", f"Scatter plot of two samples with {len(x)} rows each.")


def show_doors() -> None:
    """Where to go from here; only pages that are there have a door."""
    for column, (name, promise, paths) in zip(st.columns(len(DOORS), border=True), DOORS, strict=True):
        path = next(path for path in paths if path in PAGES)
        title, icon = PAGES[path]
        with column:
            st.subheader(name)
            st.write(promise)
            st.page_link(path, label=f"Open “{title}”", icon=icon, help=promise)


def show_runs() -> None:
    """The last runs of the store."""
    st.subheader("Last runs")
    try:
        runs = last_runs()
    except ValueError as error:
        st.warning(str(error))
        return
    if runs.empty:
        st.info(
            "Nothing has been run yet: press **Train** in **Power lab**. Runs of `python -m m2st_core sweep` appear "
            "here too."
        )
        return
    st.dataframe(runs, hide_index=True, width="stretch")
    if "pages/runs.py" in PAGES:
        st.page_link("pages/runs.py", label="All runs", icon=PAGES["pages/runs.py"][1], help="Reopen, compare, resume.")


def main() -> None:
    """The page."""
    st.set_page_config(initial_sidebar_state="collapsed")
    st.title("Are these two samples different?")
    show_problem()
    show_doors()
    show_runs()


run_page(main)
