"""Step 2 of one's own data: what was read, what will happen to every column, and a look at both groups."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import streamlit as st

from m2st_core.analysis.pictures import samples_picture
from m2st_core.dashboard.widgets.controls import chart
from m2st_core.dashboard.your_data.state import Brought, say, show_table
from m2st_core.data.tables.assembled import Assembled, Check, ColumnReport
from m2st_core.data.tables.clean import CleanData
from m2st_core.data.tables.columns import NUMERIC
from m2st_core.data.tables.encoding import MISSING_CHOICES, SCALING_CHOICES, Cleaning
from m2st_core.data.tables.limits import TableError
from m2st_core.data.tables.upload import Upload
from m2st_core.figures.samples import levels_figure, numbers_figure

NO_BLOCK = "(none)"
RELATED = "Missing in related tasks"
HELPS = {
    "No number": "Cells of a numeric column that can not be read as numbers. They are treated as missing.",
    "Far out": "Values more than three interquartile ranges outside the quartiles. They are shown, never removed.",
    "Values": "Range and median of numbers, or the most frequent levels with their counts.",
}
MOST_LEVELS_SHOWN = 12
NOTES_SHOWN = 8


def check_step(state: Brought, upload: Upload) -> bool:
    """The whole step; whether the data can be tested like this."""
    with st.spinner("Looking at every column…"):
        made, report = state.assembled(upload), state.checked(upload)
    st.subheader("What was read")
    _sizes(made, report)
    state.cleaning = _ask(state, upload, made, report)
    data, problem = None, ""
    try:
        data = state.clean(upload)
    except TableError as error:
        problem = str(error)
    if problem:
        st.error(say(problem))
    assert made.target is not None
    names = (made.target.p.label, made.target.q.label)
    config = {name: st.column_config.Column(help=help_) for name, help_ in HELPS.items()}
    shown = _columns(report, state.cleaning, data, names, bool(upload.related))
    show_table(shown, key="data_columns", column_config=config)
    _notes(list(dict.fromkeys((*report.notes, *(data.decisions if data else ())))))
    _preview(state, made, data)
    return data is not None


def _sizes(made: Assembled, report: Check) -> None:
    assert made.target is not None
    p, q, related = report.rows
    columns = st.columns(4)
    for place, side, count in zip(columns, (made.target.p, made.target.q), (p, q), strict=False):
        place.metric(f"Rows of “{say(side.label)}”", f"{count:,}", help="One of the two groups that are compared.")
    columns[2].metric("Columns that all files share", f"{len(report.columns):,}", help="Matched by their names.")
    tasks = f"{report.related_tasks:,}"
    columns[3].metric("Related tasks", tasks, help=f"Earlier comparisons, {related:,} rows in all.")


def _ask(state: Brought, upload: Upload, made: Assembled, report: Check) -> Cleaning:
    """What to do about missing cells, scales, and columns that should not be compared."""
    mark = upload.digest[:16]
    learned = state.trained.encoding.cleaning if state.trained else None
    gaps = sum(sum(column.missing) + column.odd for column in report.columns if column.used)
    first, second, third = st.columns(3)
    with first:
        missing = st.selectbox(
            "Missing values",
            MISSING_CHOICES,
            index=MISSING_CHOICES.index(learned.missing) if learned else 0,
            key="data_missing",
            bind="query-params",
            help="refuse: stop and say where the first one is. drop rows: leave such rows out. median and indicator: "
            "fill in the median, and add a column that says where.",
        )
        st.caption(f"{gaps:,} cells are missing or no numbers." if gaps else "No cell is missing.")
    with third:
        block = _ask_block(made, mark)
    if learned is not None:
        second.info("Scales, levels and columns are those that the learner was trained with.")
        return replace(learned, missing=str(missing), block=block)
    with second:
        scaling = st.selectbox(
            "Scaling",
            SCALING_CHOICES,
            index=1,
            key="data_scaling",
            bind="query-params",
            help="Learned from pooled rows without their labels, so that it can not favour either group. standard: "
            "mean and standard deviation; robust: median and interquartile range.",
        )
    left_out = st.multiselect(
        "Columns to leave out",
        [name for name in made.columns if name != block],
        key=f"data_left_out_{mark}",
        persist_state="session",
        placeholder="none",
        help="Identifiers, row numbers, or anything else that should not be compared.",
    )
    return Cleaning(str(missing), str(scaling), left_out=tuple(left_out), block=block)


def _ask_block(made: Assembled, mark: str) -> str | None:
    assert made.target is not None
    both = [str(c) for c in made.target.p.table.frame.columns if c in made.target.q.table.frame.columns]
    names = [name for name in both if name != made.upload.group]
    block = st.selectbox(
        "Block column",
        [NO_BLOCK, *names],
        key=f"data_block_{mark}",
        persist_state="session",
        help="Site, day, person, pair: labels are then permuted within each of its values only, so that differences "
        "between blocks do not count. It is not compared.",
    )
    return None if block in (NO_BLOCK, None) else str(block)


def _columns(
    report: Check, cleaning: Cleaning, data: CleanData | None, names: tuple[str, str], related: bool
) -> pd.DataFrame:
    """One line per column: what it is and what happens to it."""
    encoded = {column.name: len(column.features) for column in data.encoding.columns} if data else {}
    rows = []
    for column in report.columns:
        span = f"{column.minimum:.4g} to {column.maximum:.4g}, median {column.median:.4g}" if column.levels == 0 else ""
        if column.minimum is None:
            span = ", ".join(f"{level} ({count:,})" for level, count in column.top_levels)
        rows.append(
            {
                "Column": column.name,
                "Read as": column.kind,
                "What happens": _fate(column, cleaning, encoded if data else None),
                f"Missing in “{names[0]}”": column.missing[0],
                f"Missing in “{names[1]}”": column.missing[1],
                RELATED: column.missing[2],
                "No number": column.odd,
                "Far out": column.outliers,
                "Values": span,
            }
        )
    frame = pd.DataFrame(rows)
    return frame if related else frame.drop(columns=RELATED)


def _fate(column: ColumnReport, cleaning: Cleaning, encoded: dict[str, int] | None) -> str:
    if column.name == cleaning.block:
        return "block: not compared"
    if column.name in cleaning.left_out:
        return "left out by choice"
    if not column.used:
        return f"set aside: {column.why}"
    if encoded is not None and column.name not in encoded:
        return "set aside: it does not vary where the preparation is learned, or the learner does not know it"
    if column.kind == NUMERIC:
        return "used as it is" if cleaning.scaling == "none" else f"used, {cleaning.scaling} scaling"
    count = encoded[column.name] if encoded else min(column.levels, cleaning.levels)
    return f"used, as {count} indicators of its {column.levels} levels"


def _notes(notes: list[str]) -> None:
    for note in notes[:NOTES_SHOWN]:
        st.caption(f"• {say(note)}")
    if len(notes) > NOTES_SHOWN:
        with st.expander(f"{len(notes) - NOTES_SHOWN:,} more notes"):
            show_table(pd.DataFrame({"Note": notes[NOTES_SHOWN:]}))


def _preview(state: Brought, made: Assembled, data: CleanData | None) -> None:
    assert made.target is not None
    st.subheader("A look at both groups")
    st.caption(
        "Use this to find mistakes in the data, not to pick a test. The recommendation ignores the group labels."
    )
    names = (made.target.p.label, made.target.q.label)
    shown = [column for column in made.columns.values() if column.used]
    left, right = st.columns(2, gap="large")
    with left:
        if shown:
            name = st.selectbox(
                "Column",
                [column.name for column in shown],
                key=f"data_preview_{made.upload.digest[:16]}",
                persist_state="session",
                help="The column to draw, before any scaling.",
            )
            kind = made.columns[str(name)].kind
            draw = _draw_numbers if kind == NUMERIC else _draw_levels
            draw(made, str(name), names)
    with right:
        if data is not None:
            picture = state.remember("samples", id(data), lambda: samples_picture(data))
            chart(picture.figure, "data_samples", picture.alt)
            st.caption(picture.caption)


def _draw_numbers(made: Assembled, name: str, names: tuple[str, str]) -> None:
    values = made.numbers(name)
    x, y = (values[span][~np.isnan(values[span])] for span in made.spans[0])
    chart(numbers_figure(x, y, column=name, names=names), "data_column", "Histograms of the column in both groups.")


def _draw_levels(made: Assembled, name: str, names: tuple[str, str]) -> None:
    words = made.words(name)
    levels = [str(level) for level in words.iloc[: made.target_rows].value_counts().index[:MOST_LEVELS_SHOWN]]
    p, q = made.spans[0]
    shares = tuple(
        np.array([(words.iloc[span] == level).mean() for level in levels]) for span in (p, q)
    )  # fmt: skip
    figure = levels_figure(levels, (shares[0], shares[1]), column=name, names=names)
    chart(figure, "data_column", "Bars of the column's levels in both groups.")
