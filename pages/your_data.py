"""Your data: from two groups of rows to an answer with its assumptions, in five steps."""

import streamlit as st

from m2st_core.dashboard.widgets.page import run_page
from m2st_core.dashboard.your_data.answer import answer_of, declare, show_answer
from m2st_core.dashboard.your_data.bring import bring
from m2st_core.dashboard.your_data.check import check_step
from m2st_core.dashboard.your_data.choose import choose_step, plan_problem
from m2st_core.dashboard.your_data.state import STEPS, Brought, brought, go, say
from m2st_core.dashboard.your_data.understand import understand_step
from m2st_core.sweeps.spec import label_of

PROMISES = {
    "Bring": "files, or an example",
    "Check": "what was read, and what happens to it",
    "Choose": "one primary test, before any result",
    "Answer": "the p-value, and what it means",
    "Understand": "where the samples differ, and a report",
}


def pick_step():
    """Where we are, which the link keeps, and a place for the buttons beside it."""
    with st.container(horizontal=True, vertical_alignment="center"):
        step = st.segmented_control(
            "Step",
            STEPS,
            default=STEPS[0],
            required=True,
            key="data_step",
            bind="query-params",
            label_visibility="collapsed",
            wrap=True,
            help="The five steps. You can go back at any time; nothing is lost.",
        )
        buttons = st.container(horizontal=True, width="content")
    st.caption(f"Step {STEPS.index(step) + 1} of {len(STEPS)}: {PROMISES[step]}.")
    return step, buttons


def move(buttons, step: str, ready: bool, forward: str = "Next", on_click=go, args=()) -> None:
    """Back and forward."""
    number = STEPS.index(step)
    with buttons:
        if number:
            before = STEPS[number - 1]
            st.button("← Back", key="data_back", on_click=go, args=(before,), help=f"{before}: {PROMISES[before]}.")
        if number + 1 < len(STEPS):
            following = STEPS[number + 1]
            st.button(
                f"{forward} →",
                key="data_next",
                type="primary",
                disabled=not ready,
                on_click=on_click,
                args=args or (following,),
                help=f"{following}: {PROMISES[following]}.",
            )


def run_declared(state: Brought, key, plan) -> None:
    """Declare the plan, and go to its answer."""
    declare(state, key, plan)
    go("Answer")


def show(step: str, buttons, state: Brought) -> None:
    """One step, and the way to its neighbours."""
    if step == "Bring":
        bring(state)
        move(buttons, step, state.upload is not None)
        return
    upload = state.upload
    if upload is None:
        st.info("There are no data yet. Bring two groups of rows, or take an example.")
        st.button("← Bring data", key="data_start", on_click=go, args=("Bring",), help="The first step.")
        return
    if step == "Check":
        move(buttons, step, check_step(state, upload))
        return
    data = state.clean(upload)
    if step == "Choose":
        plan = choose_step(state, upload, data)
        problem = plan_problem(state, upload, data, plan)
        if problem:
            st.error(say(problem))
        move(
            buttons, step, not problem, f"Run {label_of(plan.primary)}", run_declared, (state, state.key(upload), plan)
        )
        return
    outcome = answer_of(state, upload, data)
    if outcome is not None and step == "Answer":
        show_answer(state, upload, outcome)
    elif outcome is not None:
        understand_step(state, upload, outcome)
    move(buttons, step, outcome is not None)


def main() -> None:
    """The page."""
    st.set_page_config(initial_sidebar_state="collapsed")
    st.title("Test your data")
    step, buttons = pick_step()
    try:
        show(step, buttons, brought())
    except ValueError as error:
        st.error(say(str(error)))
        move(buttons, step, False)


run_page(main)
