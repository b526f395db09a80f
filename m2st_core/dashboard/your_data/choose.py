"""Step 3 of one's own data: does the history help, which test is primary, and how it is run."""

from __future__ import annotations

import streamlit as st

from m2st_core.analysis.correction import FAMILIES, Family
from m2st_core.analysis.gamma import LeftOutGamma, left_out_gamma
from m2st_core.analysis.pictures import related_picture
from m2st_core.analysis.plan import Plan, check_plan, check_uploaded_tasks
from m2st_core.analysis.recommendation import Recommendation, advise, usable_methods
from m2st_core.analysis.related_check import RelatedCheck
from m2st_core.dashboard.jobs.jobs import watch_job
from m2st_core.dashboard.widgets import controls
from m2st_core.dashboard.widgets.controls import chart
from m2st_core.dashboard.your_data.state import Brought, say
from m2st_core.data.tables.clean import CleanData
from m2st_core.data.tables.upload import Upload
from m2st_core.learners.ascent import part_of
from m2st_core.sweeps.spec import label_of
from m2st_core.testing.methods import METHODS
from m2st_core.types import Progress

POWER_FOUND = 0.7  # of the progress
AS_RECOMMENDED = "As recommended"
FAMILY_WORDS: dict[str, Family] = {
    "The primary test alone": "primary",
    "All tests together": "all",
}
VERDICTS = {"helps": "✅ The history helps.", "harms": "⚠️ The history misleads.", "unclear": "➖ No clear difference."}


def choose_step(state: Brought, upload: Upload, data: CleanData) -> Plan:
    """The whole step; the plan as it stands."""
    check = _history(state, upload, data) if len(data.related_tasks) > 1 else None
    n_tasks = len(state.trained.learner.task_names) if state.trained else len(data.related_tasks)
    advice = advise(data, n_tasks=n_tasks, check=check)
    methods = usable_methods(
        len(data.related_tasks), data.x_blocks is not None, state.trained.learner if state.trained else None
    )
    if advice.method not in methods and state.trained is not None:
        own = state.trained.learner.method
        why = f"The learner that you brought was trained for {label_of(own)}."
        advice = Recommendation(own, (why, *advice.reasons[1:]))
    said = check.sentences if check is not None else ()
    advice = Recommendation(advice.method, tuple(reason for reason in advice.reasons if reason not in said))
    st.subheader("The test")
    return _ask(methods, advice)


def _ask(methods: list[str], advice: Recommendation) -> Plan:
    left, right = st.columns([2, 3], gap="large")
    with left:
        chosen = st.selectbox(
            "Primary test",
            [AS_RECOMMENDED, *methods],
            key="data_method",
            bind="query-params",
            format_func=label_of,
            help="Declared now, before any result is shown.",
        )
        primary = advice.method if chosen in (AS_RECOMMENDED, None) else str(chosen)
        st.caption(METHODS[primary].description)
        secondary = controls.pick_methods(
            "Secondary tests",
            "data_secondary",
            methods,
            (),
            "Further looks at the same rows. Their p-values are corrected for being many, by Holm's procedure.",
        )
        with st.expander("Advanced"):
            alpha = controls.pick_alpha("data_")
            permutations = controls.pick_permutations("data_")
            fraction = controls.pick_train_fraction("data_")
            splits = controls.pick_splits("data_")
            family = FAMILY_WORDS[
                st.radio(
                    "What decides",
                    list(FAMILY_WORDS),
                    key="data_family",
                    bind="query-params",
                    help="Holm's procedure corrects the secondary tests among themselves, or all tests together.",
                )
            ]
            seed = controls.pick_seed("data_")
    with right, st.container(border=True):
        st.markdown(f"**Recommended: {label_of(advice.method)}**")
        for reason in advice.reasons:
            st.markdown(f"- {say(reason)}")
        if primary != advice.method:
            st.caption(f"You chose {label_of(primary)} instead. That is fine, as long as no result made you do it.")
    others = tuple(name for name in secondary if name != primary)
    splits = splits if any(METHODS[name].needs_split for name in (primary, *others)) else 1
    plan = Plan(primary, others, alpha, permutations, fraction, seed, splits=splits, family=family)
    if others:
        st.caption(FAMILIES[family].format(alpha=alpha, twice=2 * alpha))
    return plan


def plan_problem(state: Brought, upload: Upload, data: CleanData, plan: Plan) -> str:
    """Why the plan cannot be run, or nothing; known from the number of rows, before any result."""

    def look() -> str:
        try:
            check_plan(data, plan)
        except ValueError as error:
            return str(error)
        return ""

    problem: str = state.remember("plan problem", (state.key(upload), plan), look)
    return problem


def _history(state: Brought, upload: Upload, data: CleanData) -> RelatedCheck | None:
    """Leave-one-task-out power, found in the background before the history is used."""
    st.subheader("Does the history help?")
    key = state.key(upload)
    if state.history is None or state.history[0] != key:

        def work(progress: Progress) -> tuple[RelatedCheck, LeftOutGamma] | tuple[None, None]:
            check = check_uploaded_tasks(data, progress=part_of(progress, 0, POWER_FOUND))
            if check is None:
                return None, None
            return check, left_out_gamma(data.related_tasks, check.left_out, progress=part_of(progress, POWER_FOUND, 1))

        job = watch_job("data_history", key, work, "Leaving each task out in turn…")
        if job.state != "done":
            st.caption(
                "Each related task is left out in turn and tested with what the others taught. You need not wait for "
                "it. No label of your own data is looked at, and rows of yours that are recognised in the related "
                "tasks are left out of them first. So you may choose the test by this check."
            )
            return None
        state.history = (key, *job.result)
    _, check, gamma = state.history
    if check is None or gamma is None:
        st.info(
            "The related tasks share their rows with your data, as a common control group, and are used as one task. "
            "No task can be left out to see whether the others help."
        )
        return None
    left, right = st.columns([3, 2], gap="large")
    with left:
        picture = related_picture(check)
        chart(picture.figure, "data_history_chart", picture.alt)
    with right:
        st.markdown(f"**{VERDICTS[check.verdict]}**")
        for sentence in (*check.sentences, gamma.sentence):
            st.markdown(say(sentence))
        st.caption(picture.caption)
    return check
