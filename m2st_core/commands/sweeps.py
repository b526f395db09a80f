"""``sweep``, ``paper`` and ``runs``: grids of tests, computed or found in the store."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import pandas as pd

from m2st_core.data import size_unit
from m2st_core.figures.power import FIGURES, power_figure, type_1_figure
from m2st_core.figures.relatedness import gamma_figure
from m2st_core.paper.experiments import PAPER, Layer
from m2st_core.paper.gamma import GAMMA, GammaSpec, run_gamma, summarise_gamma
from m2st_core.sweeps.cost import predict
from m2st_core.sweeps.executors import make_executor
from m2st_core.sweeps.spec import SweepSpec
from m2st_core.sweeps.store import OLDER, Store
from m2st_core.sweeps.summary import as_text, null_band, published_gamma, summarise
from m2st_core.sweeps.sweep import SweepFailed, SweepProgress, run_sweep
from m2st_core.types import Cancelled


def run_sweep_command(options: argparse.Namespace) -> None:
    """A sweep from a file."""
    try:
        text = Path(options.spec).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{options.spec} can not be read: {error}.") from None
    compute(SweepSpec.from_toml(text), options)


def run_paper(options: argparse.Namespace) -> None:
    """A table or figure of the paper: its algorithms, or our family on the same samples."""
    experiment = PAPER.find(options.experiment)
    if experiment.kind == "relatedness" and not options.ours:
        print(f"{experiment.title}, {options.scale} scale", flush=True)
        compute_gamma(GAMMA[options.scale], options)
        return
    layer: Layer = "ours" if options.ours else "paper"
    spec = experiment.spec(options.scale, layer)
    if options.preset:
        spec = spec.with_(preset=options.preset)
    heading = experiment.heading(options.scale, layer, spec.preset)
    print(heading, flush=True)
    compute(spec, options, kind=experiment.kind, name=heading)


def run_runs(options: argparse.Namespace) -> None:
    """What the store has."""
    store = Store()
    if options.action == "list":
        frame = store.runs()
        if frame.empty:
            print(f"There are no runs in {store.home} yet.")
        for row in frame.itertuples():
            when = time.strftime("%Y-%m-%d %H:%M", time.localtime(row.updated))
            print(f"{row.id}  {when}  {row.state:9}  {row.done}/{row.cells} cells  {row.name}")
            if row.state == OLDER:
                print(f"    {row.message}")
        return
    if not options.run:
        raise ValueError(f"runs {options.action} needs the id of a run. See: python -m m2st_core runs")
    if options.action == "delete":
        store.delete_run(options.run)
        print(f"Deleted run {options.run}.")
        return
    spec = store.spec(options.run)
    if options.action == "resume":
        compute(spec, options)
    elif options.action == "export":
        print(spec.to_toml(), end="")
        write(store.rows(spec), spec, options)
    else:
        print(spec.to_toml())
        print(as_text(summarise(store.rows(spec))))


def compute(spec: SweepSpec, options: argparse.Namespace, kind: str = "power", name: str = "") -> None:
    """Run a sweep with a progress bar, then show it."""
    if spec.missing_data:
        raise ValueError(spec.missing_data)
    store = Store()
    cost = predict(spec, frozenset(store.results(spec.cells())))
    if cost.cells:
        gpu = "" if cost.gpu_seconds is None else f"; on a GPU perhaps {cost.gpu_seconds:.0f} s"
        print(f"{cost.cells} cells to compute, about {cost.seconds:.0f} s of one core{gpu}.", file=sys.stderr)
    executor = make_executor(options.executor, options.address, options.workers)
    try:
        rows = run_sweep(spec, store, executor, name=name, progress=show_progress)
    except KeyboardInterrupt:
        executor.cancel()
        raise ValueError("Stopped. Finished cells are kept; the same command goes on from here.") from None
    except (Cancelled, SweepFailed) as error:
        raise ValueError(str(error) or "Stopped.") from None
    finally:
        print(file=sys.stderr)
        executor.close()
    print(as_text(summarise(rows)))
    write(rows, spec, options, kind)


def compute_gamma(spec: GammaSpec, options: argparse.Namespace) -> None:
    """γ̂ of every closeness, beside the published values."""
    executor = make_executor(options.executor, options.address, options.workers)
    try:
        rows = run_gamma(spec, Store(), executor, lambda step, total: show_bar(step / total))
    except KeyboardInterrupt:
        raise ValueError("Stopped. What is finished is kept; the same command goes on from here.") from None
    finally:
        print(file=sys.stderr)
        executor.close()
    table = summarise_gamma(rows)
    names = {
        "on_training_rows": "training halves",
        "on_test_rows": "test halves",
        "highest": "largest task",
        "floor": "noise floor",
    }
    print(table.drop(columns="lowest").rename(columns=names).round(3).to_string(index=False))
    if options.out:
        rows.to_csv(options.out, index=False)
    if options.figure:
        gamma_figure(published_gamma(), table).write_html(options.figure, include_plotlyjs=True)


def show_progress(at: SweepProgress) -> None:
    """How far a sweep is."""
    left = "" if at.seconds_left is None else f", about {at.seconds_left:.0f} s left"
    show_bar(at.share, f"{at.done}/{at.cells} cells, {at.learners} learners trained{left}   ")


def show_bar(share: float, words: str = "") -> None:
    """One line that keeps changing."""
    if sys.stderr.isatty():
        print(f"\r{'█' * round(30 * share):30} {words}", end="", file=sys.stderr, flush=True)


def write(rows: pd.DataFrame, spec: SweepSpec, options: argparse.Namespace, kind: str = "power") -> None:
    """The rows as CSV and the figure as HTML, where they are wanted."""
    table = summarise(rows)
    if options.out:
        rows.to_csv(options.out, index=False)
    if options.figure:
        if spec.null:
            figure = type_1_figure(table, spec.alpha, null_band(spec.alpha, spec.repeats * spec.tests))
        else:
            draw = FIGURES.get(kind, power_figure)
            figure = draw(table, size_unit=size_unit(spec.task)) if draw is power_figure else draw(table)
        figure.write_html(options.figure, include_plotlyjs=True)
