"""From cells to what people read: means, standard errors between repeats, and the published numbers beside them."""

from __future__ import annotations

import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from m2st_core.data import TASKS
from m2st_core.data.images.cifar import SOURCES
from m2st_core.data.images.tasks import TwoDataSets
from m2st_core.data.task import Task
from m2st_core.sweeps.spec import label_of, origin_of


def wilson_interval(successes: int, trials: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's interval for a probability, 95 % by default; unlike the naive one it is sensible at 0 and 1.

    >>> wilson_interval(0, 10)[0], round(wilson_interval(0, 10)[1], 3)
    (0.0, 0.278)
    """
    if not 0 <= successes <= trials or trials < 1:
        raise ValueError(
            f"There must be at least one trial and no more successes than trials. Got {successes}/{trials}."
        )
    share, extra = successes / trials, z**2 / trials
    centre = (share + extra / 2) / (1 + extra)
    half = z * math.sqrt(share * (1 - share) / trials + extra / (4 * trials)) / (1 + extra)
    return max(0.0, centre - half), min(1.0, centre + half)


KEYS = ["task", "null", "method", "preset", "closeness", "n_tasks", "rows_per_task", "m_tr", "m_te"]
MEASURED = ["rate", "error", "low", "high", "repeats", "tests", "published", "published_error", "difference", "doubt"]
LEAST_REPEATS = 5  # with fewer, the spread between repeats says too little to count differences in it
HERE = Path(__file__).parent


@cache
def published_power() -> pd.DataFrame:
    """The paper's tables; ``doubt`` says why a number is no target."""
    return pd.read_csv(HERE / "published_power.csv").fillna({"doubt": ""})


def published_table(experiment: str) -> pd.DataFrame:
    """The published numbers of one figure or table; a figure has those that the tables print for its setting."""
    known = published_power()
    if experiment in ("fig2a", "fig3c"):  # C=0.3, N=100, m_tr=50 per mode
        return known[known["table"].isin(["Table 5", "Table 6"]) & (known["n_tasks"] == 100)]
    table = known[known["table"] == f"Table {experiment.removeprefix('table').removesuffix('-all')}"]
    return table[table["m_tr"].isna()] if experiment.endswith("-all") else table


@cache
def published_gamma() -> pd.DataFrame:
    """The paper's γ̂ for each closeness."""
    return pd.read_csv(HERE / "published_gamma.csv")


@cache
def measured_gamma() -> pd.DataFrame:
    """γ̂ for each closeness, run here (docs/reproduction.md); ``lowest``, ``highest``: of the tasks' largest γ̂_it."""
    return pd.read_csv(HERE / "measured_gamma.csv")


@cache
def measured_learning() -> pd.DataFrame:
    """A deep kernel learned from m_tr rows per mode: Ĵ on those and on fresh rows, power at m_te=100, its interval.

    Means of the course's step on it over the seeds 0 to 9: 30 training samples and 600 tests for each m_tr.
    """
    return pd.read_csv(HERE / "measured_learning.csv")


def summarise(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean rejection rate and its standard error between repeats, for each point of the grid.

    With one repeat the error is that of the binomial. ``low`` and ``high`` are Wilson's 95 % interval for all tests
    together, which leaves the spread between repeats out. Where the paper has the same point, its number stands beside
    ours, from five repeats on with the difference in standard errors of both.
    """
    if rows.empty:
        return pd.DataFrame(columns=[*KEYS, "origin", *MEASURED])
    rows = rows.assign(
        **{key: rows[key].astype("Float64") for key in ("closeness", "n_tasks", "rows_per_task", "m_tr")}
    )
    grouped = rows.groupby(KEYS, dropna=False, sort=False)
    table = grouped.agg(
        rate=("rate", "mean"),
        spread=("rate", "std"),
        repeats=("repeat", "nunique"),
        tests=("tests", "sum"),
        rejections=("rejections", "sum"),
    ).reset_index()
    intervals = [wilson_interval(k, n) for k, n in zip(table.pop("rejections"), table["tests"], strict=True)]
    table["low"], table["high"] = np.array(intervals).T
    binomial = np.sqrt(table["rate"] * (1 - table["rate"]) / table["tests"])
    between = table["spread"] / np.sqrt(table["repeats"])
    table["error"] = between.where(table["repeats"] > 1, binomial)
    table.insert(table.columns.get_loc("method") + 1, "origin", table["method"].map(origin_of))
    return _beside_published(table.drop(columns="spread"))


def null_band(alpha: float, tests: int) -> tuple[float, float]:
    """Where the rejection rate of a test of level α lies 99 times of 100 if nothing differs."""
    from scipy import stats  # slow to import

    low, high = stats.binom.interval(0.99, tests, alpha)
    return low / tests, high / tests


def _beside_published(table: pd.DataFrame) -> pd.DataFrame:
    known = published_power()
    synthetic = known[known["table"].isin(["Table 3", "Table 5", "Table 6"])]
    lookup: dict[tuple[Any, ...], tuple[float, float, str]] = {
        (r.method, r.n_tasks, r.closeness, None if pd.isna(r.m_tr) else r.m_tr, r.m_te): (r.power, r.std_error, r.doubt)
        for r in synthetic.itertuples()
    }
    for r in known[known["size_unit"] == "per sample"].itertuples():
        place = (r.method, r.target, r.meta_source, float(r.m_tr), int(r.m_te))
        lookup.setdefault(place, (r.power, r.std_error, r.doubt))
    found = [lookup.get(_published_place(row), (np.nan, np.nan, "")) for row in table.itertuples()]
    published, error, doubt = (list(part) for part in zip(*found, strict=True))
    table = table.assign(published=published, published_error=error, doubt=doubt)
    both = np.sqrt(table["error"].astype(float) ** 2 + table["published_error"] ** 2)
    known_well = (both > 0) & (table["repeats"] >= LEAST_REPEATS)
    return table.assign(difference=(table["rate"] - table["published"]) / both.where(known_well))


def _published_place(row: Any) -> tuple[Any, ...]:
    """Under which key the paper's number for a row would be; rows of settings that it lacks get an empty one."""
    if row.null:
        return ()
    m_tr = None if pd.isna(row.m_tr) else row.m_tr
    if row.task == "hdgm":
        return () if pd.isna(row.n_tasks) else (row.method, row.n_tasks, row.closeness, m_tr, row.m_te)
    task = TASKS.get(row.task, Task)
    if not issubclass(task, TwoDataSets):
        return ()
    first, second, learned_from = (SOURCES[name].title for name in (task.first, task.second, task.learned_from))
    return (row.method, f"{first} vs {second}", learned_from, m_tr, row.m_te)


def as_text(table: pd.DataFrame) -> str:
    """The summary for a terminal: one row per method, one column per size."""
    if table.empty:
        return "Nothing has been computed yet."
    lines = []
    varying = [key for key in ("preset", "closeness", "n_tasks", "m_tr") if table[key].nunique() > 1]
    sizes = sorted(table["m_te"].unique())
    heads = ["method", *varying, *(f"m_te={size}" for size in sizes)]
    for labels, group in table.groupby(["method", *varying], dropna=False, sort=False):
        by_size = {r.m_te: r for r in group.itertuples()}
        cells = []
        for size in sizes:
            r = by_size.get(size)
            cell = "" if r is None else f"{r.rate:.3f} ± {r.error:.3f}"
            if r is not None and not np.isnan(r.published):
                off = "" if np.isnan(r.difference) else f", {r.difference:+.1f} SE"
                cell += f" (published {r.published:.3f}{off}{', doubtful' if r.doubt else ''})"
            cells.append(cell)
        method, *others = labels
        lines.append([label_of(str(method)), *("–" if pd.isna(other) else str(other) for other in others), *cells])
    widths = [max(len(row[i]) for row in [heads, *lines]) for i in range(len(heads))]
    return "\n".join(
        "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in [heads, *lines]
    )
