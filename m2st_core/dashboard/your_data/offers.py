"""Problems of an upload, each with buttons that solve it."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pandas as pd
import streamlit as st

from m2st_core.dashboard.widgets.answer import as_text
from m2st_core.dashboard.your_data.state import UserData, show_upload_table
from m2st_core.data.tables.columns import NUMBERS, WORDS
from m2st_core.data.tables.encoding import Cleaning, open_questions
from m2st_core.data.tables.prepare import Identifier, Prepared, identifiers, incomplete_rows
from m2st_core.data.tables.readings import DECIMAL, ENCODING, READ_AS, SHOWN, Question
from m2st_core.data.tables.upload import Assembled

NO_BLOCK = "(none)"
SHORT = re.compile("[:,]")  # ends the short form of an answer
DROP, FILL, REFUSE = "Drop rows", "Fill in medians", "Stop"
MISSING_WORDS = {"refuse": REFUSE, "drop rows": DROP, "median and indicator": FILL}


def ask_readings(state: UserData, made: Assembled, cleaning: Cleaning) -> bool:
    """Ask what is in doubt about cells, with every reading of a few of them; return whether anything was asked."""
    mark = made.upload.files_digest
    given = state.answers.get(mark, {})
    questions = open_questions(made, cleaning, state.trained.encoding if state.trained else None)
    ask_questions(state, mark, questions)
    if given:
        answers = [
            f"{key}: {', '.join(f'{k} = {v}' for k, v in value.items()) if isinstance(value, dict) else value}"
            for key, value in given.items()
        ]
        with st.container(horizontal=True, vertical_alignment="center"):
            st.caption(as_text(f"Cells are read as you chose ({'; '.join(answers)})."))
            help_ = "Forget the answers, and ask again."
            st.button("Ask again", key="data_ask_again", on_click=state.answers.__delitem__, args=(mark,), help=help_)
    _offer_readings(state, made)
    return bool(questions)


def ask_questions(state: UserData, mark: str, questions: Sequence[Question]) -> None:
    """Ask the questions about files, whose answers are kept under the mark of the files."""
    for number, question in enumerate(questions):
        with st.container(border=True):
            _ask(state, mark, number, question)


def _offer_readings(state: UserData, made: Assembled) -> None:
    """Offer to undo the conversion of a column."""
    converted = tuple(dict.fromkeys(conversion.column for conversion in made.readings.conversions))
    if not converted:
        return
    with st.popover(
        "Read a column otherwise…", help="If cells with a unit, a percent sign or the like are read wrong."
    ):
        column = st.selectbox(
            "Read this column", converted, key="data_reread", help="Columns whose cells were changed."
        )
        for kind, words in {NUMBERS: "As numbers", WORDS: "As words"}.items():
            given = made.upload.files_digest, str(column), kind
            help_ = "You can change this later."
            st.button(words, key=f"data_reread_{kind}", on_click=_read_as, args=(state, *given), help=help_)


def _read_as(state: UserData, mark: str, column: str, kind: str) -> None:
    """Remember how the user wants a column to be read."""
    given = state.answers.setdefault(mark, {})
    given[READ_AS] = given.get(READ_AS, {}) | {column: kind}


def _ask(state: UserData, mark: str, number: int, question: Question) -> None:
    columns = ", ".join(f"“{column}”" for column in question.columns[:SHOWN])
    sentence = f"{columns}: {question.sentence}" if columns else question.sentence
    st.markdown(f"**How is this meant?** {as_text(sentence)}")
    heads = [SHORT.split(words)[0] for words in question.answers.values()]
    rows = [
        {"Your cell": example.cell, **dict(zip(heads, shown, strict=True)), "Row": example.row, "File": example.file}
        for example, shown in question.examples
    ]
    show_upload_table(pd.DataFrame(rows), key=f"data_question_{number}")

    def answer(value: str, file: str = "") -> None:
        given = state.answers.setdefault(mark, {})
        if question.option == READ_AS:
            _read_as(state, mark, question.columns[0], value)
        elif question.option == ENCODING or (question.option == DECIMAL and (file or given.get(DECIMAL))):
            files = [file] if file else question.files  # the answers for other files stay
            given[question.option] = given.get(question.option, {}) | dict.fromkeys(files, value)
        else:
            given[question.option] = value

    with st.container(horizontal=True):
        for value, words in question.answers.items():
            key, help_ = f"data_answer_{number}_{value}", "Read these cells this way. You can change this later."
            st.button(as_text(words), key=key, on_click=answer, args=(value,), help=help_)
        if len(question.files) > 1:
            with st.popover("The files differ…", help="Say it for one file, and then for the others."):
                file = st.selectbox("File", question.files, key=f"data_file_{number}", help="The file to answer for.")
                for value, words in question.answers.items():
                    key, help_ = f"data_file_answer_{number}_{value}", "Read the cells of this file so."
                    st.button(SHORT.split(words)[0], key=key, on_click=answer, args=(value, file), help=help_)
    if question.columns:
        st.caption("Until this is answered, or the column is left out below, no test is run.")


def offer_repair(problem: str, made: Assembled, cleaning: Cleaning, missing_key: str) -> None:
    """Show why the data cannot be tested. If cells are missing, buttons drop their rows or fill them in."""
    gaps = incomplete_rows(made, cleaning) if cleaning.missing == "refuse" else 0
    st.error(as_text(problem))
    if not gaps:
        return
    rows = f"{gaps:,} row{'s' * (gaps != 1)}"
    with st.container(horizontal=True):
        _button(f"Drop {rows}", "data_drop", missing_key, "drop rows", "Leave out every row with a missing cell.")
        help_ = "Put the column's median into each missing cell, and add a column that marks these cells."
        _button(FILL, "data_fill", missing_key, "median and indicator", help_)


def offer_identifiers(made: Assembled, cleaning: Cleaning, mark: str, chosen: bool) -> bool:
    """Show columns that look like identifiers, and offer to compare them, to use them as blocks or to leave them out.

    Return whether all is settled: about a column whose units have several rows, the user decides before any test.
    ``chosen``: a learner has chosen the columns.
    """
    settled = True
    compared = st.session_state.get(f"data_compared_{mark}", [])
    for number, identifier in enumerate(identifiers(made)):
        if identifier.column in cleaning.not_compared and not (
            identifier.repeated and identifier.column == cleaning.ids
        ):
            continue
        if identifier.repeated and identifier.column not in compared:
            st.error(as_text(identifier.sentence))
            _offer(identifier, number, cleaning, mark)
            settled = False
        elif identifier.usable and not chosen:
            _offer_to_compare(identifier, number, mark)
        elif not (identifier.usable or identifier.repeated):
            many = f"It cannot be compared: its {identifier.units:,} different values are too many for categories."
            st.info(as_text(f"{identifier.sentence} {many}"))
    return settled


def notes_in_boxes(made: Assembled, cleaning: Cleaning, mark: str, chosen: bool) -> list[str]:
    """The notes on identifiers that are in the boxes of ``offer_identifiers`` already."""
    compared = st.session_state.get(f"data_compared_{mark}", [])
    return [
        identifier.note(cleaning, identifier.column in cleaning.use)
        for identifier in identifiers(made)
        if identifier.column not in cleaning.not_compared
        and (identifier.column not in compared if identifier.repeated else not chosen)
    ]


def offer_ids(data: Prepared, mark: str) -> None:
    """Say if rows cannot show whether they are also in the related tasks, and offer the columns that can."""
    if not data.exact_if:
        return
    st.warning(
        "Many rows are alike, so some could be in the related tasks unnoticed. The p-value of a test that learns from "
        f"them is exact if {data.exact_if}."
    )
    with st.container(horizontal=True):
        for number, name in enumerate(data.identifiers):
            help_ = "The column identifies persons or items in all files. It is not compared."
            _button(f"Recognise rows by {as_text(name)}", f"data_ids_{number}", f"data_ids_{mark}", name, help_)
    if not data.identifiers:
        st.caption("A column that identifies persons or items in all files would settle it (Id column, below).")


def compared_all_the_same(made: Assembled, mark: str, left_out: Sequence[str | None]) -> tuple[str, ...]:
    """The columns that look like identifiers and that the user wants to compare."""
    wanted = st.session_state.get(f"data_compared_{mark}", [])
    return tuple(name for name in made.identifiers if name in wanted and name not in left_out)


def _offer_to_compare(identifier: Identifier, number: int, mark: str) -> None:
    """Show a column that is set aside with a button that compares it, or the other way round."""
    key = f"data_compared_{mark}"
    compared = st.session_state.get(key, [])
    with st.container(horizontal=True, vertical_alignment="center"):
        if identifier.column in compared:
            st.info(as_text(f"{identifier.column!r} is compared, although {identifier.why}."))
            rest = [name for name in compared if name != identifier.column]
            help_ = "Set the column aside again: it tells rows apart and measures nothing."
            _button(f"Set {as_text(identifier.column)} aside", f"data_aside_{number}", key, rest, help_)
            return
        st.info(as_text(identifier.sentence))
        help_ = "It is a measurement after all. If the rows of one group were numbered first, this alone is evidence."
        wanted = [*compared, identifier.column]
        _button(f"Compare {as_text(identifier.column)}", f"data_compare_{number}", key, wanted, help_)


def _offer(identifier: Identifier, number: int, cleaning: Cleaning, mark: str) -> None:
    """Offer what can be done with a column whose units have several rows."""
    block_key, left_out_key, compared_key = (f"data_{what}_{mark}" for what in ("block", "left_out", "compared"))
    with st.container(horizontal=True):
        if identifier.in_both:
            help_ = "Labels are then permuted within each unit only, which is right for repeated measurements."
            _button(
                f"Use {as_text(identifier.column)} as the block",
                f"data_block_{number}",
                block_key,
                identifier.column,
                help_,
            )
        help_ = "Do not compare this column. If rows of one unit repeat within a group, keep one of them."
        left_out = [*cleaning.left_out, identifier.column]
        _button(f"Leave {as_text(identifier.column)} out", f"data_leave_{number}", left_out_key, left_out, help_)
        if identifier.usable or not identifier.why:
            compared = [*st.session_state.get(compared_key, []), identifier.column]
            help_ = "It names no units: it is a property of the rows, like the others."
            _button(f"Compare {as_text(identifier.column)}", f"data_compare_{number}", compared_key, compared, help_)
    st.caption("Until this is decided, no test is run.")


def _button(label: str, key: str, widget: str, value: str | list[str], help: str) -> None:
    """Draw a button that sets another widget."""
    st.button(label, key=key, on_click=lambda: st.session_state.update({widget: value}), help=help)
