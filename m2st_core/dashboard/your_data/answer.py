"""Stage 3 of one's own data: the declared test, run once, and the answer as one card with the verdict first."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from m2st_core.analysis.answer import Answer, answer_of, looks, unbroken
from m2st_core.analysis.pictures import Picture, pixels_picture, tiles_picture
from m2st_core.analysis.plan import Outcome, carry_out
from m2st_core.dashboard.widgets.page import chart
from m2st_core.dashboard.your_data.details import show_details
from m2st_core.dashboard.your_data.exports import report_button
from m2st_core.dashboard.your_data.state import UserData, as_text, show_table, target_id
from m2st_core.data.tables.prepare import Prepared
from m2st_core.data.tables.upload import Upload
from m2st_core.figures.theme import WITH_RELATED, WITHOUT_RELATED
from m2st_core.testing.methods import label_of
from m2st_core.types import Progress


def run_plan(state: UserData, upload: Upload, data: Prepared) -> Outcome | None:
    """The outcome of the declared plan, or None while there is none."""
    if state.declared is None or state.declared[0] != state.key(upload):
        st.info("No test is declared for these data yet. Go back to Check, and run the recommended test or another.")
        return None
    plan, learner = state.declared[1], state.learner

    def work(progress: Progress) -> Outcome:
        return carry_out(data, plan, learner=learner, progress=progress)

    doing = f"{label_of(plan.primary)}: training and testing…"
    outcome: Outcome | None = state.compute("data_answer", state.declared, work, doing)
    if outcome is not None:
        target = target_id(state.assembled(upload))
        answers = repr(state.answers.get(upload.files_digest))
        once = target, upload.files_digest, answers, *state.key(upload)[1:], plan  # with P and Q swapped it is the same
        state.tested.setdefault(once, (target, _test_row(outcome)))
    return outcome


def _test_row(outcome: Outcome) -> dict[str, Any]:
    """A finished test, as a row of the table of all tests in this session."""
    plan, result = outcome.plan, outcome.analysis.primary
    return {
        "Test": label_of(plan.primary),
        "Seed": plan.seed,
        "p": round(result.p_value, 6),
        "α": plan.alpha,
        "B": plan.n_permutations,
        "Training share": plan.train_fraction if any(result.n_train) else 0.0,
        "Columns": len(outcome.data.features),
        "Rows": sum(result.n_test) + sum(result.n_train),
        "Splits": plan.splits,
        "Secondary tests": ", ".join(map(label_of, plan.secondary)),
    }


def answer_stage(state: UserData, upload: Upload, outcome: Outcome) -> None:
    """Show the verdict, how far apart the groups are, the rows a new study needs, and details."""
    answer: Answer = state.remember("data_words", state.declared, lambda: answer_of(outcome))
    tests = state.tests_of(upload)
    _show_card(state, upload, outcome, answer, len(tests))
    if len(tests) > 1:
        with st.expander("All tests of these data in this session"):
            st.dataframe(pd.DataFrame(tests), hide_index=True, width="stretch", key="data_tests")
    if answer.table:
        st.header("How far apart the groups are")
        show_table(pd.DataFrame(answer.table), key="data_effects")
        st.caption(answer.caption)
    else:
        pixels, tiles = st.columns([2, 3], gap="large")
        with pixels:
            _show_picture(pixels_picture(outcome), "data_pixels")
        with tiles:
            _show_picture(tiles_picture(outcome), "data_tiles")
    if outcome.analysis.corrected:
        _show_secondary(outcome)
    effect = outcome.analysis.effect
    st.header("How many rows a new study needs")
    for sentence in effect.sentences:
        st.markdown(as_text(sentence))
    st.caption(as_text(effect.caveat))
    show_details(state, upload, outcome)


def _show_card(state: UserData, upload: Upload, outcome: Outcome, answer: Answer, tests: int) -> None:
    with st.container(border=True, key="data_card"):
        st.header(unbroken(as_text(answer.verdict)), anchor=False)
        for sentence in (answer.basis, *answer.caveats):
            st.markdown(as_text(sentence))
        if answer.both is not None:
            places = st.columns(2)
            for place, colour, sentence in zip(places, (WITH_RELATED, WITHOUT_RELATED), answer.both, strict=True):
                mark = f'<span style="color: {colour}">■</span>'
                place.markdown(f"{mark} {as_text(sentence)}.", unsafe_allow_html=True)
            st.caption("The declared test decides. The other one is shown to compare.")
        if answer.differs:
            st.markdown(as_text(answer.differs))
        st.markdown(f"**What this does not mean.** {as_text(answer.not_meant)}")
        st.caption(looks(tests))
        report_button(state, upload, outcome)


def _show_picture(picture: Picture | None, key: str) -> None:
    if picture is not None:
        st.header(picture.title)
        chart(picture.figure, key, picture.alt)
        st.caption(as_text(picture.caption))


def _show_secondary(outcome: Outcome) -> None:
    st.header("Several tests, corrected by Holm's procedure")
    rows = [
        {
            "Test": verdict.result.label,
            "Role": verdict.role,
            "p alone": verdict.result.p_value,
            "p after Holm": verdict.adjusted_p_value,
            f"At most α={outcome.plan.alpha:g}": "yes" if verdict.rejected else "no",
        }
        for verdict in outcome.analysis.corrected
    ]
    st.dataframe(pd.DataFrame(rows), hide_index=True, width="stretch", key="data_secondary_tests")
    st.caption(outcome.analysis.family_sentence)
