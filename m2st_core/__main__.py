"""The command line: ``python -m m2st_core test | meta-train | sweep | paper | runs | bench``."""

from __future__ import annotations

import argparse
import importlib
import io
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pandas as pd

from m2st_core import METHODS, PRESETS, meta_train
from m2st_core.experiments.cost import predict
from m2st_core.experiments.executors import make_executor
from m2st_core.experiments.gamma import GAMMA, GammaSpec, run_gamma, summarise_gamma
from m2st_core.experiments.own_data import Plan, advise, carry_out, check_history
from m2st_core.experiments.paper import PAPER
from m2st_core.experiments.spec import SweepSpec
from m2st_core.experiments.store import Store
from m2st_core.experiments.summary import as_text, null_band, published_gamma, summarise
from m2st_core.experiments.sweep import SweepFailed, SweepProgress, run_sweep
from m2st_core.figures import FIGURES, gamma_figure, power_figure, type_1_figure
from m2st_core.reports import Origin, as_command, as_python, html_report
from m2st_core.tasks import size_unit
from m2st_core.tasks.tables import (
    EXAMPLES,
    MISSING_CHOICES,
    SCALING_CHOICES,
    CleanData,
    Cleaning,
    Upload,
    prepare,
    read_files,
    save_encoding,
)
from m2st_core.testing.learner_zip import open_learner
from m2st_core.types import Cancelled, TestResult

BENCHMARKS = "permutation, calibration, power, adaptation, transfer, recommend, uploads, meta, images, cifar, sweep"


RECOMMENDED = "recommended"


class OneLineParser(argparse.ArgumentParser):
    """A parser whose errors are one line on stderr."""

    def error(self, message: str) -> NoReturn:
        """Exit with code 2."""
        self.exit(2, f"{self.prog}: {message}. See --help.\n")


def build_parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    parser = OneLineParser(prog="m2st_core", description="Two-sample tests with learned kernels.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="test|meta-train|sweep|paper|runs|bench")

    test = commands.add_parser("test", help="test whether the rows of two tables come from the same distribution")
    test.add_argument("files", metavar="P.csv Q.csv", nargs="*", help="the two samples, or one file and --group-column")
    test.add_argument("--example", default="", help=f"instead of files, one of {', '.join(EXAMPLES)}")
    test.add_argument("--meta", nargs="+", metavar="META.csv", help="related tasks, for methods that learn from them")
    test.add_argument("--task-column", default="task", help="the column of META.csv that names the task")
    test.add_argument("--meta-group-column", help="the group column of META.csv (default: as in the target, or group)")
    test.add_argument(
        "--method", default="MMD-D", help=f"{RECOMMENDED}, or one of {', '.join(METHODS)} (default MMD-D)"
    )
    test.add_argument("--alpha", type=float, default=0.05, help="level of the test (default 0.05)")
    test.add_argument("--permutations", type=int, default=999, help="number of random relabellings (default 999)")
    test.add_argument("--train-fraction", type=float, default=0.5, help="share of rows to learn from (default 0.5)")
    test.add_argument("--preset", default="recommended", help=f"one of {', '.join(PRESETS)} (default recommended)")
    test.add_argument("--seed", type=int, default=0, help="fixes split, learning and permutations (default 0)")
    test.add_argument("--device", default="auto", help="auto, cpu or cuda (default auto)")
    test.add_argument("--json", action="store_true", help="print one JSON object")
    test.add_argument("--learner", default="", help="folder or ZIP of a learner; it brings its method and preset")
    test.add_argument("--secondary", nargs="+", default=(), metavar="METHOD", help="further tests, corrected by Holm")
    test.add_argument("--block-column", help="labels are permuted within the values of this column only")
    test.add_argument("--report", metavar="REPORT.html", help="write everything into one HTML file")

    train = commands.add_parser("meta-train", help="learn from related tasks, to test targets with --learner")
    help_meta = "columns task, group (two values per task) and the features; or one file per task, or a ZIP of them"
    train.add_argument("meta", metavar="META.csv", nargs="+", help=help_meta)
    meta_names = ", ".join(name for name, method in METHODS.items() if method.adapt)
    train.add_argument("--method", default="Meta-FUSE", help=f"one of {meta_names} (default Meta-FUSE)")
    train.add_argument("--preset", default="recommended", help=f"one of {', '.join(PRESETS)} (default recommended)")
    train.add_argument("--out", required=True, help="folder for the learner")
    train.add_argument("--seed", type=int, default=0, help="fixes the learning (default 0)")
    train.add_argument("--device", default="auto", help="auto, cpu or cuda (default auto)")

    for command in (test, train):
        command.add_argument("--group-column", help="the column whose two values say the group, in a file with both")
        command.add_argument(
            "--missing", help=f"missing cells: {', '.join(map(repr, MISSING_CHOICES))} (default refuse)"
        )
        command.add_argument("--scaling", help=f"{', '.join(map(repr, SCALING_CHOICES))} (default standard)")
        command.add_argument(
            "--levels", type=int, help="categories of a column that get an indicator each (default 20)"
        )
        command.add_argument("--leave-out", nargs="+", metavar="COLUMN", help="columns not to compare")

    sweep = commands.add_parser("sweep", help="run a grid of tests described by a TOML file")
    sweep.add_argument("spec", metavar="SPEC.toml")
    paper = commands.add_parser("paper", help="run a table or figure of the paper")
    paper.add_argument("experiment", help=f"one of {', '.join(PAPER)}")
    paper.add_argument("--scale", choices=("quick", "full"), default="quick", help="the paper's scale is full")
    paper.add_argument("--preset", default="recommended", help=f"one of {', '.join(PRESETS)} (default recommended)")
    runs = commands.add_parser("runs", help="what was computed before")
    runs.add_argument("action", nargs="?", default="list", choices=("list", "show", "resume", "delete", "export"))
    runs.add_argument("run", nargs="?", help="the id of a run, or its start")
    for command in (sweep, paper, runs):
        command.add_argument("--out", help="write the rows as CSV")
        command.add_argument("--figure", help="write the figure as HTML")
        command.add_argument("--executor", default="pool", choices=("inline", "pool", "dask"))
        command.add_argument("--address", help="of a Dask scheduler")
        command.add_argument("--workers", type=int, help="processes of the pool (default: one per core)")

    bench = commands.add_parser("bench", help=f"time or study the engine: {BENCHMARKS}", add_help=False)
    bench.add_argument("name", help="module in benchmarks/")
    bench.add_argument("arguments", nargs=argparse.REMAINDER)
    return parser


def run_test(options: argparse.Namespace) -> None:
    """Read, test, print; write the report where one is wanted."""
    learner, encoding = open_learner(options.learner) if options.learner else (None, None)
    usual = encoding.cleaning if encoding else Cleaning(scaling="none") if learner else Cleaning()
    cleaning = chosen_cleaning(options, usual)
    roles = (options.group_column, options.task_column, options.meta_group_column)
    origin = Origin(tuple(options.files), tuple(options.meta or ()), options.example, *roles, options.learner)
    data = prepare(origin.upload(), cleaning, encoding)
    plan = Plan(
        primary=primary_method(options, data) if learner is None else learner.method,
        secondary=tuple(options.secondary),
        alpha=options.alpha,
        n_permutations=options.permutations,
        train_fraction=options.train_fraction,
        seed=options.seed,
        preset=options.preset if learner is None else learner.preset,
    )
    outcome = carry_out(data, plan, learner=learner, explained=bool(options.report), device=options.device)
    if options.report:
        python, command = as_python(origin, cleaning, plan), as_command(origin, cleaning, plan, options.report)
        write_text(options.report, html_report(outcome, python=python, command=command))
    secondary = outcome.analysis.secondary
    if options.json:
        found = outcome.analysis.primary.to_dict()
        more = [{"method": v.result.method, "p_value": v.result.p_value, "holm": v.adjusted_p_value} for v in secondary]
        print(json.dumps(found | ({"secondary": more} if more else {}), ensure_ascii=False))
        return
    print("\n".join([describe(outcome.analysis.primary, data), *(f"secondary  {v.sentence}" for v in secondary)]))
    if options.report:
        print(f"report     {options.report}")


def primary_method(options: argparse.Namespace, data: CleanData) -> str:
    """The method that was asked for; or the one to recommend, with the reasons on stderr."""
    if options.method != RECOMMENDED:
        return str(options.method)
    check = check_history(data, seed=options.seed, device=options.device) if len(data.tasks) > 1 else None
    advice = advise(data, history=check)
    print("\n".join([f"{RECOMMENDED}: {advice.method}", *(f"- {why}" for why in advice.reasons)]), file=sys.stderr)
    return advice.method


def write_text(path: str, text: str) -> None:
    """A file, or a ValueError that says why it can not be written."""
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        raise ValueError(f"{path} can not be written: {error.strerror}.") from None


def chosen_cleaning(options: argparse.Namespace, usual: Cleaning) -> Cleaning:
    """The usual choices, changed by those of the command line."""
    given = {
        "missing": options.missing,
        "scaling": options.scaling,
        "levels": options.levels,
        "left_out": options.leave_out and tuple(options.leave_out),
        "block": options.block_column if options.command == "test" else None,
    }
    chosen = {name: value for name, value in given.items() if value is not None}
    fixed = [
        f"--{name.replace('left_out', 'leave-out')}" for name in ("scaling", "levels", "left_out") if name in chosen
    ]
    if options.command == "test" and options.learner and fixed:
        raise ValueError(f"{fixed[0]} was chosen when the learner was trained. Leave it out.")
    return replace(usual, **chosen)


def run_meta_train(options: argparse.Namespace) -> None:
    """Read, learn, save."""
    data = prepare(
        Upload((), read_files(options.meta), related_group=options.group_column), chosen_cleaning(options, Cleaning())
    )
    learner = meta_train(options.method, data.tasks, preset=options.preset, seed=options.seed, device=options.device)
    learner.save(options.out)
    save_encoding(data.encoding, options.out)
    print(
        f"{options.method} learned from {len(data.tasks)} tasks with {learner.columns} columns; saved in {options.out}"
    )
    for note in data.decisions:
        print(f"note: {note}")


def describe(result: TestResult, data: CleanData) -> str:
    """The result for people."""
    lines = [result.sentence, ""]
    if result.by_permutation:
        how = f"± {result.p_value_se:.2g} (Monte-Carlo error of {result.n_permutations} permutations)"
    else:
        how = "(asymptotic: trust it for large samples only)"
    lines.append(f"p-value    {result.p_value:.4g} {how}")
    lines.append(f"statistic  {result.statistic:.6g}")
    if result.criterion is not None:
        lines.append(f"criterion  {result.criterion:.4g} (Ĵ on the test rows: signal over noise)")
    learned = f"learned on {result.n_train[0]} + {result.n_train[1]} rows, " if any(result.n_train) else ""
    lines.append(f"rows       {learned}tested on {result.n_test[0]} + {result.n_test[1]}")
    lines.append(f"columns    {', '.join(data.features)}")
    lines.append(f"settings   {result.method}, preset {result.preset}, seed {result.seed}, {result.device}")
    heavy = sorted(result.weights.items(), key=lambda item: -item[1])[:5]
    if heavy:
        lines.append("weights β  " + ", ".join(f"{name} {weight:.2f}" for name, weight in heavy if weight > 0.005))
    lines.append(f"time       {result.seconds:.2f} s")
    return "\n".join(lines + [f"note       {note}" for note in (*data.decisions, *result.notes)])


def run_sweep_command(options: argparse.Namespace) -> None:
    """A sweep from a file."""
    try:
        text = Path(options.spec).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{options.spec} can not be read: {error}.") from None
    compute(SweepSpec.from_toml(text), options)


def run_paper(options: argparse.Namespace) -> None:
    """A table or figure of the paper."""
    experiment = PAPER.find(options.experiment)
    if experiment.kind == "relatedness":
        print(f"{experiment.title} ({options.scale})")
        compute_gamma(GAMMA[options.scale], options)
        return
    spec = experiment.spec(options.scale)
    if options.preset != spec.preset:
        only = PRESETS.find(options.preset).warm_start is None
        methods = tuple(m for m in spec.methods if m not in METHODS or not (only and METHODS[m].only_recommended))
        spec = spec.with_(preset=options.preset, methods=methods)
    print(f"{experiment.title} ({options.scale}, {spec.preset})")
    compute(spec, options, kind=experiment.kind, name=f"{experiment.title}, {options.scale}")


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
        return
    if not options.run:
        raise ValueError(f"runs {options.action} needs the id of a run. See: python -m m2st_core runs")
    spec = store.spec(options.run)
    if options.action == "resume":
        compute(spec, options)
    elif options.action == "delete":
        store.delete_run(options.run)
        print(f"Deleted run {options.run}.")
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
    names = {"on_training_rows": "training halves", "on_test_rows": "test halves", "highest": "largest task"}
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


def run_bench(options: argparse.Namespace) -> None:
    """Hand over to benchmarks/NAME.py."""
    try:
        module = importlib.import_module(f"benchmarks.{options.name}")
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("benchmarks"):
            raise
        raise ValueError(
            f"there is no benchmark {options.name!r} here; run from the repository, which has {BENCHMARKS}"
        ) from None
    module.main(options.arguments)


COMMANDS: dict[str, Callable[[argparse.Namespace], None]] = {
    "test": run_test,
    "meta-train": run_meta_train,
    "sweep": run_sweep_command,
    "paper": run_paper,
    "runs": run_runs,
    "bench": run_bench,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 when the command ran, 2 for bad input."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without Greek letters shows question marks
    options = build_parser().parse_args(arguments)
    try:
        COMMANDS[options.command](options)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever reads has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except ValueError as error:
        print(f"m2st_core: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
