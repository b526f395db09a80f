"""The paper's published numbers, this software's numbers beside them, and why they differ where they do.

The paper's ± is between repeats. In the released code all repeats learn from the same related tasks. So here several
initialisations learn from each of several sets of related tasks (``bench nested``), and the variance is split between
the two: it tells how far off a number is whose repeats share one set.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from m2st_core.data import TASKS
from m2st_core.data.images.sources import SOURCES
from m2st_core.data.images.tasks import TwoDataSets
from m2st_core.sweeps.summary import summarise
from m2st_core.tasks import Task
from m2st_core.testing.methods import METHODS

HERE = Path(__file__).parent
FOLDER = HERE / "results"
LEAST_REPEATS = 5  # with fewer repeats their spread is too uncertain to express differences in it
FAR = 2.0  # standard errors
UNEXPLAINED = "Not explained yet."
NARROWING = ("closeness", "n_tasks", "m_te")  # columns that narrow an explanation down where they are filled in
NESTED = "nested.csv"  # rejections of several initialisations that learned from each of several sets of related tasks
PUBLISHED_REPEATS = 20  # on synthetic data
INTERVAL = 0.95  # of intervals
MEASURED = (0.3, 50)  # closeness and m_tr per mode
POINT = ["method", "n_tasks", "m_te"]
Key = tuple[str | float | None, ...]


@cache
def published_power() -> pd.DataFrame:
    """The paper's tables; ``doubt`` says why a number should not be compared."""
    return pd.read_csv(HERE / "published_power.csv").fillna({"doubt": ""})


def published_table(experiment: str) -> pd.DataFrame:
    """Published numbers of a figure or table; for a figure, those that the tables print for its setting."""
    power = published_power()
    if experiment in ("fig2a", "fig3c"):  # C=0.3, N=100, m_tr=50 per mode
        return power[power["table"].isin(["Table 5", "Table 6"]) & (power["n_tasks"] == 100)]
    table = power[power["table"] == f"Table {experiment.removeprefix('table').removesuffix('-all')}"]
    return table[table["m_tr"].isna()] if experiment.endswith("-all") else table


@cache
def published_gamma() -> pd.DataFrame:
    """The paper's γ̂ for each closeness."""
    return pd.read_csv(HERE / "published_gamma.csv")


@cache
def measured_gamma() -> pd.DataFrame:
    """γ̂ for each closeness, measured by this software; ``lowest`` and ``highest`` are over the tasks' maxima."""
    return pd.read_csv(HERE / "measured_gamma.csv")


def with_published(table: pd.DataFrame) -> pd.DataFrame:
    """Add the paper's number to each point of a summary, and the difference in standard errors of both.

    The difference is NaN with fewer than five repeats, and if there is a doubt about the paper's number.
    """
    numbers = _published_by_key()
    rows = [numbers.get(_key_of(row), (np.nan, np.nan, "")) for row in table.itertuples()]
    table = table.join(pd.DataFrame(rows, table.index, ["published", "published_error", "doubt"]))
    both = np.sqrt(table["error"].astype(float) ** 2 + table["published_error"].astype(float) ** 2)
    comparable = (both > 0) & (table["repeats"] >= LEAST_REPEATS) & (table["doubt"] == "")
    return table.assign(difference=(table["rate"] - table["published"]) / both.where(comparable))


@cache
def _published_by_key() -> dict[Key, tuple[float, float, str]]:
    """Power, standard error and doubt by what identifies a number on HDGM and on images."""
    power = published_power()
    numbers: dict[Key, tuple[float, float, str]] = {}
    for r in power[power["table"].isin(["Table 3", "Table 5", "Table 6"])].itertuples():
        m_tr = None if pd.isna(r.m_tr) else r.m_tr
        numbers[r.method, r.n_tasks, r.closeness, m_tr, r.m_te] = (r.power, r.std_error, r.doubt)
    for r in power[power["size_unit"] == "per sample"].itertuples():
        key = (r.method, r.target, r.meta_source, float(r.m_tr), int(r.m_te))
        numbers.setdefault(key, (r.power, r.std_error, r.doubt))
    return numbers


def _key_of(row: Any) -> Key:
    """The key of the paper's number for a row of a summary; empty for settings that the paper lacks."""
    if row.null:
        return ()
    m_tr = None if pd.isna(row.m_tr) else row.m_tr
    method = METHODS[row.method].algorithm if row.method in METHODS else row.method
    if row.task == "hdgm":
        return () if pd.isna(row.n_tasks) else (method, row.n_tasks, row.closeness, m_tr, row.m_te)
    task = TASKS.get(row.task, Task)
    if not issubclass(task, TwoDataSets):
        return ()
    first, second, learned_from = (SOURCES[name].title for name in (task.first, task.second, task.learned_from))
    return (method, f"{first} vs {second}", learned_from, m_tr, row.m_te)


def read_published_explanations(folder: Path | None = None) -> pd.DataFrame:
    """Sentences on deviations of a method in an experiment, some for one closeness, N or m_te only."""
    path = (folder or FOLDER) / "explanations.csv"
    columns = ["experiment", "method", *NARROWING, "sentence"]
    return pd.read_csv(path) if path.is_file() else pd.DataFrame(columns=columns)


def compare_with_published(experiment: str, rows: pd.DataFrame, sentences: pd.DataFrame | None = None) -> pd.DataFrame:
    """Summarise the cells that have a published number, and explain differences of more than two standard errors.

    The column ``why`` holds the narrowest explanation, or why a number is not compared.
    """
    sentences = read_published_explanations() if sentences is None else sentences
    table = with_published(summarise(rows))
    table = table[table["published"].notna()]
    order = table["method"].map({method: index for index, method in enumerate(table["method"].unique())})
    table = table.iloc[order.argsort(kind="stable")].reset_index(drop=True)
    sentences = sentences[sentences["experiment"] == experiment]
    return table.assign(why=[_why(row, sentences) for _, row in table.iterrows()])


def _why(row: pd.Series, sentences: pd.DataFrame) -> str:
    if row["doubt"]:
        return f"Not compared: {row['doubt']}."
    if pd.isna(row["difference"]) or abs(row["difference"]) <= FAR:
        return ""
    fitting = sentences[sentences["method"] == row["method"]]
    for name in NARROWING:
        fitting = fitting[fitting[name].isna() | (fitting[name] == row[name])]
    if len(fitting):
        return str(fitting.loc[fitting[list(NARROWING)].notna().sum(axis=1).idxmax(), "sentence"])
    return UNEXPLAINED


def reasons_of_differences(compared: pd.DataFrame) -> list[tuple[str, str]]:
    """Group the cells that are far off or not compared by their explanation: (where, why)."""
    lines = []
    for (method, why), group in compared[compared["why"] != ""].groupby(["method", "why"], sort=False):
        settings = []
        for n_tasks, cells in group.groupby("n_tasks", sort=False):
            number = f"N = {n_tasks:g}, " if compared["n_tasks"].nunique() > 1 else ""
            settings.append(f"{number}m_te = {', '.join(map(str, cells['m_te']))}")
        lines.append((f"{method}, {'; '.join(settings)}", why))
    return lines


def variance_components(rates: np.ndarray) -> tuple[float, float]:
    """Variances between histories and within them, from rates (histories, repeats), by the analysis of variance.

    E[variance of the histories' means] = between + within / repeats. A negative estimate of ``between`` is 0.

    >>> between, within = variance_components(np.array([[0.1, 0.3], [0.7, 0.9]]))
    >>> round(between, 3), round(within, 3)
    (0.17, 0.02)
    """
    within = float(rates.var(axis=1, ddof=1).mean())
    return max(0.0, float(rates.mean(axis=1).var(ddof=1)) - within / rates.shape[1]), within


def history_share_interval(rates: np.ndarray) -> tuple[float, float]:
    """The 95 % interval for the share of the variance that lies between histories, exact for normal rates."""
    from scipy import stats  # slow to import

    histories, repeats = rates.shape
    within = rates.var(axis=1, ddof=1).mean()
    ratio = repeats * rates.mean(axis=1).var(ddof=1) / within if within > 0 else np.inf
    freedom = histories - 1, histories * (repeats - 1)
    bounds = (ratio / stats.f.ppf(level, *freedom) for level in ((1 + INTERVAL) / 2, (1 - INTERVAL) / 2))
    low, high = (max(0.0, 1 - repeats / (bound + repeats - 1)) for bound in bounds)
    return low, high


def history_spread(folder: Path | None = None) -> pd.DataFrame:
    """Variances ``between`` and ``within`` histories for each method, N and m_te, and the histories' ``share``.

    Points with fewer than five histories are left out.
    """
    rows = []
    path = (folder or FOLDER) / NESTED
    for point, group in pd.read_csv(path).groupby(POINT, sort=False) if path.is_file() else ():
        rates = group.assign(rate=group["rejections"] / group["tests"]).pivot(
            index="history", columns="repeat", values="rate"
        )
        rates = rates.dropna().to_numpy()
        if len(rates) >= LEAST_REPEATS:
            between, within = variance_components(rates)
            share = between / (between + within) if between + within else 0.0
            rows.append((*point, *rates.shape, between, within, share, *history_share_interval(rates)))
    return pd.DataFrame(rows, columns=[*POINT, "histories", "repeats", "between", "within", "share", "low", "high"])


def with_one_history(table: pd.DataFrame, folder: Path | None = None) -> pd.DataFrame:
    """Add to a comparison how far off each number is if the repeats behind it share a history.

    ``one_history`` is ours minus published over √(σ_h² + both squared standard errors): under one history the published
    error leaves out σ_h. ``own_spread`` has σ_w²/20 in place of the published squared error. N=20 has variances of its
    own; other numbers of tasks have those of the largest N that was measured. ``within`` is σ_w².
    """
    spreads = history_spread(folder).set_index(POINT)
    counts = set(spreads.index.get_level_values("n_tasks"))
    closeness, m_tr = MEASURED
    setting = table["closeness"].eq(closeness).fillna(False) & table["m_tr"].eq(m_tr).fillna(False)
    fits = table["difference"].notna() & setting
    values = []
    for row, fit in zip(table.itertuples(), fits, strict=True):
        point = row.method, row.n_tasks if row.n_tasks in counts else max(counts, default=0), row.m_te
        if not fit or point not in spreads.index:
            values.append((np.nan, np.nan, np.nan))
            continue
        spread = spreads.loc[point]
        ours = spread["between"] + row.error**2
        theirs = np.array([row.published_error**2, spread["within"] / PUBLISHED_REPEATS])
        values.append((*((row.rate - row.published) / np.sqrt(ours + theirs)), spread["within"]))
    return table.join(pd.DataFrame(values, table.index, ["one_history", "own_spread", "within"], dtype=float))


def one_history_sentence(table: pd.DataFrame) -> str:
    """A sentence on the numbers that are far off if the repeats of each share a history; empty if not measured."""
    compared = table[table["one_history"].notna()]
    if compared.empty:
        return ""
    before, added, replaced = (
        (compared[name].abs() > FAR).sum() for name in ("difference", "one_history", "own_spread")
    )
    return (
        "The repeats behind a published number probably share one set of related tasks. If so, its standard error "
        f"leaves out the spread between such sets: with that added, {added} of {len(compared)} numbers are beyond two, "
        f"instead of {before}. With our spread within a set in place of the published one, {replaced} are."
    )
