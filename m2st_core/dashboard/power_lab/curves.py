"""The curves of Power: present ones, pale ones of before, pinned ones, the buttons that train, and training curves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from m2st_core.dashboard.host import poll_seconds
from m2st_core.dashboard.jobs.jobs import poll
from m2st_core.dashboard.jobs.sweeps import POLL_SECONDS, cost_in_words, show_state, sweep_queue
from m2st_core.dashboard.jobs.turns import RunStatus
from m2st_core.dashboard.power_lab.controls import double_repeats
from m2st_core.dashboard.power_lab.results import Earlier, show_results
from m2st_core.dashboard.widgets.page import chart, finding, show_folded
from m2st_core.dashboard.widgets.shared import shared
from m2st_core.figures.kernels import training_figure
from m2st_core.paper.published import in_words
from m2st_core.studies.power import DEFAULT, difference_names, is_shipped, sweep_finding
from m2st_core.sweeps.results import cells_of
from m2st_core.sweeps.spec import SweepSpec
from m2st_core.sweeps.summary import summarise
from m2st_core.sweeps.sweep import STOPPED
from m2st_core.sweeps.trial import LearnerSpec
from m2st_core.testing.learner_files import learner_from_parts
from m2st_core.testing.methods import label_of

SHOWN, PINS, REFINE = "lab_shown", "lab_pins", "lab_refine"
MOST_PINS = 4
LABELS = {"cancelled": "Resume", "interrupted": "Resume", "failed": "Retry"}
Begin = Callable[[SweepSpec, bool], None]


def show_curves(spec: SweepSpec, level: bool, said: DeltaGenerator, begin: Begin) -> None:
    """Show buttons, curves and, in the container ``said``, what they say. Poll while a sweep runs."""
    wanted = (spec, spec.with_(null=True)) if level else (spec,)
    running = _running(spec)
    missing = {one.null: _lacks(one) for one in wanted}
    _show_buttons(spec, level, running is not None, missing, begin)
    pale = _pale(spec, complete=not missing[False])
    with said:
        st.fragment(lambda: _say(spec, pale), run_every=poll_seconds(POLL_SECONDS) if running else None)()
    poll(lambda: _running(spec) is not None, lambda: _show(spec, pale), POLL_SECONDS)


def _running(spec: SweepSpec) -> tuple[str, RunStatus] | None:
    """The sweep that runs or waits, the one of power first; None if neither does."""
    for run in (spec.run_id, spec.with_(null=True).run_id):
        status = sweep_queue().status(run)
        if status is not None and status.active:
            return run, status
    return None


def _show_buttons(spec: SweepSpec, level: bool, running: bool, missing: dict[bool, int], begin: Begin) -> None:
    """Show the buttons. Each keeps its place, so that a second click never hits another one.

    ``missing`` counts the cells to compute, by whether P = Q.
    """
    pins: list[SweepSpec] = st.session_state.setdefault(PINS, [])
    left, right = st.columns([2, 5], vertical_alignment="center")
    with left.container(horizontal=True, vertical_alignment="center"):
        train = st.button(
            _label(spec),
            type="primary",
            key="lab_go",
            disabled=running or not any(missing.values()),
            help="Compute the missing points. The run continues when you close the tab.",
        )
        if st.button(
            "Pin",
            key="lab_pin",
            disabled=spec in pins or len(pins) >= MOST_PINS or sweep_queue().store.rows(spec).empty,
            help="Keep these curves in the chart for comparison with others.",
        ):
            pins.append(spec)
            st.rerun()
        if pins and st.button("Unpin all", key="lab_unpin", help="Remove the pinned curves from the chart."):
            pins.clear()
            st.rerun()
        if not any(missing.values()) and not running:
            st.button(
                "Refine",
                key=REFINE,
                on_click=_refine,
                args=(spec,),
                help="Compute as many repeats again. The bands become narrower.",
            )
    if any(missing.values()) and not running:
        right.caption(cost_in_words(spec if missing[False] else spec.with_(null=True)))
    elif is_shipped(spec):
        right.caption(
            f"Shipped results of this version, preset {spec.preset}: {spec.repeats} repeats of {spec.tests} tests. "
            "**Refine** adds repeats. Change a setting for other curves."
        )
    if train or st.session_state.pop(f"{REFINE}_now", False):
        begin(spec, level)


def _label(spec: SweepSpec) -> str:
    """The words on the button that computes what is missing."""
    status = sweep_queue().status(spec.run_id)
    return LABELS.get(status.state, "Train") if status is not None else "Train"


def _refine(spec: SweepSpec) -> None:
    """Ask for more repeats and start them. A callback: it runs before the controls are drawn."""
    double_repeats(spec)
    st.session_state[f"{REFINE}_now"] = True


def _lacks(spec: SweepSpec) -> int:
    """The number of cells that the store lacks."""
    return len(list(spec.cells())) - len(sweep_queue().store.rows(spec))


def _pale(spec: SweepSpec, complete: bool) -> SweepSpec | None:
    """The settings whose curves stay pale until those of ``spec`` are complete; at first the shipped ones."""
    if complete:
        st.session_state[SHOWN] = spec
        return None
    before = st.session_state.get(SHOWN, DEFAULT)
    return None if before == spec else before


def _say(spec: SweepSpec, pale: SweepSpec | None) -> None:
    """Say what the curves show; before every method has points, say what is missing and whose the pale curves are."""
    rows = sweep_queue().store.rows(spec)
    missing = [label_of(method) for method in spec.methods if method not in set(rows["method"])]
    sentence = shared(sweep_finding, spec, rows)
    if missing and _running(spec) is not None:
        sentence = f"Training: **{in_words(missing)}** will follow."
    elif missing:
        have = "has" if len(missing) == 1 else "have"
        sentence = f"**{in_words(missing)}** {have} not been run with these settings yet: press **{_label(spec)}**."
    if missing and pale is not None and pale not in st.session_state.get(PINS, []):
        sentence += f" Pale: {difference_names([pale, spec])[0]}."
    finding(sentence)


def _show(spec: SweepSpec, pale: SweepSpec | None) -> None:
    """Show the state of the sweeps and the curves so far."""
    store, null = sweep_queue().store, spec.with_(null=True)
    running, own = _running(spec), sweep_queue().status(spec.run_id)
    if running is not None:
        others = [run for run in (spec.run_id, null.run_id) if run != running[0]]
        show_state(*running, "lab", also=others)
    elif own is not None:
        show_state(spec.run_id, _counted(spec, own), "lab", resume=False)
    show_results(spec, store.rows(spec), "lab", earlier=_earlier(spec, pale), level=store.rows(null))


def _counted(spec: SweepSpec, status: RunStatus) -> RunStatus:
    """The status of a run that was stopped on request, with the number of cells that are computed."""
    if status.state != "cancelled" or status.message != STOPPED:
        return status
    done, cells = len(sweep_queue().store.rows(spec)), len(list(spec.cells()))
    kept = f"{done:,} of {cells:,} cells are computed and kept." if done else "No cell was finished yet."
    return replace(status, message=f"Stopped on request. {kept}")


def _earlier(spec: SweepSpec, pale: SweepSpec | None) -> list[Earlier]:
    """The pale and the pinned curves, named by where their settings differ; those that are the same only once."""
    pins = [pin for pin in st.session_state.get(PINS, []) if pin != spec]
    others = [*pins, *([] if pale is None or pale in pins else [pale])]
    names = difference_names([*others, spec])
    tables = [shared(summarise, _unlike(one, spec)) for one in others]
    curves = zip(others, names, tables, strict=False)
    return [Earlier(name, table, one in pins) for one, name, table in curves if not table.empty]


def _unlike(other: SweepSpec, present: SweepSpec) -> pd.DataFrame:
    """The rows of methods that have other cells than the present ones. MMD-M's do not depend on the closeness."""
    known, rows = cells_of(present.to_json()), sweep_queue().store.rows(other)
    own = {cell.method for key, cell in cells_of(other.to_json()).items() if key not in known}
    return rows[rows["method"].isin(own)]


def show_training(spec: SweepSpec) -> None:
    """Show training curves of the first repeat, for methods that are trained step by step."""
    courses = training_courses(spec)
    if not courses:
        return

    def curves() -> None:
        for title, course in courses.items():
            st.caption(f"{title}, first repeat: the criterion on training rows and on held-out rows.")
            alt = f"The training criterion of {title} over {len(course['step'])} checks."
            chart(training_figure(course), f"course_{title}", alt)

    show_folded("Training curves", "lab_training", curves)


def training_courses(spec: SweepSpec) -> dict[str, dict[str, list[float]]]:
    """Stored training curves of the first repeat by method. Methods that learn in closed form have none."""
    first = [cell for cell in spec.cells() if cell.repeat == 0]
    learners = {cell.learner.key: (cell.method, cell.learner) for cell in first if cell.learner is not None}
    return {label_of(name): course for key, (name, learner) in learners.items() if (course := _course(key, learner))}


@st.cache_data(max_entries=64, show_spinner=False)
def _course(key: str, _learner: LearnerSpec) -> dict[str, list[float]] | None:
    parts = sweep_queue().store.learner(_learner.key)
    course = learner_from_parts(*parts).course if parts is not None else None
    if course is None or not len(course.step):
        return None
    train, held_out = (values[:, 0].tolist() for values in (course.train, course.held_out))
    return {"step": course.step.tolist(), "train": train, "held_out": held_out}
