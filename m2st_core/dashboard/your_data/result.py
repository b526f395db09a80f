"""Step 4 of one's own data: the declared test, run once, and what its p-value means."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from m2st_core.analysis.pictures import Picture, null_picture, weights_picture
from m2st_core.analysis.plan import Outcome, carry_out, other_splits
from m2st_core.dashboard.widgets.page import chart, decision_sentences, error_text, noted_metric, p_text
from m2st_core.dashboard.your_data.state import UserData, as_text, target_id
from m2st_core.data.tables.clean import CleanData
from m2st_core.data.tables.upload import Upload
from m2st_core.testing.methods import METHODS, label_of
from m2st_core.types import Progress

FURTHER_SPLITS = 10
UNASKED_SECONDS = 30.0  # longer computations wait for a click
INFORMATION_ONLY = (
    "This only describes the result above and does not change it. Picking a split by its p-value would make the test "
    "invalid. To depend less on one split, declare more of them in step 3 beforehand."
)
REPEATED = "Each further seed, method or setting makes a small p-value by chance more likely. Report the first, or all."


def run_plan(state: UserData, upload: Upload, data: CleanData) -> Outcome | None:
    """The outcome of the declared plan, or None while there is none."""
    if state.declared is None or state.declared[0] != state.key(upload):
        st.info("No test is declared for these data yet. Choose the primary test in step 3, then run it.")
        return None
    plan, learner = state.declared[1], state.learner

    def work(progress: Progress) -> Outcome:
        return carry_out(data, plan, learner=learner, progress=progress)

    doing = f"{label_of(plan.primary)}: training and testing…"
    outcome: Outcome | None = state.compute("data_answer", state.declared, work, doing)
    if outcome is not None:
        state.tested.setdefault(state.declared, (target_id(upload), _test_row(outcome)))
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


def result_step(state: UserData, upload: Upload, outcome: Outcome) -> None:
    """Show the step."""
    analysis, result, data = outcome.analysis, outcome.analysis.primary, outcome.data
    st.subheader(f"“{as_text(data.x_name)}” against “{as_text(data.y_name)}”, by {result.label}")
    (st.warning if analysis.rejected else st.info)(decision_sentences(analysis))
    _show_repeats(state.tests_of(upload))
    _show_metrics(outcome)
    st.caption(f"The p-value: {result.error_words}.")
    _show_splits(state, outcome)
    left, right = st.columns(2, gap="large")
    with left:
        _show_picture(null_picture(outcome), "data_null")
    with right:
        st.markdown("**How many rows it takes** (approximate)")
        for sentence in analysis.effect.sentences:
            st.markdown(as_text(sentence))
        st.caption(f"{as_text(analysis.effect.how)} {as_text(analysis.effect.caveat)}")
        _show_secondary(outcome)
    weights = weights_picture(outcome)
    if weights is not None:
        _show_picture(weights, "data_weights")
    for note in result.notes:
        st.caption(f"• {as_text(note)}")


def _show_repeats(tests: list[dict[str, Any]]) -> None:
    if len(tests) < 2:
        st.caption("These data have been tested once in this session. This is the first result, and the one to report.")
        return
    st.warning(f"These data have now been tested **{len(tests)} times** in this session. {REPEATED}")
    with st.expander("All tests of these data in this session"):
        st.dataframe(pd.DataFrame(tests), hide_index=True, width="stretch")


def _show_metrics(outcome: Outcome) -> None:
    answer, result = outcome.analysis.effect, outcome.analysis.primary
    p_value, mmd2, criterion, rows = st.columns(4)
    error, certainty = error_text(result), result.error_words
    meaning = f"How often so large a difference occurs if P = Q. {certainty[0].upper()}{certainty[1:]}."
    noted_metric(p_value, "p-value", p_text(result), f"{error} from permutations" if error else None, meaning)
    mmd2.metric("MMD²", f"{answer.mmd2:.3g}", help="The effect size: about 0 if P = Q.")
    signal = "–" if answer.criterion is None else f"{answer.criterion:.3g}"
    criterion.metric("Ĵ", signal, help="Signal over noise on the test rows. A larger Ĵ gives more power.")
    tested, trained = (" + ".join(map(str, sizes)) for sizes in (result.n_test, result.n_train))
    note = f"{trained} training rows" if any(result.n_train) else "no training rows"
    noted_metric(rows, "Test rows", tested, note, "Rows behind the p-value. Training rows are not tested.")


def _show_splits(state: UserData, outcome: Outcome) -> None:
    """Show how much the p-value depends on the random split."""
    result = outcome.analysis.primary
    if not METHODS[result.method].needs_split:
        return
    if result.split_p_values:
        listed = ", ".join(f"{p:.3g}" for p in result.split_p_values)
        st.caption(f"The p-values of the {len(result.split_p_values)} random splits, in the order drawn: {listed}.")
        return
    key, seconds = state.declared, result.seconds * FURTHER_SPLITS
    if seconds >= UNASKED_SECONDS and st.session_state.get("data_splits_asked") != key:
        st.button(
            f"Show what {FURTHER_SPLITS} further splits give",
            key="data_other_splits",
            on_click=lambda: st.session_state.update(data_splits_asked=key),
            help=f"About {seconds:.0f} s. {INFORMATION_ONLY}",
        )
        return

    def work(progress: Progress) -> tuple[float, ...]:
        return other_splits(outcome, FURTHER_SPLITS, progress=progress)

    doing = f"{result.label} with {FURTHER_SPLITS} further splits…"
    further: tuple[float, ...] | None = state.compute("data_splits", key, work, doing)
    if further is not None:
        p_values = (result.p_value, *further)
        st.caption(
            f"With {FURTHER_SPLITS} further random splits of the same rows, the split alone moves p between "
            f"{min(p_values):.3g} and {max(p_values):.3g}. {INFORMATION_ONLY}"
        )


def _show_picture(picture: Picture, key: str) -> None:
    st.markdown(f"**{picture.title}**")
    chart(picture.figure, key, picture.alt)
    st.caption(picture.caption)


def _show_secondary(outcome: Outcome) -> None:
    if not outcome.analysis.corrected:
        return
    st.markdown("**Several tests**, corrected by Holm's procedure")
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
    st.dataframe(pd.DataFrame(rows), hide_index=True, width="stretch")
    st.caption(outcome.analysis.family_sentence)
