"""Rows that repeat far more often than their columns allow: copies, or several measurements of one unit."""

from __future__ import annotations

import numpy as np
import pandas as pd

FEWEST = 12  # rows, below which repeats may be chance
FEWER = 0.6  # different rows, as a share of those that the columns let expect
EVEN = 0.5  # of the places between the smallest and the largest value are taken in a column such as 1 to 5
DEPENDENT = 0.5  # share of its information that such a column adds to the others
TOLERANCE = 1e-6  # of a step, for values that were scaled


def repeated_rows_note(rows: np.ndarray) -> tuple[str, ...]:
    """Note that few of the pooled rows (N, d) are different, if far fewer are than their columns let expect.

    >>> repeated_rows_note(np.tile(np.random.default_rng(0).standard_normal((12, 3)), (5, 1)))[0].split(".")[0]
    '60 rows, only 12 different'
    >>> repeated_rows_note(np.random.default_rng(0).integers(1, 6, (200, 2)).astype(float))
    ()
    """
    if len(rows) < FEWEST:
        return ()
    hashes, codes = np.zeros(len(rows), dtype=np.uint64), []
    for column in rows.T:
        code, values = pd.factorize(column)
        if len(values) > FEWER * len(rows):
            return ()
        codes.append(code)
        hashes = hashes * np.uint64(1_000_003) + pd.util.hash_array(code, categorize=False)
    different = len(np.unique(hashes))
    if different > FEWER * _expected(rows, codes):
        return ()
    return (
        f"{len(rows):,} rows, only {different:,} different. The p-value supposes that repeated rows are independent "
        "observations. If they are copies, or come from one unit, keep one of each, or it is too small.",
    )


def _expected(rows: np.ndarray, codes: list[np.ndarray]) -> float:
    """How many rows would be different if the columns were independent, those with even steps about half of it.

    If two rows agree with probability S, they are drawn from about 1/S equally likely ones. S is the product of the
    columns' chances of a tie. Columns of answers, counts and indicators go together, so each counts by a root.
    """
    count, log_tie = len(rows), 0.0
    for values, code in zip(rows.T, codes, strict=True):
        counts = np.bincount(code).astype(float)
        tie = float((counts * (counts - 1)).sum()) / (count * (count - 1))
        log_tie += np.log(max(tie, 1e-300)) * (DEPENDENT if _is_even(np.unique(values)) else 1.0)
    places = np.exp(min(-log_tie, 50.0))
    return float(-places * np.expm1(count * np.log1p(-1 / places))) if places > 1 else 1.0


def _is_even(different: np.ndarray) -> bool:
    """Whether sorted values take at least half of the places between them, as answers from 1 to 5 do."""
    if len(different) < 3:
        return True
    steps = (different - different[0]) / np.diff(different).min()
    return bool((np.abs(steps - steps.round()) < TOLERANCE * steps[-1]).all() and len(steps) >= EVEN * (steps[-1] + 1))
