"""Step 5 of one's own data: where the samples differ, what is assumed, and downloads."""

from __future__ import annotations

import json
from collections.abc import Callable

import pandas as pd
import streamlit as st

from m2st_core.analysis.explanation import Explanation
from m2st_core.analysis.pictures import importance_picture, witness_picture
from m2st_core.analysis.plan import Outcome, blocks_of
from m2st_core.analysis.related_traits import MOST_COLUMNS, TargetGamma, target_gamma
from m2st_core.analysis.report import decisions, html_report
from m2st_core.analysis.writeup import DataSource, as_command, as_python, assumptions, methods_sentence
from m2st_core.dashboard.widgets.page import chart
from m2st_core.dashboard.your_data.state import UserData, as_text, show_table
from m2st_core.data.tables.upload import Upload
from m2st_core.testing.learner_files import learner_to_zip
from m2st_core.types import Progress

SHOWN_COLUMNS = 12


def explanation_step(state: UserData, upload: Upload, outcome: Outcome) -> None:
    """Show the step."""
    data, explanation = outcome.data, outcome.explanation
    st.subheader("Where the samples differ")
    st.caption(
        "Exploratory: this shows what the test responded to and suggests where to look next. It proves nothing by "
        "itself, least of all where the test found no evidence."
    )
    left, right = st.columns(2, gap="large")
    witness, importance = witness_picture(outcome), importance_picture(outcome)
    if witness is not None:
        with left:
            chart(witness.figure, "data_witness", witness.alt)
            colours = f"Blue: more of “{as_text(data.x_name)}”. Orange: more of “{as_text(data.y_name)}”."
            st.caption(f"{colours} {as_text(witness.caption)}")
    if importance is not None and explanation is not None:
        with right:
            chart(importance.figure, "data_importance", importance.alt)
            for note in (importance.caption, *map(as_text, explanation.notes)):
                st.caption(note)
    if explanation is not None:
        _show_typical_rows(state, upload, outcome, explanation)
    if len(data.related_tasks) and len(data.features) <= MOST_COLUMNS:
        _show_gamma(state, upload, outcome)
    st.subheader("What is assumed")
    for sentence in assumptions(outcome):
        st.markdown(f"- {as_text(sentence)}")
    st.subheader("Downloads and code")
    _show_exports(state, upload, outcome)


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
        (target.p, data.x_name, explanation.typical_x[1], data.x_rows[explanation.typical_x[0]]),
        (target.q, data.y_name, explanation.typical_y[1], data.y_rows[explanation.typical_y[0]]),
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
        return target_gamma(
            data.x,
            data.y,
            data.related_tasks,
            plan.primary,
            train_fraction=plan.train_fraction,
            blocks=blocks_of(data),
            seed=plan.seed,
            progress=progress,
        )

    gamma: TargetGamma | None = state.compute("data_gamma", (state.key(upload), plan), work, "Training kernels…")
    if gamma is not None:
        st.markdown(as_text(gamma.sentence))


def data_source(state: UserData, upload: Upload) -> DataSource:
    """The origin of the data, for code that repeats the outcome."""
    if state.example:
        return DataSource(example=state.example)
    return DataSource(
        target=tuple(table.name for table in upload.target),
        related=tuple(dict.fromkeys(_file_name(table.name) for table in upload.related)),
        group=upload.group,
        task=upload.task,
        related_group=upload.related_group,
        learner=state.trained.name if state.trained else "",
    )


def _file_name(table: str) -> str:
    """The name of the uploaded file. A table in an archive is called archive.zip/table.csv."""
    head, archive, _ = table.lower().partition(".zip/")
    return table[: len(head) + len(".zip")] if archive else table


def _show_exports(state: UserData, upload: Upload, outcome: Outcome) -> None:
    data, plan, tested = outcome.data, outcome.plan, state.tests_of(upload)
    origin = data_source(state, upload)
    python, command = as_python(origin, state.cleaning, plan), as_command(origin, state.cleaning, plan)
    check, _ = state.recall("data_history", state.key(upload)) or (None, None)
    learner = outcome.learners.get(plan.primary)

    def report() -> str:
        return html_report(outcome, check=check, tested=tested, python=python, command=command)

    def record() -> str:
        return json.dumps(decisions(outcome, tested), ensure_ascii=False, indent=1, default=str)

    exports: list[tuple[str, Callable[[], str | bytes], str, str, str]] = [
        (
            "Report (HTML)", report, "report.html", "📄",
            "One file with figures, settings, versions, seed, and a sentence for the methods section.",
        ),
        (
            "Cleaned data (CSV)", data.to_csv, "cleaned.csv", "🧹",
            "The rows as they were tested. Cells that a spreadsheet would run as formulas are made harmless.",
        ),
        ("Decisions (JSON)", record, "decisions.json", "🧾", "Every decision and every result."),
    ]  # fmt: skip
    if learner is not None:
        help_ = (
            "What was learned from the related tasks, with the preparation of the columns, to test other data with it. "
            "It contains the rows of the related tasks: whoever gets the file gets these data."
        )
        exports += [("Learner (ZIP)", lambda: learner_to_zip(learner, data.encoding), "learner.zip", "🎒", help_)]
    with st.container(horizontal=True):
        for label, make, file_name, icon, help_ in exports:
            st.download_button(label, make, file_name, on_click="ignore", icon=icon, help=help_)
    st.markdown("**For the methods section**")
    st.markdown(f"> {as_text(methods_sentence(outcome))}")
    for title, code, language in (("Copy as Python", python, "python"), ("Copy as CLI", command, "sh")):
        with st.expander(title):
            st.code(code, language=language, wrap_lines=True)
