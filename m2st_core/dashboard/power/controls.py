"""The controls that describe a sweep, beside the setting that all pages of the Lab share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from m2st_core.dashboard.widgets.controls import (
    ALPHA,
    CLOSENESS,
    N_TASKS,
    PERMUTATIONS,
    SEED,
    TASK,
    Control,
    controls_under,
    methods_control,
    parameter_controls,
    restore_controls,
)
from m2st_core.data import size_unit
from m2st_core.studies.one_test import LabSetting
from m2st_core.studies.power import DEFAULT
from m2st_core.sweeps.spec import LIMIT, SweepSpec
from m2st_core.testing.methods import METHODS

PREFIX = "lab_"
COLUMNS = 3
SIZES = (10, 20, 30, 50, 80, 100, 120, 150, 200, 250, 300, 400, 500)
SINGLE = ("closeness", "n_tasks", "m_tr")  # a spec holds several values of these, the controls one
LEVEL = Control(
    "level",
    "Also measure the type-I error",
    False,
    "Run every test with P = Q too. A valid test then rejects at most a share α of all samples. Takes as long again.",
    prefix=PREFIX,
)


def compared_methods() -> Control:
    """The choice of methods."""
    control = methods_control(
        (*METHODS, LIMIT),
        DEFAULT.methods,
        "The tests to compare, on the same samples. 'limit' is the most powerful permutation test. It uses the "
        "true likelihood ratio, which is known for HDGM only.",
    )
    return replace(control, prefix=PREFIX, note=None)


def _sweep_controls(task: str) -> tuple[Control, ...]:
    """The controls of a sweep of this task, but for its methods and for what the Lab's pages share."""
    unit = size_unit(task)
    controls = (
        Control(
            "m_te",
            f"Test rows m_te, {unit}",
            DEFAULT.m_te,
            f"Sizes of the tested samples, in rows {unit}. More rows give more power and take longer.",
            SIZES,
        ),
        Control(
            "m_tr",
            f"Training rows m_tr, {unit}",
            50,
            "Target rows that methods with a split learn from. They are never tested. More give a better kernel.",
            bounds=(2, 2000, 1),
        ),
        Control(
            "rows_per_task",
            f"Rows per related task, {unit}",
            50,
            "Rows of each of its two samples. More give a better kernel.",
            bounds=(4, 1000, 1),
        ),
        Control(
            "repeats",
            "Repeats",
            DEFAULT.repeats,
            "Each repeat has fresh related tasks and training rows. More repeats make the bands narrower.",
            bounds=(1, 100, 1),
        ),
        Control(
            "tests",
            "Test samples per repeat",
            DEFAULT.tests,
            "Fresh samples for each size. More of them make the curves smoother.",
            bounds=(1, 1000, 1),
        ),
        ALPHA,
        replace(PERMUTATIONS, default=DEFAULT.n_permutations, options=PERMUTATIONS.options[:4]),
    )
    return controls_under(PREFIX, *controls)


def ask_sweep(setting: LabSetting, more: DeltaGenerator) -> dict[str, Any]:
    """Draw the controls and return all entries of a spec, which are not checked yet. LEVEL is read where it is used."""
    left, right = st.columns([5, 2], vertical_alignment="bottom")
    with left:
        methods = compared_methods().draw()
    with right:
        LEVEL.draw()
    values: dict[str, Any] = {"methods": methods, "closeness": setting.closeness, "n_tasks": setting.n_tasks}
    with more:
        columns = st.columns(COLUMNS)
        for index, control in enumerate(_sweep_controls(setting.task)):
            with columns[index % COLUMNS]:
                values[control.field] = control.draw()
    shared = {"task": setting.task, "settings": setting.settings, "seed": setting.seed}
    return shared | values | {name: (values[name],) for name in SINGLE}


def load_sweep(spec: SweepSpec) -> bool:
    """Set the controls to a spec, before they are drawn. If they cannot show it, change nothing: False."""
    if any(len(getattr(spec, name)) != 1 for name in SINGLE):
        return False
    values = {name: getattr(spec, name)[0] for name in SINGLE} | {"level": spec.null}
    controls = (TASK, compared_methods(), CLOSENESS, N_TASKS, SEED, LEVEL, *_sweep_controls(spec.task))
    values |= {control.field: getattr(spec, control.field) for control in controls if control.field not in values}
    return restore_controls(controls, values) and restore_controls(parameter_controls(spec.task), spec.settings)


def double_repeats(spec: SweepSpec) -> None:
    """Ask for twice the repeats. A callback: it runs before the controls are drawn."""
    st.session_state[f"{PREFIX}repeats"] = min(100, 2 * spec.repeats)
