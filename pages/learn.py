"""Learn: a course in eight small steps, one idea per screen."""

import streamlit as st

from m2st_core.dashboard.learn.course import Lesson
from m2st_core.dashboard.learn.theory import LESSONS
from m2st_core.dashboard.widgets import controls
from m2st_core.dashboard.widgets.page import run_page

LARGEST_SEED = 2**31 - 1


def go_to(step: int) -> None:
    """Another step, also in the URL."""
    st.session_state["step"] = step


def reseed(seed: int) -> None:
    """The next seed."""
    st.session_state["seed"] = (seed + 1) % LARGEST_SEED


def pick_step(seed: int) -> tuple[int, Lesson]:
    """The step, by number or one back and forth; and what starts it over."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        before, after = st.container(width="content"), st.container(width="content")
        step: int = st.segmented_control(
            "Step",
            range(1, len(LESSONS) + 1),
            default=1,
            required=True,
            key="step",
            bind="query-params",
            help="One idea per step; each builds on those before. The step is in the address, so a link leads to it.",
        )
        step = step or 1  # an address with an empty step selects none
        lesson = LESSONS[step - 1]
        st.button("Reset", on_click=lesson.reset, icon="↩️", help="This step's controls as at first; the seed stays.")
        st.button("Re-seed", on_click=reseed, args=(seed,), icon="🎲", help="The next seed: other random samples.")
    with before:
        st.button("← Back", on_click=go_to, args=(step - 1,), disabled=step == 1, help="The step before.")
    with after:
        last = step == len(LESSONS)
        st.button("Next →", on_click=go_to, args=(step + 1,), disabled=last, type="primary", help="The next step.")
    return step, lesson


def main() -> None:
    """One step: words, formulas and controls beside its picture."""
    st.set_page_config(initial_sidebar_state="collapsed")  # the picture needs the room; the sidebar has the seed
    with st.sidebar:
        seed = controls.pick_seed()
    step, lesson = pick_step(seed)
    st.header(f"{step}. {lesson.title}")
    words, picture = st.columns([2, 3], gap="large")
    with words:
        st.markdown(lesson.idea)
        for formula in lesson.formulas:
            st.latex(formula)
        values = [control.ask() for control in lesson.controls]
        st.info(lesson.try_this, icon="👉")
        st.caption(f"Seed {seed}. Everything on this page follows from it and from the controls.")
    with picture:
        lesson.show(seed, *values)


run_page(main)
