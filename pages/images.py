"""Images: tests learned from pairs of classes, their power, and what their kernel sees."""

import streamlit as st

from m2st_core.dashboard.images.controls import ask_source, ask_study, ask_target
from m2st_core.dashboard.images.results import show_examples, show_found
from m2st_core.dashboard.jobs.jobs import watch_study
from m2st_core.dashboard.jobs.sweeps import duration, gpu_in_words
from m2st_core.dashboard.widgets.page import run_page
from m2st_core.dashboard.widgets.words import SIDEBAR
from m2st_core.sweeps.cost import predict


def main() -> None:
    """The page, as numbered steps."""
    st.title("Images")
    st.write(
        "Does a second sample of images come from the same source as the first? Kernels learned from other pairs of "
        f"classes help to tell, from few images of the target. Choose what to learn from and what to test in {SIDEBAR}."
    )
    with st.sidebar:
        source = ask_source()
        target = ask_target(source)
        missing = target().missing()
        study = None if missing else ask_study(source, target)
    if missing:
        st.info(
            f"{missing} Nothing is downloaded for you. **Digits** are always there: choose them under *Learn from*."
        )
        return
    if study is None:
        return
    st.subheader("Two samples")
    show_examples(study)
    if st.session_state.get("images_trained") != study:
        cost = predict(study.spec)
        st.subheader("Train and test")
        st.write(f"About **{duration(cost.seconds)}** of one core with these settings{gpu_in_words(cost)}.")
        if st.button("Train", type="primary", key="images_go", help="Learn from the class pairs, then measure power."):
            st.session_state["images_trained"] = study
            st.rerun()
        st.info("Press **Train** to see power, the weights of the class pairs, and what the kernel finds typical.")
        return
    job = watch_study("images", study, "Learning from class pairs, then testing…")
    if job.state == "done":
        show_found(job.result, study)


run_page(main)
