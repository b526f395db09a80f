"""False answers that used to come without a word: how often each case gives one, and what is said, as Markdown.

Every case is a true null hypothesis (but for those that measure power): a rejection is a false alarm unless the result
says that it is not exact, or the data were refused. ``--rates FILE`` writes the rates as JSON, so that a run on another
version can be printed beside this one's with ``--before FILE``.
"""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

import m2st_core as m2st
from benchmarks.common import Page, parse, processes
from benchmarks.shared import KINDS
from m2st_core.data.tables.questions import in_shell
from m2st_core.rng import Streams

LEVEL, B = 0.05, 99
Pair = tuple[Any, Any]


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


def tested(x: Any, y: Any, tasks: Any = None, *words: str, method: str = "Meta-Witness") -> Run:
    """A test whose rejection is a false alarm. A refusal is no answer."""
    try:
        result = m2st.two_sample_test(
            x, y, method if tasks is not None else "MMD-M", related_tasks=tasks, n_permutations=B, device="cpu"
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
    result = m2st.two_sample_test(x, y, "Meta-Witness", related_tasks=tasks, ids="record", n_permutations=B)
    return Run(result.rejected, result.exact, said_of(result, "other ids"))


def straight_liners(generator: np.random.Generator) -> Pair:
    """40 + 40 persons who answer 25 items from 1 to 6; 3 % give the same answer to all."""
    rows = generator.integers(1, 7, (80, 25)) * 1.0
    straight = generator.random(80) < 0.03
    rows[straight] = generator.integers(1, 7, (int(straight.sum()), 1))
    return rows[:40], rows[40:]


UNSHARED: dict[str, Callable[[np.random.Generator], Pair]] = {
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


# Columns and their names


def as_polars(frame: pd.DataFrame) -> Any:
    """The frame as polars has it."""
    import polars  # required by developers only

    return polars.from_pandas(frame)


def as_arrow(frame: pd.DataFrame) -> Any:
    """The frame as pyarrow has it."""
    import pyarrow

    return pyarrow.Table.from_pandas(frame, preserve_index=False)


FRAMES: dict[str, Callable[[pd.DataFrame], Any]] = {
    "pandas, words": lambda frame: frame,
    "pandas, whole numbers": lambda frame: frame.rename(columns={"a": 10, "b": 20, "c": 30}),
    "pandas, MultiIndex": lambda frame: frame.set_axis(
        pd.MultiIndex.from_tuples([("t", name) for name in frame.columns]), axis=1
    ),
    "polars": as_polars,
    "pyarrow": as_arrow,
}


def frame_of(generator: np.random.Generator, rows: int, order: str = "abc") -> pd.DataFrame:
    """Rows whose three columns are of different size, the columns in this order."""
    return pd.DataFrame(generator.standard_normal((rows, 3)) + [0, 3, 6], columns=[*"abc"])[[*order]]


def reordered(kind: str, generator: np.random.Generator) -> Run:
    """Samples of one distribution, the columns of y in another order."""
    return tested(*(FRAMES[kind](frame_of(generator, 30, order)) for order in ("abc", "cab")))


def history(generator: np.random.Generator, order: str = "abc") -> list[tuple[pd.DataFrame, pd.DataFrame]]:
    """Twelve tasks whose Q is shifted in the first column, and a target like them, which comes last."""
    pairs = []
    for rows in [60] * 12 + [25]:
        p, q = frame_of(generator, rows), frame_of(generator, rows)
        pairs.append((p, q.assign(a=q["a"] + 0.7)))
    return [(p[[*order]], q[[*order]]) if rows < 12 else (p, q) for rows, (p, q) in enumerate(pairs)]


def taught(order: str, names: str, generator: np.random.Generator) -> Run:
    """Not detected after learning from frames with their columns in this order, the target's under these names."""
    *tasks, (x, y) = history(generator, order)
    learner = m2st.meta_train("Meta-WiTS", tasks, device="cpu")
    x, y = (frame.set_axis([*names], axis=1) for frame in (x, y))
    try:
        result = learner.test(x, y, n_permutations=B, device="cpu")
    except ValueError as error:
        return Run(False, False, str(error))
    return Run(not result.rejected, result.exact, said_of(result))


def seen_reordered(generator: np.random.Generator) -> Run:
    """A learner accepts its own training rows, their columns in another order."""
    *tasks, _ = history(generator)
    learner = m2st.meta_train("Meta-WiTS", tasks, device="cpu")
    try:
        learner.test(*(frame[[*"cab"]] for frame in tasks[0]), n_permutations=19, device="cpu")
    except ValueError as error:
        return Run(False, False, str(error))
    return Run(True, True, "")


def shown(generator: np.random.Generator) -> Run:
    """``repr(learner)`` has values of the training rows."""
    *tasks, _ = history(generator)
    learner = m2st.meta_train("Meta-WiTS", tasks, device="cpu")
    value = f"{tasks[0][0].iloc[0, 0]:.3f}"[:5]
    return Run(value in repr(learner) or "array" in repr(learner), False, repr(learner))


def zipped(generator: np.random.Generator) -> Run:
    """``save("L.zip")`` makes a folder."""
    *tasks, _ = history(generator)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "L.zip"
        m2st.meta_train("Meta-WiTS", tasks, device="cpu").save(place)
        return Run(place.is_dir(), False, "L.zip is a ZIP")


# Files


def as_csv(frame: pd.DataFrame, encoding: str = "utf-8") -> bytes:
    """The bytes of a CSV file."""
    text = io.StringIO()
    frame.to_csv(text, index=False)
    return text.getvalue().encode(encoding)


def file_tested(upload: Callable[[], Any], *words: str) -> Run:
    """The default test of an upload."""
    try:
        data = m2st.prepare(upload())
        result = m2st.two_sample_test(data.x, data.y, n_permutations=B, device="cpu")
    except ValueError as error:
        return Run(False, False, str(error))
    said = [in_shell(note) for note in (*data.decisions, *result.notes) if any(word in note for word in words)]
    return Run(result.rejected, result.exact, said[0] if said else "")


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
    return file_tested(lambda: m2st.Upload((m2st.read_table("d.csv", as_csv(frame)),), group="group"), repr(name))


def measured(kind: str, generator: np.random.Generator) -> Run:
    """A file with 30 + 30 rows in which a measurement differs by 1.5 standard deviations, not found."""
    name, mean, spread = MEASUREMENTS[kind]
    values = mean + spread * (generator.standard_normal(60) + np.repeat([0.0, 1.5], 30))
    frame = pd.DataFrame({name: values.round(), "group": ["old"] * 30 + ["new"] * 30})
    frame["a"] = generator.standard_normal(60)
    run = file_tested(lambda: m2st.Upload((m2st.read_table("d.csv", as_csv(frame)),), group="group"), repr(name))
    return run._replace(false=not run.false)


def copied(generator: np.random.Generator) -> Run:
    """Five of the 30 rows of both null samples are copies of others."""
    x, y = (np.concatenate([rows, rows[:5]]) for rows in generator.standard_normal((2, 25, 3)))
    try:
        result = m2st.two_sample_test(x, y, n_permutations=B, device="cpu")
    except ValueError as error:
        return Run(False, False, str(error))
    said = said_of(result, "different")
    return Run(result.rejected and "different" not in said, result.exact, said)


def repeated(generator: np.random.Generator) -> Run:
    """Every row of both null samples five times."""
    x, y = (np.repeat(generator.standard_normal((6, 3)), 5, axis=0) for _ in "xy")
    run = tested(x, y, None, "different")
    return run._replace(false=run.false and "different" not in run.said)


def encoded(generator: np.random.Generator) -> Run:
    """Two null samples of words, one file in UTF-8 and one in Windows-1251."""
    words = np.array(["Москва", "Казань", "Тверь"])
    p, q = (pd.DataFrame({"a": generator.standard_normal(40), "city": generator.choice(words, 40)}) for _ in "pq")
    return file_tested(
        lambda: m2st.Upload((m2st.read_table("p.csv", as_csv(p)), m2st.read_table("q.csv", as_csv(q, "cp1251"))))
    )


def odd_cell(generator: np.random.Generator) -> Run:
    """A column of numbers with one cell ``x`` is called constant, or is used without a word."""
    p, q = (pd.DataFrame({"a": generator.standard_normal(20), "b": ["2"] * 20}) for _ in "pq")
    q.loc[3, "b"] = "x"
    run = file_tested(
        lambda: m2st.Upload((m2st.read_table("p.csv", as_csv(p)), m2st.read_table("q.csv", as_csv(q)))), "'b'"
    )
    return Run("always 2" in run.said or not run.said, run.exact, run.said)


def large(generator: np.random.Generator) -> Run:
    """A reason for large samples that says that all rows are tested."""
    reasons = " ".join(m2st.recommend(10_500, 10_500, n_tasks=10).reasons)
    return Run("tests all rows" in reasons, False, reasons)


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
    **{f"columns in another order: {kind}": Case(partial(reordered, kind)) for kind in FRAMES},
    "tasks in order, learner": Case(partial(taught, "abc", "abc"), "missed"),
    "tasks' columns in another order, learner": Case(partial(taught, "cab", "abc"), "missed"),
    "target with other names, learner": Case(partial(taught, "abc", "xyz"), "missed"),
    "training rows with columns in another order": Case(seen_reordered, "accepted", 10),
    "repr(learner)": Case(shown, "shows rows", 2),
    'save("L.zip")': Case(zipped, "makes a folder", 2),
    **{
        f"file with {kind}, {'shuffled' if shuffled else 'sorted'}": Case(partial(numbered, kind, shuffled), runs=40)
        for kind in IDENTIFIERS
        for shuffled in (False, True)
    },
    **{f"file with {kind}, which differs": Case(partial(measured, kind), "missed", 40) for kind in MEASUREMENTS},
    "five of 30 rows copied": Case(copied, "rejected without a word", 40),
    "every row five times": Case(repeated, "rejected without a word"),
    "two encodings": Case(encoded, runs=40),
    "numbers with one cell x": Case(odd_cell, "called constant", 5),
    "10,500 + 10,500 rows: reasons": Case(large, "false reason", 1),
}


def one_run(name: str, seed: int) -> Run:
    """One run of a case, from a random stream of its own."""
    return CASES[name].run(Streams(seed).numpy(f"silent: {name}"))


def main(arguments: Sequence[str] = ()) -> None:
    """Run the cases and print the table."""
    options = parse(arguments, __doc__, only="", share=1.0, rates=Path, before=Path, workers=2)
    before = json.loads(options.before.read_text(encoding="utf-8")) if options.before else {}
    rates, page = {}, Page()
    page.head("case", "counted", "before", "now", "of these called exact", "what is said")
    with processes(options.workers) as pool:
        for name, case in CASES.items():
            if options.only not in name:
                continue
            count = max(1, round(case.runs * options.share))
            runs = list(pool.map(partial(one_run, name), range(count), chunksize=max(1, count // 8)))
            rates[name] = sum(run.false for run in runs) / count
            exact = sum(run.false and run.exact for run in runs) / count
            high = stats.binom.interval(0.99, count, LEVEL)[1] / count
            said = next((run.said for run in runs if run.said), "").replace("|", "/").replace("\n", " ")
            earlier = f"{before[name]:.2f}" if name in before else "–"
            above = " **above the band**" if case.counts == "rejected" and exact > high else ""
            page.row(name, f"{case.counts} of {count}", earlier, f"{rates[name]:.2f}", f"{exact:.2f}{above}", said)
    if options.rates:
        options.rates.write_text(json.dumps(rates, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
