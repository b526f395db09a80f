"""Learn: a course in seven steps, one idea each, then a recap and a quiz."""

import streamlit as st

import m2st_core
from m2st_core.dashboard.learn.lessons import LAST, LESSONS, SAMPLE, STEP, Lesson, show_quiz, show_recap, show_theory
from m2st_core.dashboard.learn.pictures import LOOKS, Sample, is_on, larger, show_player, show_toggle
from m2st_core.dashboard.widgets.controls import SEED, Control
from m2st_core.dashboard.widgets.page import chart, page_finding, page_title, run_page, show_folded, show_part


def set_value(control: Control, value: object) -> None:
    """Set a control from a button, in the link too."""
    st.session_state[control.key] = value


def ask_sample(lesson: Lesson | None) -> tuple[Sample, object]:
    """Draw the step's own control, and those that all steps share in a popover; the sample and the own value."""
    own = lesson.control if lesson else None
    value = own.draw() if own else None
    if own is LESSONS[1].control:
        show_player()
    values = {own.field: value} if own else {}
    with st.container(key="learn_carried", horizontal=True, vertical_alignment="center"):
        with st.popover("The sample", help="Carried from step to step."):
            values |= {control.field: control.draw() for control in SAMPLE if control != own}
        sample = Sample(values["delta"], values["rows"], values["seed"])
        st.caption((lesson or LESSONS[0]).carried(sample), width="content")
    return sample, value


def show_lesson(lesson: Lesson) -> Sample:
    """Show one step: its sentence, then the idea and the control beside the picture."""
    sentence = st.container()
    text, picture = st.columns([2, 3], gap="large")
    with text:
        st.markdown(lesson.idea)
        sample, value = ask_sample(lesson)
        st.markdown(f"*{lesson.question(sample)}*")
    shown = lesson.show(sample, value)
    with sentence:
        page_finding(shown.sentence)
    with picture, st.container(key="learn_picture"):
        columns = st.columns(len(shown.charts))
        for index, (column, (figure, alt)) in enumerate(zip(columns, shown.charts, strict=True)):
            with column:
                chart(larger(figure) if is_on() else figure, f"learn_{LESSONS.index(lesson)}_{index}", alt)
    return sample


def show_maths(lesson: Lesson) -> None:
    """Show the step's formulas below the buttons, whose tooltips open upwards."""

    def maths() -> None:
        for line in lesson.maths:
            st.markdown(line)

    show_folded("The maths", "learn_maths", maths)


def show_end() -> Sample:
    """Show the recap, the quiz and the theory."""
    sample, _ = ask_sample(None)
    show_recap(sample)
    show_quiz()
    show_theory()
    return sample


def show_buttons(step: str, sample: Sample, drawn: bool) -> None:
    """Draw Back, Next and New sample below the step."""
    place = STEP.options.index(step)
    with st.container(horizontal=True):
        before, after = STEP.options[max(place - 1, 0)], STEP.options[min(place + 1, len(LESSONS))]
        back = {"key": "learn_back", "disabled": place == 0, "help": f"Back to “{before}”."}
        st.button("← Back", on_click=set_value, args=(STEP, before), **back)
        kind = "secondary" if step == LAST else "primary"
        onward = {"key": "learn_next", "disabled": step == LAST, "help": f"On to “{after}”."}
        st.button("Next →", on_click=set_value, args=(STEP, after), type=kind, **onward)
        help_ = "Take the next seed: other random rows." if drawn else "This step averages over 100 samples."
        seed = (sample.seed + 1) % int(SEED.bounds[1])
        redraw = {"key": "learn_redraw", "disabled": not drawn, "help": help_}
        st.button("New sample", on_click=set_value, args=(SEED, seed), **redraw)


def show_step() -> None:
    """Show one step."""
    step = STEP.draw()
    place = STEP.options.index(step)
    lesson = LESSONS[place] if place < len(LESSONS) else None
    st.header(f"{place + 1}. {step}" if lesson else step, anchor=False)
    sample = show_lesson(lesson) if lesson else show_end()
    show_buttons(step, sample, lesson is not None and lesson.drawn)
    if lesson is not None:
        show_maths(lesson)
    show_toggle(step)


def main() -> None:
    """Show the page."""
    page_title("Learn")
    st.html(LOOKS)
    show_part(show_step)


run_page(main)
