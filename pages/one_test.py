"""One test: draw two samples, choose a method, and see the p-value and its null distribution."""

import streamlit as st

from m2st_core.dashboard.jobs.jobs import Job, watch_study
from m2st_core.dashboard.widgets.controls import (
    ALPHA,
    NULL,
    PERMUTATIONS,
    PRESET,
    SEED,
    TASK,
    TRAIN_FRACTION,
    Control,
    ask,
    parameter_controls,
    under,
)
from m2st_core.dashboard.widgets.page import SIDEBAR, chart, error_text, p_text, p_value_sentences, run_page
from m2st_core.figures.null import null_figure
from m2st_core.figures.samples import samples_figure
from m2st_core.studies.synthetic import SingleTest
from m2st_core.testing.methods import METHODS, label_of
from m2st_core.types import TestResult, TwoSample

SIZES = (4, 2000, 10)
CONTROLS = (
    NULL,
    Control("n", "Rows of x (n)", 100, "Rows drawn from P. More rows reveal smaller differences.", bounds=SIZES),
    Control("m", "Rows of y (m)", 100, "Rows drawn from Q. n and m may differ.", bounds=SIZES),
    Control(
        "method",
        "Method",
        "MMD-M",
        "Methods that learn split each sample: they learn from one part and test the other.",
        tuple(name for name, method in METHODS.items() if not method.uses_related_tasks),
        shown=label_of,
        note=lambda name: f"{METHODS[name].description} Methods that use related tasks are in Power lab and Your data.",
    ),
    *under("", ALPHA, PERMUTATIONS, TRAIN_FRACTION, PRESET, section="Advanced"),
    SEED,
)


def show(result: TestResult) -> None:
    """Step 2: the p-value and what it means."""
    (st.warning if result.rejected else st.info)(p_value_sentences(result))
    p_value, error, training, tested = st.columns(4)
    p_value.metric("p-value", p_text(result), help="How often so large a difference occurs if P = Q.")
    error.metric("Monte-Carlo error", error_text(result) or "none", help=f"Of the p-value: {result.error_words}.")
    training_rows, test_rows = (f"{n} + {m}" if n else "none" for n, m in (result.n_train, result.n_test))
    training.metric("Training rows", training_rows, help="Rows of x + rows of y that are learned from, never tested.")
    tested.metric("Test rows", test_rows, help="Rows of x + rows of y behind the p-value.")
    for note in (f"The p-value: {result.error_words}.", *result.notes):
        st.caption(note)


def show_charts(sample: TwoSample, job: Job) -> None:
    """Step 3: the samples, and the null distribution of the test statistic."""
    left, right = st.columns(2, gap="large")
    with left:
        st.subheader("The two samples")
        x, y = (rows.numpy() for rows in sample)
        alt = f"Scatter plot of {len(x)} rows of x and {len(y)} rows of y."
        chart(samples_figure(x, y), "samples_chart", alt)
    with right:
        st.subheader("The statistic, if P = Q")
        if job.state == "done":
            alt = f"Histogram of the statistic if P = Q; the observed value is {job.result.statistic:.3g}."
            chart(null_figure(job.result), "null_chart", alt)
        else:
            st.caption("It appears when the test is done.")


def main() -> None:
    """Show the page as numbered steps."""
    st.title("One two-sample test")
    st.write(f"Do these two samples come from the same distribution? Change any setting in {SIDEBAR}.")
    with st.sidebar:
        task = TASK.draw()
        parameters = tuple(ask(parameter_controls(task)).items())
        settings = SingleTest(task=task, parameters=parameters, **ask(CONTROLS))
    try:
        sample = settings.sample()
    except ValueError as error:
        st.error(str(error))
        return
    job = watch_study("one_test", settings, "Training and testing…")
    if job.state == "done":
        show(job.result)
    show_charts(sample, job)
    with st.expander("Repeat this in Python"):
        st.code(settings.as_python(), language="python")


run_page(main)
