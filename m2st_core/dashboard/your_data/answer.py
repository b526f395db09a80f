"""Step 4 of one's own data: the declared test is run, once, and its answer said with care."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import pandas as pd
import streamlit as st

from m2st_core.analysis.pictures import null_picture, weights_picture
from m2st_core.analysis.plan import Outcome, Plan, carry_out, other_splits
from m2st_core.dashboard.jobs.jobs import watch_job
from m2st_core.dashboard.widgets.controls import chart
from m2st_core.dashboard.widgets.words import decision_in_words, error_shown, p_shown
from m2st_core.dashboard.your_data.state import Brought, say, target_mark
from m2st_core.data.tables.clean import CleanData
from m2st_core.data.tables.upload import Upload
from m2st_core.sweeps.spec import label_of
from m2st_core.testing.methods import METHODS
from m2st_core.types import Progress

FURTHER = 10
QUICK = 30.0  # seconds that may be spent unasked
ONLY_TO_KNOW = (
    "This is information about the answer above, which stays what it is. Picking a split by its p-value would make the "
    "test invalid. To rely less on one split, declare more of them in step 3 beforehand."
)


def show_splits(state: Brought, outcome: Outcome) -> None:
    """What the split alone does to the p-value of a primary test that splits."""
    result = outcome.analysis.primary
    if not METHODS[result.method].needs_split:
        return
    if result.split_p_values:
        st.caption(
            f"The p-values of the {len(result.split_p_values)} random splits, in the order drawn: "
            f"{', '.join(f'{p:.3g}' for p in result.split_p_values)}."
        )
        return
    known = state.memory.get("other splits")
    key = state.outcome[0] if state.outcome else None
    if known is None or known[0] != key:
        quick = result.seconds * FURTHER < QUICK
        asked = quick or st.session_state.get("data_splits_asked") == key
        if not asked:
            st.button(
                f"Show what {FURTHER} further splits give",
                key="data_other_splits",
                on_click=lambda: st.session_state.update(data_splits_asked=key),
                help=f"About {result.seconds * FURTHER:.0f} s. {ONLY_TO_KNOW}",
            )
            return

        def work(progress: Progress) -> tuple[float, ...]:
            try:
                return other_splits(outcome, FURTHER, progress=progress)
            except ValueError as error:
                raise ValueError(say(str(error))) from None

        job = watch_job("data_splits", key, work, f"{result.label} under {FURTHER} further splits…")
        if job.state != "done":
            return
        state.memory["other splits"] = (key, job.result)
    p_values = (result.p_value, *state.memory["other splits"][1])
    st.caption(
        f"With {FURTHER} further random splits of the same rows, the split alone moves p between {min(p_values):.3g} "
        f"and {max(p_values):.3g}. {ONLY_TO_KNOW}"
    )


AGAIN = "Each further seed, method or setting makes a small p-value by chance more likely. Report the first, or all."


def answer_of(state: Brought, upload: Upload, data: CleanData) -> Outcome | None:
    """The outcome of the declared plan: the one that is known, or a job that finds it."""
    if state.declared is None or state.declared[0] != state.key(upload):
        st.info("No test is declared for these data yet. Choose the primary test in step 3, then run it.")
        return None
    plan = state.declared[1]
    key = (state.declared[0], plan)
    if state.outcome is None or state.outcome[0] != key:
        learner = state.trained.learner if state.trained else None

        def work(progress: Progress) -> Outcome:
            try:
                return carry_out(data, plan, learner=learner, progress=progress)
            except ValueError as error:
                raise ValueError(say(str(error))) from None

        job = watch_job("data_answer", key, work, f"{label_of(plan.primary)}: learning and testing…")
        if job.state != "done":
            return None
        state.outcome = (key, job.result)
        _count(state, upload, key, job.result)
    return state.outcome[1]


def _count(state: Brought, upload: Upload, key: Hashable, outcome: Outcome) -> None:
    """Add a finished test to those of this session."""
    plan, result = outcome.plan, outcome.analysis.primary
    about: dict[str, Any] = {
        "mark": target_mark(upload),
        "key": key,
        "Test": label_of(plan.primary),
        "Seed": plan.seed,
        "p": round(result.p_value, 6),
        "α": plan.alpha,
        "B": plan.n_permutations,
        "Learned from": plan.train_fraction if any(result.n_train) else 0.0,
        "Columns": len(outcome.data.features),
        "Rows": sum(result.n_test) + sum(result.n_train),
        "Splits": plan.splits,
        "Secondary tests": ", ".join(map(label_of, plan.secondary)),
    }
    if key not in [test["key"] for test in state.tested]:
        state.tested.append(about)


def show_answer(state: Brought, upload: Upload, outcome: Outcome) -> None:
    """The whole step."""
    analysis, result = outcome.analysis, outcome.analysis.primary
    st.subheader(f"“{say(outcome.data.x_name)}” against “{say(outcome.data.y_name)}”, by {result.label}")
    (st.warning if analysis.rejected else st.info)(decision_in_words(analysis))
    _repeats(state, upload)
    columns = st.columns(4)
    error, sure = error_shown(result), result.error_words
    columns[0].metric(
        "p-value", p_shown(result), f"{error} from permutations" if error else None,
        delta_color="off", delta_arrow="off",
        help=f"How often so large a difference appears if P = Q. {sure[0].upper()}{sure[1:]}.",
    )  # fmt: skip
    columns[1].metric("MMD²", f"{analysis.effect.mmd2:.3g}", help="Effect size: about 0 if P = Q.")
    criterion = "–" if analysis.effect.criterion is None else f"{analysis.effect.criterion:.3g}"
    columns[2].metric("Ĵ", criterion, help="Signal over noise on the test rows: the larger, the more power.")
    tested = f"{result.n_test[0]} + {result.n_test[1]}"
    learned = f"{result.n_train[0]} + {result.n_train[1]} to learn" if any(result.n_train) else "none to learn"
    columns[3].metric(
        "Rows tested", tested, learned, delta_color="off", delta_arrow="off",
        help="Rows behind the p-value; beneath, rows that taught the kernel and were not tested.",
    )  # fmt: skip
    st.caption(f"The p-value: {sure}.")
    show_splits(state, outcome)
    left, right = st.columns(2, gap="large")
    with left:
        picture = null_picture(outcome)
        st.markdown(f"**{picture.title}**")
        chart(picture.figure, "data_null", picture.alt)
        st.caption(picture.caption)
    with right:
        _power(outcome)
        _secondary(outcome)
    weights = weights_picture(outcome)
    if weights is not None:
        st.markdown(f"**{weights.title}**")
        chart(weights.figure, "data_weights", weights.alt)
        st.caption(weights.caption)
    for note in result.notes:
        st.caption(f"• {say(note)}")


def _repeats(state: Brought, upload: Upload) -> None:
    tests = state.tests_of(upload)
    if len(tests) < 2:
        st.caption("These data have been tested once in this session: this is the first answer, and the one to report.")
        return
    st.warning(f"These data have now been tested **{len(tests)} times** in this session. {AGAIN}")
    with st.expander("All tests of these data in this session"):
        st.dataframe(pd.DataFrame(tests), hide_index=True, width="stretch")


def _power(outcome: Outcome) -> None:
    effect = outcome.analysis.effect
    st.markdown("**How many rows it takes** (approximate)")
    for sentence in effect.sentences:
        st.markdown(say(sentence))
    st.caption(f"{say(effect.how)} {say(effect.caveat)}")


def _secondary(outcome: Outcome) -> None:
    verdicts = outcome.analysis.corrected
    if not verdicts:
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
        for verdict in verdicts
    ]
    st.dataframe(pd.DataFrame(rows), hide_index=True, width="stretch")
    st.caption(outcome.analysis.family_sentence)


def declare(state: Brought, key: Hashable, plan: Plan) -> None:
    """From now on this plan is what is run; for callbacks."""
    state.declared = (key, plan)
