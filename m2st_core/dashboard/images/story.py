"""The example that Images opens with: two samples, what earlier tasks are worth, and the images that differ most."""

from __future__ import annotations

import streamlit as st

from m2st_core.dashboard.images.results import TYPICAL, show_grid
from m2st_core.dashboard.power_lab.results import show_figure, show_table
from m2st_core.dashboard.widgets.page import show_folded
from m2st_core.studies.images import ALONE, STORY, TAUGHT, shipped_story, story_finding
from m2st_core.testing.methods import label_of

EXAMPLES = 24


def show_story() -> str:
    """Show the example and return its finding."""
    result = shipped_story()
    explanation, n = result.explanation, result.explanation.n
    st.header("Do these two samples show the same mix of digits?", anchor=False)
    sides = (("x ~ P", explanation.images[:n]), ("y ~ Q", explanation.images[n:]))
    for column, (name, images) in zip(st.columns(2, gap="large"), sides, strict=True):
        with column:
            st.markdown(f"**{name}**")
            show_grid(images[:EXAMPLES], f"{EXAMPLES} of {len(images)} digits of {name}, each in its own light.")
    shares = explanation.classes.sort_values("class")
    mix = ", ".join(f"{row['class']}: {row['share_p']:.0%} and {row['share_q']:.0%}" for _, row in shares.iterrows())
    st.caption(
        f"{EXAMPLES} of {n} digits of each sample. Every image has its own light, which hides the difference from "
        f"kernels on pixels. Shares of the digits in x and y: {mix}. No test is told them."
    )
    st.header("What earlier tasks are worth", anchor=False)
    show_figure(STORY.spec, result.power, "story_power")
    taught, alone = (" and ".join(map(label_of, names)) for names in (TAUGHT, ALONE))
    st.caption(
        f"{taught} learned from {STORY.n_tasks} pairs of the digits 0 to 5; the target shows 6 to 9. {alone} learned "
        f"from no other digits. {STORY.repeats} trainings × {STORY.tests} test samples, with bands of ± one standard "
        f"error. Tests that learn from the target have {STORY.m_tr} further images of each sample for it."
    )
    st.header("The images that differ most", anchor=False)
    for column, side, images in zip(st.columns(2, gap="large"), "PQ", explanation.most_typical(TYPICAL), strict=True):
        with column:
            show_grid(images, f"The {len(images)} images that are most typical of {side} for the learned kernel.")
            st.caption(f"Most typical of **{side}** for {label_of(TAUGHT[0])}, the clearest first.")
    show_folded("Table", "story_table", lambda: show_table(result.power, "story_power"))
    return story_finding(result.power)
