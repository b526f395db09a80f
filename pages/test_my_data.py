"""Test my data: from two groups of rows to an answer in three stages."""

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

import m2st_core
from m2st_core.analysis.plan import Plan
from m2st_core.dashboard.widgets.page import as_text, page_finding, page_title, run_page
from m2st_core.dashboard.your_data.answer import answer_stage, run_plan
from m2st_core.dashboard.your_data.bring import ask_groups, bring_stage
from m2st_core.dashboard.your_data.check import check_stage
from m2st_core.dashboard.your_data.plan import stop_related_check
from m2st_core.dashboard.your_data.state import STEPS, UserData, go_to, user_data
from m2st_core.data.tables.questions import TableError
from m2st_core.data.tables.upload import Upload
from m2st_core.testing.methods import label_of

ORDER = list(STEPS)
WITH, WITHOUT = 0.001, 0.301  # p-values of the first example, with its related tasks and without
STORY = (
    f"Two hands wrote 15 digits each. Alone they show no difference (**p = {WITHOUT}**). Taught by four earlier "
    f"batches, a test finds it (**p ≤ {WITH}**)."
)


def pick_step() -> tuple[str, DeltaGenerator]:
    """Draw the stages, of which the link keeps one, and a place for the buttons beside them."""
    with st.container(horizontal=True, vertical_alignment="center"):
        chosen = st.segmented_control(
            "Stage",
            ORDER,
            default=ORDER[0],
            required=True,
            key="data_step",
            bind="query-params",
            label_visibility="collapsed",
            wrap=True,
            help="The three stages. You can go back at any time; nothing is lost.",
        )
        buttons = st.container(horizontal=True, width="content")
    step = chosen or ORDER[0]  # a link with an empty stage has none
    st.caption(f"Stage {ORDER.index(step) + 1} of {len(ORDER)}: {STEPS[step]}.")
    return step, buttons


def show_buttons(places: list[DeltaGenerator], step: str, ready: bool, forward: str = "", on_click=go_to, args=()):
    """Draw the buttons to the neighbouring stages, at the top and at the bottom."""
    number = ORDER.index(step)
    for place, mark in zip(places, ("", "_below"), strict=False):
        with place:
            if number:
                previous = ORDER[number - 1]
                help_ = f"{previous}: {STEPS[previous]}."
                st.button("← Back", key=f"data_back{mark}", on_click=go_to, args=(previous,), help=help_)
            if number + 1 < len(ORDER):
                following = ORDER[number + 1]
                st.button(
                    f"{forward or f'Next: {following}'} →",
                    key=f"data_next{mark}",
                    type="primary",
                    disabled=not ready,
                    on_click=on_click,
                    args=args or (following,),
                    help=f"{following}: {STEPS[following]}.",
                )


def declare(state: UserData, digest: str, plan: Plan) -> None:
    """Declare the plan for the data with this digest, and open its answer."""
    state.declared = (digest, plan)
    stop_related_check()
    go_to("Answer")


def check_and_choose(state: UserData, upload: Upload, buttons: DeltaGenerator) -> None:
    """Show the second stage, and the button that runs the chosen test."""
    chosen = check_stage(state, upload)
    places = [buttons, st.container(horizontal=True)]
    if chosen is None:
        show_buttons(places, "Check", False, "Run")
        return
    _, plan = chosen
    show_buttons(places, "Check", True, f"Run {label_of(plan.primary)}", declare, (state, *chosen))


def show(step: str, buttons: DeltaGenerator, state: UserData) -> None:
    """Show one stage and the buttons to its neighbours."""
    if step == "Bring":
        ready = bring_stage(state)
        show_buttons([buttons, st.container(horizontal=True)], step, ready)
        return
    upload = state.upload
    if upload is None and (state.asks_group or state.asks_related):
        st.header("One question before")
        ask_groups(state)
        if state.upload is not None:
            st.rerun()
        show_buttons([buttons], step, False)
        return
    if upload is None:
        st.info("There are no data yet. Bring two groups of rows, or use an example.")
        st.button("← Bring data", key="data_start", on_click=go_to, args=("Bring",), help="The first stage.")
        return
    if step == "Check":
        check_and_choose(state, upload, buttons)
        return
    outcome = run_plan(state, upload, state.prepared(upload))
    if outcome is not None:
        answer_stage(state, upload, outcome)
    show_buttons([buttons, st.container(horizontal=True)], step, outcome is not None)


def main() -> None:
    """Show the page."""
    page_title("Test my data")
    headline = st.container()
    step, buttons = pick_step()
    try:
        state = user_data()
        show(step, buttons, state)
        if step == ORDER[0] and state.upload is None:
            with headline:
                page_finding(STORY)
    except ValueError as error:
        st.error(as_text(error.sentence if isinstance(error, TableError) else str(error)))
        show_buttons([buttons], step, False)


run_page(main)
