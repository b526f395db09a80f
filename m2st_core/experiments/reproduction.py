"""Published numbers against the paper's algorithms as this software runs them, and why they differ where they do."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from m2st_core.experiments import committed
from m2st_core.experiments.summary import summarise

FAR = 2.0  # standard errors
UNEXPLAINED = "Not explained yet."
EXPLANATIONS = "explanations.csv"
WHERE = ("closeness", "n_tasks", "m_te")  # columns that narrow an explanation down, where they are filled in


def explanations(folder: Path | None = None) -> pd.DataFrame:
    """The sentences on deviations: of an experiment and method, perhaps at one closeness, N or m_te only."""
    path = (folder or committed.FOLDER) / EXPLANATIONS
    return pd.read_csv(path) if path.is_file() else pd.DataFrame(columns=["experiment", "method", *WHERE, "sentence"])


def compare(experiment: str, rows: pd.DataFrame, known: pd.DataFrame | None = None) -> pd.DataFrame:
    """The summary of the cells that have a published number, with a column ``why``.

    It holds the sentence of every cell that is off by more than two standard errors. The narrowest explanation counts.
    """
    known = explanations() if known is None else known
    table = summarise(rows)
    table = table[table["published"].notna()]
    order = table["method"].map({method: place for place, method in enumerate(table["method"].unique())})
    table = table.iloc[order.argsort(kind="stable")].reset_index(drop=True)
    known = known[known["experiment"] == experiment]
    return table.assign(why=[_why(row, known) for _, row in table.iterrows()])


def _why(row: pd.Series, known: pd.DataFrame) -> str:
    if pd.isna(row["difference"]) or abs(row["difference"]) <= FAR:
        return ""
    fits = known[known["method"] == row["method"]]
    for name in WHERE:
        fits = fits[fits[name].isna() | (fits[name] == row[name])]
    if len(fits):
        return str(fits.loc[fits[list(WHERE)].notna().sum(axis=1).idxmax(), "sentence"])
    return f"The published number is doubtful: {row['doubt']}." if row["doubt"] else UNEXPLAINED


def reasons(compared: pd.DataFrame) -> list[tuple[str, str]]:
    """The cells that are far off, gathered by their sentence: where, and why."""
    far = compared[compared["why"] != ""]
    found = []
    for (method, why), group in far.groupby(["method", "why"], sort=False):
        places = [f"m_te = {_listed(part['m_te'])}" for _, part in group.groupby("n_tasks", sort=False)]
        if compared["n_tasks"].nunique() > 1:
            counts = [f"N = {n:g}" for n in group["n_tasks"].unique()]
            places = [f"{count}, {place}" for count, place in zip(counts, places, strict=True)]
        found.append((f"{method}, {'; '.join(places)}", why))
    return found


def _listed(values: pd.Series) -> str:
    return ", ".join(str(value) for value in values)
