"""Rows of a sweep summarised: means with standard errors for each point of the grid, and their text for a terminal."""

from __future__ import annotations

import numpy as np
import pandas as pd

from m2st_core.numbers import wilson_interval
from m2st_core.sweeps.grid import KEYS
from m2st_core.sweeps.spec import origin_of
from m2st_core.testing.methods import label_of

MEASURED = ["rate", "error", "low", "high", "repeats", "tests"]


def summarise(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean rejection rate and its standard error between repeats, for each point of the grid.

    With one repeat the error is binomial. ``low`` and ``high`` are Wilson's 95 % interval for all tests together, which
    ignores the spread between repeats.
    """
    if rows.empty:
        return pd.DataFrame(columns=[*KEYS, "origin", *MEASURED])
    rows = rows.assign(
        **{key: rows[key].astype("Float64") for key in ("closeness", "n_tasks", "rows_per_task", "m_tr")}
    )
    points: dict[tuple[object, ...], int] = {}  # one number per point: pandas takes twice as long with all keys
    point = [points.setdefault(keys, len(points)) for keys in zip(*(rows[key].tolist() for key in KEYS), strict=True)]
    table = rows[KEYS].iloc[np.unique(point, return_index=True)[1]].reset_index(drop=True)
    grouped = rows[["rate", "repeat", "tests", "rejections"]].groupby(np.array(point))
    table = table.assign(rate=grouped["rate"].mean(), repeats=grouped["repeat"].nunique(), tests=grouped["tests"].sum())
    intervals = [wilson_interval(k, n) for k, n in zip(grouped["rejections"].sum(), table["tests"], strict=True)]
    table["low"], table["high"] = np.array(intervals).T
    binomial = np.sqrt(table["rate"] * (1 - table["rate"]) / table["tests"])
    between = grouped["rate"].std() / np.sqrt(table["repeats"])
    table["error"] = between.where(table["repeats"] > 1, binomial)
    table.insert(table.columns.get_loc("method") + 1, "origin", table["method"].map(origin_of))
    return table


def summary_text(table: pd.DataFrame) -> str:
    """The summary for a terminal: one row per method, one column per size, published numbers where it has them."""
    if table.empty:
        return "Nothing has been computed yet."
    varying = [key for key in ("closeness", "n_tasks", "m_tr") if table[key].nunique() > 1]
    lines = table.assign(cell=[_cell_text(row) for _, row in table.iterrows()])
    sizes = sorted(table["m_te"].unique())
    texts = [["method", *varying, *(f"m_te={size}" for size in sizes)]]
    for (method, *others), group in lines.groupby(["method", *varying], dropna=False, sort=False):
        cells = group.set_index("m_te")["cell"]
        names = [label_of(str(method)), *("–" if pd.isna(other) else str(other) for other in others)]
        texts.append([*names, *(cells.get(size, "") for size in sizes)])
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in texts)


def _cell_text(row: pd.Series) -> str:
    text = f"{row['rate']:.3f} ± {row['error']:.3f}"
    if np.isnan(row.get("published", np.nan)):
        return text
    difference = "" if np.isnan(row["difference"]) else f", {row['difference']:+.1f} SE"
    return f"{text} (published {row['published']:.3f}{difference}{', doubtful' if row['doubt'] else ''})"
