"""How much of the spread between repeats is the history's, and how far off a number is whose repeats share one history.

The paper's ± is between repeats. In the released code all repeats learn from the same related tasks. So here several
initialisations learn from each of several histories (``bench nested``), and the variance is split between the two.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from m2st_core.paper import published
from m2st_core.paper.published import FAR, LEAST_REPEATS

FILE = "nested.csv"
PUBLISHED_REPEATS = 20  # on synthetic data
LEVEL = 0.95  # of intervals
MEASURED = (0.3, 50)  # closeness and m_tr per mode
POINT = ["method", "n_tasks", "m_te"]


def components(rates: np.ndarray) -> tuple[float, float]:
    """Variances between histories and within them, from rates (histories, repeats), by the analysis of variance.

    E[variance of the histories' means] = between + within / repeats. A negative estimate of ``between`` is 0.

    >>> between, within = components(np.array([[0.1, 0.3], [0.7, 0.9]]))
    >>> round(between, 3), round(within, 3)
    (0.17, 0.02)
    """
    within = float(rates.var(axis=1, ddof=1).mean())
    return max(0.0, float(rates.mean(axis=1).var(ddof=1)) - within / rates.shape[1]), within


def share_interval(rates: np.ndarray) -> tuple[float, float]:
    """The 95 % interval for the share of the variance that lies between histories, exact for normal rates."""
    from scipy import stats  # slow to import

    histories, repeats = rates.shape
    within = rates.var(axis=1, ddof=1).mean()
    ratio = repeats * rates.mean(axis=1).var(ddof=1) / within if within > 0 else np.inf
    freedom = histories - 1, histories * (repeats - 1)
    bounds = (ratio / stats.f.ppf(level, *freedom) for level in ((1 + LEVEL) / 2, (1 - LEVEL) / 2))
    low, high = (max(0.0, 1 - repeats / (bound + repeats - 1)) for bound in bounds)
    return low, high


def spread(folder: Path | None = None) -> pd.DataFrame:
    """Variances ``between`` and ``within`` histories for each method, N and m_te, and the histories' ``share``.

    Points with fewer than five histories are left out.
    """
    rows = []
    path = (folder or published.FOLDER) / FILE
    for point, group in pd.read_csv(path).groupby(POINT, sort=False) if path.is_file() else ():
        rates = group.assign(rate=group["rejections"] / group["tests"]).pivot(
            index="history", columns="repeat", values="rate"
        )
        rates = rates.dropna().to_numpy()
        if len(rates) >= LEAST_REPEATS:
            between, within = components(rates)
            share = between / (between + within) if between + within else 0.0
            rows.append((*point, *rates.shape, between, within, share, *share_interval(rates)))
    return pd.DataFrame(rows, columns=[*POINT, "histories", "repeats", "between", "within", "share", "low", "high"])


def with_one_history(table: pd.DataFrame, folder: Path | None = None) -> pd.DataFrame:
    """Add to a comparison how far off each number is if the repeats behind it share a history.

    ``one_history`` is ours minus published over √(σ_h² + both squared standard errors): under one history the published
    error leaves out σ_h. ``own_spread`` has σ_w²/20 in place of the published squared error. N=20 has variances of its
    own; other numbers of tasks have those of the largest N that was measured. ``within`` is σ_w².
    """
    known = spread(folder).set_index(POINT)
    counts = set(known.index.get_level_values("n_tasks"))
    closeness, m_tr = MEASURED
    setting = table["closeness"].eq(closeness).fillna(False) & table["m_tr"].eq(m_tr).fillna(False)
    fits = table["difference"].notna() & setting
    values = []
    for row, fit in zip(table.itertuples(), fits, strict=True):
        point = row.method, row.n_tasks if row.n_tasks in counts else max(counts, default=0), row.m_te
        if not fit or point not in known.index:
            values.append((np.nan, np.nan, np.nan))
            continue
        one, off = known.loc[point], row.rate - row.published
        ours = one["between"] + row.error**2
        theirs = np.array([row.published_error**2, one["within"] / PUBLISHED_REPEATS])
        values.append((*(off / np.sqrt(ours + theirs)), one["within"]))
    return table.join(pd.DataFrame(values, table.index, ["one_history", "own_spread", "within"], dtype=float))


def one_history_sentence(table: pd.DataFrame) -> str:
    """How many numbers of a comparison are far off if the repeats of each share a history; empty if not measured."""
    known = table[table["one_history"].notna()]
    if known.empty:
        return ""
    before, added, replaced = ((known[name].abs() > FAR).sum() for name in ("difference", "one_history", "own_spread"))
    return (
        "The repeats behind a published number probably share one set of related tasks. If so, its standard error "
        f"leaves out the spread between such sets: with that added, {added} of {len(known)} numbers are beyond two, "
        f"instead of {before}. With our spread within a set in place of the published one, {replaced} are."
    )
