"""Stage 2 of one's own data: what was read, what must be settled, and how every column is prepared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
import streamlit as st

from m2st_core.analysis.pictures import images_of, look_picture
from m2st_core.analysis.plan import Plan
from m2st_core.dashboard.widgets.answer import as_text
from m2st_core.dashboard.widgets.controls import Control
from m2st_core.dashboard.widgets.page import chart
from m2st_core.dashboard.your_data.offers import (
    MISSING_WORDS,
    NO_BLOCK,
    ask_questions,
    ask_readings,
    compared_all_the_same,
    notes_in_boxes,
    offer_identifiers,
    offer_ids,
    offer_repair,
)
from m2st_core.dashboard.your_data.plan import ask_test
from m2st_core.dashboard.your_data.state import UserData, choose, show_upload_table
from m2st_core.data.repeats import repeats_in
from m2st_core.data.tables.columns import NUMERIC
from m2st_core.data.tables.encoding import MISSING_CHOICES, SCALING_CHOICES, Categorical, Cleaning, Numeric
from m2st_core.data.tables.limits import TableError
from m2st_core.data.tables.prepare import Check, ColumnReport, Prepared, check
from m2st_core.data.tables.readings import Unanswered
from m2st_core.data.tables.upload import (
    Assembled,
    Pair,
    Upload,
    lacking_notes,
    matched_by_order,
    on_both_sides,
    same_groups,
)
from m2st_core.figures.samples import levels_figure, numbers_figure
from m2st_core.numbers import count_of
from m2st_core.types import listed

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
        ask_questions(state, upload.files_digest, [error.question])
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
        if not ask_readings(state, assembled, state.cleaning) and problem:
            offer_repair(problem, assembled, state.cleaning, MISSING.key)
        mark, chosen = upload.files_digest[:16], state.trained is not None
        settled = offer_identifiers(assembled, state.cleaning, mark, chosen)
        if data is not None:
            offer_ids(data, mark)
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
        matched_by_order(target, assembled.related),
        on_both_sides(target, assembled.related),
        repeats_in(notes),
        *assembled.readings.warnings,
        *lacking_notes(assembled.lacking),
        *notes_in_boxes(assembled, state.cleaning, mark, chosen),
    }
    _show_notes([note for note in notes if note not in above])
    return None if data is None or plan is None else (data.digest, plan)


def _show_groups(state: UserData, assembled: Assembled, target: Pair, data: Prepared | None) -> None:
    st.header("A look at both groups")
    st.caption("Use this to spot data errors, not to pick a test. The recommendation never looks at the group labels.")
    if data is not None and images_of(data) is not None:
        picture = state.remember("samples", data.digest, lambda: look_picture(data))
        chart(picture.figure, "data_samples", picture.alt)
        st.caption(picture.caption)
        return
    left, right = st.columns(2, gap="large")
    with left:
        _show_column(assembled, target)
    with right:
        if data is not None:
            picture = state.remember("samples", data.digest, lambda: look_picture(data))
            chart(picture.figure, "data_samples", picture.alt)
            st.caption(picture.caption)


def _show_groups_compared(state: UserData, assembled: Assembled, target: Pair, report: Check) -> None:
    """Say who is compared with whom, in the target and in the related tasks, with buttons that swap P and Q."""
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
    if others := matched_by_order(target, assembled.related):
        st.warning(as_text(others))
        help_ = "Exchange P and Q in these related tasks only."
        st.button(
            "Swap in the related tasks",
            key="data_swap_related",
            on_click=state.swap,
            args=(assembled, False),
            help=help_,
        )
    if both := on_both_sides(target, assembled.related):
        st.warning(as_text(both))
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
    use = compared_all_the_same(assembled, mark, (*left_out, block, ids))
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
