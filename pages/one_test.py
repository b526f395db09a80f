"""One test: draw two samples, choose a method, and see the p-value and its null distribution."""

import streamlit as st

import m2st_core
from m2st_core.analysis.answer import error_text, headline, p_text, p_value_sentences
from m2st_core.dashboard.explore.rail import ask_setting
from m2st_core.dashboard.explore.sweeps import method_groups
from m2st_core.dashboard.jobs.jobs import SHIPPED, watch_study
from m2st_core.dashboard.widgets.controls import (
    ALPHA,
    NULL,
    PERMUTATIONS,
    Control,
    ask_controls,
)
from m2st_core.dashboard.widgets.page import chart, latest_of_page, page_finding, page_title, run_page, show_folded
from m2st_core.figures.null import null_figure
from m2st_core.figures.samples import samples_figure
from m2st_core.figures.theme import short_labels
from m2st_core.studies.one_test import SingleTest
from m2st_core.testing.methods import METHODS, label_of
from m2st_core.types import TestResult, TwoSample

DEFAULT = SingleTest()
METHOD = Control(
    "method",
    "Test",
    DEFAULT.method,
    "The paper's tests first, then tests without related tasks, then ours. Tests that need training rows learn from "
    "m_tr of them and test the others.",
    tuple(name for group in method_groups().values() for name in group if name in METHODS),
    shown=label_of,
)
ROWS = tuple(
    Control(
        name,
        f"Rows of {sample} ({name}); 0: as in the rail",
        0,
        "The rail has training and test rows.",
        bounds=(0, 4000, 10),
    )
    for name, sample in (("n", "x"), ("m", "y"))
)


def show(result: TestResult) -> None:
    """Show the p-value and what it means."""
    p_value, error, training, tested = st.columns(4)
    p_value.metric("p-value", p_text(result), help="How often so large a difference occurs if P = Q.")
    no_error = "–" if result.at_floor else "none"
    error.metric("Monte-Carlo error", error_text(result) or no_error, help=f"Of the p-value: {result.error_words}.")
    training_rows, test_rows = (f"{n} + {m}" if n else "none" for n, m in (result.n_train, result.n_test))
    training.metric("Training rows", training_rows, help="Rows of x + rows of y that are learned from, never tested.")
    tested.metric("Test rows", test_rows, help="Rows of x + rows of y behind the p-value.")
    st.markdown(p_value_sentences(result))
    for note in result.notes:
        st.caption(note)


def show_charts(sample: TwoSample, result: TestResult | None) -> None:
    """Show the samples, and the null distribution of the test statistic."""
    left, right = st.columns(2, gap="large")
    with left:
        st.header("The two samples", anchor=False)
        x, y = (rows.numpy() for rows in sample)
        alt = f"Scatter plot of {len(x)} rows of x and {len(y)} rows of y."
        chart(short_labels(samples_figure(x, y)), "samples_chart", alt)
    with right:
        st.header("The statistic, if P = Q", anchor=False)
        if result is not None:
            alt = (
                f"Histogram of the statistic if P = Q; the observed value is {result.statistic:.3g}, {result.p_words}."
            )
            chart(null_figure(result), "null_chart", alt)
        else:
            st.caption("It appears when the test is done.")


def show_code(test: SingleTest) -> None:
    """Show code that repeats the test elsewhere."""
    st.code(test.as_python(), language="python")


def main() -> None:
    """Show the page."""
    page_title("One test", sidebar=True)
    setting = ask_setting()
    said = st.container()
    left, right = st.columns([2, 1], vertical_alignment="bottom")
    with left:
        method = METHOD.draw()
    with right:
        null = NULL.draw()
    body = st.container()
    with st.expander("More settings of the test"):
        values = ask_controls((*ROWS, ALPHA, PERMUTATIONS))
    test = SingleTest.at(setting, method=setting.line(method), null=null, **values)
    with body:
        try:
            sample = test.sample()
        except ValueError as error:
            st.error(str(error))
            sample, result, waiting = None, None, "These settings cannot be tested."
        else:
            doing = "Learning from the related tasks, then testing…" if test.learns else "Training and testing…"
            job = watch_study("one_test", test, doing, test.expected_seconds, test.shipped())
            result = job.result if job.state == "done" else None  # asked once: it may end while the page is drawn
            waiting = "Nothing is computed yet." if job.state == "asked" else f"{doing.split(',')[0].rstrip('…')}…"
        shown = latest_of_page("one_test", test, result)
        with said:
            page_finding(f"{shown.before}{headline(shown.result.result, shown.result.without)}" if shown else waiting)
        if shown is not None:
            with shown.marked():
                show_charts(shown.settings.sample(), shown.result.result)
                show(shown.result.result)
            if shown.settings.shipped() is not None:
                st.caption(SHIPPED)
        elif sample is not None:
            show_charts(sample, None)
    st.caption(METHODS[test.method].description)
    show_folded("Repeat this in Python", "one_test_code", lambda: show_code(test))


run_page(main)
