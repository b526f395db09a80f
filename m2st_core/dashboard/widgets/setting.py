"""The setting that all pages of the Lab share: a task, how strongly P and Q differ, and the related tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from m2st_core.dashboard.widgets.controls import SEED, TASK, Control, ask, parameter_controls
from m2st_core.dashboard.widgets.page import chart
from m2st_core.dashboard.widgets.shared import shared
from m2st_core.data import TASKS
from m2st_core.figures.relatedness import neighbours_figure
from m2st_core.studies.one_test import LabSetting
from m2st_core.tasks import IndependentTask

CLOSENESS = Control(
    "closeness",
    "Closeness C of the related tasks: the smaller, the closer",
    0.3,
    "At 0 they are nearly the target itself, at 0.6 hardly related. The picture shows where the related tasks are.",
    bounds=(0.0, 0.6, 0.1),
)
N_TASKS = Control(
    "n_tasks",
    "Related tasks N",
    100,
    "The number of related tasks to learn from. More give a better kernel.",
    bounds=(1, 500, 1),
)


def ask_setting(more: DeltaGenerator, tasks: Sequence[str] = tuple(TASKS)) -> LabSetting:
    """Draw the setting for a page that knows these tasks; what is rarely changed goes into the container ``more``."""
    with st.container(border=True, key="setting"):
        left, right = st.columns([3, 2], gap="large", vertical_alignment="center")
        top, row = left.container(), left.columns(3)
        task = _ask_task(tasks, row[0])
        controls = _parameters(task)
        with row[1]:
            values = ask(controls[:1])
        with row[2]:
            n_tasks = N_TASKS.draw()
        closeness = float(st.session_state.get(CLOSENESS.key, CLOSENESS.default))
        if issubclass(TASKS[task], IndependentTask):
            with top:
                closeness = CLOSENESS.draw()
    with more:
        values |= ask(controls[1:])
        seed = SEED.draw()
    parameters = tuple((name, values[name]) for name in (parameter.name for parameter in TASKS[task].parameters))
    setting = LabSetting(task, parameters, closeness, n_tasks, seed)
    with right:
        _show_related(setting)
    return setting


def _ask_task(tasks: Sequence[str], place: DeltaGenerator) -> str:
    """Ask for a task that the page knows. If it does not know the one chosen elsewhere, that one is kept aside."""
    linked = st.query_params.get(TASK.key, "")
    named = next((name for name, task in TASKS.items() if linked in (name, task.title)), TASK.default)
    chosen = st.session_state.get(TASK.key, named)
    if len(tasks) == 1:
        aside = f" **{TASKS[chosen].title}** stays chosen on other pages." if chosen not in tasks else ""
        place.markdown(f"Task: **{TASKS[tasks[0]].title}**.{aside}", help=TASKS[tasks[0]].description)
        return tasks[0]
    options = replace(TASK, options=tuple(tasks), note=None, default=tasks[0])
    if chosen not in tasks:
        options = replace(options, prefix="other_")
    with place:
        return str(options.draw())


def _parameters(task: str) -> list[Control]:
    """The controls of a task's parameters, the one by which related tasks differ first."""
    strength = getattr(TASKS[task], "strength", "")
    return sorted(parameter_controls(task), key=lambda control: control.field != strength)


def _show_related(setting: LabSetting) -> None:
    """Draw how near the related tasks are, if their nearness is a number."""
    task = setting.target()
    if not isinstance(task, IndependentTask):
        st.caption(f"{task.description} The related tasks are other pairs of classes. They have no closeness.")
        return
    parameter = next(p for p in task.parameters if p.name == task.strength)
    related = task.related_strengths(setting.closeness, setting.n_tasks)
    own, symbol = float(setting.settings[task.strength]), "Δ" if task.strength == "delta" else parameter.label
    figure = shared(neighbours_figure, own, tuple(related), symbol, (parameter.minimum, parameter.maximum))
    alt = f"The target has {symbol} = {own:g}, and its related tasks {related[0]:.2f} to {related[-1]:.2f}."
    chart(figure, "setting_picture", alt)
    if own == task.same_at:
        st.caption(f"With {symbol} = {own:g}, P = Q: every rejection is a false alarm.")
    elif all(strength == task.same_at for strength in related):
        st.caption(f"All related tasks have {symbol} = {task.same_at:g}, so P = Q in them. They teach nothing.")
