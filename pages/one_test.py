"""One test: draw two samples, choose a method, see the p-value and where it comes from."""

import streamlit as st

from m2st_core.dashboard.jobs.jobs import Job, watch_study
from m2st_core.dashboard.one_test.study import SingleTest
from m2st_core.dashboard.widgets import controls
from m2st_core.dashboard.widgets.page import run_page
from m2st_core.dashboard.widgets.words import SIDEBAR, error_shown, p_shown, p_value_in_words
from m2st_core.figures.null import null_figure
from m2st_core.figures.samples import samples_figure
from m2st_core.types import TestResult, TwoSample

LARGEST_SAMPLE = 2000


def ask() -> SingleTest:
    """Step 1: the settings."""
    task = controls.pick_task()
    parameters = controls.pick_parameters(task)
    null = st.toggle(
        "No difference (Q = P)",
        key="null",
        bind="query-params",
        help="Draw both samples from P. A valid test then rejects for a share of at most α of all seeds.",
    )
    left, right = st.columns(2)
    with left:
        n = controls.pick_size(
            "Rows of x (n)", "n", LARGEST_SAMPLE, "Rows drawn from P, per sample. More rows show smaller differences."
        )
    with right:
        m = controls.pick_size("Rows of y (m)", "m", LARGEST_SAMPLE, "Rows drawn from Q, per sample; n ≠ m is fine.")
    method = controls.pick_method()
    with st.expander("Advanced"):
        alpha = controls.pick_alpha()
        n_permutations = controls.pick_permutations()
        train_fraction = controls.pick_train_fraction()
        preset = controls.pick_preset("preset")
    return SingleTest(
        task,
        tuple(parameters.items()),
        null,
        n,
        m,
        method,
        alpha,
        n_permutations,
        train_fraction,
        preset,
        controls.pick_seed(),
    )


def show(result: TestResult) -> None:
    """Step 3: the answer."""
    (st.warning if result.rejected else st.info)(p_value_in_words(result))
    columns = st.columns(4)
    columns[0].metric("p-value", p_shown(result), help="How often so large a difference appears if P = Q.")
    columns[1].metric(
        "Monte-Carlo error", error_shown(result) or "none", help=f"How sure the number is: {result.error_words}."
    )
    learned, tested = (f"{n} + {m}" if n else "none" for n, m in (result.n_train, result.n_test))
    columns[2].metric("Rows learned from", learned, help="Rows of x + rows of y that taught the kernel. Never tested.")
    columns[3].metric("Rows tested", tested, help="Rows of x + rows of y behind the p-value.")
    for note in (f"The p-value: {result.error_words}.", *result.notes):
        st.caption(note)


def show_charts(sample: TwoSample, job: Job) -> None:
    """Step 4: what went in, and what the statistic does when nothing is going on."""
    left, right = st.columns(2, gap="large")
    with left:
        st.subheader("The two samples")
        x, y = (part.numpy() for part in sample)
        alt = f"Scatter plot of {len(x)} rows of x and {len(y)} rows of y."
        st.plotly_chart(samples_figure(x, y), width="stretch", key="samples_chart", alt=alt)
    with right:
        st.subheader("The statistic, if P = Q")
        if job.state == "done":
            alt = f"Histogram of the statistic if P=Q; the observed value is {job.result.statistic:.3g}."
            st.plotly_chart(null_figure(job.result), width="stretch", key="null_chart", alt=alt)
        else:
            st.caption("Appears when the test has run.")


def main() -> None:
    """The page, as numbered steps."""
    st.title("One two-sample test")
    st.write(
        f"Do these two samples come from the same distribution? Change any setting in {SIDEBAR} and watch the answer."
    )
    with st.sidebar:
        settings = ask()
    try:
        sample = settings.sample()
    except ValueError as error:
        st.error(str(error))
        return
    job = watch_study("one_test", settings, "Learning and testing…")
    if job.state == "done":
        show(job.result)
    show_charts(sample, job)
    with st.expander("Repeat this in Python"):
        st.code(settings.as_python(), language="python")


run_page(main)
