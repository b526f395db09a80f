"""The controls that describe a sweep, and their way back from a spec."""

from __future__ import annotations

from typing import Any

import streamlit as st

from m2st_core.dashboard.widgets import controls
from m2st_core.data import TASKS, size_unit
from m2st_core.sweeps.spec import LIMIT, SweepSpec
from m2st_core.testing.methods import METHODS

SIZES = (10, 20, 30, 50, 80, 100, 120, 150, 200, 250, 300, 400, 500)
PERMUTATIONS = (99, 199, 499, 999)
DEFAULT_METHODS = ("Feature-MKL", "Meta-WiTS", "MMD-M")
DEFAULT_SIZES = (50, 100, 200)
KEYS = {
    "null": "lab_null",
    "preset": "lab_preset",
    "rows_per_task": "lab_rows",
    "repeats": "lab_repeats",
    "tests": "lab_tests",
    "alpha": "lab_alpha",
    "n_permutations": "lab_permutations",
    "seed": "seed",
}
BOUNDS: dict[str, tuple[float, float]] = {
    "lab_closeness": (0.0, 0.6),
    "lab_tasks": (1, 500),
    "lab_rows": (4, 1000),
    "lab_train": (2, 2000),
    "lab_repeats": (1, 100),
    "lab_tests": (1, 1000),
    "lab_alpha": (0.01, 0.2),
    "seed": (0, 2**31 - 1),
}
SINGLE = {"closeness": "lab_closeness", "n_tasks": "lab_tasks", "m_tr": "lab_train"}
SEVERAL = {"methods": "lab_methods", "m_te": "lab_test"}


def ask_sweep() -> dict[str, Any]:
    """Every entry of a spec, as the controls have it; not yet checked."""
    task = controls.pick_task()
    unit = size_unit(task)
    values: dict[str, Any] = {"task": task, "settings": controls.pick_parameters(task)}
    values["null"] = st.toggle(
        "No difference (Q = P)",
        key="lab_null",
        bind="query-params",
        help="Measure the type-I error: both samples come from P, and a valid test rejects at most a share α of them.",
    )
    values["preset"] = controls.pick_preset("lab_preset")
    values["methods"] = controls.pick_methods(
        "Methods",
        "lab_methods",
        [*METHODS, LIMIT],
        DEFAULT_METHODS,
        "The tests to compare, on the same samples. 'limit' is the most powerful permutation test, which knows the "
        "true likelihood ratio (HDGM only).",
    )
    values["m_te"] = tuple(
        st.multiselect(
            f"Test rows m_te, {unit}",
            SIZES,
            DEFAULT_SIZES,
            key="lab_test",
            bind="query-params",
            help=f"Sizes of the tested samples, in rows {unit}. More rows give more power and cost more time.",
        )
    )
    help_ = "Target rows that methods with a split learn from. They are never tested; more teach a better kernel."
    values["m_tr"] = (_whole(f"Training rows m_tr, {unit}", "lab_train", 50, help_),)
    with st.expander("Meta-tasks"):
        values |= _ask_related_tasks(unit)
    with st.expander("How exactly to measure"):
        values |= _ask_precision()
    values["seed"] = controls.pick_seed()
    return values


def _ask_related_tasks(unit: str) -> dict[str, Any]:
    tasks = _whole("Meta-tasks N", "lab_tasks", 100, "Related tasks to learn from. More teach a better kernel.")
    closeness = st.slider(
        "Closeness C",
        *BOUNDS["lab_closeness"],
        0.3,
        0.05,
        key="lab_closeness",
        bind="query-params",
        help="How far the meta-tasks are from the target: 0 is nearly the target itself, 0.6 is hardly related. "
        "Digits have no closeness: their meta-tasks are the other pairs of digits.",
    )
    rows = _whole(
        f"Rows per meta-task, {unit}",
        "lab_rows",
        50,
        "Rows of each meta-task's two samples. More teach a better kernel.",
    )
    return {"n_tasks": (tasks,), "closeness": (float(closeness),), "rows_per_task": rows}


def _ask_precision() -> dict[str, Any]:
    repeats = _whole(
        "Repeats", "lab_repeats", 4, "Each has fresh meta-tasks and training rows. More make bands narrower."
    )
    tests = _whole(
        "Test samples per repeat", "lab_tests", 50, "Fresh ones for each size. More make the curves smoother."
    )
    alpha = st.slider(
        "Level α",
        *BOUNDS["lab_alpha"],
        0.05,
        0.01,
        key="lab_alpha",
        bind="query-params",
        help="A test rejects when p ≤ α. A larger α gives more power and more false alarms.",
    )
    permutations = st.select_slider(
        "Permutations B",
        PERMUTATIONS,
        199,
        key="lab_permutations",
        bind="query-params",
        help="Random relabellings behind each p-value. More cost time and gain a little power.",
    )
    return {
        "repeats": repeats,
        "tests": tests,
        "alpha": float(alpha),
        "n_permutations": int(permutations),
    }


def _whole(label: str, key: str, default: int, help_: str) -> int:
    least, most = (int(bound) for bound in BOUNDS[key])
    return int(st.number_input(label, least, most, default, 1, key=key, bind="query-params", help=help_))


def load_controls(spec: SweepSpec) -> bool:
    """Set the controls to a spec, before they are drawn; False, and nothing changes, where they can not show it."""
    if any(len(getattr(spec, name)) != 1 for name in SINGLE) or not set(spec.m_te) <= set(SIZES):
        return False
    state: dict[str, Any] = {key: getattr(spec, name) for name, key in KEYS.items()}
    state |= {key: getattr(spec, name)[0] for name, key in SINGLE.items()}
    state |= {key: list(getattr(spec, name)) for name, key in SEVERAL.items()}
    if spec.n_permutations not in PERMUTATIONS or any(not a <= state[key] <= b for key, (a, b) in BOUNDS.items()):
        return False
    state["task"] = TASKS[spec.task].title
    state |= {f"{spec.task}_{name}": value for name, value in spec.settings.items()}
    st.session_state.update(state)
    return True
