"""Step 5 of one's own data: where the samples differ, what is assumed, and what to take along."""

from __future__ import annotations

import json

import pandas as pd
import streamlit as st

from m2st_core.analysis.gamma import MOST_COLUMNS, TargetGamma, target_gamma
from m2st_core.analysis.pictures import importance_picture, witness_picture
from m2st_core.analysis.plan import Outcome, blocks_of
from m2st_core.analysis.report import decisions, html_report
from m2st_core.analysis.writeup import DataSource, as_command, as_python, assumptions, methods_sentence
from m2st_core.dashboard.jobs.jobs import watch_job
from m2st_core.dashboard.widgets.controls import chart
from m2st_core.dashboard.your_data.state import Brought, say, show_table
from m2st_core.data.tables.assembled import Assembled
from m2st_core.data.tables.upload import Upload
from m2st_core.testing.learner_files import learner_to_zip
from m2st_core.types import Progress

SHOWN_COLUMNS = 12


def understand_step(state: Brought, upload: Upload, outcome: Outcome) -> None:
    """The whole step."""
    st.subheader("Where the samples differ")
    st.caption(
        "Exploratory: it shows what the test looked at, and suggests where to look next. It proves nothing by itself, "
        "least of all where the test found no evidence."
    )
    left, right = st.columns(2, gap="large")
    with left:
        witness = witness_picture(outcome)
        if witness is not None:
            chart(witness.figure, "data_witness", witness.alt)
            colours = f"Blue: more of “{say(outcome.data.x_name)}”. Orange: more of “{say(outcome.data.y_name)}”."
            st.caption(f"{colours} {say(witness.caption)}")
    with right:
        importance = importance_picture(outcome)
        if importance is not None:
            chart(importance.figure, "data_importance", importance.alt)
            st.caption(importance.caption)
            for note in outcome.explanation.notes if outcome.explanation else ():
                st.caption(say(note))
    _typical(state.assembled(upload), outcome)
    if len(outcome.data.related_tasks) and len(outcome.data.features) <= MOST_COLUMNS:
        _gamma(state, upload, outcome)
    st.subheader("What has to hold")
    for sentence in assumptions(outcome):
        st.markdown(f"- {say(sentence)}")
    st.subheader("Take it along")
    _exports(state, upload, outcome)


def _typical(made: Assembled, outcome: Outcome) -> None:
    """Rows as they are in the files, the most telling columns first."""
    found, data = outcome.explanation, outcome.data
    assert found is not None and made.target is not None
    st.markdown("**Rows most typical of each group**, as the test saw them (exploratory)")
    owner = [column.name for column in data.encoding.columns for _ in column.features]
    telling = list(dict.fromkeys(owner[int(i)] for i in found.importance.columns))[:SHOWN_COLUMNS]
    sides = ((made.target.p, data.x_name, found.typical_x[1]), (made.target.q, data.y_name, found.typical_y[1]))
    st.caption("The further the witness is from 0, the clearer: above 0 for the first group, below 0 for the second.")
    positions = data.x_rows[found.typical_x[0]], data.y_rows[found.typical_y[0]]
    for (side, name, values), numbers in zip(sides, positions, strict=True):
        rows = side.table.frame.loc[numbers, telling].astype("str").reset_index(drop=True)
        about = pd.DataFrame({"Row in the file": numbers, "Witness": values.round(4)})
        st.caption(f"Most typical of “{say(name)}”")
        show_table(pd.concat([about, rows], axis=1))


def _gamma(state: Brought, upload: Upload, outcome: Outcome) -> None:
    """How related the tasks are to these data, on request: it looks at labels, so it comes after the answer."""
    wanted = st.toggle(
        "Find γ̂, how related the tasks are to your data (exploratory)",
        key="data_gamma",
        persist_state="session",
        help="γ̂ above its noise floor: even the most related task differs from your data. Takes some seconds. It looks "
        "at labels, so it is found after the test, and must not decide about it.",
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

    job = watch_job("data_gamma", (state.key(upload), plan), work, "Climbing…")
    if job.state == "done":
        st.markdown(say(job.result.sentence))


def origin_of(state: Brought, upload: Upload) -> DataSource:
    """Where the data came from, for code that repeats the outcome."""
    if state.example:
        return DataSource(example=state.example)
    related = tuple(dict.fromkeys(_file(table.name) for table in upload.related))
    return DataSource(
        target=tuple(table.name for table in upload.target),
        related=related,
        group=upload.group,
        task=upload.task,
        related_group=upload.related_group,
        learner=state.trained.name if state.trained else "",
    )


def _file(name: str) -> str:
    """The file that was brought: a table in an archive is called by both names."""
    head, found, _ = name.lower().partition(".zip/")
    return name[: len(head) + len(".zip")] if found else name


def _exports(state: Brought, upload: Upload, outcome: Outcome) -> None:
    data, plan, tested = outcome.data, outcome.plan, state.tests_of(upload)
    origin = origin_of(state, upload)
    python, command = as_python(origin, state.cleaning, plan), as_command(origin, state.cleaning, plan)
    key = state.key(upload)
    history = state.history[1] if state.history is not None and state.history[0] == key else None
    learner = outcome.learners.get(plan.primary)

    def report() -> str:
        return html_report(outcome, check=history, tested=tested, python=python, command=command)

    def record() -> str:
        return json.dumps(decisions(outcome, tested), ensure_ascii=False, indent=1, default=str)

    with st.container(horizontal=True):
        st.download_button(
            "Report (HTML)", report, "report.html", "text/html", on_click="ignore", icon="📄", type="primary",
            help="One file with figures, settings, versions, seed, and a sentence for the methods section.",
        )  # fmt: skip
        st.download_button(
            "Cleaned data (CSV)", lambda: data.to_csv(), "cleaned.csv", "text/csv", on_click="ignore", icon="🧹",
            help="The rows as they were tested. Cells that a spreadsheet would run are made harmless.",
        )  # fmt: skip
        st.download_button(
            "Decisions (JSON)", record, "decisions.json", "application/json", on_click="ignore", icon="🧾",
            help="Everything that was decided on the way, and what came out.",
        )  # fmt: skip
        if learner is not None:
            st.download_button(
                "Learner (ZIP)", lambda: learner_to_zip(learner, data.encoding), "learner.zip", "application/zip",
                on_click="ignore", icon="🎒",
                help="What the related tasks taught, with the preparation of the columns, to test other data with it. "
                "It holds the rows that taught it: who gets the file gets these data.",
            )  # fmt: skip
    st.markdown("**For the methods section**")
    st.markdown(f"> {say(methods_sentence(outcome))}")
    with st.expander("Copy as Python"):
        st.code(python, language="python", wrap_lines=True)
    with st.expander("Copy as CLI"):
        st.code(command, language="sh", wrap_lines=True)
