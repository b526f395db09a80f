"""False answers that used to come without a word: how often each case gives one, and what is said, as Markdown.

Every case is a true null hypothesis (but for those that measure power): a rejection is a false alarm unless the result
says that it is not exact, or the data were refused. ``--rates FILE`` writes the rates as JSON, so that a run on another
version can be printed beside this one's with ``--before FILE``.
"""

from __future__ import annotations

import argparse
import io
import json
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from scipy import stats

import m2st_core as m2st
from m2st_core.data.tables.limits import in_shell
from m2st_core.rng import Streams

LEVEL, B = 0.05, 99
Pair = tuple[Any, Any]
Draw = Callable[[np.random.Generator, int], np.ndarray]


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

ROWS: dict[str, Draw] = {
    "integers, d=2": lambda g, n: g.normal(0, 10, (n, 2)).round(),
    "three answers 1–5": lambda g, n: g.integers(1, 6, (n, 3)) * 1.0,
    "age and sex": lambda g, n: np.stack([g.integers(18, 80, n), g.integers(0, 2, n)], axis=1) * 1.0,
    "one decimal, d=2": lambda g, n: g.standard_normal((n, 2)).round(1),
    "ten binary columns": lambda g, n: g.integers(0, 2, (n, 10)) * 1.0,
    "five answers 1–5": lambda g, n: g.integers(1, 6, (n, 5)) * 1.0,
    "five counts": lambda g, n: g.poisson(2.0, (n, 5)) * 1.0,
    "normal, d=2": lambda g, n: g.standard_normal((n, 2)),
}


def part_shared(kind: str, shared: int, group: int, generator: np.random.Generator) -> Run:
    """Some of the target's 40 rows of x are in the control group of six null tasks."""
    draw = ROWS[kind]
    control = draw(generator, group)
    x = np.concatenate([control[:shared], draw(generator, 40 - shared)])
    tasks = [(control, draw(generator, 40)) for _ in range(6)]
    return tested(x, draw(generator, 40), tasks, "unnoticed", "also in the related tasks")


def pool_shared(kind: str, generator: np.random.Generator) -> Run:
    """The target and every task draw 40 control rows from a pool of 60."""
    pool = ROWS[kind](generator, 60)

    def control() -> np.ndarray:
        return pool[generator.permutation(60)[:40]]

    tasks = [(control(), ROWS[kind](generator, 40)) for _ in range(6)]
    return tested(control(), ROWS[kind](generator, 40), tasks, "unnoticed", "also in the related tasks")


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
}


def numbered(kind: str, shuffled: bool, generator: np.random.Generator) -> Run:
    """A file with 30 + 30 null rows in which P was numbered before Q."""
    name, number = IDENTIFIERS[kind]
    frame = pd.DataFrame(generator.standard_normal((60, 3)), columns=[*"abc"]).assign(group=["old"] * 30 + ["new"] * 30)
    frame.insert(0, name, [number(generator, row) for row in range(60)])
    frame = frame.sample(frac=1, random_state=int(generator.integers(2**31))) if shuffled else frame
    return file_tested(lambda: m2st.Upload((m2st.read_table("d.csv", as_csv(frame)),), group="group"), repr(name))


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
        for kind in ("integers, d=2", "three answers 1–5", "age and sex", "normal, d=2")
    },
    **{
        f"40 of a pool of 60: {kind}": Case(partial(pool_shared, kind))
        for kind in ("integers, d=2", "three answers 1–5", "age and sex")
    },
    **{
        f"10 of 40 rows shared: {kind}": Case(partial(part_shared, kind, 10, 40))
        for kind in ("one decimal, d=2", "ten binary columns", "five answers 1–5", "five counts", "normal, d=2")
    },
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
    parser = argparse.ArgumentParser(prog="m2st_core bench silent", description=__doc__)
    parser.add_argument("--only", default="", help="cases whose name has this text")
    parser.add_argument("--share", type=float, default=1.0, help="share of the runs to make")
    parser.add_argument("--rates", type=Path, help="write the rates as JSON")
    parser.add_argument("--before", type=Path, help="rates of another version, to print beside")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args(arguments)
    before = json.loads(options.before.read_text(encoding="utf-8")) if options.before else {}
    rates = {}
    print("| case | counted | before | now | of these called exact | what is said |\n|---|---|---|---|---|---|")
    with ProcessPoolExecutor(options.workers, get_context("spawn"), torch.set_num_threads, (1,)) as pool:
        for name, case in CASES.items():
            if options.only not in name:
                continue
            count = max(1, round(case.runs * options.share))
            runs = list(pool.map(partial(one_run, name), range(count), chunksize=max(1, count // 8)))
            rates[name] = sum(run.false for run in runs) / count
            exact = sum(run.false and run.exact for run in runs)
            high = stats.binom.interval(0.99, count, LEVEL)[1] / count
            said = next((run.said for run in runs if run.said), "").replace("|", "/").replace("\n", " ")
            earlier = f"{before[name]:.2f}" if name in before else "–"
            above = " **above the band**" if case.counts == "rejected" and exact / count > high else ""
            many = f"{exact / count:.2f}{above}"
            print(
                f"| {name} | {case.counts} of {count} | {earlier} | {rates[name]:.2f} | {many} | {said} |", flush=True
            )
    if options.rates:
        options.rates.write_text(json.dumps(rates, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
