"""Learn: a course in eight small steps, one idea per screen."""

import streamlit as st

from m2st_core.dashboard.learn.lessons import LESSONS, Lesson
from m2st_core.dashboard.widgets.controls import SEED, Control, ask
from m2st_core.dashboard.widgets.page import run_page

STEP = Control(
    "step",
    "Step",
    1,
    "One idea per step. Each builds on the ones before. The address contains the step, so a link leads to it.",
    tuple(range(1, len(LESSONS) + 1)),
    buttons=True,
)


def set_value(control: Control, value: int) -> None:
    """Set a control from a button, in the link too."""
    st.session_state[control.key] = value


def pick_step(seed: int) -> tuple[int, Lesson]:
    """Draw the step's number with buttons around it, and return the step."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        before, after = st.container(width="content"), st.container(width="content")
        step: int = STEP.draw()
        lesson = LESSONS[step - 1]
        st.button("Reset", on_click=lesson.reset, icon="↩️", help="Set this step's controls back. The seed stays.")
        next_seed = (seed + 1) % int(SEED.bounds[1])
        help_ = "Take the next seed: other random samples."
        st.button("Re-seed", on_click=set_value, args=(SEED, next_seed), icon="🎲", help=help_)
    with before:
        st.button("← Back", on_click=set_value, args=(STEP, step - 1), disabled=step == 1, help="The previous step.")
    with after:
        last = step == len(LESSONS)
        st.button(
            "Next →", on_click=set_value, args=(STEP, step + 1), disabled=last, type="primary", help="The next step."
        )
    return step, lesson


def main() -> None:
    """Show one step: text, formulas and controls beside its picture."""
    st.set_page_config(
        initial_sidebar_state="collapsed"
    )  # the picture needs the space, and the sidebar has the seed only
    with st.sidebar:
        seed = SEED.draw()
    step, lesson = pick_step(seed)
    st.header(f"{step}. {lesson.title}")
    text, picture = st.columns([2, 3], gap="large")
    with text:
        st.markdown(lesson.idea)
        for formula in lesson.formulas:
            st.latex(formula)
        values = ask(lesson.controls)
        st.info(lesson.exercise, icon="👉")
        st.caption(f"Seed {seed}. The seed and the controls determine everything on this page.")
    with picture:
        lesson.show(seed, **values)


run_page(main)
