"""Step 3 of one's own data: whether the related tasks help, which test is primary, and how it is run."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from m2st_core.analysis.correction import FAMILIES, Family
from m2st_core.analysis.pictures import related_picture
from m2st_core.analysis.plan import Plan, check_plan, check_uploaded_tasks
from m2st_core.analysis.recommendation import Recommendation, advise, usable_methods
from m2st_core.analysis.related_check import RelatedCheck
from m2st_core.analysis.related_traits import LeftOutGamma, left_out_gamma
from m2st_core.dashboard.widgets.controls import (
    ALPHA,
    PERMUTATIONS,
    SEED,
    TRAIN_FRACTION,
    Control,
    ask,
    methods_control,
    under,
)
from m2st_core.dashboard.widgets.page import chart
from m2st_core.dashboard.your_data.state import UserData, as_text
from m2st_core.data.tables.clean import CleanData
from m2st_core.data.tables.upload import Upload
from m2st_core.learners.ascent import part_of
from m2st_core.testing.methods import METHODS, label_of
from m2st_core.types import Progress

CHECK_SHARE = 0.7  # of the progress; γ̂ has the rest
RECOMMENDED = "As recommended"
FAMILY_LABELS: dict[Family, str] = {"primary": "The primary test alone", "all": "All tests together"}
VERDICTS = {"helps": "✅ These tasks help.", "harms": "⚠️ These tasks mislead.", "unclear": "➖ No clear difference."}
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


def plan_step(state: UserData, upload: Upload, data: CleanData) -> Plan:
    """Show the step, and return the plan as it stands."""
    check = _show_related_check(state, upload, data) if len(data.related_tasks) > 1 else None
    learner = state.learner
    advice = advise(data, n_tasks=len(learner.task_names) if learner else len(data.related_tasks), check=check)
    methods = usable_methods(len(data.related_tasks), data.x_blocks is not None, learner)
    if advice.method not in methods and learner is not None:
        reason = f"The learner that you brought was trained for {label_of(learner.method)}."
        advice = Recommendation(learner.method, (reason, *advice.reasons[1:]))
    shown = check.sentences if check is not None else ()
    advice = replace(advice, reasons=tuple(reason for reason in advice.reasons if reason not in shown))
    st.subheader("The test")
    return _ask_plan(methods, advice)


def _ask_plan(methods: list[str], advice: Recommendation) -> Plan:
    left, right = st.columns([2, 3], gap="large")
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
        values = ask(under("data_", *ADVANCED, section="Advanced"))
    with right, st.container(border=True):
        st.markdown(f"**Recommended: {label_of(advice.method)}**")
        for reason in advice.reasons:
            st.markdown(f"- {as_text(reason)}")
        if primary != advice.method:
            st.caption(f"You chose {label_of(primary)} instead. That is fine, as long as no result led you to it.")
    plan = Plan(primary, tuple(name for name in secondary if name != primary), **values)
    if not any(METHODS[name].needs_split for name in plan.methods):
        plan = replace(plan, splits=1)
    if plan.secondary:
        st.caption(FAMILIES[plan.family].format(alpha=plan.alpha, twice=2 * plan.alpha))
    return plan


def plan_problem(state: UserData, upload: Upload, data: CleanData, plan: Plan) -> str:
    """Say why the plan cannot be run, from the number of rows alone; empty if it can."""

    def check() -> str:
        try:
            check_plan(data, plan)
        except ValueError as error:
            return str(error)
        return ""

    problem: str = state.remember("plan problem", (state.key(upload), plan), check)
    return problem


def _show_related_check(state: UserData, upload: Upload, data: CleanData) -> RelatedCheck | None:
    """Show how power changes with the related tasks, in leave-one-out checks that run in the background."""

    def work(progress: Progress) -> tuple[RelatedCheck, LeftOutGamma] | tuple[None, None]:
        check = check_uploaded_tasks(data, progress=part_of(progress, 0, CHECK_SHARE))
        if check is None:
            return None, None
        return check, left_out_gamma(data.related_tasks, check.left_out, progress=part_of(progress, CHECK_SHARE, 1))

    st.subheader("Do the related tasks help?")
    results = state.compute("data_history", state.key(upload), work, "Leaving each task out in turn…")
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
        chart(picture.figure, "data_history_chart", picture.alt)
    with right:
        st.markdown(f"**{VERDICTS[check.verdict]}**")
        for sentence in (*check.sentences, gamma.sentence):
            st.markdown(as_text(sentence))
        st.caption(picture.caption)
    return check
