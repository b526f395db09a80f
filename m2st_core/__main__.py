"""The command line: ``python -m m2st_core test | meta-train | bench``."""

from __future__ import annotations

import argparse
import importlib
import io
import json
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from m2st_core import METHODS, PRESETS, load_learner, meta_train, two_sample_test
from m2st_core.tasks.tables import read_csv_pair, read_meta_csv
from m2st_core.types import TestResult

BENCHMARKS = "permutation, calibration, power, transfer, relatedness, meta"


class OneLineParser(argparse.ArgumentParser):
    """A parser whose errors are one line on stderr."""

    def error(self, message: str) -> NoReturn:
        """Exit with code 2."""
        self.exit(2, f"{self.prog}: {message}. See --help.\n")


def build_parser() -> argparse.ArgumentParser:
    """All commands and their options."""
    parser = OneLineParser(prog="m2st_core", description="Two-sample tests with learned kernels.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="test|meta-train|bench")

    test = commands.add_parser("test", help="test whether the rows of two CSV files come from the same distribution")
    test.add_argument("p", metavar="P.csv", help="rows of the first sample")
    test.add_argument("q", metavar="Q.csv", help="rows of the second sample")
    names = ", ".join(name for name, method in METHODS.items() if not method.needs_meta)
    test.add_argument("--method", default="MMD-D", help=f"one of {names} (default MMD-D)")
    test.add_argument("--alpha", type=float, default=0.05, help="level of the test (default 0.05)")
    test.add_argument("--permutations", type=int, default=999, help="number of random relabellings (default 999)")
    test.add_argument("--train-fraction", type=float, default=0.5, help="share of rows to learn from (default 0.5)")
    test.add_argument("--preset", default="recommended", help=f"one of {', '.join(PRESETS)} (default recommended)")
    test.add_argument("--seed", type=int, default=0, help="fixes split, learning and permutations (default 0)")
    test.add_argument("--device", default="auto", help="auto, cpu or cuda (default auto)")
    test.add_argument("--json", action="store_true", help="print one JSON object")

    test.add_argument("--learner", help="folder of a learner made by meta-train; it brings its method and preset")

    train = commands.add_parser("meta-train", help="learn from related tasks, to test targets with --learner")
    train.add_argument("meta", metavar="META.csv", help="columns task, group (two values per task) and the features")
    meta_names = ", ".join(name for name, method in METHODS.items() if method.adapt)
    train.add_argument("--method", default="Meta-FUSE", help=f"one of {meta_names} (default Meta-FUSE)")
    train.add_argument("--preset", default="recommended", help=f"one of {', '.join(PRESETS)} (default recommended)")
    train.add_argument("--out", required=True, help="folder for the learner")
    train.add_argument("--seed", type=int, default=0, help="fixes the learning (default 0)")
    train.add_argument("--device", default="auto", help="auto, cpu or cuda (default auto)")

    bench = commands.add_parser("bench", help=f"time or study the engine: {BENCHMARKS}", add_help=False)
    bench.add_argument("name", help="module in benchmarks/")
    bench.add_argument("arguments", nargs=argparse.REMAINDER)
    return parser


def run_test(options: argparse.Namespace) -> None:
    """Read, test, print."""
    x, y = read_csv_pair(options.p, options.q)
    columns = ", ".join(map(str, x.columns)) if isinstance(x.columns[0], str) else f"{x.shape[1]} (no header)"
    settings = {
        "alpha": options.alpha,
        "n_permutations": options.permutations,
        "train_fraction": options.train_fraction,
        "seed": options.seed,
        "device": options.device,
    }
    if options.learner:
        result = load_learner(options.learner).test(x, y, **settings)
    else:
        result = two_sample_test(x, y, method=options.method, preset=options.preset, **settings)
    print(json.dumps(result.to_dict(), ensure_ascii=False) if options.json else describe(result, columns))


def run_meta_train(options: argparse.Namespace) -> None:
    """Read, learn, save."""
    tasks = read_meta_csv(options.meta)
    learner = meta_train(options.method, tasks, preset=options.preset, seed=options.seed, device=options.device)
    learner.save(options.out)
    print(f"{options.method} learned from {len(tasks)} tasks with {learner.columns} columns; saved in {options.out}")


def describe(result: TestResult, columns: str) -> str:
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
    lines.append(f"columns    {columns}")
    lines.append(f"settings   {result.method}, preset {result.preset}, seed {result.seed}, {result.device}")
    heavy = sorted(result.weights.items(), key=lambda item: -item[1])[:5]
    if heavy:
        lines.append("weights β  " + ", ".join(f"{name} {weight:.2f}" for name, weight in heavy if weight > 0.005))
    lines.append(f"time       {result.seconds:.2f} s")
    return "\n".join(lines + [f"note       {note}" for note in result.notes])


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


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 when the command ran, 2 for bad input."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without Greek letters shows question marks
    options = build_parser().parse_args(arguments)
    try:
        {"test": run_test, "meta-train": run_meta_train, "bench": run_bench}[options.command](options)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever reads has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except ValueError as error:
        print(f"m2st_core: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
