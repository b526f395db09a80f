"""Stage 2 of one's own data: what was read, problems with buttons that solve them, and how every column is prepared."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import streamlit as st

from m2st_core.analysis.pictures import images_of, look_picture
from m2st_core.analysis.plan import Plan
from m2st_core.dashboard.widgets.controls import Control
from m2st_core.dashboard.widgets.page import as_text, chart
from m2st_core.dashboard.your_data.plan import ask_test
from m2st_core.dashboard.your_data.state import UserData, choose, show_picture, show_upload_table
from m2st_core.data.repeated_rows import repeats_in
from m2st_core.data.tables.assemble import Assembled, lacking_notes
from m2st_core.data.tables.check import Check, ColumnReport, IdentifierReport, check, check_identifiers, incomplete_rows
from m2st_core.data.tables.columns import NUMBERS, NUMERIC, WORDS
from m2st_core.data.tables.encoding import (
    MISSING_CHOICES,
    SCALING_CHOICES,
    Categorical,
    Cleaning,
    Numeric,
    open_questions,
)
from m2st_core.data.tables.groups import Pair, same_groups
from m2st_core.data.tables.prepare import Prepared
from m2st_core.data.tables.questions import DECIMAL, ENCODING, READ_AS, SHOWN, Question, TableError, Unanswered
from m2st_core.data.tables.upload import Upload
from m2st_core.figures.samples import levels_figure, numbers_figure
from m2st_core.numbers import count_of
from m2st_core.types import listed

NO_BLOCK = "(none)"
SHORT = re.compile("[:,]")  # ends the short form of an answer
FILL = "Fill in medians"
MISSING_WORDS = {"refuse": "Stop", "drop rows": "Drop rows", "median and indicator": FILL}
BLOCK_HELP = (
    "Site, day, person or pair. Labels are then permuted within each of its values only, so that differences between "
    "blocks do not count. The column itself is not compared."
)
IDS_HELP = (
    "A column that identifies persons or items in all files. By it, rows of the target are recognised in the related "
    "tasks; without one, by their values. The column itself is not compared."
)
NOT_NUMBERS = "Not numbers"
HELPS = {
    NOT_NUMBERS: "Cells of a numeric column that cannot be read as numbers. They are treated as missing.",
    "Outliers": "Values more than three interquartile ranges outside the quartiles. They are shown, never removed.",
    "Values": "Range and median of numbers, or the most frequent levels with their counts, in all rows together.",
}
MISSING = Control(
    "missing",
    "Missing values",
    MISSING_CHOICES[0],
    "Stop: name the first missing cell. Drop rows: leave out rows with missing cells. Fill in medians: put the "
    "column's median into missing cells, and add a column that marks them.",
    tuple(MISSING_CHOICES),
    shown=MISSING_WORDS.__getitem__,
    prefix="data_",
)
SCALING = Control(
    "scaling",
    "Scaling",
    SCALING_CHOICES[1],
    "Learned from pooled rows without their labels, so that it cannot favour either group. standard: mean and standard "
    "deviation. robust: median and interquartile range.",
    tuple(SCALING_CHOICES),
    prefix="data_",
)
LEVELS_SHOWN, NOTES_SHOWN, FILES_SHOWN, COLUMNS_SHOWN = 12, 8, 3, 10


def check_stage(state: UserData, upload: Upload) -> tuple[str, Plan] | None:
    """Show the stage. Return the digest of the data as prepared and the chosen test, or None if it cannot be run."""
    try:
        with st.spinner("Reading every column…"):
            assembled = state.assembled(upload)
            report = state.remember("checked", upload.digest, lambda: check(assembled))
    except Unanswered as error:
        _ask_questions(state, upload.files_digest, [error.question])
        return None
    target = assembled.target
    if target is None:
        raise TableError("The upload has related tasks only. Bring P and Q.")
    read, test, look = st.container(), st.container(), st.container()
    st.header("Columns and their preparation")
    state.cleaning = _ask_cleaning(state, assembled, target, report)
    data, plan, problem = None, None, ""
    try:
        data = state.prepared(upload)
    except TableError as error:
        problem = error.sentence
    with read:
        _show_groups_compared(state, assembled, target, report)
        for warning in assembled.readings.warnings:
            st.warning(as_text(warning))
        if not _ask_readings(state, assembled, state.cleaning) and problem:
            _offer_repair(problem, assembled, state.cleaning)
        mark, chosen = upload.files_digest[:16], state.trained is not None
        settled = _offer_identifiers(assembled, state.cleaning, mark, chosen)
        if data is not None:
            _offer_ids(data, mark)
            if repeats := repeats_in(data.decisions):
                st.warning(as_text(repeats))
    if data is not None and settled:
        with test:
            plan = ask_test(state, data)
    with look:
        _show_groups(state, assembled, target, data)
    table = _column_table(report, state.cleaning, data, target, assembled.lacking)
    table = table if upload.related else table.drop(columns="Missing in related tasks")
    config = {name: st.column_config.Column(help=help_) for name, help_ in HELPS.items()}
    show_upload_table(table, key="data_columns", column_config=config)
    rows = "both groups and all related tasks" if upload.related else "both groups"
    st.caption(f"“{NOT_NUMBERS}”, “Outliers” and “Values” are those of {rows} together.")
    notes = dict.fromkeys((*report.notes, *(data.decisions if data else ())))
    above = {
        assembled.matched_by_order,
        assembled.on_both_sides,
        repeats_in(notes),
        *assembled.readings.warnings,
        *lacking_notes(assembled.lacking),
        *_notes_in_boxes(assembled, state.cleaning, mark, chosen),
    }
    _show_notes([note for note in notes if note not in above])
    return None if data is None or plan is None else (data.digest, plan)


def _show_groups(state: UserData, assembled: Assembled, target: Pair, data: Prepared | None) -> None:
    st.header("A look at both groups")
    st.caption("Use this to spot data errors, not to pick a test. The recommendation never looks at the group labels.")

    place = st.container()
    if data is None or images_of(data) is None:
        left, place = st.columns(2, gap="large")
        with left:
            _show_column(assembled, target)
    if data is not None:
        with place:
            show_picture(state.remember("samples", data.digest, lambda: look_picture(data)))


def _show_groups_compared(state: UserData, assembled: Assembled, target: Pair, report: Check) -> None:
    """Show which groups are compared, in the target and in the related tasks, with buttons that swap P and Q."""
    upload, (p, q, related) = assembled.upload, report.rows
    by = f", by *{as_text(upload.group)}*" if upload.group and len(upload.target) == 1 else ""
    other, reference = as_text(target.q.label), as_text(target.p.label)
    tasks, same = len(assembled.related), same_groups(target, assembled.related)
    number = f"the {tasks:,}" if same == tasks else f"{same:,} of the {tasks:,}"
    too = f"; in {number} related tasks too" if same else ""
    st.header(f"“{other}” ({q:,} rows) against “{reference}” ({p:,} rows){by}{too}")
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(f"P is “{reference}”, Q is “{other}”: differences are those of “{other}” from “{reference}”.")
        help_ = "Exchange P and Q, in the related tasks too. Today's tests give the same p-value either way."
        st.button("Swap P and Q", key="data_swap", on_click=state.swap, args=(assembled,), help=help_)
    if assembled.matched_by_order:
        st.warning(as_text(assembled.matched_by_order))
        help_ = "Exchange P and Q in these related tasks only."
        st.button(
            "Swap in the related tasks",
            key="data_swap_related",
            on_click=state.swap,
            args=(assembled, False),
            help=help_,
        )
    if assembled.on_both_sides:
        st.warning(as_text(assembled.on_both_sides))
    first, second, *_ = st.columns(4)
    first.metric("Columns that all files share", f"{len(report.columns):,}", help="Columns are matched by name.")
    second.metric(
        "Related tasks", f"{report.related_tasks:,}", help=f"Earlier comparisons with {related:,} rows in all."
    )
    if assembled.lacking:
        absent = [f"“{name}” (not in {listed(files, FILES_SHOWN)})" for name, files in assembled.lacking.items()]
        st.info(as_text(f"Not in all files, so not compared: {listed(absent, COLUMNS_SHOWN)}."))


def _ask_cleaning(state: UserData, assembled: Assembled, target: Pair, report: Check) -> Cleaning:
    """Ask how to treat missing cells, scales, and columns that should not be compared."""
    mark = assembled.upload.files_digest[:16]
    learned = state.trained.encoding.cleaning if state.trained else None
    gaps = sum(sum(column.missing) + column.odd for column in report.columns if column.used)
    first, second, third = st.columns(3)
    with first:
        missing = (replace(MISSING, default=learned.missing) if learned else MISSING).draw()
        st.caption(f"{gaps:,} cells are missing or not numbers." if gaps else "No cell is missing.")
    with third:
        shared = [str(c) for c in target.p.table.frame.columns if c in target.q.table.frame.columns]
        names = [NO_BLOCK, *(name for name in shared if name != assembled.upload.group)]
        chosen = choose("Block column", names, f"data_block_{mark}", BLOCK_HELP)
        block = None if chosen == NO_BLOCK else chosen
        ids = None
        if assembled.related or learned:
            known = [name for name in assembled.columns if name != block]
            chosen = choose("Id column", [NO_BLOCK, *known], f"data_ids_{mark}", IDS_HELP)
            ids = None if chosen == NO_BLOCK else chosen
    if learned is not None:
        second.info("Scales, levels and columns are those that the learner was trained with.")
        return replace(learned, missing=missing, block=block, ids=ids)
    with second:
        scaling = SCALING.draw()
    left_out = st.multiselect(
        "Columns to leave out",
        [name for name in assembled.columns if name not in (block, ids)],
        key=f"data_left_out_{mark}",
        persist_state="session",
        placeholder="none",
        help="Identifiers, row numbers, or anything else that should not be compared.",
    )
    use = _compared_identifiers(assembled, mark, (*left_out, block, ids))
    return Cleaning(missing, scaling, left_out=tuple(left_out), block=block, use=use, ids=ids)


def _column_table(
    report: Check,
    cleaning: Cleaning,
    data: Prepared | None,
    target: Pair,
    lacking: Mapping[str, Sequence[str]],
) -> pd.DataFrame:
    """One row per column: what it is and how it is prepared. Those that some file lacks come last."""
    encoded = {column.name: column for column in data.columns} if data else None
    rows = []
    for column in report.columns:
        if column.minimum is None:
            values = ", ".join(f"{level} ({count:,})" for level, count in column.top_levels)
        else:
            values = f"{column.minimum:.4g} to {column.maximum:.4g}, median {column.median:.4g}".replace("-", "−")
        rows.append(
            {
                "Column": column.name,
                "Read as": f"{column.kind}, {column.unit}" if column.unit else column.kind,
                "Preparation": _preparation(column, cleaning, encoded),
                f"Missing in “{target.p.label}”": column.missing[0],
                f"Missing in “{target.q.label}”": column.missing[1],
                "Missing in related tasks": column.missing[2],
                NOT_NUMBERS: column.odd,
                "Outliers": column.outliers,
                "Values": values,
            }
        )
    for name, files in lacking.items():
        rows.append({"Column": name, "Preparation": f"not in {listed(files, FILES_SHOWN)}: not used"})
    table = pd.DataFrame(rows)
    counts = [name for name in table.columns if name.startswith(("Missing in", NOT_NUMBERS, "Outliers"))]
    return table.astype(dict.fromkeys(counts, "Int64"))


def _preparation(column: ColumnReport, cleaning: Cleaning, encoded: Mapping[str, Numeric | Categorical] | None) -> str:
    if column.name in (cleaning.block, cleaning.ids):
        return f"{'block' if column.name == cleaning.block else 'identifies rows'}: not compared"
    if column.name in cleaning.left_out:
        return "left out by choice"
    if not column.used and column.name not in (encoded or ()):
        return f"set aside: {column.why}"
    if encoded is not None and column.name not in encoded:
        return "set aside: constant in the rows that the preparation is learned from, or unknown to the learner"
    if NUMERIC in (column.kind, column.holds):
        return "used as it is" if cleaning.scaling == "none" else f"used, {cleaning.scaling} scaling"
    indicators = encoded[column.name] if encoded else None
    known = len(indicators.levels) if isinstance(indicators, Categorical) else min(column.levels, cleaning.levels)
    others = ", and one for all others" if isinstance(indicators, Categorical) and indicators.other else ""
    of = f"{known} of its {column.levels}" if known < column.levels else f"its {known}"
    return f"used, as an indicator for each of {of} levels{others}"


def _show_notes(notes: list[str]) -> None:
    for note in notes[:NOTES_SHOWN]:
        st.caption(f"• {as_text(note)}")
    if len(notes) > NOTES_SHOWN:
        with st.expander(count_of(len(notes) - NOTES_SHOWN, "more note")):
            show_upload_table(pd.DataFrame({"Note": notes[NOTES_SHOWN:]}))


def _show_column(assembled: Assembled, target: Pair) -> None:
    used = [column.name for column in assembled.columns.values() if column.used]
    if not used:
        return
    mark = assembled.upload.files_digest[:16]
    name = choose("Column", used, f"data_preview_{mark}", "The column to draw, before any scaling.")
    labels, (p, q) = (target.p.label, target.q.label), assembled.spans[0]
    if assembled.columns[name].kind == NUMERIC:
        x, y = (rows[~np.isnan(rows)] for rows in (assembled.numbers(name)[p], assembled.numbers(name)[q]))
        figure = numbers_figure(x, y, column=name, names=labels)
        chart(figure, "data_column", "Histograms of the column in both groups.")
        return
    words = assembled.words(name)
    levels = [str(level) for level in words.iloc[: assembled.target_rows].value_counts().index[:LEVELS_SHOWN]]
    x, y = (np.array([(words.iloc[span] == level).mean() for level in levels]) for span in (p, q))
    figure = levels_figure(levels, (x, y), column=name, names=labels)
    chart(figure, "data_column", "Bars of the column's levels in both groups.")


def _ask_readings(state: UserData, made: Assembled, cleaning: Cleaning) -> bool:
    """Ask what is in doubt about cells, with every reading of a few of them; return whether anything was asked."""
    mark = made.upload.files_digest
    given = state.answers.get(mark, {})
    questions = open_questions(made, cleaning, state.trained.encoding if state.trained else None)
    _ask_questions(state, mark, questions)
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


def _ask_questions(state: UserData, mark: str, questions: Sequence[Question]) -> None:
    """Ask the questions about files, whose answers are kept under the mark of the files."""
    for number, question in enumerate(questions):
        with st.container(border=True):
            _ask(state, mark, number, question)


def _offer_readings(state: UserData, made: Assembled) -> None:
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


def _offer_repair(problem: str, made: Assembled, cleaning: Cleaning) -> None:
    """Show why the data cannot be tested. If cells are missing, buttons drop their rows or fill them in."""
    gaps = incomplete_rows(made, cleaning) if cleaning.missing == "refuse" else 0
    st.error(as_text(problem))
    if not gaps:
        return
    rows = f"{gaps:,} row{'s' * (gaps != 1)}"
    with st.container(horizontal=True):
        _button(f"Drop {rows}", "data_drop", MISSING.key, "drop rows", "Leave out every row with a missing cell.")
        help_ = "Put the column's median into each missing cell, and add a column that marks these cells."
        _button(FILL, "data_fill", MISSING.key, "median and indicator", help_)


def _offer_identifiers(made: Assembled, cleaning: Cleaning, mark: str, chosen: bool) -> bool:
    """Show columns that look like identifiers, and offer to compare them, to use them as blocks or to leave them out.

    Return whether all is settled: about a column whose units have several rows, the user decides before any test.
    ``chosen``: a learner has chosen the columns.
    """
    settled = True
    compared = st.session_state.get(f"data_compared_{mark}", [])
    for number, identifier in enumerate(check_identifiers(made)):
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


def _notes_in_boxes(made: Assembled, cleaning: Cleaning, mark: str, chosen: bool) -> list[str]:
    """The notes on identifiers that are in the boxes of ``_offer_identifiers`` already."""
    compared = st.session_state.get(f"data_compared_{mark}", [])
    return [
        identifier.note(cleaning, identifier.column in cleaning.use)
        for identifier in check_identifiers(made)
        if identifier.column not in cleaning.not_compared
        and (identifier.column not in compared if identifier.repeated else not chosen)
    ]


def _offer_ids(data: Prepared, mark: str) -> None:
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


def _compared_identifiers(made: Assembled, mark: str, left_out: Sequence[str | None]) -> tuple[str, ...]:
    """The columns that look like identifiers and that the user wants to compare."""
    wanted = st.session_state.get(f"data_compared_{mark}", [])
    return tuple(name for name in made.identifiers if name in wanted and name not in left_out)


def _offer_to_compare(identifier: IdentifierReport, number: int, mark: str) -> None:
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


def _offer(identifier: IdentifierReport, number: int, cleaning: Cleaning, mark: str) -> None:
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
    st.button(label, key=key, on_click=lambda: st.session_state.update({widget: value}), help=help)
