"""What can be taken away from an answer: the report, files, and code that repeats it."""

from __future__ import annotations

import json
from collections.abc import Callable

import streamlit as st

from m2st_core.analysis.plan import Outcome
from m2st_core.analysis.report import decisions, html_report
from m2st_core.analysis.writeup import DataSource, as_command, as_python, methods_sentence
from m2st_core.dashboard.your_data.state import UserData, as_text
from m2st_core.data.tables.upload import Upload


def data_source(state: UserData, upload: Upload) -> DataSource:
    """The origin of the data, for code that repeats the outcome."""
    if state.example:
        return DataSource(example=state.example, groups=upload.groups, related_groups=upload.related_groups)
    return DataSource(
        target=tuple(table.name for table in upload.target),
        related=tuple(dict.fromkeys(_file_name(table.name) for table in upload.related)),
        group=upload.group,
        task=upload.task,
        related_group=upload.related_group,
        learner=state.trained.name if state.trained else "",
        groups=upload.groups,
        decimal=upload.decimal,
        read_as=upload.read_as,
        totals=upload.totals,
        encoding=upload.encoding,
        related_groups=upload.related_groups,
    )


def _file_name(table: str) -> str:
    """The name of the uploaded file. A table in an archive is called archive.zip/table.csv."""
    head, archive, _ = table.lower().partition(".zip/")
    return table[: len(head) + len(".zip")] if archive else table


def report_button(state: UserData, upload: Upload, outcome: Outcome) -> None:
    """Offer the report."""
    python, command = _code(state, upload, outcome)
    check, _ = state.recall("data_history", state.key(upload)) or (None, None)
    tested = state.tests_of(upload)

    def report() -> str:
        return html_report(outcome, check=check, tested=tested, python=python, command=command)

    help_ = "One HTML file with this answer, its figures, settings and code. It needs no server and prints on A4."
    st.download_button(
        "Download the report", report, "report.html", key="data_report", on_click="ignore", type="primary", help=help_
    )


def _code(state: UserData, upload: Upload, outcome: Outcome) -> tuple[str, str]:
    """Python code and a command that repeat the outcome."""
    origin = data_source(state, upload)
    return as_python(origin, state.cleaning, outcome.plan), as_command(origin, state.cleaning, outcome.plan)


def show_exports(state: UserData, upload: Upload, outcome: Outcome) -> None:
    """Offer files, a sentence for the methods section, and code that repeats the outcome."""
    data, tested = outcome.data, state.tests_of(upload)
    learner = outcome.learners.get(outcome.plan.primary)

    def record() -> str:
        return json.dumps(decisions(outcome, tested), ensure_ascii=False, indent=1, default=str)

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
