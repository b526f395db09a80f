"""The rail at the left of every tab of Explore: one setting, drawn in the sidebar, which folds on phones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import streamlit as st

from m2st_core.dashboard.widgets.controls import SEED, Control, ask_controls, parameter_controls
from m2st_core.data import TASKS, size_unit
from m2st_core.presets import PAPER, RELEASED, TUNED
from m2st_core.studies.explore import ROWS_PER_TASK, ExploreSetting
from m2st_core.tasks import IndependentTask

HERE = Path(__file__).parent
CLOSENESS, BAND = "closeness", "closeness_band"
FARTHEST, STEP = 0.6, 0.1
PRESETS = {PAPER.name: "in the paper", RELEASED.name: "in its code", TUNED.name: "tuned"}
DEFAULT = ExploreSetting()
TASK = Control(
    "task",
    "Target",
    DEFAULT.task,
    "The source of the two samples. Each has a P and a Q, which you can make more or less alike.",
    tuple(TASKS),
    shown=lambda name: TASKS[name].title,
)
N_TASKS = Control(
    "n_tasks",
    "Related tasks N",
    DEFAULT.n_tasks,
    "Earlier comparisons to learn from. More of them give a better kernel.",
    (1, 2, 3, 4, 5, 10, 20, 30, 40, 50, 80, 100, 120, 150, 200, 300, 500),
)
M_TR = Control(
    "m_tr",
    "Training rows m_tr",
    DEFAULT.m_tr,
    "Rows of the target from which tests with a split learn. They are never tested.",
    (2, 5, 8, 10, 20, 30, 50, 80, 100, 120, 150, 200, 300, 500),
)
M_TE = Control(
    "m_te",
    "Test rows m_te",
    DEFAULT.m_te,
    "Rows of the target that are tested. Charts over this size mark it.",
    (10, 20, 30, 50, 80, 100, 120, 150, 200, 250, 300, 400, 500),
)
PRESET = Control(
    "algorithms",
    "Algorithms as",
    DEFAULT.preset,
    "Settings of the paper's tests: those of its text, those of its published code, or ours. What differs is said "
    "beside a test's name.",
    tuple(PRESETS),
    shown=PRESETS.__getitem__,
    buttons=True,
)
ROWS = Control(
    "rows_per_task",
    "Rows of each related task",
    ROWS_PER_TASK,
    "Rows of each of its two samples. More give a better kernel.",
    (8, 10, 20, 30, 50, 80, 100, 150, 200, 300, 500, 1000),
)


def ask_setting(tasks: Sequence[str] = tuple(TASKS)) -> ExploreSetting:
    """Draw the rail of a tab that knows these targets, and return its setting."""
    with st.sidebar:
        task = _ask_task(tasks)
        parameters = sorted(parameter_controls(task), key=lambda one: one.field != getattr(TASKS[task], "strength", ""))
        values = ask_controls(parameters[:1])
        n_tasks = N_TASKS.draw()
        closeness = _chosen_closeness()
        family = TASKS[task]
        if issubclass(family, IndependentTask):
            _draw_band(family, float(values[family.strength]), closeness)
        else:
            st.caption("The related tasks are other pairs of classes. They have no closeness.")
        unit = size_unit(task)
        m_tr = replace(M_TR, label=f"{M_TR.label}, {unit}").draw()
        m_te = replace(M_TE, label=f"{M_TE.label}, {unit}").draw()
        each = TASKS[task].rows_per_size
        if each > 1:
            st.caption(f"Two modes: {each * m_tr} and {each * m_te} rows per sample.")
        preset = PRESET.draw()
        with st.expander("More settings"):
            values |= ask_controls(parameters[1:])
            rows_per_task, seed = replace(ROWS, label=f"{ROWS.label}, {unit}").draw(), SEED.draw()
    named = tuple((parameter.name, values[parameter.name]) for parameter in TASKS[task].parameters)
    return ExploreSetting(task, named, closeness, n_tasks, m_tr, m_te, preset, rows_per_task, seed)


def _ask_task(tasks: Sequence[str]) -> str:
    """Ask for a target that the tab knows. The one chosen on other tabs is kept if this tab does not know it."""
    linked = st.query_params.get(TASK.key, "")
    named = next((name for name, task in TASKS.items() if linked in (name, task.title)), DEFAULT.task)
    chosen = st.session_state.get(TASK.key, named)
    if len(tasks) == 1:
        aside = f" **{TASKS[chosen].title}** stays chosen on other tabs." if chosen not in tasks else ""
        st.markdown(f"Target: **{TASKS[tasks[0]].title}**.{aside}", help=TASKS[tasks[0]].description)
        return tasks[0]
    options = replace(TASK, options=tuple(tasks), default=tasks[0])
    return str((options if chosen in tasks else replace(options, prefix="other_")).draw())


def _chosen_closeness() -> float:
    """C of this session, at first of the link. It is written into the link."""
    if CLOSENESS not in st.session_state:
        try:
            linked = float(st.query_params.get(CLOSENESS, DEFAULT.closeness))
        except ValueError:
            linked = DEFAULT.closeness
        set_closeness(linked if 0 <= linked <= FARTHEST else DEFAULT.closeness)
    closeness = float(st.session_state[CLOSENESS])
    if closeness == DEFAULT.closeness:
        st.query_params.pop(CLOSENESS, None)
    else:
        st.query_params[CLOSENESS] = f"{closeness:g}"
    return closeness


def set_closeness(closeness: float) -> None:
    """Choose C, in steps of 0.1."""
    st.session_state[CLOSENESS] = round(round(closeness / STEP) * STEP, 3)


def _draw_band(task: type[IndependentTask], strength: float, closeness: float) -> None:
    """Draw the band of related tasks beside the target's star. Dragging it, or a key, changes C."""
    parameter = next(one for one in task.parameters if one.name == task.strength)
    symbol = "Δ" if task.strength == "delta" else parameter.label.split()[-1]
    st.markdown(
        f"Closeness **C = {closeness:g}**",
        help="How far the related tasks are from the target ★: drag the band, or move it with ← and →. "
        "At C = 0 they are nearly the target itself.",
    )
    band = st.components.v2.component(
        BAND, js=(HERE / "band.js").read_text("utf-8"), css=(HERE / "band.css").read_text("utf-8")
    )
    data = {
        "target": strength, "closeness": closeness, "symbol": symbol, "low": parameter.minimum, "width": 0.1,
        "high": parameter.maximum, "step": STEP, "most": FARTHEST,
    }  # fmt: skip
    band(key=BAND, data=data, on_moved_change=_take_over)
    related = task(False, **{task.strength: strength}).related_strengths(closeness, 2)
    if strength == task.same_at:
        st.caption(f"With {symbol} = {strength:g}, P = Q: every rejection is a false alarm.")
    elif all(value == task.same_at for value in related):
        st.caption(f"All related tasks have {symbol} = {task.same_at:g}, so P = Q in them. They teach nothing.")


def _take_over() -> None:
    """Take over the closeness to which the band was moved. A callback: it runs before the page."""
    moved = st.session_state[BAND].get("moved")
    if moved is not None:
        set_closeness(float(moved))
