"""The recommended test, from what is known before any label of the target is used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.spatial.distance import pdist
from scipy.stats import chi2

from m2st_core.analysis.related_check import RelatedCheck
from m2st_core.data.arrays import as_rows
from m2st_core.data.tables.clean import CleanData
from m2st_core.testing.meta import MetaLearner
from m2st_core.testing.methods import METHODS

MANY_ROWS = 20_000  # both samples together
FEW_ROWS, FEW_COLUMNS = 80, 10  # with no more of either, only broad differences can be detected
CLOUD_ROWS = 500
CLOUD_TOLERANCE = 0.25  # between log quantiles of distances and those of a Gaussian
UNLIKE = 5.0  # standard deviations from the related tasks' rows


@dataclass(frozen=True)
class Recommendation:
    """A method, and the reasons for it in plain words."""

    method: str
    reasons: tuple[str, ...]


def recommend(
    n: int,
    m: int,
    d: int,
    *,
    n_tasks: int = 0,
    blocks: bool = False,
    check: RelatedCheck | None = None,
    pooled: Any = None,
) -> Recommendation:
    """Recommend a method for samples of n and m rows with d columns and this many related tasks.

    ``check`` is the leave-one-task-out check of the related tasks, and ``pooled`` the rows (n+m, d) of both samples
    together; both are optional. Nothing depends on the target's labels. docs/recommendation.md reports the measured
    power behind these rules.

    >>> recommend(30, 30, 5, n_tasks=20).method
    'Meta-FUSE'
    """
    for name, value in (("n", n), ("m", m)):
        if value < 2:
            raise ValueError(f"{name} must be at least 2 rows. Got {value}.")
    reasons = []
    not_used = _why_not_used(check) if n_tasks else ""
    if n + m > MANY_ROWS:
        method = "MMD-M"
        reasons.append(
            f"With {n + m:,} rows, one kernel of the usual width detects small differences, and it can test more rows "
            "than many kernels can."
        )
        if n_tasks:
            reasons.append("The related tasks are not used: with this many rows, Meta-FUSE would test only some.")
    elif n_tasks and not not_used:
        method = "Meta-FUSE"
        reasons += [
            "It combines kernels learned from the related tasks with general-purpose ones. In simulations with related "
            "tasks it had more power than tests without them in 26 of 27 settings. With unrelated tasks it lost up to "
            "0.15.",
            "If you know that your samples can only differ as the related tasks do, Meta-Witness may be stronger.",
        ]
    else:
        reasons += [not_used] if not_used else []
        method = "MMD-M"
        if n + m <= FEW_ROWS and d <= FEW_COLUMNS:
            reasons.append(
                "With so few rows, many kernels detected little more in simulations than one kernel of the usual width."
            )
        elif d <= FEW_COLUMNS and pooled is not None and one_cloud(as_rows(pooled, "pooled")):
            reasons.append(
                "Your rows form one even cloud in few columns. In simulations of such rows, one kernel of the usual "
                "width was best at detecting differences in location or spread. For other differences, such as in "
                "correlation, use MMD-FUSE."
            )
        else:
            method = "MMD-FUSE"
            reasons.append("It compares the samples with twenty kernels at once and tests all rows.")
    if n_tasks and check is not None:
        reasons.append(check.sentences[0])
    if min(n, m) < 10:
        reasons.append(f"With {min(n, m)} rows in the smaller sample, only large differences can be detected.")
    if max(n, m) > 3 * min(n, m):
        equal = round(2 * n * m / (n + m))
        reasons.append(f"The samples are unequal: power is about that of two samples of {equal} rows each.")
    if blocks:
        reasons.append("Its p-value comes from permutations, which are made within your blocks.")
    return Recommendation(method, tuple(reasons))


def _why_not_used(check: RelatedCheck | None) -> str:
    """Return why the related tasks should not be used; empty if they should."""
    if check is not None and check.verdict == "harms":
        return "The related tasks are not used: in leave-one-out checks they made detection less likely."
    if check is not None and check.unlike is not None and check.unlike > UNLIKE:
        return (
            "The related tasks are not used: even without labels, your rows look unlike those of all related tasks. "
            "If you know that they are related, use Meta-FUSE."
        )
    return ""


def one_cloud(rows: np.ndarray) -> bool:
    """Return whether rows (N, d) are spread like a Gaussian's, without clusters or long tails.

    Squared distances of whitened Gaussian rows are twice χ²_d. Their 5 % and 95 % quantiles, relative to the median,
    are compared with it.
    """
    rows = rows[np.lexsort(rows.T)]  # the order of the rows may reveal the labels
    rows = rows[np.linspace(0, len(rows) - 1, min(len(rows), CLOUD_ROWS)).astype(int)]
    columns = rows.shape[1]
    values, vectors = np.linalg.eigh(np.cov(rows.T).reshape(columns, columns))
    if not values[0] > 1e-9 * values[-1]:
        return False
    squares = pdist(rows @ (vectors / np.sqrt(values)), "sqeuclidean")
    levels = [0.05, 0.5, 0.95]
    low, middle, high = np.quantile(squares, levels) / chi2.ppf(levels, columns)
    return bool(low > 0 and max(abs(np.log(low / middle)), abs(np.log(high / middle))) < CLOUD_TOLERANCE)


def advise(data: CleanData, *, n_tasks: int | None = None, check: RelatedCheck | None = None) -> Recommendation:
    """Recommend a method for an upload; ``n_tasks`` counts the tasks of a learner that was trained earlier."""
    return recommend(
        len(data.x),
        len(data.y),
        len(data.features),
        n_tasks=len(data.related_tasks) if n_tasks is None else n_tasks,
        blocks=data.x_blocks is not None,
        check=check,
        pooled=np.concatenate([data.x, data.y]),
    )


def usable_methods(n_tasks: int, blocks: bool = False, learner: MetaLearner | None = None) -> list[str]:
    """Return the tests that an upload allows: blocks need permutations, and some tests need related tasks."""
    learned = METHODS[learner.method].learn if learner is not None else None
    return [
        name
        for name, method in METHODS.items()
        if (method.by_permutation or not blocks)
        and (not method.uses_related_tasks or n_tasks or (learned is not None and method.learn is learned))
    ]
