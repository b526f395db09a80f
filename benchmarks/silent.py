"""False answers that used to come without a word: how often each case gives one, and what is said, as Markdown.

Every case is a true null hypothesis (but for those that measure power): a rejection is a false alarm unless the result
says that it is not exact, or the data were refused. Cases with a single outcome are tests of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import m2st_core as m2st
from benchmarks.common import ALPHA, Page, parse, processes
from benchmarks.shared import KINDS
from m2st_core.data.tables.questions import in_shell
from m2st_core.numbers import null_band
from m2st_core.rng import Streams

B = 99


class Run(NamedTuple):
    """One run of a case: whether it ended in the false answer, whether that was called exact, and what was said."""

    false: bool
    exact: bool
    said: str = ""


@dataclass(frozen=True)
class Case:
    """A case: what happens in it, what a false answer is, and the runs that are worth making of it."""

    run: Callable[[np.random.Generator], Run]
    counts: str = "rejected"
    runs: int = 100


def said_of(result: Any, *words: str) -> str:
    """The first note of a result that has one of these words, or its sentence."""
    return next((note for note in result.notes if any(word in note for word in words)), result.sentence)


def tested(x: Any, y: Any, tasks: Any, *words: str, **settings: Any) -> Run:
    """A test whose rejection is a false alarm. A refusal is no answer."""
    try:
        result = m2st.two_sample_test(
            x, y, "Meta-Witness", related_tasks=tasks, n_permutations=B, device="cpu", **settings
        )
    except ValueError as error:
        return Run(False, False, str(error))
    return Run(result.rejected, result.exact, said_of(result, *words))


# Rows shared with the related tasks


def part_shared(kind: str, shared: int, group: int, generator: np.random.Generator) -> Run:
    """Some of the target's 40 rows of x are in the control group of six null tasks."""
    draw = KINDS[kind]
    control = draw(generator, group)
    x = np.concatenate([control[:shared], draw(generator, 40 - shared)])
    tasks = [(control, draw(generator, 40)) for _ in range(6)]
    return tested(x, draw(generator, 40), tasks, "unnoticed", "also in the related tasks")


def pool_shared(kind: str, generator: np.random.Generator) -> Run:
    """The target and every task draw 40 control rows from a pool of 60."""
    pool = KINDS[kind](generator, 60)

    def control() -> np.ndarray:
        return pool[generator.permutation(60)[:40]]

    tasks = [(control(), KINDS[kind](generator, 40)) for _ in range(6)]
    return tested(control(), KINDS[kind](generator, 40), tasks, "unnoticed", "also in the related tasks")


CHANGES: dict[str, Callable[[np.random.Generator, np.ndarray], np.ndarray]] = {
    "centred and scaled anew": lambda g, rows: (rows - rows.mean(axis=0)) / rows.std(axis=0),
    "measured with an error of 0.05 SD": lambda g, rows: rows + 0.05 * g.standard_normal(rows.shape),
}


def changed(kind: str, generator: np.random.Generator) -> Run:
    """The target's control group of 40 normal rows, d=5, is in six null tasks, changed in each."""
    control, fresh = generator.standard_normal((2, 40, 5))
    tasks = [(CHANGES[kind](generator, control), generator.standard_normal((40, 5))) for _ in range(6)]
    return tested(CHANGES[kind](generator, control), fresh, tasks, "other values", "also in the related tasks")


def renumbered(generator: np.random.Generator) -> Run:
    """The target's control group is in six null tasks, with new numbers in each file, which are named as ids."""
    control, number = generator.standard_normal((40, 2)), iter(range(10**6))

    def rows(values: np.ndarray) -> pd.DataFrame:
        return pd.DataFrame(values, columns=["a", "b"]).assign(record=[next(number) for _ in values])

    tasks = [(rows(control), rows(generator.standard_normal((40, 2)))) for _ in range(6)]
    x, y = rows(control), rows(generator.standard_normal((40, 2)))
    return tested(x, y, tasks, "other ids", ids="record")


def straight_liners(generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """40 + 40 persons who answer 25 items from 1 to 6; 3 % give the same answer to all."""
    rows = generator.integers(1, 7, (80, 25)) * 1.0
    straight = generator.random(80) < 0.03
    rows[straight] = generator.integers(1, 7, (int(straight.sum()), 1))
    return rows[:40], rows[40:]


UNSHARED: dict[str, Callable[[np.random.Generator], tuple[np.ndarray, np.ndarray]]] = {
    "control in whole numbers, treated with decimals": lambda g: (
        g.normal(50, 3, (40, 2)).round(),
        g.normal(50, 3, (40, 2)),
    ),
    "five answers, 1–5 in P and 0–100 in Q": lambda g: (
        g.integers(1, 6, (40, 5)) * 1.0,
        (g.integers(1, 6, (40, 5)) - 1) * 25.0,
    ),
    "25 answers, 3 % straight-liners": straight_liners,
}


def unshared(kind: str, generator: np.random.Generator) -> Run:
    """A learner of six tasks and a target that shares no row with them: a refusal is false."""
    draw = UNSHARED[kind]
    learner = m2st.meta_train("Meta-Witness", [draw(generator) for _ in range(6)], device="cpu")
    try:
        result = learner.test(*draw(generator), n_permutations=19, device="cpu")
    except ValueError as error:
        return Run(True, False, str(error))
    return Run(False, result.exact, said_of(result, "unnoticed"))


# Files


def file_tested(frame: pd.DataFrame, word: str) -> Run:
    """The default test of a file with the column ``group``."""
    try:
        file = m2st.read_table("d.csv", frame.to_csv(index=False).encode())
        data = m2st.prepare(m2st.Upload((file,), group="group"))
        result = m2st.two_sample_test(data.x, data.y, n_permutations=B, device="cpu")
    except ValueError as error:
        return Run(False, False, str(error))
    said = next((in_shell(note) for note in (*data.decisions, *result.notes) if word in note), "")
    return Run(result.rejected, result.exact, said)


def uuid(generator: np.random.Generator, row: int) -> str:
    """A random UUID that begins with the number of the row, as time-ordered ones do."""
    return f"{row:08x}-" + "-".join(generator.bytes(size).hex() for size in (2, 2, 2, 6))


IDENTIFIERS: dict[str, tuple[str, Callable[[np.random.Generator, int], Any]]] = {
    "id = 1001, 1002, …": ("id", lambda g, row: 1001 + row),
    "record_no with gaps": ("record_no", lambda g, row: 5000 + 3 * row + int(g.integers(0, 3))),
    "x = 1, 2, 3, …": ("x", lambda g, row: 1 + row),
    "v1 in steps of 7": ("v1", lambda g, row: 100 + 7 * row),
    "timestamp in Unix seconds": ("timestamp", lambda g, row: 1_700_000_000 + 3600 * row + int(g.integers(0, 900))),
    "serial days of a spreadsheet": ("day", lambda g, row: 45_000 + row),
    "file = scan_0001.png, …": ("file", lambda g, row: f"scan_{row:04d}.png"),
    "uuid": ("uuid", uuid),
    "tube_no in steps of 1 to 59": ("tube_no", lambda g, row: 1000 + 30 * row + int(g.integers(0, 30))),
    "Aktenzeichen with gaps": ("Aktenzeichen", lambda g, row: 5000 + 9 * row + int(g.integers(0, 9))),
    "visit_dt in serial days": ("visit_dt", lambda g, row: 44_000 + 3 * row + int(g.integers(0, 3))),
}
MEASUREMENTS: dict[str, tuple[str, float, float]] = {  # the header, the mean, the standard deviation
    "time_ms of 22,000 to 47,000": ("time_ms", 34_000, 4_000),
    "cells_per_ml of 1.5e9": ("cells_per_ml", 1.5e9, 5e7),
    "start_salary of 45,000": ("start_salary", 45_000, 5_000),
    "Messung of 5,000": ("Messung", 5_000, 800),
}


def numbered(kind: str, shuffled: bool, generator: np.random.Generator) -> Run:
    """A file with 30 + 30 null rows in which P was numbered before Q."""
    name, number = IDENTIFIERS[kind]
    frame = pd.DataFrame(generator.standard_normal((60, 3)), columns=[*"abc"]).assign(group=["old"] * 30 + ["new"] * 30)
    frame.insert(0, name, [number(generator, row) for row in range(60)])
    frame = frame.sample(frac=1, random_state=int(generator.integers(2**31))) if shuffled else frame
    return file_tested(frame, repr(name))


def measured(kind: str, generator: np.random.Generator) -> Run:
    """A file with 30 + 30 rows in which a measurement differs by 1.5 standard deviations, not found."""
    name, mean, spread = MEASUREMENTS[kind]
    values = mean + spread * (generator.standard_normal(60) + np.repeat([0.0, 1.5], 30))
    frame = pd.DataFrame({name: values.round(), "group": ["old"] * 30 + ["new"] * 30})
    frame["a"] = generator.standard_normal(60)
    run = file_tested(frame, repr(name))
    return run._replace(false=not run.false)


CASES: dict[str, Case] = {
    **{
        f"40 of 50 control rows shared: {kind}": Case(partial(part_shared, kind, 40, 50))
        for kind in ("integers, d=2", "three answers 1–5", "age in years and sex", "normal, d=2")
    },
    **{
        f"40 of a pool of 60: {kind}": Case(partial(pool_shared, kind))
        for kind in ("integers, d=2", "three answers 1–5", "age in years and sex")
    },
    **{
        f"10 of 40 rows shared: {kind}": Case(partial(part_shared, kind, 10, 40))
        for kind in (
            "normal, one decimal, d=2",
            "ten binary columns",
            "five answers 1–5",
            "five Poisson counts",
            "normal, d=2",
        )
    },
    **{f"40 of 40 rows shared, {kind}": Case(partial(changed, kind), runs=40) for kind in CHANGES},
    "40 of 40 rows shared, ids that number rows anew": Case(renumbered, runs=40),
    **{f"nothing shared: {kind}": Case(partial(unshared, kind), "refused") for kind in UNSHARED},
    **{
        f"file with {kind}, {'shuffled' if shuffled else 'sorted'}": Case(partial(numbered, kind, shuffled), runs=40)
        for kind in IDENTIFIERS
        for shuffled in (False, True)
    },
    **{f"file with {kind}, which differs": Case(partial(measured, kind), "missed", 40) for kind in MEASUREMENTS},
}


def one_run(name: str, seed: int) -> Run:
    """One run of a case, from a random stream of its own."""
    return CASES[name].run(Streams(seed).numpy(f"silent: {name}"))


def main(arguments: Sequence[str] = ()) -> None:
    """Run the cases and print the table."""
    options, page = parse(arguments, __doc__, only="", share=1.0, workers=2), Page()
    page.head("case", "counted", "now", "of these called exact", "what is said")
    with processes(options.workers) as pool:
        for name, case in CASES.items():
            if options.only not in name:
                continue
            count = max(1, round(case.runs * options.share))
            runs = list(pool.map(partial(one_run, name), range(count), chunksize=max(1, count // 8)))
            rate = sum(run.false for run in runs) / count
            exact = sum(run.false and run.exact for run in runs) / count
            said = next((run.said for run in runs if run.said), "").replace("|", "/").replace("\n", " ")
            above = " **above the band**" if case.counts == "rejected" and exact > null_band(ALPHA, count)[1] else ""
            page.row(name, f"{case.counts} of {count}", f"{rate:.2f}", f"{exact:.2f}{above}", said)
