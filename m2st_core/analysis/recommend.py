"""Which test to use, from what is known before any label of the target is looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.spatial.distance import pdist
from scipy.stats import chi2

from m2st_core.analysis.related_check import RelatedCheck
from m2st_core.data.arrays import as_rows

MANY_ROWS = 20_000  # both samples together
FEW_ROWS, FEW_COLUMNS = 80, 10  # with no more of either, only broad differences can be found
ROWS_LOOKED_AT = 500
ONE_CLOUD = 0.25  # by how much log quantiles of distances may differ from a Gaussian's
UNLIKE = 5.0  # deviations by which a target's rows are unlike the tasks'


@dataclass(frozen=True)
class Recommendation:
    """A method, and why, in plain words."""

    method: str
    reasons: tuple[str, ...]


def recommend(
    n: int,
    m: int,
    d: int,
    *,
    n_tasks: int = 0,
    blocks: bool = False,
    history: RelatedCheck | None = None,
    pooled: Any = None,
) -> Recommendation:
    """The method for samples of n and m rows with d columns, with this many related tasks.

    ``history`` is the leave-one-task-out check, if it was made; ``pooled`` are the rows (n+m, d) of both samples
    together, if they are at hand. Nothing here may depend on the target's labels. docs/recommendation.md has the
    measured powers behind this.

    >>> recommend(30, 30, 5, n_tasks=20).method
    'Meta-FUSE'
    """
    for name, value in (("n", n), ("m", m)):
        if value < 2:
            raise ValueError(f"{name} must be at least 2 rows. Got {value}.")
    reasons = []
    aside = _why_aside(history) if n_tasks else ""
    if n + m > MANY_ROWS:
        method = "MMD-M"
        reasons.append(
            f"With {n + m:,} rows one kernel of the usual width finds small differences, and it can test more rows "
            "than many kernels can."
        )
        if n_tasks:
            reasons.append("The related tasks are not used: with this many rows Meta-FUSE would test a part of them.")
    elif n_tasks and not aside:
        method = "Meta-FUSE"
        reasons.append(
            "It looks where the related tasks differed and, with generic kernels, elsewhere. It had more power than "
            "tests without a history in 26 of 27 simulated settings with related tasks. With unrelated ones it lost up "
            "to 0.15."
        )
        reasons.append("If you know that your samples differ as theirs did, if at all, Meta-Witness may be stronger.")
    else:
        if aside:
            reasons.append(aside)
        if n + m <= FEW_ROWS and d <= FEW_COLUMNS:
            method = "MMD-M"
            reasons.append(
                "With so few rows many kernels found little more in simulations than one kernel of the usual width did."
            )
        elif d <= FEW_COLUMNS and pooled is not None and one_cloud(as_rows(pooled, "pooled")):
            method = "MMD-M"
            reasons.append(
                "Your rows form one even cloud in few columns. In simulations of such rows one kernel of the usual "
                "width found differences in place or spread best. For others, as in correlation, use MMD-FUSE."
            )
        else:
            method = "MMD-FUSE"
            reasons.append("It compares the samples with twenty kernels at once, and splits nothing off.")
    if n_tasks and history is not None:
        reasons.append(history.sentences[0])
    if min(n, m) < 10:
        reasons.append(f"With {min(n, m)} rows in the smaller sample only large differences can be found.")
    if max(n, m) > 3 * min(n, m):
        reasons.append(
            f"The samples are unequal: power is about that of two samples of {round(2 * n * m / (n + m))} rows each."
        )
    if blocks:
        reasons.append("Its p-value comes from permutations, which are made within your blocks.")
    return Recommendation(method, tuple(reasons))


def one_cloud(rows: np.ndarray) -> bool:
    """Whether rows (N, d) lie as a Gaussian's do, no clusters and no long tails.

    Squared distances of whitened Gaussian rows are twice χ²_d; their 5 % and 95 % quantiles, over the median, are
    compared with that.
    """
    rows = rows[np.lexsort(rows.T)]  # the order in which they came may know the labels
    rows = rows[np.linspace(0, len(rows) - 1, min(len(rows), ROWS_LOOKED_AT)).astype(int)]
    columns = rows.shape[1]
    values, vectors = np.linalg.eigh(np.cov(rows.T).reshape(columns, columns))
    if not values[0] > 1e-9 * values[-1]:
        return False
    squares = pdist(rows @ (vectors / np.sqrt(values)), "sqeuclidean")
    levels = [0.05, 0.5, 0.95]
    low, middle, high = np.quantile(squares, levels) / chi2.ppf(levels, columns)
    return bool(low > 0 and max(abs(np.log(low / middle)), abs(np.log(high / middle))) < ONE_CLOUD)


def _why_aside(history: RelatedCheck | None) -> str:
    """Why related tasks are better not used; empty if they are."""
    if history is not None and history.verdict == "harms":
        return "The related tasks are left aside: left out, they were found less often with the others' help."
    if history is not None and history.unlike is not None and history.unlike > UNLIKE:
        return (
            "The related tasks are left aside: even without their labels, your rows look unlike all of theirs. "
            "If you know that they are related, use Meta-FUSE."
        )
    return ""
