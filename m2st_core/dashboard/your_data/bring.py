"""Step 1 of one's own data: files, a history, a learner, or an example."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from m2st_core.dashboard.your_data.state import Brought, Trained, digest, go, say
from m2st_core.data.tables.examples import EXAMPLES
from m2st_core.data.tables.files import Table, read_table, read_tables
from m2st_core.data.tables.limits import Limits, TableError
from m2st_core.data.tables.upload import suggest_groups
from m2st_core.sweeps.spec import label_of
from m2st_core.testing.learner_files import learner_from_zip

LAYOUTS = ("One file with a group column", "Two files, P and Q")
KINDS = "CSV in any usual dialect, or Excel (.xlsx)."
EACH_FILE = "(each file is one task)"
AS_TARGET = "(as in the target)"


def bring(state: Brought) -> None:
    """Everything that can be brought, and what is in use."""
    limits = Limits.from_environment()
    st.subheader("Bring two groups of rows")
    st.caption(
        f"Your files stay in this server's memory for this session only: nobody else sees them, nothing is stored. "
        f"{limits.words}"
    )
    files, examples = st.columns([3, 2], gap="large")
    with files:
        _target(state, limits)
        _related(state, limits)
        _learner(state, limits)
    with examples:
        _examples(state)


def _target(state: Brought, limits: Limits) -> None:
    if "data_layout" not in st.session_state:
        st.session_state["data_layout"] = LAYOUTS[state.two_files]
    layout = st.segmented_control(
        "Your data are in",
        LAYOUTS,
        required=True,
        key="data_layout",
        persist_state="session",
        help="Each row is one observation, each column one measurement. Columns are matched by their names.",
    )
    state.two_files = layout == LAYOUTS[1]
    if state.two_files:
        left, right = st.columns(2)
        with left:
            _ask(state, "p", "P, the first group", limits, f"The rows of the first group. {KINDS}")
        with right:
            _ask(state, "q", "Q, the second group", limits, f"The rows of the second group. {KINDS}")
        return
    _ask(state, "one", "The file", limits, f"All rows, with a column that says the group. {KINDS}")
    if state.files.get("one"):
        state.roles["group"] = _group_column(state, state.files["one"][0])


def _group_column(state: Brought, table: Table) -> str | None:
    likely = suggest_groups(table)
    if not likely:
        st.error(say(f"{table.name}: no column has exactly two values. Add one that says the group of each row."))
        return None
    known = state.roles.get("group")
    return st.selectbox(
        "Group column",
        likely,
        index=likely.index(known) if known in likely else 0,
        key=f"data_group_{table.digest[:16]}",
        persist_state="session",
        help="The column whose two values say to which group a row belongs. Only columns with two values are listed.",
    )


def _related(state: Brought, limits: Limits) -> None:
    with st.expander("Related comparisons, if you have any", expanded=bool(state.files.get("related"))):
        st.caption(
            "Earlier comparisons of the same kind, with the same columns, can teach the test where to look. Bring one "
            "file with the columns `task` and `group`, a file for each task with a group column, pairs `x_P.csv` and "
            "`x_Q.csv`, or a ZIP of them."
        )
        _ask(state, "related", "Related tasks", limits, f"{KINDS} Or a ZIP.", many=True)
        tables = state.files.get("related", ())
        if tables and not state.example:
            _related_roles(state, tables)


def _related_roles(state: Brought, tables: Sequence[Table]) -> None:
    columns = list(dict.fromkeys(str(c) for table in tables for c in table.frame.columns))
    left, right = st.columns(2)
    mark = digest("".join(table.digest for table in tables).encode())[:16]
    with left:
        usual = next((i for i, name in enumerate(columns) if name.lower() == "task"), -1) + 1
        task = st.selectbox(
            "Task column",
            [EACH_FILE, *columns],
            index=usual,
            key=f"data_task_{mark}",
            persist_state="session",
            help="The column that names the task of each row.",
        )
    with right:
        group = st.selectbox(
            "Group column there",
            [AS_TARGET, *columns],
            key=f"data_related_group_{mark}",
            persist_state="session",
            help="The column with two values in each task. By default the one called as in the target, or “group”.",
        )
    state.roles["task"] = "" if task == EACH_FILE else task
    state.roles["related_group"] = None if group == AS_TARGET else group


def _learner(state: Brought, limits: Limits) -> None:
    with st.expander("Or a learner trained earlier", expanded=state.trained is not None):
        st.caption("The ZIP that this page exports in its last step. It brings its columns and its method.")
        _ask(state, "learner", "Learner", limits, "A ZIP with learner.json and learner.safetensors.")


def _ask(state: Brought, slot: str, label: str, limits: Limits, help: str, many: bool = False) -> None:
    """A place to drop files; what is in use is listed beneath. A file that can not be read changes nothing."""
    key = f"data_{slot}_{state.rounds.get(slot, 0)}"
    dropped = st.file_uploader(
        label, accept_multiple_files=many, key=key, help=help, max_upload_size=max(1, limits.bytes >> 20)
    )
    files = dropped if isinstance(dropped, list) else [dropped] if dropped is not None else []
    marks = tuple(file.file_id for file in files)
    if files and state.refused.get(slot, ((), ""))[0] != marks:
        try:
            with st.spinner("Reading…"):
                _take(state, slot, [(file.name, file.getvalue()) for file in files], limits)
        except ValueError as error:
            state.refused[slot] = (marks, str(error))
        else:
            state.refused.pop(slot, None)
            state.rounds[slot] = state.rounds.get(slot, 0) + 1
            st.rerun()
    if files:
        st.error(say(state.refused[slot][1]))
    _in_use(state, slot)


def _take(state: Brought, slot: str, files: Sequence[tuple[str, bytes]], limits: Limits) -> None:
    """Read first, then put: whatever fails leaves everything as it was."""
    if slot == "learner":
        name, data = files[0]
        learner, encoding = learner_from_zip(name, data, limits)
        if encoding is None:
            raise TableError(f"{name}: it was trained on arrays, so its columns have no names. Use it from Python.")
        state.trained = Trained(name, digest(data), learner, encoding)
    elif slot == "related":
        state.put(slot, [table for name, data in files for table in read_tables(name, data, limits)], limits)
    else:
        state.put(slot, [read_table(*files[0], limits)], limits)


def _in_use(state: Brought, slot: str) -> None:
    if slot == "learner":
        trained = state.trained
        lines = []
        if trained is not None:
            tasks = len(trained.learner.task_names)
            lines = [f"{trained.name}: {label_of(trained.learner.method)}, {tasks} tasks"]
    else:
        lines = [f"{t.name}: {len(t.frame):,} rows, {t.frame.shape[1]:,} columns" for t in state.files.get(slot, ())]
    if not lines:
        return
    more = f" and {len(lines) - 3} more files" if len(lines) > 3 else ""
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown("✅ In use: " + "; ".join(say(line) for line in lines[:3]) + more)
        st.button(
            "Remove",
            key=f"data_remove_{slot}",
            on_click=_remove,
            args=(state, slot),
            help="Forget it. The other files stay.",
        )


def _remove(state: Brought, slot: str) -> None:
    state.example = ""
    if slot == "learner":
        state.trained = None
    else:
        state.files.pop(slot, None)


def _examples(state: Brought) -> None:
    st.markdown("**Or try an example**, one click each")
    for name, example in EXAMPLES.items():
        with st.container(border=True):
            st.markdown(f"**{example.title}**")
            st.caption(f"{'Real data. ' if example.real else 'Simulated. '}{example.description}")
            st.button(
                "Use this example",
                key=f"data_example_{name}",
                on_click=_use_example,
                args=(state, name),
                help="Bring these data and go on to step 2. It replaces what you brought.",
            )


def _use_example(state: Brought, name: str) -> None:
    state.take_example(name)
    st.session_state["data_layout"] = LAYOUTS[0]
    go("Check")
