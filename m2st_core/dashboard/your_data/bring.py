"""Stage 1 of one's own data: files, related tasks, a learner, or an example."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256

import streamlit as st

from m2st_core.dashboard.widgets.page import as_text
from m2st_core.dashboard.your_data.state import UploadedLearner, UserData, choose, go_to
from m2st_core.data.tables.examples import EXAMPLES
from m2st_core.data.tables.files import read_table, read_tables
from m2st_core.data.tables.groups import OTHERS, GroupColumn, baseline_first
from m2st_core.data.tables.questions import TableError
from m2st_core.data.tables.table import Limits, Table
from m2st_core.testing.learner_files import learner_from_zip
from m2st_core.testing.methods import label_of

LAYOUTS = {False: "One file with a group column", True: "Two files, P and Q"}
FORMATS = "CSV in any usual dialect, or Excel (.xlsx)."
NO_TASK_COLUMN = "(each file is one task)"
LISTED_FILES = 3
MOST_OPTIONS, MOST_HEIGHT = 8, 400  # pixels


def ask_groups(state: UserData) -> None:
    """Ask what is open about the group columns, on another stage than the first."""
    if state.files.get("one") and not state.two_files:
        _ask_group(state)
    if state.files.get("related") and not state.example:
        _ask_related_group(state)


def bring_stage(state: UserData) -> bool:
    """Ask for data, list the files in use, and return whether there are two groups to compare."""
    limits = Limits.from_environment()
    st.header("Bring two groups of rows")
    files, examples = st.columns([3, 2], gap="large")
    with files:
        _ask_target(state, limits)
        _ask_related(state, limits)
        with st.expander("Or a learner trained earlier", expanded=state.trained is not None):
            st.caption("The ZIP that this page exports beside an answer. It includes its columns and its method.")
            _ask_files(state, "learner", "Learner", limits, "A ZIP with learner.json and learner.safetensors.")
        st.caption(
            "Your files stay in this server's memory for this session only. Nobody else sees them, and nothing is "
            f"stored. {limits.words}"
        )
    first, *others = EXAMPLES
    with examples:
        st.markdown("**Or try an example**, with one click")
        _show_example(state, first)
    for column, name in zip(st.columns(len(others)), others, strict=True):
        with column:
            _show_example(state, name)
    p, q = ([table.digest for table in state.files.get(slot, ())] for slot in "pq")
    return state.upload is not None and not (state.two_files and p == q)


def _ask_target(state: UserData, limits: Limits) -> None:
    st.session_state.setdefault("data_layout", state.two_files)
    state.two_files = bool(
        st.segmented_control(
            "Your data are in",
            list(LAYOUTS),
            required=True,
            key="data_layout",
            persist_state="session",
            format_func=LAYOUTS.__getitem__,
            help="Each row is one observation, each column one measurement. Columns are matched by name.",
        )
    )
    if state.two_files:
        left, right = st.columns(2)
        with left:
            _ask_files(state, "p", "P, the first group", limits, f"The rows of the first group. {FORMATS}")
        with right:
            _ask_files(state, "q", "Q, the second group", limits, f"The rows of the second group. {FORMATS}")
        p, q = (state.files.get(slot, ()) for slot in "pq")
        if p and q and p[0].digest == q[0].digest:
            st.error(as_text(f"{p[0].name} and {q[0].name} are the same file. Replace one of them."))
        return
    _ask_files(state, "one", "The file", limits, f"All rows, with a column that gives the group. {FORMATS}")
    if state.files.get("one"):
        _ask_group(state)


def _ask_group(state: UserData) -> None:
    """Ask for the group column of the target's file, if several could be it, and for two of its values if need be."""
    table, columns = state.files["one"][0], state.group_columns
    if not columns:
        st.error(as_text(f"{table.name}: no column looks like a group. Add one that gives the group of each row."))
        return
    if len(columns) == 1:
        (only,) = columns.values()
        st.markdown(f"Group column: **{as_text(only.name)}** ({as_text(only.words)})")
    else:
        related = state.related_columns
        notes = {}
        for name, column in columns.items():
            twin = column.found_in(related)
            same = f"the values of “{twin}” in the related tasks" if twin != name else "as in the related tasks"
            notes[name] = same if twin else ""
        help_ = "The column whose values are the groups. If it has more than two, choose which to compare."
        state.choose_group("one", columns, _choose_column("Which column is the group?", columns, notes, state, help_))
    if state.group is not None:
        _ask_values(state, columns[state.group], table.digest[:16])


def _ask_values(state: UserData, column: GroupColumn, mark: str) -> None:
    """Ask which of more than two groups to compare. P and Q stay as they were swapped."""
    values = column.values
    if len(values) == 2:
        if set(state.groups) != set(values):
            state.groups = baseline_first(values)
        return
    if not set(state.groups) <= {*values, OTHERS}:
        state.groups = ()
    first, second = (*state.groups, OTHERS, OTHERS)[:2] if state.groups else values[:2]
    key = f"{mark}_{sha256(column.name.encode()).hexdigest()[:8]}_{state.rounds.get('groups', 0)}"
    options = [*values, OTHERS]
    left, right = st.columns(2)
    with left:
        help_ = f"{len(values)} groups were found. This is P, with which the other is compared."
        p = choose("First group", options, f"data_first_{key}", help_, options.index(first))
    with right:
        others = [value for value in options if value != p]
        help_ = "Q: another group, or all other rows together."
        start = others.index(second) if second in others else 0
        q = choose("Second group", others, f"data_second_{key}_{options.index(p)}", help_, start)
    state.groups = (p,) if q == OTHERS else (p, q)


def _choose_column(
    question: str, columns: Mapping[str, GroupColumn], notes: Mapping[str, str], state: UserData, help: str
) -> str | None:
    """Ask which of several columns is meant, with their values and rows; None until one is chosen."""
    slot = "related" if columns is state.related_columns else "one"
    chosen = state.group if slot == "one" else state.related_group or state.related_group_by_name
    names = list(columns)
    shown = {name: f"**{as_text(name)}**: {as_text(column.words)}" for name, column in columns.items()}
    key = f"data_group_{slot}_{sha256(repr(names).encode()).hexdigest()[:16]}"
    with st.container(border=True, height=MOST_HEIGHT if len(names) > MOST_OPTIONS else "content"):
        picked = st.radio(
            question,
            names,
            names.index(chosen) if chosen in names else None,
            format_func=shown.__getitem__,
            captions=[as_text(notes.get(name, "")) for name in names],
            key=key,
            help=help,
        )
        if picked is None:
            st.caption("Check opens when you have chosen.")
    return picked


def _ask_related(state: UserData, limits: Limits) -> None:
    with st.expander("Related tasks, if you have any", expanded=bool(state.files.get("related"))):
        st.caption(
            "The test can learn where to look from earlier comparisons of the same kind, with the same columns. Bring "
            "one file with the columns `task` and `group`, a file for each task with a group column, pairs `x_P.csv` "
            "and `x_Q.csv`, or a ZIP of them."
        )
        _ask_files(state, "related", "Related tasks", limits, f"{FORMATS} Or a ZIP.", many=True)
        tables = state.files.get("related", ())
        if tables and not state.example:
            _ask_related_columns(state, tables)


def _ask_related_columns(state: UserData, tables: Sequence[Table]) -> None:
    columns = list(dict.fromkeys(str(c) for table in tables for c in table.frame.columns))
    mark = sha256("".join(table.digest for table in tables).encode()).hexdigest()[:16]
    index = next((i for i, name in enumerate(columns, 1) if name.lower() == "task"), 0)
    help_ = "The column with the task of each row."
    task = choose("Task column", [NO_TASK_COLUMN, *columns], f"data_task_{mark}", help_, index)
    state.roles["task"] = "" if task == NO_TASK_COLUMN else task
    _ask_related_group(state)


def _ask_related_group(state: UserData) -> None:
    """Ask for the group column of the related tasks, if it is not clear by its name."""
    columns, by_name = state.related_columns, state.related_group_by_name
    files = len(state.files["related"])
    counted = {name: f"in {column.files} of {files} files" if files > 1 else "" for name, column in columns.items()}
    known = by_name or state.related_group
    if state.asks_group:
        return  # the answer may settle this, too
    if by_name is None and columns and (len(columns) > 1 or state.group is not None):
        help_ = "The column with two values in each task: the target's group column is not in these files."
        chosen = _choose_column("Which column is the group there?", columns, counted, state, help_)
        state.choose_group(state.related_slot, columns, chosen)
    elif by_name is not None and any(name != by_name for name in columns):
        names = list(dict.fromkeys([by_name, *columns]))
        mark = sha256(repr(names).encode()).hexdigest()[:16]
        help_ = "The column with two values in each task. By default it has the name of the target's, or “group”."
        index = names.index(state.related_group or by_name)
        chosen = choose("Group column there", names, f"data_related_group_{mark}", help_, index)
        state.choose_group(state.related_slot, columns, chosen)
        if chosen in columns:
            st.caption(as_text(f"{columns[chosen].words}{', ' * bool(counted[chosen])}{counted[chosen]}"))
    elif known is not None:
        words = f" ({columns[known].words})" if known in columns else ""
        st.markdown(f"Group column there: **{as_text(known)}**{as_text(words)}")


def _ask_files(state: UserData, slot: str, label: str, limits: Limits, help: str, many: bool = False) -> None:
    """Draw an uploader and list the files in use beneath. A file that cannot be read changes nothing."""
    key = f"data_{slot}_{state.rounds.get(slot, 0)}"
    dropped = st.file_uploader(
        label, accept_multiple_files=many, key=key, help=help, max_upload_size=max(1, limits.bytes >> 20)
    )
    files = dropped if isinstance(dropped, list) else [dropped] if dropped is not None else []
    ids = tuple(file.file_id for file in files)
    if files and state.refused.get(slot, ((), ""))[0] != ids:
        try:
            with st.spinner("Reading…"):
                _read(state, slot, [(file.name, file.getvalue()) for file in files], limits)
        except ValueError as error:
            state.refused[slot] = (ids, str(error))
        else:
            state.refused.pop(slot, None)
            state.rounds[slot] = state.rounds.get(slot, 0) + 1
            st.rerun()
    if files:
        st.error(as_text(state.refused[slot][1]))
    _show_in_use(state, slot)


def _read(state: UserData, slot: str, files: Sequence[tuple[str, bytes]], limits: Limits) -> None:
    """Read all files, then store them, so that a failure changes nothing."""
    if slot == "learner":
        name, data = files[0]
        learner, encoding = learner_from_zip(name, data, limits)
        if encoding is None:
            raise TableError(f"{name}: it was trained on arrays, so its columns have no names. Use it from Python.")
        state.trained = UploadedLearner(name, sha256(data).hexdigest(), learner, encoding)
    elif slot == "related":
        state.put(slot, [table for name, data in files for table in read_tables(name, data, limits)], limits)
    else:
        state.put(slot, [read_table(*files[0], limits)], limits)


def _show_in_use(state: UserData, slot: str) -> None:
    lines = [f"{t.name}: {len(t.frame):,} rows, {t.frame.shape[1]:,} columns" for t in state.files.get(slot, ())]
    if slot == "learner" and state.trained is not None:
        learner = state.trained.learner
        lines = [f"{state.trained.name}: {label_of(learner.method)}, {len(learner.task_names)} tasks"]
    if not lines:
        return
    more = f" and {len(lines) - LISTED_FILES} more files" if len(lines) > LISTED_FILES else ""

    def remove() -> None:
        state.example = ""
        state.files.pop(slot, None)
        state.trained = None if slot == "learner" else state.trained

    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(":material/check: In use: " + "; ".join(as_text(line) for line in lines[:LISTED_FILES]) + more)
        st.button("Remove", key=f"data_remove_{slot}", on_click=remove, help="Remove this. The other files stay.")


def _show_example(state: UserData, name: str) -> None:
    def use() -> None:
        state.take_example(name)
        st.session_state["data_layout"] = state.two_files
        go_to("Check")

    example = EXAMPLES[name]
    first = name == next(iter(EXAMPLES))  # it stands beside the files, not in the row of cards below
    with st.container(border=True, height="content" if first else "stretch"):
        st.markdown(f"**{example.title}**")
        st.caption(f"{example.source} {example.description}")
        help_ = "Load these data and go on to Check. They replace what you brought."
        st.button(f"Try {example.title.partition(':')[0]}", key=f"data_example_{name}", on_click=use, help=help_)
