"""Validate the whole path from file to answer: how often simulated null uploads are rejected.

Every simulated upload is CSV text with numbers, skewed numbers, categories, a constant, free text and missing cells. It
takes the same path as a user's upload: reading, matching, missing cells, categories, scaling, split, learning, the
primary test, and secondary tests with Holm's correction. There is no difference between the groups, or within the sites
if there are sites. With B=299 an exact p-value is at most 0.05 with probability exactly 0.05, and at most 0.05/3 with
probability exactly 0.05/3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

import m2st_core as m2st
from benchmarks.common import ALPHA, Page, parse
from m2st_core.data.tables.encoding import Cleaning, Encoding
from m2st_core.data.tables.files import read_table
from m2st_core.data.tables.prepare import prepare
from m2st_core.data.tables.table import Table
from m2st_core.data.tables.upload import Upload
from m2st_core.numbers import null_band
from m2st_core.rng import Streams

B = 299
SIZES = (30, 40)
SITES = 6
APART = 1_000_000  # seeds between one kind of upload and the next
SHARES = np.linspace(0.1, 0.9, SITES)  # of a site's rows in the first group
FILL, DROP = Cleaning(missing="median and indicator"), Cleaning(missing="drop rows")


@dataclass(frozen=True)
class Counted:
    """Rejections among ``runs`` uploads: by the primary test, and by any secondary one after Holm's correction."""

    primary: int
    family: int
    runs: int


def rows(count: int, generator: np.random.Generator, shift: float = 0.0) -> pd.DataFrame:
    """A table as people have it; ``shift`` moves two of its columns, and the chance of a missing cell with them."""
    latent = generator.standard_normal(count)
    dose = latent + 0.7 * generator.standard_normal(count) + shift
    frame = pd.DataFrame(
        {
            "dose": dose,
            "cost": np.exp(0.8 * latent + 0.5 * generator.standard_normal(count)),
            "score": generator.integers(0, 5, count) + shift,
            "colour": generator.choice(["red", "green", "blue", "grey"], count, p=[0.5, 0.3, 0.15, 0.05]),
            "unit": "mg",
            "remark": [f"note {value}" for value in generator.integers(0, 10**9, count)],
        }
    )
    for column in ("dose", "cost", "colour"):
        frame[column] = frame[column].astype(object).mask(generator.random(count) < 0.03 + 0.07 * (dose > 1))
    return frame


def as_file(name: str, frame: pd.DataFrame) -> Table:
    """The frame, written and read."""
    return read_table(name, frame.to_csv(index=False, float_format="%.4f").encode())


def history(tasks: int, seed: int) -> Table:
    """Related comparisons that do differ."""
    generator = Streams(seed).numpy("history")
    parts = []
    for task in range(tasks):
        for group, shift in (("old", 0.0), ("new", generator.uniform(0.5, 1.5))):
            parts.append(rows(40, generator, shift).assign(task=f"task {task}", group=group))
    return as_file("history.csv", pd.concat(parts))


def null_upload(seed: int, related: tuple[Table, ...] = ()) -> Upload:
    """Two files from one distribution."""
    generator = Streams(seed).numpy("null upload")
    p, q = (rows(size, generator) for size in SIZES)
    return Upload((as_file("p.csv", p), as_file("q.csv", q)), related)


@cache
def trained() -> tuple[m2st.MetaLearner, Encoding]:
    """A learner that was trained earlier, with its encoding."""
    data = prepare(Upload((), (history(10, 0),)), cleaning=FILL)
    return m2st.meta_train("Meta-FUSE", data.related, device="cpu"), data.encoding


def plan(primary: str, *secondary: str, seed: int) -> m2st.Plan:
    """At α=0.05."""
    return m2st.Plan(primary, secondary, ALPHA, B, seed=seed)


def with_learner(seed: int) -> m2st.Outcome:
    """A learner trained earlier; one secondary test splits."""
    learner, encoding = trained()
    data = prepare(null_upload(seed), encoding=encoding)
    tests = plan("Meta-FUSE", "Meta-WiTS", "MMD-FUSE", "MMD-M", seed=seed)
    return m2st.carry_out(data, tests, learner=learner, explained=False, device="cpu")


def with_history(seed: int) -> m2st.Outcome:
    """A history of its own for every upload, learned from anew; the primary test splits."""
    data = prepare(null_upload(seed, (history(4, seed),)), cleaning=FILL)
    tests = plan("Feature-MKL", "Meta-FUSE", "Meta-WiTS", "MMD-M", seed=seed)
    return m2st.carry_out(data, tests, explained=False, device="cpu")


def without_history(seed: int) -> m2st.Outcome:
    """Nothing but the two files; rows with missing cells are dropped."""
    data = prepare(null_upload(seed), cleaning=DROP)
    tests = plan("MMD-FUSE", "MMD-M", seed=seed)
    return m2st.carry_out(data, tests, explained=False, device="cpu")


def split(seed: int) -> m2st.Outcome:
    """Nothing but the two files; the primary test and a secondary one learn from half of the rows."""
    tests = plan("MMD-O · tuned", "C2ST-L · tuned", "MMD-M", seed=seed)
    return m2st.carry_out(prepare(null_upload(seed), cleaning=FILL), tests, explained=False, device="cpu")


def site_upload(seed: int) -> Upload:
    """Sites that differ, and differ in how many rows of each group they gave; within a site there is no difference."""
    generator = Streams(seed).numpy("sites")
    parts = []
    for site, share in enumerate(SHARES):
        frame = rows(14, generator, shift=generator.normal(0, 3.0))
        groups = np.where(generator.random(14) < share, "a", "b")
        groups[:2] = ["a", "b"]
        parts.append(frame.assign(group=groups, site=f"site {site}"))
    return Upload((as_file("sites.csv", pd.concat(parts)),), group="group")


def at_sites(seed: int, block: str | None) -> m2st.Outcome:
    """Rows of several sites, permuted within sites or at will; the site itself is not compared."""
    cleaning = Cleaning("median and indicator", left_out=() if block else ("site",), block=block)
    tests = plan("MMD-FUSE", "MMD-M", seed=seed)
    return m2st.carry_out(prepare(site_upload(seed), cleaning=cleaning), tests, explained=False, device="cpu")


WAYS: dict[str, tuple[Callable[[int], m2st.Outcome], float, str]] = {  # the share of the runs, and what is expected
    "a learner trained earlier: Meta-FUSE; Meta-WiTS, MMD-FUSE, MMD-M": (with_learner, 1.0, "valid"),
    "two files only: MMD-FUSE; MMD-M": (without_history, 1.0, "valid"),
    "two files only, split: MMD-O; C2ST-L, MMD-M": (split, 0.2, "valid"),
    "a history each: Feature-MKL; Meta-FUSE, Meta-WiTS, MMD-M": (with_history, 0.2, "valid"),
    "six sites, permuted within sites: MMD-FUSE; MMD-M": (lambda seed: at_sites(seed, "site"), 1.0, "valid"),
    "six sites, permuted at will: MMD-FUSE; MMD-M": (lambda seed: at_sites(seed, None), 0.5, "not valid"),
}


def count(way: Callable[[int], m2st.Outcome], runs: int, first: int = 0) -> Counted:
    """Rejections among uploads of different seeds."""
    analyses = [way(seed).analysis for seed in range(first, first + runs)]
    primary = sum(analysis.primary.rejected for analysis in analyses)
    return Counted(primary, sum(any(v.rejected for v in analysis.secondary) for analysis in analyses), runs)


def main(arguments: Sequence[str] = ()) -> None:
    """Run the study; write the table where --out says."""
    options = parse(arguments, __doc__, runs=1000, seed=0, out=Path)
    page = Page(options.out)
    page.say(
        "# Null uploads",
        "",
        *(__doc__ or "").strip().splitlines()[2:],
        "",
        f"α=0.05, {SIZES[0]} and {SIZES[1]} rows, or {14 * SITES} rows of {SITES} sites, seeds from {options.seed}.",
        f"Made by `python -m m2st_core bench uploads --runs {options.runs} --out docs/uploads.md`. The band covers",
        "99 % of a binomial distribution with p=0.05. Holm's procedure may reject less often than a level of",
        "0.05 allows.",
        "",
    )
    page.head(
        "primary; secondary tests", "uploads", "rejected by the primary", "by any secondary", "99 % band", "verdict"
    )
    for index, (name, (way, share, expected)) in enumerate(WAYS.items()):
        counted = count(way, max(20, round(options.runs * share)), options.seed + APART * index)
        runs = counted.runs
        low, high = (round(rate * runs) for rate in null_band(ALPHA, runs))
        most = max(counted.primary, counted.family)
        verdict = "**above**" if most > high else "below" if counted.primary < low else "inside"
        verdict += "" if expected == "valid" else ", as it should be"
        primary, family = (f"{number} ({number / runs:.1%})" for number in (counted.primary, counted.family))
        page.row(name, f"{runs:,}", primary, family, f"{low} to {high}", verdict)
