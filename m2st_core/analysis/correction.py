"""Holm's correction of the p-values of a primary test and its secondary tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from m2st_core.types import DECISIONS, TestResult

Family = Literal["primary", "all"]
"""Tests that share one error rate: the secondary tests only ("primary"), or all tests together ("all")."""

FAMILIES: dict[Family, str] = {
    "primary": (
        "The primary test alone decides. It rejects a true null hypothesis with probability at most α={alpha:g}. The "
        "secondary tests are exploratory and are corrected by Holm's procedure among themselves only, so the "
        "probability that the primary or any secondary test errs can reach {twice:g}."
    ),
    "all": (
        "The primary and secondary tests form one family and are corrected together by Holm's procedure: the "
        "probability that any of them rejects a true null hypothesis is at most α={alpha:g}."
    ),
}


def holm(p_values: Sequence[float]) -> list[float]:
    """Return Holm's adjusted p-values in the given order; rejecting those ≤ α errs at all with probability ≤ α.

    The i-th smallest of k is multiplied by k+1−i. None is smaller than its predecessor or larger than 1.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    p = np.asarray(p_values, dtype=float)
    if p.ndim != 1 or not ((p >= 0) & (p <= 1)).all():
        raise ValueError(f"p-values must be numbers from 0 to 1. Got {p_values!r}.")
    order = np.argsort(p, kind="stable")
    adjusted = np.empty_like(p)
    adjusted[order] = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1)).clip(max=1.0)
    return adjusted.tolist()


def adjusted_p_values(p_values: Sequence[float], family: Family) -> list[float]:
    """Return the adjusted p-values of a primary test, which comes first, and its secondary tests.

    >>> adjusted_p_values([0.03, 0.01, 0.02], "primary"), adjusted_p_values([0.03, 0.01, 0.02], "all")
    ([0.03, 0.02, 0.02], [0.04, 0.03, 0.04])
    """
    return holm(p_values) if family == "all" else [p_values[0], *holm(p_values[1:])]


@dataclass(frozen=True)
class CorrectedTest:
    """A test's result, its role, and its p-value after Holm's correction within its family."""

    result: TestResult
    adjusted_p_value: float
    role: Literal["primary", "secondary"] = "secondary"

    @property
    def rejected(self) -> bool:
        """Whether the corrected p-value is at most α."""
        return self.adjusted_p_value <= self.result.alpha

    @property
    def sentence(self) -> str:
        """The decision in plain words."""
        return (
            f"{DECISIONS[self.rejected]} by {self.result.label} ({self.role}): "
            f"Holm-corrected p = {self.adjusted_p_value:.4g}, uncorrected {self.result.p_words}."
        )
