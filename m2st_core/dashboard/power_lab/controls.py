"""The controls that describe a sweep."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from m2st_core.dashboard.widgets.controls import (
    ALPHA,
    NULL,
    PERMUTATIONS,
    PRESET,
    SEED,
    TASK,
    Control,
    ask,
    methods_control,
    parameter_controls,
    restore,
    under,
)
from m2st_core.data import size_unit
from m2st_core.sweeps.spec import LIMIT, SweepSpec
from m2st_core.testing.methods import METHODS

SIZES = (10, 20, 30, 50, 80, 100, 120, 150, 200, 250, 300, 400, 500)
SINGLE = (
    "closeness",
    "n_tasks",
    "m_tr",
)  # fields of a spec that hold several values, and of the controls that hold one


def sweep_controls(task: str) -> tuple[Control, ...]:
    """All controls of a sweep of this task, but for the task and its parameters."""
    unit = size_unit(task)
    shown = (
        NULL,
        PRESET,
        methods_control(
            (*METHODS, LIMIT),
            ("Feature-MKL", "Meta-WiTS", "MMD-M"),
            "The tests to compare, on the same samples. 'limit' is the most powerful permutation test. It uses the "
            "true likelihood ratio, which is known for HDGM only.",
        ),
        Control(
            "m_te",
            f"Test rows m_te, {unit}",
            (50, 100, 200),
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
    )
    related_tasks = (
        Control(
            "n_tasks",
            "Related tasks N",
            100,
            "The number of related tasks to learn from. More give a better kernel.",
            bounds=(1, 500, 1),
        ),
        Control(
            "closeness",
            "Closeness C",
            0.3,
            "How far the related tasks are from the target: 0 is nearly the target itself, 0.6 is hardly related. "
            "Digits have no closeness: their related tasks are the other pairs of digits.",
            bounds=(0.0, 0.6, 0.05),
        ),
        Control(
            "rows_per_task",
            f"Rows per related task, {unit}",
            50,
            "Rows of each of its two samples. More give a better kernel.",
            bounds=(4, 1000, 1),
        ),
    )
    precision = (
        Control(
            "repeats",
            "Repeats",
            4,
            "Each repeat has fresh related tasks and training rows. More repeats make the bands narrower.",
            bounds=(1, 100, 1),
        ),
        Control(
            "tests",
            "Test samples per repeat",
            50,
            "Fresh samples for each size. More of them make the curves smoother.",
            bounds=(1, 1000, 1),
        ),
        ALPHA,
        replace(PERMUTATIONS, default=199, options=PERMUTATIONS.options[:4]),
    )
    return (
        *under("lab_", *shown),
        *under("lab_", *related_tasks, section="Related tasks"),
        *under("lab_", *precision, section="Precision"),
        SEED,
    )


def ask_sweep() -> dict[str, Any]:
    """Draw the controls and return all entries of a spec, which are not checked yet."""
    task = TASK.draw()
    settings = ask(parameter_controls(task))
    values = ask(sweep_controls(task))
    return {"task": task, "settings": settings} | values | {name: (values[name],) for name in SINGLE}


def load_sweep(spec: SweepSpec) -> bool:
    """Set the controls to a spec, before they are drawn. If they cannot show it, change nothing: False."""
    if any(len(getattr(spec, name)) != 1 for name in SINGLE):
        return False
    values = {name: getattr(spec, name)[0] for name in SINGLE}
    controls = (TASK, *sweep_controls(spec.task))
    values |= {control.field: getattr(spec, control.field) for control in controls if control.field not in SINGLE}
    return restore(controls, values) and restore(parameter_controls(spec.task), spec.settings)
