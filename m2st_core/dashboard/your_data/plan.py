"""The test to run: the recommended one as a line to confirm, with its reasons and the alternatives behind it."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import streamlit as st

from m2st_core.analysis.correction import FAMILIES, Family
from m2st_core.analysis.pictures import related_picture
from m2st_core.analysis.plan import Plan, check_plan
from m2st_core.analysis.recommendation import Recommendation, advise, usable_methods
from m2st_core.analysis.related import RelatedCheck, check_uploaded_tasks, left_out_gamma
from m2st_core.dashboard.jobs.jobs import job_manager
from m2st_core.dashboard.widgets.controls import (
    ALPHA,
    PERMUTATIONS,
    SEED,
    TRAIN_FRACTION,
    Control,
    ask_controls,
    controls_under,
    methods_control,
)
from m2st_core.dashboard.widgets.page import as_text, chart
from m2st_core.dashboard.your_data.state import UserData
from m2st_core.data.tables.prepare import Prepared
from m2st_core.progress import part_of
from m2st_core.testing.methods import METHODS, label_of
from m2st_core.types import Progress

CHECK_SHARE = 0.7  # of the progress; γ̂ has the rest
RECOMMENDED = "As recommended"
FAMILY_LABELS: dict[Family, str] = {"primary": "The primary test alone", "all": "All tests together"}
VERDICTS = {"helps": "Yes.", "harms": "No, they mislead.", "unclear": "No clear difference."}
ADVANCED = (
    ALPHA,
    PERMUTATIONS,
    TRAIN_FRACTION,
    Control(
        "splits",
        "Random splits",
        1,
        "For tests that learn from a part of the rows: the number of random splits that are combined into one p-value. "
        "A single split depends on luck. More splits take longer, and their combined p-value is valid and steadier.",
        (1, 5, 11, 21),
    ),
    Control(
        "family",
        "What decides",
        "primary",
        "Holm's procedure corrects the secondary tests among themselves, or all tests together.",
        tuple(FAMILY_LABELS),
        shown=FAMILY_LABELS.__getitem__,
        buttons=True,
    ),
    SEED,
)


def ask_test(state: UserData, data: Prepared) -> Plan | None:
    """Show the recommended test, and return the plan as it stands; None after saying why it cannot be run."""
    st.header("The test")
    line = st.container()
    check = _show_related_check(state, data) if len(data.task_names) > 1 else None
    learner = state.learner
    advice = advise(data, n_tasks=len(learner.task_names) if learner else len(data.task_names), check=check)
    methods = usable_methods(len(data.task_names), data.blocks is not None, learner)
    if advice.method not in methods and learner is not None:
        reason = f"The learner that you brought was trained for {label_of(learner.method)}."
        advice = Recommendation(learner.method, (reason, *advice.reasons[1:]))
    with st.expander("Another test, secondary tests, settings"):
        plan = _ask_plan(methods, advice)
    with line:
        problem = state.remember("plan problem", (data.digest, plan), lambda: _plan_problem(data, plan))
        if problem:
            st.error(as_text(problem))
            return None
        _show_choice(plan, advice)
    return plan


def _show_choice(plan: Plan, advice: Recommendation) -> None:
    settings = f"α = {plan.alpha:g}, {plan.n_permutations:,} permutations"
    if plan.primary == advice.method:
        st.markdown(f"**Recommended: {label_of(advice.method)}** at {settings}. {as_text(advice.reasons[0])}")
    else:
        st.markdown(f"**Your choice: {label_of(plan.primary)}** at {settings}.")
        st.caption(f"Recommended: {label_of(advice.method)}. Another test is fine, as long as no result led you to it.")
    if plan.secondary:
        st.caption(FAMILIES[plan.family].format(alpha=plan.alpha, twice=2 * plan.alpha))


def _ask_plan(methods: list[str], advice: Recommendation) -> Plan:
    for reason in advice.reasons[1:]:
        st.markdown(f"- {as_text(reason)}")
    left, right = st.columns(2, gap="large")
    with left:
        chosen = Control(
            "primary",
            "Primary test",
            RECOMMENDED,
            "Declared now, before any result is shown.",
            (RECOMMENDED, *methods),
            shown=label_of,
            note=lambda name: METHODS[advice.method if name == RECOMMENDED else name].description,
            prefix="data_",
        ).draw()
        primary = advice.method if chosen == RECOMMENDED else chosen
        help_ = "Further tests of the same rows. Holm's procedure corrects their p-values for their number."
        several = methods_control(methods, (), help_)
        secondary = replace(several, field="secondary", label="Secondary tests", prefix="data_").draw()
    with right:
        values = ask_controls(controls_under("data_", *ADVANCED))
    plan = Plan(primary, tuple(name for name in secondary if name != primary), **values)
    return plan if any(METHODS[name].needs_split for name in plan.methods) else replace(plan, splits=1)


def _plan_problem(data: Prepared, plan: Plan) -> str:
    """Say why the plan cannot be run, from the number of rows alone; empty if it can."""
    try:
        check_plan(data, plan)
    except ValueError as error:
        return str(error)
    return ""


def stop_related_check() -> None:
    """Stop an unfinished check of the related tasks, so that the test has the processor for itself."""
    job = st.session_state.pop("data_related_job", None)
    if job is not None:
        job_manager().drop(job)


def _left_out(data: Prepared, progress: Progress) -> tuple[RelatedCheck | None, str]:
    """The leave-one-out check of the related tasks, and γ̂ between them in words."""
    check = check_uploaded_tasks(data, progress=part_of(progress, 0, CHECK_SHARE))
    related = data.separated().related
    if check is None or related is None:
        return None, ""
    return check, left_out_gamma(related, check.left_out, progress=part_of(progress, CHECK_SHARE, 1))


def _show_related_check(state: UserData, data: Prepared) -> RelatedCheck | None:
    """Show how power changes with the related tasks, in leave-one-out checks that run in the background."""
    results = state.recall("data_related", data.digest)
    verdict = VERDICTS[results[0].verdict] if results and results[0] else ""
    with st.expander(f"Do the related tasks help? {verdict}"):
        work, doing = partial(_left_out, data), "Leaving each task out in turn…"
        return _show_check(state.compute("data_related", data.digest, work, doing))


def _show_check(results: tuple[RelatedCheck | None, str] | None) -> RelatedCheck | None:
    if results is None:
        st.caption(
            "Each related task is left out in turn and tested with what was learned from the others. You need not "
            "wait for this. It never uses the labels of your own data, and rows of yours that recur in the related "
            "tasks are removed from them first. So you may choose the test by this check."
        )
        return None
    check, gamma = results
    if check is None:
        st.info(
            "The related tasks share rows with your data, as with a common control group, and are used as one task. "
            "No task can be left out to see whether the others help."
        )
        return None
    left, right = st.columns([3, 2], gap="large")
    picture = related_picture(check)
    with left:
        chart(picture.figure, "data_related_chart", picture.alt)
    with right:
        st.markdown(f"**{VERDICTS[check.verdict]}**")
        for sentence in (*check.sentences, gamma):
            st.markdown(as_text(sentence))
        st.caption(picture.caption)
    return check
