"""Details behind an answer: the test and its statistic, where it looks, and what is assumed."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from m2st_core.analysis.explanation import Explanation
from m2st_core.analysis.pictures import (
    images_of,
    importance_picture,
    null_picture,
    typical_picture,
    weights_picture,
    witness_picture,
)
from m2st_core.analysis.plan import Outcome, other_splits
from m2st_core.analysis.related import MOST_COLUMNS, TargetGamma, target_gamma
from m2st_core.analysis.writeup import assumptions
from m2st_core.dashboard.widgets.p_values import error_text, p_text
from m2st_core.dashboard.widgets.page import chart, noted_metric
from m2st_core.dashboard.your_data.exports import show_exports
from m2st_core.dashboard.your_data.state import UserData, as_text, show_table
from m2st_core.data.tables.upload import Upload
from m2st_core.testing.methods import METHODS
from m2st_core.types import Progress

SHOWN_COLUMNS = 12
FURTHER_SPLITS = 10
UNASKED_SECONDS = 30.0  # longer computations wait for a click
INFORMATION_ONLY = (
    "This only describes the result above and does not change it. Picking a split by its p-value would make the test "
    "invalid. To depend less on one split, declare more of them beforehand."
)


def show_details(state: UserData, upload: Upload, outcome: Outcome) -> None:
    """Show the details, each kind in an expander."""
    with st.expander("What is assumed"):
        for sentence in assumptions(outcome):
            st.markdown(f"- {as_text(sentence)}")
    with st.expander("Details: the p-value and the kernels"):
        _show_statistics(state, outcome)
    if outcome.explanation is not None:
        with st.expander("Details: where the test looks (exploratory)"):
            _show_explanation(state, upload, outcome, outcome.explanation)
    with st.expander("Downloads, code, and a sentence for the methods section"):
        show_exports(state, upload, outcome)


def _show_statistics(state: UserData, outcome: Outcome) -> None:
    answer, result = outcome.analysis.effect, outcome.analysis.primary
    p_value, mmd2, criterion, rows = st.columns(4)
    error, certainty = error_text(result), result.error_words
    meaning = f"How often so large a statistic occurs if P = Q. {certainty[0].upper()}{certainty[1:]}."
    noted_metric(p_value, "p-value", p_text(result), f"{error} from permutations" if error else None, meaning)
    mmd2.metric("MMD²", f"{answer.mmd2:.3g}", help="The distance that the test's kernel sees: about 0 if P = Q.")
    signal = "–" if answer.criterion is None else f"{answer.criterion:.3g}"
    criterion.metric("Ĵ", signal, help="Signal over noise on the test rows. A larger Ĵ gives more power.")
    tested, trained = (" + ".join(map(str, sizes)) for sizes in (result.n_test, result.n_train))
    note = f"{trained} training rows" if any(result.n_train) else "no training rows"
    noted_metric(rows, "Test rows", tested, note, "Rows behind the p-value. Training rows are not tested.")
    st.caption(as_text(answer.how))
    _show_splits(state, outcome)
    for picture, key in ((null_picture(outcome), "data_null"), (weights_picture(outcome), "data_weights")):
        if picture is not None:
            st.markdown(f"**{picture.title}**")
            chart(picture.figure, key, picture.alt)
            st.caption(picture.caption)
    for note in result.notes:
        st.caption(f"• {as_text(note)}")


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


def _show_explanation(state: UserData, upload: Upload, outcome: Outcome, explanation: Explanation) -> None:
    data = outcome.data
    st.caption("This shows what the test responded to, and suggests where to look next. It proves nothing by itself.")
    if images_of(data) is not None:
        typical = typical_picture(outcome)
        if typical is not None:
            chart(typical.figure, "data_typical", typical.alt)
            st.caption(as_text(typical.caption))
    else:
        left, right = st.columns(2, gap="large")
        witness, importance = witness_picture(outcome), importance_picture(outcome)
        if witness is not None:
            with left:
                chart(witness.figure, "data_witness", witness.alt)
                colours = f"Blue: more of “{as_text(data.x_name)}”. Orange: more of “{as_text(data.y_name)}”."
                st.caption(f"{colours} {as_text(witness.caption)}")
        if importance is not None:
            with right:
                chart(importance.figure, "data_importance", importance.alt)
                for note in (importance.caption, *map(as_text, explanation.notes)):
                    st.caption(note)
        _show_typical_rows(state, upload, outcome, explanation)
    if data.task_names and len(data.features) <= MOST_COLUMNS:
        _show_gamma(state, upload, outcome)


def _show_typical_rows(state: UserData, upload: Upload, outcome: Outcome, explanation: Explanation) -> None:
    """Show rows as they are in the files, with the most important columns first."""
    data, target = outcome.data, state.assembled(upload).target
    if target is None:
        return
    st.markdown("**Rows most typical of each group**, by the witness function of the test (exploratory)")
    owner = [column.name for column in data.encoding.columns for _ in column.features]
    columns = list(dict.fromkeys(owner[int(i)] for i in explanation.importance.columns))[:SHOWN_COLUMNS]
    st.caption("The further the witness is from 0, the clearer: above 0 for the first group, below 0 for the second.")
    sides = (
        (target.p, data.x_name, explanation.typical_x[1], data.rows[0][explanation.typical_x[0]]),
        (target.q, data.y_name, explanation.typical_y[1], data.rows[1][explanation.typical_y[0]]),
    )
    for side, name, values, numbers in sides:
        rows = side.table.frame.loc[numbers, columns].astype("str").reset_index(drop=True)
        st.caption(f"Most typical of “{as_text(name)}”")
        witness = pd.DataFrame({"Row in the file": numbers, "Witness": values.round(4)})
        show_table(pd.concat([witness, rows], axis=1))


def _show_gamma(state: UserData, upload: Upload, outcome: Outcome) -> None:
    """Estimate γ̂ on request. It uses the labels, so it comes after the result."""
    wanted = st.toggle(
        "Estimate γ̂, how related the tasks are to your data (exploratory)",
        key="data_gamma",
        persist_state="session",
        help="γ̂ above its noise floor means that even the most related task differs from your data. It takes some "
        "seconds. It uses the labels, so it is estimated after the test and must not influence it.",
    )
    if not wanted:
        return
    data, plan = outcome.data, outcome.plan

    def work(progress: Progress) -> TargetGamma:
        share, seed = plan.train_fraction, plan.seed
        return target_gamma(data.target, data.related, plan.primary, train_fraction=share, seed=seed, progress=progress)

    gamma: TargetGamma | None = state.compute("data_gamma", (state.key(upload), plan), work, "Training kernels…")
    if gamma is not None:
        st.markdown(as_text(gamma.sentence))
