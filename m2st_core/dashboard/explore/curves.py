"""Power curves at one setting: shipped, computed, former (pale) and pinned ones, and the buttons of a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from m2st_core.dashboard.explore.results import Earlier, show_results
from m2st_core.dashboard.explore.sweeps import double_repeats
from m2st_core.dashboard.jobs.jobs import poll
from m2st_core.dashboard.jobs.runs import RunDesk, SweepView
from m2st_core.dashboard.jobs.sweeps import POLL_SECONDS, show_sweep_state, start_sweep, sweep_cost_words
from m2st_core.dashboard.widgets.page import chart, page_finding, shared, show_folded
from m2st_core.figures.kernels import training_figure
from m2st_core.studies.explore import shipped_level, shipped_rows
from m2st_core.studies.power import difference_names, sweep_finding
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


@dataclass(frozen=True)
class Curves:
    """The rows of a sweep at one moment. ``sweep`` has the methods that are not shipped; None if all are."""

    spec: SweepSpec
    shipped: pd.DataFrame
    sweep: SweepView | None

    @property
    def rows(self) -> pd.DataFrame:
        """Shipped and computed rows."""
        return self.shipped if self.sweep is None else shared(_joined, self.shipped, self.sweep.rows)

    @property
    def missing(self) -> list[str]:
        """The methods without any rows."""
        measured = set(self.rows["method"])
        return [method for method in self.spec.methods if method not in measured]

    @property
    def incomplete(self) -> bool:
        """Whether cells are missing."""
        return self.sweep is not None and bool(self.sweep.missing)


def _joined(shipped: pd.DataFrame, computed: pd.DataFrame) -> pd.DataFrame:
    tables = [table for table in (shipped, computed) if len(table)]
    return pd.concat(tables, ignore_index=True) if tables else shipped


@dataclass(frozen=True)
class Views:
    """Curves of one moment: those asked for, the same with P = Q, and curves of other settings."""

    power: Curves
    null: SweepView
    others: tuple[Curves, ...]

    @property
    def active(self) -> SweepView | None:
        """The sweep that waits or runs, the one of power first; None if neither does."""
        return next((view for view in (self.power.sweep, self.null) if view is not None and view.active), None)

    def linked(self, level: bool) -> SweepView | None:
        """The sweep whose run belongs into the link: that of power, or the one with P = Q if only this was started."""
        sweep = self.power.sweep
        return self.null if level and (sweep is None or sweep.status is None) else sweep


def look_at_curves(desk: RunDesk, spec: SweepSpec, others: Sequence[SweepSpec] | None = None) -> Views:
    """The curves of a sweep and of others: by default the pinned ones and the last complete ones."""
    if others is None:
        others = [*_pins(), *([st.session_state[SHOWN]] if SHOWN in st.session_state else [])]
    asked = list(dict.fromkeys([spec, *others]))
    shipped = {each: shared(shipped_rows, each) for each in asked}
    rest: dict[SweepSpec, SweepSpec] = {}
    for each in asked:
        there = set(shipped[each]["method"])
        if methods := tuple(name for name in each.methods if name not in there):
            rest[each] = each.with_(methods=methods)
    null = spec.with_(null=True)
    views = desk.look({each.run_id: each for each in (*rest.values(), null)})
    curves = [Curves(each, shipped[each], views[rest[each].run_id] if each in rest else None) for each in asked]
    return Views(curves[0], views[null.run_id], tuple(curves[1:]))


def _pins() -> list[SweepSpec]:
    pins: list[SweepSpec] = st.session_state.setdefault(PINS, [])
    return pins


def show_curves(
    desk: RunDesk, views: Views, level: bool, headline: DeltaGenerator, row: DeltaGenerator, marked: int | None = None
) -> None:
    """Show curves, in the container ``row`` buttons, and in ``headline`` the finding. Poll while a sweep runs."""
    spec = views.power.spec
    _show_buttons(desk, views, level, row)
    pale = _pale(views.power)
    again, active = partial(look_at_curves, desk, spec), lambda views: views.active is not None
    with headline:
        poll(views, again, active, lambda views: _headline(views.power, pale, marked), POLL_SECONDS)
    poll(views, again, active, lambda views: _show(desk, views, pale, marked), POLL_SECONDS)


def _show_buttons(desk: RunDesk, views: Views, level: bool, row: DeltaGenerator) -> None:
    """Show the buttons. Each keeps its position, so that a second click never hits another one."""
    curves, pins, running = views.power, _pins(), views.active is not None
    spec = curves.spec
    missing = curves.sweep if curves.sweep is not None and curves.incomplete else views.null if level else None
    missing = missing if missing is not None and missing.missing else None
    with row:
        train = st.button(
            _label(curves),
            type="primary",
            key="lab_go",
            disabled=running or missing is None,
            help="Compute the missing points. The run continues when you close the tab.",
        )
        if st.button(
            "Pin",
            key="lab_pin",
            disabled=spec in pins or len(pins) >= MOST_PINS or curves.rows.empty,
            help="Keep these curves in the chart for comparison with others.",
        ):
            pins.append(spec)
            st.rerun()
        if pins and st.button("Unpin all", key="lab_unpin", help="Remove the pinned curves from the chart."):
            pins.clear()
            st.rerun()
        if missing is None and not running:
            st.button(
                "Refine",
                key=REFINE,
                on_click=_refine,
                args=(curves,),
                help="Compute more repeats than these. The bands become narrower.",
            )
    if missing is not None and not running:
        st.caption(sweep_cost_words(missing, desk.workers))
    elif curves.sweep is None:
        st.caption(f"Computed before: {precision_words(curves.shipped)}. **Refine** adds repeats.")
    if train or st.session_state.pop(f"{REFINE}_now", False):
        _begin(desk, views, level)


def precision_words(rows: pd.DataFrame) -> str:
    """Repeats and test samples behind rows, in words.

    >>> precision_words(pd.DataFrame({"method": ["MMD-M"] * 2, "repeat": [0, 1], "tests": [50, 50]}))
    '2 repeats × 50 samples'
    """
    counts = rows.groupby("method", sort=False).agg(repeats=("repeat", "nunique"), tests=("tests", "first"))
    most = counts.groupby(["repeats", "tests"]).size().idxmax() if len(counts) else (0, 0)
    words = f"{most[0]} repeats × {most[1]} samples"
    others = counts[(counts["repeats"] != most[0]) | (counts["tests"] != most[1])]
    for (repeats, tests), group in others.groupby(["repeats", "tests"]):
        words += f"; {in_words([label_of(name) for name in group.index])}: {repeats} × {tests}"
    return words


def _begin(desk: RunDesk, views: Views, level: bool) -> None:
    """Queue the sweep of what is missing, and the one under P = Q if asked for."""
    sweep = views.power.sweep
    started = sweep is None or not sweep.missing or start_sweep(desk, sweep.spec) is not None
    if started:
        if level:
            start_sweep(desk, views.null.spec)
        st.rerun()


def _label(curves: Curves) -> str:
    """The label of the button that computes missing cells."""
    status = curves.sweep.status if curves.sweep is not None else None
    if status is not None and status.state in LABELS:
        return LABELS[status.state]
    count = len(curves.sweep.spec.methods) if curves.sweep is not None and curves.incomplete else 0
    return f"Train {count} test{'s' * (count != 1)}" if count else "Train"


def _refine(curves: Curves) -> None:
    """Ask for more repeats and start them. A callback: it runs before the controls are drawn."""
    double_repeats(max(curves.spec.repeats, int(curves.rows["repeat"].max()) + 1), int(curves.rows["tests"].max()))
    st.session_state[f"{REFINE}_now"] = True


def _pale(curves: Curves) -> SweepSpec | None:
    """The settings whose curves stay pale until those of the sweep are complete."""
    if not curves.incomplete:
        st.session_state[SHOWN] = curves.spec
        return None
    before: SweepSpec | None = st.session_state.get(SHOWN)
    return None if before == curves.spec else before


def _headline(curves: Curves, pale: SweepSpec | None, marked: int | None) -> None:
    """Write the finding, or the missing methods and the settings of the pale curves."""
    sentence, missing = shared(sweep_finding, curves.spec, curves.rows, marked), list(map(label_of, curves.missing))
    if missing and curves.sweep is not None and curves.sweep.active:
        sentence = f"{sentence} Training: **{in_words(missing)}** will follow."
    elif missing:
        have = "has" if len(missing) == 1 else "have"
        sentence += f" **{in_words(missing)}** {have} not been run at this setting: press **{_label(curves)}**."
    if missing and pale is not None and pale not in _pins():
        sentence += f" Pale curves: {difference_names([pale, curves.spec])[0]}."
    page_finding(sentence.strip())


def _show(desk: RunDesk, views: Views, pale: SweepSpec | None, marked: int | None) -> None:
    """Show the state of the sweeps and the curves so far."""
    sweep, null = views.power.sweep, views.null
    if sweep is not None and (sweep.active or not null.active):
        show_sweep_state(desk, _counted(sweep), "lab", resume=False, also=[null])
    else:
        show_sweep_state(desk, null, "lab", resume=sweep is not None, also=[sweep] if sweep is not None else [])
    level = null.rows if len(null.rows) else shared(shipped_level, views.power.spec)
    curves = views.power
    show_results(curves.spec, curves.rows, "lab", earlier=_earlier(views, pale), level=level, marked=marked)


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
    present, pins = views.power, _pins()
    others = [curves for curves in views.others if curves.spec in pins or curves.spec == pale]
    names = difference_names([*(curves.spec for curves in others), present.spec])
    tables = [shared(summarise, _unlike(curves, present)) for curves in others]
    return [
        Earlier(name, table, curves.spec in pins)
        for curves, name, table in zip(others, names, tables, strict=False)
        if not table.empty
    ]


def _unlike(other: Curves, present: Curves) -> pd.DataFrame:
    """The rows of methods that have other cells than the present ones. MMD-M's do not depend on the closeness."""
    if any(getattr(other.spec, name) != getattr(present.spec, name) for name in ("settings", "rows_per_task", "rule")):
        return other.rows
    return shared(_rows_of_changed_methods, other.rows, present.rows)


def _rows_of_changed_methods(other: pd.DataFrame, present: pd.DataFrame) -> pd.DataFrame:
    keys = [
        "method",
        "closeness",
        "n_tasks",
        "m_tr",
        "m_te",
        "repeat",
        "seed",
        "alpha",
        "n_permutations",
        "task",
        "null",
    ]
    cells = [
        set(map(tuple, rows[keys].astype(object).where(rows[keys].notna(), None).to_numpy()))
        for rows in (other, present)
    ]
    changed = {cell[0] for cell in cells[0] - cells[1]}
    return other[other["method"].isin(changed)]


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
