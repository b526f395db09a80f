"""Stage 3 of one's own data: the declared test, run once; its answer as one card, details, and files to take away."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pandas as pd
import streamlit as st

from m2st_core.analysis.answer import (
    answer_of,
    assumptions,
    error_text,
    looks,
    methods_sentence,
    p_text,
    secondary_table,
)
from m2st_core.analysis.explanation import Explanation
from m2st_core.analysis.pictures import (
    images_of,
    importance_picture,
    look_picture,
    null_picture,
    pixels_picture,
    typical_picture,
    weights_picture,
    witness_picture,
)
from m2st_core.analysis.plan import Outcome, carry_out, other_splits
from m2st_core.analysis.related import MOST_COLUMNS, TargetGamma, target_gamma
from m2st_core.analysis.report import ROLES, DataSource, as_command, as_python, html_report, report_decisions
from m2st_core.dashboard.widgets.page import as_text, chart, noted_metric, show_answer
from m2st_core.dashboard.your_data.state import UserData, show_picture, show_upload_table, target_id
from m2st_core.data.tables.prepare import Prepared
from m2st_core.data.tables.upload import Upload
from m2st_core.testing.methods import METHODS, label_of


def run_plan(state: UserData, upload: Upload, data: Prepared) -> Outcome | None:
    """The outcome of the declared plan, or None while there is none."""
    if state.declared is None or state.declared[0] != data.digest:
        st.info("No test is declared for these data yet. Go back to Check, and run the recommended test or another.")
        return None
    plan = state.declared[1]
    work = partial(carry_out, data, plan, learner=state.learner)
    doing = f"{label_of(plan.primary)}: training and testing…"
    outcome: Outcome | None = state.compute("data_answer", state.declared, work, doing)
    if outcome is not None:
        target = target_id(state.assembled(upload))
        read = upload.files_digest, repr(state.answers.get(upload.files_digest))
        once = target, read, state.cleaning, state.trained and state.trained.digest, plan  # whichever is P
        state.tested.setdefault(once, (target, _test_row(outcome)))
    return outcome


def _test_row(outcome: Outcome) -> dict[str, Any]:
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
    answer = state.remember("data_words", state.declared, lambda: answer_of(outcome))
    tests = state.tests_of(upload)
    with st.container(border=True, key="data_card"):
        show_answer(answer)
        st.caption(looks(len(tests)))
        _report_button(state, upload, outcome)
    if len(tests) > 1:
        with st.expander("All tests of these data in this session"):
            st.dataframe(pd.DataFrame(tests), hide_index=True, width="stretch", key="data_tests")
    if answer.table:
        st.header("How far apart the groups are")
        show_upload_table(pd.DataFrame(answer.table), key="data_effects")
        st.caption(answer.caption)
    elif (pixels := pixels_picture(outcome)) is not None:
        places = st.columns([2, 3], gap="large")
        for place, picture in zip(places, (pixels, look_picture(outcome.data)), strict=True):
            with place:
                st.header(picture.title)
                show_picture(picture)
    if rows := secondary_table(outcome):
        st.header("Several tests, corrected by Holm's procedure")
        st.dataframe(pd.DataFrame(rows), hide_index=True, width="stretch", key="data_secondary_tests")
        st.caption(outcome.analysis.family_sentence)
    effect = outcome.analysis.effect
    st.header("How many rows a new study needs")
    for sentence in effect.sentences:
        st.markdown(as_text(sentence))
    st.caption(as_text(effect.caveat))
    _show_details(state, upload, outcome)


SHOWN_COLUMNS = 12
FURTHER_SPLITS = 10
UNASKED_SECONDS = 30.0  # longer computations wait for a click
INFORMATION_ONLY = (
    "This only describes the result above and does not change it. Picking a split by its p-value would make the test "
    "invalid. To depend less on one split, declare more of them beforehand."
)


def _show_details(state: UserData, upload: Upload, outcome: Outcome) -> None:
    with st.expander("What is assumed"):
        for sentence in assumptions(outcome):
            st.markdown(f"- {as_text(sentence)}")
    with st.expander("Details: the p-value and the kernels"):
        _show_statistics(state, outcome)
    if outcome.explanation is not None:
        with st.expander("Details: where the test looks (exploratory)"):
            _show_explanation(state, upload, outcome, outcome.explanation)
    with st.expander("Downloads, code, and a sentence for the methods section"):
        _show_exports(state, upload, outcome)


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
    for picture in filter(None, (null_picture(outcome), weights_picture(outcome))):
        st.markdown(f"**{picture.title}**")
        show_picture(picture)
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
    work = partial(other_splits, outcome, FURTHER_SPLITS)
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
        if (typical := typical_picture(outcome)) is not None:
            show_picture(typical)
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
                for note in (importance.caption, *map(as_text, explanation.importance.notes)):
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
    owner = [column.name for column in data.columns for _ in column.features]
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
        show_upload_table(pd.concat([witness, rows], axis=1))


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
    work = partial(
        target_gamma, data.target, data.related, plan.primary, train_fraction=plan.train_fraction, seed=plan.seed
    )
    gamma: TargetGamma | None = state.compute("data_gamma", (data.digest, plan), work, "Training kernels…")
    if gamma is not None:
        st.markdown(as_text(gamma.sentence))


def _data_source(state: UserData, upload: Upload) -> DataSource:
    if state.example:
        return DataSource(example=state.example, groups=upload.groups, related_groups=upload.related_groups)
    return DataSource(
        target=tuple(table.name for table in upload.target),
        related=tuple(dict.fromkeys(_file_name(table.name) for table in upload.related)),
        learner=state.trained.name if state.trained else "",
        **{name: getattr(upload, name) for name in ROLES},
    )


def _file_name(table: str) -> str:
    """The name of the uploaded file. A table in an archive is called archive.zip/table.csv."""
    head, archive, _ = table.lower().partition(".zip/")
    return table[: len(head) + len(".zip")] if archive else table


def _report_button(state: UserData, upload: Upload, outcome: Outcome) -> None:
    python, command = _code(state, upload, outcome)
    check, _ = state.recall("data_related", outcome.data.digest) or (None, None)
    tested = state.tests_of(upload)
    report = partial(html_report, outcome, check=check, tested=tested, python=python, command=command)
    help_ = "One HTML file with this answer, its figures, settings and code. It needs no server and prints on A4."
    st.download_button(
        "Download the report", report, "report.html", key="data_report", on_click="ignore", type="primary", help=help_
    )


def _code(state: UserData, upload: Upload, outcome: Outcome) -> tuple[str, str]:
    origin = _data_source(state, upload)
    return as_python(origin, state.cleaning, outcome.plan), as_command(origin, state.cleaning, outcome.plan)


def _show_exports(state: UserData, upload: Upload, outcome: Outcome) -> None:
    data, tested = outcome.data, state.tests_of(upload)
    learner = outcome.learners.get(outcome.plan.primary)

    def record() -> str:
        return json.dumps(report_decisions(outcome, tested), ensure_ascii=False, indent=1, default=str)

    exports: list[tuple[str, Callable[[], str | bytes], str, str]] = [
        (
            "Cleaned data (CSV)", data.to_csv, "cleaned.csv",
            "The rows as they were tested. Cells that a spreadsheet would run as formulas are made harmless.",
        ),
        ("Decisions (JSON)", record, "decisions.json", "Every decision and every result."),
    ]  # fmt: skip
    if learner is not None:
        help_ = (
            "What was learned from the related tasks, with the preparation of the columns, to test other data with it. "
            "It contains the rows of the related tasks: whoever gets the file gets these data."
        )
        exports += [("Learner (ZIP)", lambda: learner.packed(data.encoding), "learner.zip", help_)]
    with st.container(horizontal=True):
        for label, make, file_name, help_ in exports:
            st.download_button(label, make, file_name, on_click="ignore", help=help_)
    st.markdown("**For the methods section**")
    st.markdown(f"> {as_text(methods_sentence(outcome))}")
    for title, code, language in zip(("Python", "Shell"), _code(state, upload, outcome), ("python", "sh"), strict=True):
        st.markdown(f"**The same in {title}**" if title == "Python" else "**The same from the shell**")
        st.code(code, language=language, wrap_lines=True)
