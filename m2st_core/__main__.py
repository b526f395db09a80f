"""The command line, ``m2st`` or ``python -m m2st_core``: test, learn, measure power, serve."""

from __future__ import annotations

import argparse
import gc
import importlib
import io
import os
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from m2st_core.analysis.correction import FAMILIES
from m2st_core.commands.own_data import RECOMMENDED, names_by_origin, run_meta_train, run_test
from m2st_core.commands.service import run_app, run_ready, run_store
from m2st_core.commands.sweeps import run_paper, run_runs, run_sweep_command
from m2st_core.data.tables.encoding import MISSING_CHOICES, SCALING_CHOICES
from m2st_core.data.tables.examples import EXAMPLES
from m2st_core.data.tables.questions import CHOICES, READ_AS, TOTALS
from m2st_core.paper.experiments import PAPER
from m2st_core.presets import PRESETS
from m2st_core.types import DEFAULT_TAUGHT_TEST

BENCHMARKS = (
    "permutation, calibration, deviations, mixtures, nested, histories, recommend, planning, splits, shared, silent, "
    "uploads, example, explore, theorem, shipped, pages, screens, peers, meta, images, cifar, reproduction, serving, "
    "house"
)


class _OneLineParser(argparse.ArgumentParser):
    """A parser whose errors are one line on stderr."""

    def error(self, message: str) -> NoReturn:
        """Exit with code 2."""
        self.exit(2, f"{self.prog}: {message}. See --help.\n")


class _Renamed(argparse.Action):
    """An option that has another name now, which is its ``const``."""

    def __call__(self, parser: object, namespace: object, values: object, option: str | None = None) -> NoReturn:
        """Refuse the old name."""
        raise ValueError(f"{option} is now called {self.const}.")


def build_parser() -> argparse.ArgumentParser:
    """Declare all commands and their options."""
    parser = _OneLineParser(prog="m2st_core", description="Two-sample tests with learned kernels.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="|".join(COMMANDS))

    test = commands.add_parser("test", help="test whether the rows of two tables come from the same distribution")
    add = test.add_argument
    add("files", metavar="P.csv Q.csv", nargs="*", help="the two samples, or one file and --group-column")
    add("--example", default="", help=f"instead of files, one of {', '.join(EXAMPLES)}")
    add("--related", nargs="+", metavar="RELATED.csv", help="related tasks, for methods that learn from them")
    add("--task-column", default="task", help="the column of RELATED.csv that names the task")
    add("--related-group-column", help="the group column of RELATED.csv (default: as in the target, or group)")
    for old, new in (("--meta", "--related"), ("--meta-group-column", "--related-group-column")):
        add(old, action=_Renamed, nargs="*", const=new, help=argparse.SUPPRESS)
    help_ = f"{RECOMMENDED} (the default: it suits the data), or one of: {names_by_origin()}"
    add("--method", default=RECOMMENDED, help=help_)
    add("--alpha", type=float, default=0.05, help="significance level (default 0.05)")
    add("--permutations", type=int, default=999, help="number of random relabellings (default 999)")
    add("--train-fraction", type=float, default=0.5, help="share of training rows (default 0.5)")
    add("--splits", type=int, default=1, metavar="S", help="random splits to combine (default 1)")
    help_ = "primary: it alone decides and secondary tests are exploratory; all: Holm's correction over all tests"
    add("--family", default="primary", choices=list(FAMILIES), help=help_)
    add("--json", action="store_true", help="print one JSON object")
    add("--learner", default="", help="folder or ZIP of a learner, whose test is the default")
    add("--secondary", nargs="+", default=(), metavar="METHOD", help="further tests, corrected by Holm")
    help_ = "the values of P and Q in the group column (default: as the file has them), or one against all others"
    add("--groups", nargs="+", default=(), metavar="VALUE", help=help_)
    help_ = "the values that play P and Q in related tasks whose values are not the target's"
    add("--related-groups", nargs="+", default=(), metavar="VALUE", help=help_)
    add("--block-column", help="permute labels only within the values of this column")
    add("--report", metavar="REPORT.html", help="write a report as one HTML file")

    train = commands.add_parser("meta-train", help="learn from related tasks, to test targets with --learner")
    help_ = "columns task, group (two values per task) and the features; or one file per task, or a ZIP of them"
    train.add_argument("related", metavar="RELATED.csv", nargs="+", help=help_)
    help_ = f"one of: {names_by_origin(with_related_tasks=True)}; default {DEFAULT_TAUGHT_TEST}"
    train.add_argument("--method", default=DEFAULT_TAUGHT_TEST, help=help_)
    train.add_argument("--out", required=True, help="folder for the learner, or a ZIP if the name ends with .zip")

    for add in (test.add_argument, train.add_argument):
        help_ = "settings of a test of the paper: its text (paper, the default), its code (released), or tuned; "
        help_ += '--method "Meta-MKL · tuned" is --method Meta-MKL --preset tuned (docs/methods.md says what changes)'
        add("--preset", help=help_)
        add("--seed", type=int, default=0, help="seed of everything random (default 0)")
        add("--device", default="auto", help="auto, cpu or cuda (default auto)")
        add("--group-column", help="the column whose two values name the groups, in a file with both")
        help_ = "the decimal mark of cells such as 8.654 that can be read in two ways, . or , for all files or by file"
        add("--decimal", action="append", default=[], metavar="[FILE=]MARK", help=help_)
        help_ = "the encoding of text that is not UTF-8, such as cp1251, for all files or by file"
        add("--encoding", action="append", default=[], metavar="[FILE=]NAME", help=help_)
        help_ = f"what a column holds, COLUMN=KIND of {', '.join(CHOICES[READ_AS])}"
        add("--read-as", nargs="+", default=(), metavar="COLUMN=KIND", help=help_)
        help_ = "rows that look like totals: leave out, or keep"
        add("--totals", default="", choices=CHOICES[TOTALS], help=help_)
        add("--missing", help=f"missing cells: {', '.join(map(repr, MISSING_CHOICES))} (default refuse)")
        add("--scaling", help=f"{', '.join(map(repr, SCALING_CHOICES))} (default standard)")
        add("--levels", type=int, help="categories of a column that get an indicator each (default 20)")
        add("--leave-out", nargs="+", metavar="COLUMN", help="columns that are not compared")
        help_ = "the column that identifies rows, by which rows of the target are known in the related tasks"
        add("--id-column", metavar="COLUMN", help=help_)
        add("--use", nargs="+", metavar="COLUMN", help="columns to compare although they look like identifiers")

    sweep = commands.add_parser("sweep", help="run a grid of tests described by a TOML file")
    sweep.add_argument("spec", metavar="SPEC.toml")
    paper = commands.add_parser("paper", help="run a table or figure of the paper")
    paper.add_argument("experiment", help=f"one of {', '.join(PAPER)}")
    help_ = "full: the paper's 20 repeats of 100 tests (hours); quick: 2 repeats of 20 (minutes, default)"
    paper.add_argument("--scale", choices=("quick", "full"), default="quick", help=help_)
    layer = paper.add_mutually_exclusive_group()
    layer.add_argument("--ours", action="store_true", help="our own family on the same samples")
    help_ = "settings of the paper's algorithms: its text (paper, the default), its code (released), or tuned"
    layer.add_argument("--preset", choices=tuple(PRESETS), help=help_)
    help_ = "exact counts the observed labelling, (1+b)/(1+B) (default); published is the paper's b/B"
    paper.add_argument("--p-value", choices=("exact", "published"), default="exact", help=help_)
    paper.add_argument("--fresh", action="store_true", help="compute here what comes with this software, too")
    runs = commands.add_parser("runs", help="list, show, resume, delete, restore or export earlier runs")
    actions = ("list", "show", "resume", "delete", "restore", "export", "collect")
    help_ = "collect removes deleted runs, and cells and learners of no run, for good"
    runs.add_argument("action", nargs="?", default="list", choices=actions, help=help_)
    runs.add_argument("run", nargs="?", help="the id of a run, or its start")
    for command in (sweep, paper, runs):
        command.add_argument("--out", help="write the rows as CSV")
        command.add_argument("--figure", help="write the figure as HTML")
        command.add_argument("--executor", default="pool", choices=("inline", "pool", "dask"))
        command.add_argument("--address", help="address of a Dask scheduler")
        command.add_argument("--workers", type=int, help="number of processes in the pool (default: one per core)")

    app = commands.add_parser("app", help="start the dashboard")
    app.add_argument("--port", type=int, help="its port (default 8501)")
    app.add_argument("--address", help="the address it listens on (default 127.0.0.1, this machine only)")
    app.add_argument("--served", action="store_true", help="for many people, where runs have owners: docs/serving.md")
    ready = commands.add_parser("ready", help="check that results can be stored, and that a dashboard answers")
    ready.add_argument("url", nargs="?", help="the dashboard's address, such as http://127.0.0.1:8501")
    store = commands.add_parser("store", help="back the store of results up into one file, or restore it")
    store.add_argument("action", choices=("backup", "restore"))
    store.add_argument("file", metavar="STORE.zip")

    bench = commands.add_parser("bench", help=f"time or study the engine: {BENCHMARKS}", add_help=False)
    bench.add_argument("name", help="module in benchmarks/")
    bench.add_argument("arguments", nargs=argparse.REMAINDER)
    return parser


def _run_bench(options: argparse.Namespace) -> None:
    """Run benchmarks/NAME.py."""
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
    "app": run_app,
    "ready": run_ready,
    "store": run_store,
    "bench": _run_bench,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command. The exit code is 0 for success and 2 for bad input."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without Greek letters shows question marks
    try:
        options = build_parser().parse_args(arguments)
        COMMANDS[options.command](options)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except ValueError as error:
        print(f"m2st_core: {error}", file=sys.stderr)
        return 2
    return 0


def run_program() -> NoReturn:
    """Run a command and exit, without collecting one by one all objects that the library made when it was loaded."""
    code = main()
    gc.freeze()
    sys.exit(code)


if __name__ == "__main__":
    run_program()
