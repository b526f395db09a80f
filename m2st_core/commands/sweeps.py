"""``sweep``, ``paper`` and ``runs``: sweeps, computed or read from the store."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import plotly.graph_objects as go

from m2st_core.commands.service import check_file, write_whole
from m2st_core.figures.relatedness import gamma_figure
from m2st_core.paper.experiments import GAMMA, PAPER, PUBLISHED_RULES, Layer, run_gamma, summarise_gamma
from m2st_core.paper.published import published_gamma, with_published
from m2st_core.paper.results import take_over_results
from m2st_core.studies.power import sweep_figure
from m2st_core.sweeps.cost import predict_cost
from m2st_core.sweeps.database import StoreError
from m2st_core.sweeps.executors import Executor, make_executor
from m2st_core.sweeps.spec import SweepSpec
from m2st_core.sweeps.store import UNDO_SECONDS, UNKNOWN, Store
from m2st_core.sweeps.summary import summarise, summary_text
from m2st_core.sweeps.work import SweepFailed, SweepProgress, run_sweep
from m2st_core.testing.plan import refuse_beyond_memory
from m2st_core.types import Cancelled

GAMMA_NAMES = {
    "on_training_rows": "training halves",
    "on_test_rows": "test halves",
    "highest": "largest task",
    "floor": "noise floor",
}


def run_sweep_command(options: argparse.Namespace) -> None:
    """Run a sweep from a file."""
    try:
        text = Path(options.spec).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{options.spec} cannot be read: it is not text.") from None
    except OSError as error:
        raise ValueError(f"{options.spec} cannot be read: {error.strerror}.") from None
    _compute(SweepSpec.from_toml(text), options)


def run_paper(options: argparse.Namespace) -> None:
    """Run a table or figure of the paper with its algorithms, or with our family on the same samples."""
    experiment = PAPER[options.experiment]
    if experiment.kind == "relatedness" and not options.ours:
        print(f"{experiment.title}, {options.scale} scale", flush=True)
        _compute_gamma(options)
        return
    layer: Layer = "ours" if options.ours else options.preset or "paper"
    spec = experiment.spec(options.scale, layer)
    heading = experiment.heading(options.scale, layer)
    if options.p_value == "published":
        spec = spec.with_(rule=PUBLISHED_RULES.get(layer, PUBLISHED_RULES["paper"]))
        heading = f"{heading}, p = {spec.rule}"
    print(heading, flush=True)
    if options.fresh:
        Store().cells.drop_shipped(cell.key for cell in spec.cells())
    elif taken := take_over_results(Store(), spec):
        print(f"{taken} of {len(list(spec.cells()))} cells come with this software.", flush=True)
    _compute(spec, options, kind=experiment.kind, name=heading)


def run_runs(options: argparse.Namespace) -> None:
    """List, show, resume, delete, restore or export the runs of the store, or collect what no run needs."""
    _check_output_files(options)
    store = Store()
    if options.action == "list":
        _list_runs(store)
        return
    if options.action == "collect":
        runs, cells, learners = store.collect(0, orphans=True)
        print(f"Removed for good: {runs} deleted runs, {cells} cells and {learners} learners that no run has.")
        return
    if not options.run:
        raise ValueError(f"runs {options.action} needs the id of a run. See: python -m m2st_core runs")
    if options.action == "delete":
        run_id, days = store.delete_run(options.run), UNDO_SECONDS / 86400
        print(
            f"Deleted run {run_id}. For {days:.0f} days it can be restored: python -m m2st_core runs restore {run_id}"
        )
        return
    if options.action == "restore":
        print(f"Restored run {store.runs.restore(options.run)}.")
        return
    run = store.runs.get(store.runs.find(options.run))
    if run is None:
        raise StoreError(f"Run {options.run} has just been deleted.")
    if options.action == "resume":
        _compute(run.spec, options)
    elif options.action == "export":
        print(run.spec.to_toml(), end="")
        _write(store.cells.rows(run.spec), run.spec, options)
    else:
        print(run.spec.to_toml())
        print(summary_text(with_published(summarise(store.cells.rows(run.spec)))))


def _list_runs(store: Store) -> None:
    frame = store.all_runs()
    if frame.empty:
        print(f"There are no runs in {store.home} yet.")
    for row in frame.itertuples():
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(row.updated))
        unfinished = row.state == "running" and not store.runs.is_computed(row.id)
        state = "unfinished" if unfinished else row.state
        print(f"{row.id}  {when}  {state:10}  {row.done}/{row.cells} cells  {row.name}")
        if unfinished:
            print(f"    No process computes it now. To go on: python -m m2st_core runs resume {row.id}")
        if row.state == UNKNOWN:
            print(f"    {row.message}")


@contextmanager
def _executor_of(options: argparse.Namespace) -> Iterator[Executor]:
    """The chosen executor. It is closed at the end, and an interruption becomes a ValueError."""
    executor = make_executor(options.executor, options.address, options.workers)
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # stops a sweep as Ctrl+C does
    try:
        yield executor
    except KeyboardInterrupt:
        executor.cancel()
        raise ValueError("Stopped. Finished work is kept; run the same command to continue.") from None
    finally:
        signal.signal(signal.SIGTERM, before)
        print(file=sys.stderr)
        executor.close()


def _compute(spec: SweepSpec, options: argparse.Namespace, kind: str = "power", name: str = "") -> None:
    """Run a sweep with a progress bar, then show it."""
    _check_output_files(options)
    if spec.missing_data:
        raise ValueError(spec.missing_data)
    store = Store()
    cost = predict_cost(spec, frozenset(store.cells.results(cell.key for cell in spec.cells())))
    if cost.cells and options.executor != "dask":
        remedy = "Ask for fewer permutations, tests or rows, or for fewer --workers."
        workers = 1 if options.executor == "inline" else options.workers or os.cpu_count() or 1
        refuse_beyond_memory("This sweep", workers * cost.memory_bytes, remedy)
    if cost.cells:
        print(
            f"{cost.cells} cells to compute, about {cost.seconds:.0f} s of one core{cost.gpu_words}.", file=sys.stderr
        )
    with _executor_of(options) as executor:
        try:
            rows = run_sweep(spec, store, executor, name=name, progress=_show_progress)
        except (Cancelled, SweepFailed) as error:
            raise ValueError(str(error) or "Stopped.") from None
    print(summary_text(with_published(summarise(rows))))
    _write(rows, spec, options, kind)


def _compute_gamma(options: argparse.Namespace) -> None:
    """Measure γ̂ for every closeness, and print it with the published values."""
    _check_output_files(options)
    with _executor_of(options) as executor:
        rows = run_gamma(GAMMA[options.scale], Store(), executor, lambda step, total: _show_bar(step / total))
    table = summarise_gamma(rows)
    print(table.drop(columns="lowest").rename(columns=GAMMA_NAMES).round(3).to_string(index=False))
    _write_out(options, rows, lambda: gamma_figure(published_gamma(), table))


def _show_progress(at: SweepProgress) -> None:
    left = "" if at.seconds_left is None else f", about {at.seconds_left:.0f} s left"
    _show_bar(at.share, f"{at.done}/{at.cells} cells, {at.learners} learners trained{left}   ")


def _show_bar(share: float, words: str = "") -> None:
    if sys.stderr.isatty():
        print(f"\r{'█' * round(30 * share):30} {words}", end="", file=sys.stderr, flush=True)


def _write(rows: pd.DataFrame, spec: SweepSpec, options: argparse.Namespace, kind: str = "power") -> None:
    _write_out(options, rows, lambda: sweep_figure(spec, with_published(summarise(rows)), kind))


def _check_output_files(options: argparse.Namespace) -> None:
    check_file(options.out)
    check_file(options.figure)


def _write_out(options: argparse.Namespace, rows: pd.DataFrame, draw: Callable[[], go.Figure]) -> None:
    """Write rows as CSV and a figure as HTML, where asked for."""
    if options.out:
        write_whole(options.out, lambda file: rows.to_csv(file, index=False))
    if options.figure:
        write_whole(options.figure, lambda file: draw().write_html(file, include_plotlyjs=True))
