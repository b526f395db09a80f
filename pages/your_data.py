"""Your data: from two groups of rows to a p-value with its assumptions, in five steps."""

from collections.abc import Hashable

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from m2st_core.analysis.plan import Plan
from m2st_core.dashboard.widgets.page import run_page
from m2st_core.dashboard.your_data.check import check_step
from m2st_core.dashboard.your_data.explanation import explanation_step
from m2st_core.dashboard.your_data.plan import plan_problem, plan_step
from m2st_core.dashboard.your_data.result import result_step, run_plan
from m2st_core.dashboard.your_data.state import STEPS, UserData, as_text, go_to, user_data
from m2st_core.dashboard.your_data.upload import upload_step
from m2st_core.testing.methods import label_of

ORDER = list(STEPS)


def pick_step() -> tuple[str, DeltaGenerator]:
    """Draw the step, which the link keeps, and a place for the buttons beside it."""
    with st.container(horizontal=True, vertical_alignment="center"):
        step = st.segmented_control(
            "Step",
            ORDER,
            default=ORDER[0],
            required=True,
            key="data_step",
            bind="query-params",
            label_visibility="collapsed",
            wrap=True,
            help="The five steps. You can go back at any time; nothing is lost.",
        )
        buttons = st.container(horizontal=True, width="content")
    st.caption(f"Step {ORDER.index(step) + 1} of {len(ORDER)}: {STEPS[step]}.")
    return step, buttons


def show_buttons(buttons: DeltaGenerator, step: str, ready: bool, forward: str = "Next", on_click=go_to, args=()):
    """Draw the buttons to the neighbouring steps."""
    number = ORDER.index(step)
    with buttons:
        if number:
            previous = ORDER[number - 1]
            help_ = f"{previous}: {STEPS[previous]}."
            st.button("← Back", key="data_back", on_click=go_to, args=(previous,), help=help_)
        if number + 1 < len(ORDER):
            following = ORDER[number + 1]
            st.button(
                f"{forward} →",
                key="data_next",
                type="primary",
                disabled=not ready,
                on_click=on_click,
                args=args or (following,),
                help=f"{following}: {STEPS[following]}.",
            )


def declare(state: UserData, key: Hashable, plan: Plan) -> None:
    """Declare the plan for these data, and open its result."""
    state.declared = (key, plan)
    go_to("Answer")


def show(step: str, buttons: DeltaGenerator, state: UserData) -> None:
    """Show one step and the buttons to its neighbours."""
    if step == "Bring":
        upload_step(state)
        show_buttons(buttons, step, state.upload is not None)
        return
    upload = state.upload
    if upload is None:
        st.info("There are no data yet. Bring two groups of rows, or use an example.")
        st.button("← Bring data", key="data_start", on_click=go_to, args=("Bring",), help="The first step.")
        return
    if step == "Check":
        show_buttons(buttons, step, check_step(state, upload))
        return
    data = state.clean(upload)
    if step == "Choose":
        plan = plan_step(state, upload, data)
        problem = plan_problem(state, upload, data, plan)
        if problem:
            st.error(as_text(problem))
        args = (state, state.key(upload), plan)
        show_buttons(buttons, step, not problem, f"Run {label_of(plan.primary)}", declare, args)
        return
    outcome = run_plan(state, upload, data)
    if outcome is not None:
        (result_step if step == "Answer" else explanation_step)(state, upload, outcome)
    show_buttons(buttons, step, outcome is not None)


def main() -> None:
    """Show the page."""
    st.set_page_config(initial_sidebar_state="collapsed")
    st.title("Test your data")
    step, buttons = pick_step()
    try:
        show(step, buttons, user_data())
    except ValueError as error:
        st.error(as_text(str(error)))
        show_buttons(buttons, step, False)


run_page(main)
