"""One test: draw two samples, choose a method, and see the p-value and its null distribution."""

import streamlit as st

import m2st_core
from m2st_core.analysis.answer import error_text, headline, p_text, p_value_sentences
from m2st_core.dashboard.jobs.jobs import SHIPPED, watch_study
from m2st_core.dashboard.widgets.controls import (
    ALPHA,
    NULL,
    PERMUTATIONS,
    TRAIN_FRACTION,
    Control,
    ask_controls,
    ask_setting,
    controls_under,
)
from m2st_core.dashboard.widgets.page import chart, latest_of_page, page_finding, page_title, run_page, show_folded
from m2st_core.figures.null import null_figure
from m2st_core.figures.samples import samples_figure
from m2st_core.figures.theme import short_labels
from m2st_core.studies.one_test import SingleTest, method_words
from m2st_core.testing.methods import METHODS
from m2st_core.types import TestResult, TwoSample

DEFAULT = SingleTest()
SIZES = (4, 2000, 10)
CONTROLS = (
    Control(
        "method",
        "Test",
        DEFAULT.method,
        "Tests with related tasks learn from those of the setting above. Tests that need training rows split each "
        "sample: they learn from one part and test the other. Those of the paper take long; · tuned ones are quick.",
        tuple(METHODS),
        shown=method_words,
    ),
    Control("n", "Rows of x (n)", DEFAULT.n, "Rows drawn from P. More rows reveal smaller differences.", bounds=SIZES),
    Control("m", "Rows of y (m)", DEFAULT.m, "Rows drawn from Q. n and m may differ.", bounds=SIZES),
    NULL,
)
ADVANCED = controls_under("", ALPHA, PERMUTATIONS, TRAIN_FRACTION)


def show(result: TestResult) -> None:
    """Show the p-value and what it means."""
    p_value, error, training, tested = st.columns(4)
    p_value.metric("p-value", p_text(result), help="How often so large a difference occurs if P = Q.")
    no_error = "at the floor" if result.at_floor else "none"
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
    page_title("One test")
    said, place, body = st.container(), st.container(), st.container()
    more = st.expander("More settings")
    with place:
        setting = ask_setting(more)
        columns = st.columns([3, 2, 2, 2], vertical_alignment="bottom")
        values = {}
        for column, control in zip(columns, CONTROLS, strict=True):
            with column:
                values[control.field] = control.draw()
        st.caption(METHODS[values["method"]].description)
    with more:
        values |= ask_controls(ADVANCED)
    test = SingleTest(setting, **values)
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
    show_folded("Repeat this in Python", "one_test_code", lambda: show_code(test))


run_page(main)
