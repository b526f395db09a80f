"""Sweeps on pages: the server's queue, limits and cost of a sweep, and a view that follows a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import streamlit as st

from m2st_core.dashboard.jobs.host import Once, host
from m2st_core.dashboard.jobs.jobs import poll
from m2st_core.dashboard.jobs.runs import QueueFull, RunDesk, RunStatus, SweepQueue, SweepView
from m2st_core.environment import dask_address
from m2st_core.numbers import duration
from m2st_core.sweeps.cost import predict_cost
from m2st_core.sweeps.database import StoreError
from m2st_core.sweeps.executors import Executor, make_executor
from m2st_core.sweeps.spec import LISTS, SpecError, SweepSpec
from m2st_core.sweeps.store import UNKNOWN, Store

MOST_CELLS = 20_000
MOST_ROWS = 5_000
MOST_MEMORY = 4 * 2**30
MOST_HOURS = 48


def check_sweep_limits(spec: SweepSpec) -> None:
    """Raise a SpecError that names everything that is too large to run here.

    >>> check_sweep_limits(SweepSpec(m_te=(100_000,)))
    Traceback (most recent call last):
    m2st_core.sweeps.spec.SpecError: m_te=100,000 is too large: 5,000 rows is the limit here.
    """
    problems = []
    if spec.size > MOST_CELLS:
        problems.append(
            f"The grid has {spec.size:,} points, about {duration(_rough_seconds(spec))} of one core; {MOST_CELLS:,} "
            "points is the limit here."
        )
    for name in ("m_te", "m_tr", "rows_per_task"):
        values = getattr(spec, name)
        largest = max(values) if isinstance(values, tuple) else values
        if largest > MOST_ROWS:
            problems.append(f"{name}={largest:,} is too large: {MOST_ROWS:,} rows is the limit here.")
    if not problems:
        cost = predict_cost(spec)
        if cost.memory_bytes > MOST_MEMORY:
            problems.append(f"A worker would need {cost.memory_bytes / 2**30:.0f} GB. Ask for fewer or smaller tests.")
        if cost.seconds > MOST_HOURS * 3600:
            problems.append(f"It would take {cost.seconds / 3600:,.0f} hours of one core. Ask for less.")
    if problems:
        raise SpecError("\n".join(problems))


def _rough_seconds(spec: SweepSpec) -> float:
    """The time for a grid that is too large to be listed, from a few of its points."""
    few = {name: getattr(spec, name)[:2] + getattr(spec, name)[2:][-1:] for name in LISTS}
    sample = spec.with_(repeats=1, **few)
    return predict_cost(sample).seconds * spec.size / sample.size


POLL_SECONDS = 1.0
NO_RUN = "There is no run {!r} here. It may have been deleted. **History** lists all runs."
CELL = "a method at one size in one repeat"
STOP_SECONDS = 2.5  # a cancelled sweep stops within two
STATE_ICONS = {
    "waiting": "⏳",
    "running": "▶️",
    "done": "✅",
    "failed": "❌",
    "cancelled": "⏹️",
    "interrupted": "⚠️",
    UNKNOWN: "❔",
}


def start_executor() -> Executor:
    """A pool of processes, or the Dask cluster whose address ``M2ST_DASK`` holds."""
    address = dask_address()
    return make_executor("dask", address) if address else make_executor("pool")


@Once
def server_queue() -> SweepQueue:
    """The server's one queue. Its workers start with it and stay."""
    return SweepQueue(Store(), lambda: start_executor())


def sweep_queue() -> RunDesk:
    """The server's queue, as the visitor of this page may use it."""
    return RunDesk(server_queue(), host().visitor())


def start_sweep(desk: RunDesk, spec: SweepSpec, name: str = "") -> str | None:
    """Put a sweep in the queue. Return the id of its run, or None after showing why not."""
    try:
        if spec.missing_data:
            raise SpecError(spec.missing_data)
        check_sweep_limits(spec)
        return desk.submit(spec, name)
    except (QueueFull, SpecError, StoreError) as error:
        show_sweep_problems("This cannot be run now", error)
        return None


def show_sweep_problems(title: str, error: ValueError) -> None:
    """Show all mistakes as a list."""
    st.error(f"{title}:\n" + "".join(f"\n- {line}" for line in str(error).split("\n")))


def sweep_cost_words(view: SweepView, workers: int) -> str:
    """The cost of the cells that the store lacks, in words."""
    if not view.missing:
        return "Everything is computed already."
    cost = _predicted(view.spec, view.stored)
    learners = f" and {cost.learners:,} trainings on related tasks" if cost.learners else ""
    return (
        f"About **{duration(cost.seconds / workers)}**, within a factor of two, for {cost.cells:,} cells (each is "
        f"{CELL}){learners}{cost.gpu_words}."
    )


_predicted = lru_cache(maxsize=32)(predict_cost)


def watch_sweep(desk: RunDesk, run: str, spec: SweepSpec, show: Callable[[SweepView], None], key: str) -> None:
    """Follow a run: show its state with a button, then call ``show``. Polls while the run is active."""

    def look() -> SweepView:
        return desk.look({run: spec})[run]

    def draw(view: SweepView) -> None:
        if view.status is None:
            st.warning(NO_RUN.format(run))
            return
        show_sweep_state(desk, view, key)
        show(view)

    poll(look(), look, lambda view: view.active, draw, POLL_SECONDS)


def show_sweep_state(
    desk: RunDesk, view: SweepView, key: str, *, resume: bool = True, also: Sequence[SweepView] = ()
) -> None:
    """One line on the state of a run, with a button to cancel it and the runs ``also``, or to resume it.

    The button stands at the end of the line, away from the button that started the run.
    """
    run, status = view.run, view.status
    if run is None or status is None:
        return
    if status.active:
        bar, end = st.columns([6, 1], vertical_alignment="bottom")
        if status.state == "waiting":
            bar.progress(
                0.0, f"⏳ {_position_in_words(status.position)} You may close this tab; the link brings you back."
            )
        else:
            bar.progress(status.progress.share if status.progress else 0.0, _progress_in_words(status))
        if status.sessions and view.mine:
            with end:
                others = [each.run.id for each in also if each.run and each.mine]
                _cancel_button(desk, view, status, key, [run.id, *others])
    elif status.state == "failed":
        st.error(status.message or "This run failed. Computed cells are kept.")
    elif status.state == "interrupted":
        st.warning(status.message or "This run was interrupted: its server stopped. Computed cells are kept.")
    elif status.state == "cancelled":
        st.info(status.message)
    if resume and not status.active and status.state != "done" and view.mine:
        label = "Retry" if status.state == "failed" else "Resume"
        if st.button(label, key=f"{key}_resume", help="Compute the missing cells. No cell is computed twice."):
            if start_sweep(desk, view.spec, run.name):
                st.rerun()


def _position_in_words(position: int) -> str:
    if position == 0:
        return "Next: the workers are starting."
    return "Waiting: 1 sweep comes first." if position == 1 else f"Waiting: {position} sweeps come first."


def _progress_in_words(status: RunStatus) -> str:
    at = status.progress
    if not status.sessions:
        return "Stopping…"
    if at is None:
        return "▶️ Starting…"
    left = "" if at.seconds_left is None else f", about {duration(at.seconds_left)} left"
    trained = f", {at.learners} trainings" if at.learners else ""
    return f"▶️ {at.done} of {at.cells} cells{trained}{left}. You may close this tab; the link brings you back."


def _cancel_button(desk: RunDesk, view: SweepView, status: RunStatus, key: str, runs: Sequence[str]) -> None:
    if not desk.may_cancel(view):
        st.caption("Another browser session started this run and is still open, so it can only be cancelled there.")
        return
    shared = len(status.sessions - {desk.visitor.asker}) > 0 and desk.visitor.asker in status.sessions
    if shared:
        help_ = "Another session asked for the same run, so it continues for that session."
    else:
        help_ = "Stop this run only. Computed cells are kept, and Resume continues from there."
    if st.button("Cancel", key=f"{key}_cancel", help=help_):
        for run in reversed(runs):
            desk.cancel(run)
        if not shared:
            desk.wait(runs[0], STOP_SECONDS)
        st.rerun()
