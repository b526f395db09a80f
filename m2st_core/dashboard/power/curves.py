"""Power's chart: current, previous (pale) and pinned curves, the Train buttons, training curves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from m2st_core.dashboard.jobs.jobs import poll
from m2st_core.dashboard.jobs.runs import RunDesk, SweepView
from m2st_core.dashboard.jobs.sweeps import POLL_SECONDS, show_sweep_state, sweep_cost_words
from m2st_core.dashboard.power.controls import double_repeats
from m2st_core.dashboard.power.results import Earlier, show_results
from m2st_core.dashboard.widgets.page import chart, page_finding, shared, show_folded
from m2st_core.figures.kernels import training_figure
from m2st_core.studies.power import DEFAULT, difference_names, is_shipped, sweep_finding
from m2st_core.sweeps.grid import grid_of
from m2st_core.sweeps.spec import SweepSpec
from m2st_core.sweeps.store import Store
from m2st_core.sweeps.summary import summarise
from m2st_core.sweeps.work import STOPPED
from m2st_core.testing.learner_files import learner_from_parts
from m2st_core.testing.methods import label_of
from m2st_core.types import in_words

SHOWN, PINS, REFINE = "lab_shown", "lab_pins", "lab_refine"
MOST_PINS = 4
LABELS = {"cancelled": "Resume", "interrupted": "Resume", "failed": "Retry"}
Begin = Callable[[RunDesk, SweepSpec, bool], None]


@dataclass(frozen=True)
class Views:
    """Views of one moment: the sweep, the same with P = Q, and sweeps of other settings."""

    power: SweepView
    null: SweepView
    others: tuple[SweepView, ...]

    @property
    def active(self) -> SweepView | None:
        """The sweep that waits or runs, the one of power first; None if neither does."""
        return next((view for view in (self.power, self.null) if view.active), None)


def look_at_curves(desk: RunDesk, spec: SweepSpec) -> Views:
    """The sweep, the pinned ones, and the last complete one, which is the shipped one at first."""
    specs = [spec, spec.with_(null=True), *_pins(), st.session_state.get(SHOWN, DEFAULT)]
    runs = [each.run_id for each in specs]
    views = desk.look(dict(zip(runs, specs, strict=True)))
    return Views(views[runs[0]], views[runs[1]], tuple(views[run] for run in dict.fromkeys(runs[2:])))


def _pins() -> list[SweepSpec]:
    pins: list[SweepSpec] = st.session_state.setdefault(PINS, [])
    return pins


def show_curves(desk: RunDesk, views: Views, level: bool, headline: DeltaGenerator, begin: Begin) -> None:
    """Show buttons, curves and, in the container ``headline``, the finding. Poll while a sweep runs."""
    spec = views.power.spec
    _show_buttons(desk, views, level, begin)
    pale = _pale(views.power)
    again, active = partial(look_at_curves, desk, spec), lambda views: views.active is not None
    with headline:
        poll(views, again, active, lambda views: _headline(views.power, pale), POLL_SECONDS)
    poll(views, again, active, lambda views: _show(desk, views, pale), POLL_SECONDS)


def _show_buttons(desk: RunDesk, views: Views, level: bool, begin: Begin) -> None:
    """Show the buttons. Each keeps its position, so that a second click never hits another one."""
    spec, pins, running = views.power.spec, _pins(), views.active is not None
    missing = views.power if views.power.missing or not level else views.null
    left, right = st.columns([2, 5], vertical_alignment="center")
    with left.container(horizontal=True, vertical_alignment="center"):
        train = st.button(
            _label(views.power),
            type="primary",
            key="lab_go",
            disabled=running or not missing.missing,
            help="Compute the missing points. The run continues when you close the tab.",
        )
        if st.button(
            "Pin",
            key="lab_pin",
            disabled=spec in pins or len(pins) >= MOST_PINS or views.power.rows.empty,
            help="Keep these curves in the chart for comparison with others.",
        ):
            pins.append(spec)
            st.rerun()
        if pins and st.button("Unpin all", key="lab_unpin", help="Remove the pinned curves from the chart."):
            pins.clear()
            st.rerun()
        if not missing.missing and not running:
            st.button(
                "Refine",
                key=REFINE,
                on_click=_refine,
                args=(spec,),
                help="Compute as many repeats again. The bands become narrower.",
            )
    if missing.missing and not running:
        right.caption(sweep_cost_words(missing, desk.workers))
    elif is_shipped(spec):
        right.caption(
            f"Shipped results of this version: {spec.repeats} repeats of {spec.tests} tests. "
            "**Refine** adds repeats. Change a setting for other curves."
        )
    if train or st.session_state.pop(f"{REFINE}_now", False):
        begin(desk, spec, level)


def _label(view: SweepView) -> str:
    """The label of the button that computes missing cells."""
    return LABELS.get(view.status.state, "Train") if view.status is not None else "Train"


def _refine(spec: SweepSpec) -> None:
    """Ask for more repeats and start them. A callback: it runs before the controls are drawn."""
    double_repeats(spec)
    st.session_state[f"{REFINE}_now"] = True


def _pale(view: SweepView) -> SweepSpec | None:
    """The settings whose curves stay pale until those of the sweep are complete."""
    if not view.missing:
        st.session_state[SHOWN] = view.spec
        return None
    before: SweepSpec = st.session_state.get(SHOWN, DEFAULT)
    return None if before == view.spec else before


def _headline(view: SweepView, pale: SweepSpec | None) -> None:
    """Write the finding, or the missing methods and the settings of the pale curves."""
    measured = set(view.rows["method"])
    missing = [label_of(method) for method in view.spec.methods if method not in measured]
    sentence = shared(sweep_finding, view.spec, view.rows)
    if missing and view.active:
        sentence = f"Training: **{in_words(missing)}** will follow."
    elif missing:
        have = "has" if len(missing) == 1 else "have"
        sentence = f"**{in_words(missing)}** {have} not been run with these settings yet: press **{_label(view)}**."
    if missing and pale is not None and pale not in _pins():
        sentence += f" Pale: {difference_names([pale, view.spec])[0]}."
    page_finding(sentence)


def _show(desk: RunDesk, views: Views, pale: SweepSpec | None) -> None:
    """Show the state of the sweeps and the curves so far."""
    power, null = views.power, views.null
    if power.active or not null.active:
        show_sweep_state(desk, _counted(power), "lab", resume=False, also=[null])
    else:
        show_sweep_state(desk, null, "lab", also=[power])
    show_results(power.spec, power.rows, "lab", earlier=_earlier(views, pale), level=null.rows)


def _counted(view: SweepView) -> SweepView:
    """The view of a run that was stopped on request, with the number of cells that are computed."""
    status = view.status
    if status is None or status.state != "cancelled" or status.message != STOPPED:
        return view
    done = len(view.rows)
    kept = f"{done:,} of {view.cells:,} cells are computed and kept." if done else "No cell was finished yet."
    return replace(view, status=replace(status, message=f"Stopped on request. {kept}"))


def _earlier(views: Views, pale: SweepSpec | None) -> list[Earlier]:
    """The pale and the pinned curves, named by where their settings differ; those that are the same only once."""
    present, pins = views.power.spec, _pins()
    others = [view for view in views.others if view.spec != present and (view.spec in pins or view.spec == pale)]
    names = difference_names([*(view.spec for view in others), present])
    tables = [shared(summarise, _unlike(view, present)) for view in others]
    curves = zip(others, names, tables, strict=False)
    return [Earlier(name, table, view.spec in pins) for view, name, table in curves if not table.empty]


def _unlike(other: SweepView, present: SweepSpec) -> pd.DataFrame:
    """The rows of methods that have other cells than the present ones. MMD-M's do not depend on the closeness."""
    present_cells, cells = grid_of(present).cells, grid_of(other.spec).cells
    methods = {cell.method for key, cell in cells.items() if key not in present_cells}
    return other.rows[other.rows["method"].isin(methods)]


def show_training_curves(store: Store, spec: SweepSpec) -> None:
    """Show training curves of the first repeat, for methods that are trained step by step."""
    courses = _training_courses(store, spec)
    if not courses:
        return

    def curves() -> None:
        for title, course in courses.items():
            st.caption(f"{title}, first repeat: the criterion on training rows and on held-out rows.")
            alt = f"The training criterion of {title} over {len(course['step'])} checks."
            chart(training_figure(course), f"course_{title}", alt)

    show_folded("Training curves", "lab_training", curves)


def _training_courses(store: Store, spec: SweepSpec) -> dict[str, dict[str, list[float]]]:
    """Stored training curves of the first repeat by method. Methods that learn in closed form have none."""
    grid = grid_of(spec)
    learners = {learner: grid.cells[key] for key, learner in grid.learner_keys.items()}
    first = {key: cell.method for key, cell in learners.items() if cell.repeat == 0}
    courses = {label_of(name): _course(key, store) for key, name in first.items() if store.cells.has_learner(key)}
    return {title: course for title, course in courses.items() if course is not None}


@st.cache_data(max_entries=64, show_spinner=False)
def _course(key: str, _store: Store) -> dict[str, list[float]] | None:
    parts = _store.cells.learner(key)
    course = learner_from_parts(*parts).course if parts is not None else None
    if course is None or not len(course.step):
        return None
    train, held_out = (values[:, 0].tolist() for values in (course.train, course.held_out))
    return {"step": course.step.tolist(), "train": train, "held_out": held_out}
