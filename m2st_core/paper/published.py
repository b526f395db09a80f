"""The paper's published numbers, this software's numbers beside them, and why they differ where they do."""

from __future__ import annotations

from collections.abc import Sequence
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
Place = tuple[str | float | None, ...]


def in_words(names: Sequence[str]) -> str:
    """Names as a part of a sentence.

    >>> in_words(["ME", "SCF", "MMD-O"])
    'ME, SCF and MMD-O'
    """
    return " and ".join([*([", ".join(names[:-1])] if len(names) > 1 else []), *names[-1:]])


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
    numbers = _published_by_place()
    rows = [numbers.get(_place(row), (np.nan, np.nan, "")) for row in table.itertuples()]
    table = table.join(pd.DataFrame(rows, table.index, ["published", "published_error", "doubt"]))
    both = np.sqrt(table["error"].astype(float) ** 2 + table["published_error"].astype(float) ** 2)
    comparable = (both > 0) & (table["repeats"] >= LEAST_REPEATS) & (table["doubt"] == "")
    return table.assign(difference=(table["rate"] - table["published"]) / both.where(comparable))


@cache
def _published_by_place() -> dict[Place, tuple[float, float, str]]:
    """Power, standard error and doubt by what identifies a number on HDGM and on images."""
    power = published_power()
    numbers: dict[Place, tuple[float, float, str]] = {}
    for r in power[power["table"].isin(["Table 3", "Table 5", "Table 6"])].itertuples():
        m_tr = None if pd.isna(r.m_tr) else r.m_tr
        numbers[r.method, r.n_tasks, r.closeness, m_tr, r.m_te] = (r.power, r.std_error, r.doubt)
    for r in power[power["size_unit"] == "per sample"].itertuples():
        place = (r.method, r.target, r.meta_source, float(r.m_tr), int(r.m_te))
        numbers.setdefault(place, (r.power, r.std_error, r.doubt))
    return numbers


def _place(row: Any) -> Place:
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


def explanations(folder: Path | None = None) -> pd.DataFrame:
    """Sentences on deviations of a method in an experiment, some for one closeness, N or m_te only."""
    path = (folder or FOLDER) / "explanations.csv"
    columns = ["experiment", "method", *NARROWING, "sentence"]
    return pd.read_csv(path) if path.is_file() else pd.DataFrame(columns=columns)


def compare(experiment: str, rows: pd.DataFrame, sentences: pd.DataFrame | None = None) -> pd.DataFrame:
    """Summarise the cells that have a published number, and explain differences of more than two standard errors.

    The column ``why`` holds the narrowest explanation, or why a number is not compared.
    """
    sentences = explanations() if sentences is None else sentences
    table = with_published(summarise(rows))
    table = table[table["published"].notna()]
    order = table["method"].map({method: place for place, method in enumerate(table["method"].unique())})
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


def reasons(compared: pd.DataFrame) -> list[tuple[str, str]]:
    """Group the cells that are far off or not compared by their explanation: (where, why)."""
    lines = []
    for (method, why), group in compared[compared["why"] != ""].groupby(["method", "why"], sort=False):
        places = []
        for n_tasks, cells in group.groupby("n_tasks", sort=False):
            several = f"N = {n_tasks:g}, " if compared["n_tasks"].nunique() > 1 else ""
            places.append(f"{several}m_te = {', '.join(map(str, cells['m_te']))}")
        lines.append((f"{method}, {'; '.join(places)}", why))
    return lines
