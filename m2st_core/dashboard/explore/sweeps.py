"""The choice of tests in three groups, and the sizes and precision of their power curves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from m2st_core.dashboard.explore.rail import M_TE, M_TR, N_TASKS, PRESET, ROWS, TASK, set_closeness
from m2st_core.dashboard.widgets.controls import (
    ALPHA,
    PERMUTATIONS,
    SEED,
    Control,
    ask_controls,
    controls_under,
    parameter_controls,
    restore_controls,
)
from m2st_core.data import TASKS
from m2st_core.studies.explore import GRID, OUR_TEST, PAPER_TESTS, SIZES, ExploreSetting
from m2st_core.sweeps.spec import LIMIT, SweepSpec
from m2st_core.testing.methods import METHODS, label_of

PREFIX = "lab_"
METHODS_KEY, OURS_KEY = "lab_methods", "lab_ours"
SINGLE = ("closeness", "n_tasks", "m_tr")  # a spec holds several values of these, the rail one
LEVEL = Control(
    "level",
    "Also measure the type-I error here",
    False,
    "Run every test with P = Q too. A valid test then rejects at most a share α of all samples. Takes as long again.",
    prefix=PREFIX,
)
PRECISION = controls_under(
    PREFIX,
    Control(
        "m_te",
        "Sizes m_te of the tested samples",
        SIZES,
        "More rows give more power and take longer.",
        tuple(sorted({*SIZES, *M_TE.options})),
    ),
    Control(
        "repeats",
        "Repeats",
        GRID.repeats,
        "Each repeat has fresh related tasks and training rows. More repeats make the bands narrower.",
        bounds=(1, 100, 1),
    ),
    Control(
        "tests",
        "Test samples per repeat",
        GRID.tests,
        "Fresh samples for each size. More of them make the curves smoother.",
        bounds=(1, 1000, 1),
    ),
    ALPHA,
    Control(
        "n_permutations", PERMUTATIONS.label, GRID.n_permutations, PERMUTATIONS.help, PERMUTATIONS.options[:4]
    ),
)  # fmt: skip


def method_groups() -> dict[str, list[str]]:
    """All tests, once each whatever their settings, in three groups."""
    names = [name for name, method in METHODS.items() if method.algorithm in (name, "")]
    kinds = {"The paper's tests": "paper", "Without related tasks": "general", "Ours": "ours"}
    groups = {title: [name for name in names if METHODS[name].origin == origin] for title, origin in kinds.items()}
    groups["Without related tasks"].append(LIMIT)
    return groups


def _chosen_methods() -> list[str]:
    """The tests of this session, at first of the link; those that are unknown are dropped."""
    if METHODS_KEY not in st.session_state:
        linked = st.query_params.get_all(METHODS_KEY)
        st.session_state[METHODS_KEY] = [name for name in linked if name in METHODS or name == LIMIT] or [*PAPER_TESTS]
    methods: list[str] = st.session_state[METHODS_KEY]
    if methods == list(PAPER_TESTS):
        st.query_params.pop(METHODS_KEY, None)
    else:
        st.query_params[METHODS_KEY] = methods
    return methods


def ask_methods(setting: ExploreSetting, smallest: int, row: DeltaGenerator) -> tuple[str, ...]:
    """Draw the choice of tests in ``row``, and return the chosen ones with the rail's settings, ours last.

    ``smallest`` is the smallest size of a tested sample.
    """
    chosen, groups = _chosen_methods(), method_groups()
    with row:
        with st.popover("Choose tests", help="The tests to compare, on the same samples."):
            for column, (title, names) in zip(st.columns(len(groups)), groups.items(), strict=True):
                with column:
                    st.markdown(f"**{title}**")
                    for name in names:
                        _offer(name, chosen, setting, smallest)
            for name in [name for name in chosen if name not in {n for group in groups.values() for n in group}]:
                _offer(name, chosen, setting, smallest)
        ours = st.toggle(
            f"{label_of(OUR_TEST)}", True, key=OURS_KEY, bind="query-params",
            help=f"A test of this project beside the paper's. {METHODS[OUR_TEST].description}",
        )  # fmt: skip
    kept = [name for name in chosen if not _refusal(name, setting, smallest)]
    return tuple(dict.fromkeys(map(setting.line, [*kept, *([OUR_TEST] if ours else [])])))


def _offer(name: str, chosen: Sequence[str], setting: ExploreSetting, smallest: int) -> None:
    """Draw the check box of a test; grey, with its reason, if it cannot run at this setting."""
    reason, key = _refusal(name, setting, smallest), f"use_{name}"
    st.session_state[key] = name in chosen and not reason
    about = METHODS[setting.line(name)].description if name in METHODS else "The true likelihood ratio as witness."
    st.checkbox(
        label_of(setting.line(name)), key=key, disabled=bool(reason), help=reason or about, on_change=_toggle,
        args=(name,),
    )  # fmt: skip


def _toggle(name: str) -> None:
    """Add a test to the choice or remove it. A callback: it runs before the page."""
    others = [one for one in st.session_state[METHODS_KEY] if one != name]
    st.session_state[METHODS_KEY] = [*others, name] if st.session_state[f"use_{name}"] else others


def _refusal(name: str, setting: ExploreSetting, smallest: int) -> str:
    """Why a test cannot run at this setting; empty if it can."""
    if name == LIMIT:
        known = hasattr(TASKS[setting.task], "log_likelihood_ratio")
        return "" if known else "The likelihood ratio is known for HDGM only."
    rows, least = smallest * setting.rows_per_size, METHODS[name].min_test_rows
    if rows < least:
        return f"Needs {least} rows of each sample to test; the smallest size has {rows}."
    return ""


def ask_precision() -> dict[str, Any]:
    """Draw the controls of sizes and precision, and return the entries of a spec. LEVEL is read where it is used."""
    with st.sidebar.expander("Sizes and precision"):
        values = ask_controls(PRECISION)
        LEVEL.draw()
    return values


def load_sweep(spec: SweepSpec) -> bool:
    """Set rail and controls to a spec, before they are drawn. If they cannot show it, change nothing: False."""
    if any(len(getattr(spec, name)) != 1 for name in SINGLE) or not 0 <= spec.closeness[0] <= 0.6:
        return False
    values = {name: getattr(spec, name)[0] for name in SINGLE} | {"level": spec.null}
    controls = (TASK, N_TASKS, M_TR, ROWS, SEED, LEVEL, *PRECISION)
    values |= {control.field: getattr(spec, control.field) for control in controls if control.field not in values}
    if not restore_controls((*controls, *parameter_controls(spec.task)), values | spec.settings):
        return False
    set_closeness(spec.closeness[0])
    st.session_state[METHODS_KEY] = [name for name in spec.methods if name != OUR_TEST]
    st.session_state[OURS_KEY] = OUR_TEST in spec.methods
    st.session_state[PRESET.key] = PRESET.default
    return True


def double_repeats(repeats: int, tests: int) -> None:
    """Ask for twice these repeats, of as many tests. A callback: it runs before the controls are drawn."""
    st.session_state[f"{PREFIX}repeats"] = min(100, 2 * repeats)
    st.session_state[f"{PREFIX}tests"] = tests
