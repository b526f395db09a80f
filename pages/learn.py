"""Learn: a course in eight small steps, one idea per screen."""

import streamlit as st

from m2st_core.dashboard import controls
from m2st_core.dashboard.course_meta import LESSONS

LARGEST_SEED = 2**31 - 1


def go_to(step: int) -> None:
    """Another step, also in the URL."""
    st.session_state["step"] = step


def reseed(seed: int) -> None:
    """The next seed."""
    st.session_state["seed"] = (seed + 1) % LARGEST_SEED


def pick_step() -> int:
    """The step, by number or one back and forth."""
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
    with before:
        st.button("← Back", on_click=go_to, args=(step - 1,), disabled=step == 1, help="The step before.")
    with after:
        last = step == len(LESSONS)
        st.button("Next →", on_click=go_to, args=(step + 1,), disabled=last, type="primary", help="The next step.")
    return step


def main() -> None:
    """One step: words, formulas and controls beside its picture."""
    step = pick_step()
    lesson = LESSONS[step - 1]
    st.header(f"{step}. {lesson.title}")
    words, picture = st.columns([2, 3], gap="large")
    with words:
        st.markdown(lesson.idea)
        for formula in lesson.formulas:
            st.latex(formula)
        values = [control.ask() for control in lesson.controls]
        st.info(lesson.try_this, icon="👉")
        with st.container(horizontal=True, vertical_alignment="bottom"):
            seed = controls.pick_seed()
            st.button("Re-seed", on_click=reseed, args=(seed,), icon="🎲", help="The next seed: other random samples.")
            st.button(
                "Reset", on_click=lesson.reset, icon="↩️", help="This step's controls back to the start; the seed stays."
            )
    with picture:
        lesson.show(seed, *values)


main()
