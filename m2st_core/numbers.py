"""Checks of numbers, intervals of rates, and numbers in words."""

from __future__ import annotations

import math
from typing import TypeGuard

import numpy as np

Z = 1.96  # standard errors of a 95 % interval
NORMAL_QUARTILES = 1.349  # distance between the quartiles of a standard normal variable


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value is a number; True and False are not."""
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool)


def is_count(value: object) -> bool:
    """Whether a value of JSON is a whole number ≥ 0."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def is_whole(value: object) -> bool:
    """Whether a value is a whole number; True and False are not."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def wilson_interval(successes: int, trials: int) -> tuple[float, float]:
    """Wilson's 95 % interval for a probability. It is sensible at 0 and 1, and scipy's takes a millisecond.

    >>> wilson_interval(0, 10)[0], round(wilson_interval(0, 10)[1], 3)
    (0.0, 0.278)
    """
    if not 0 <= successes <= trials or trials < 1:
        counts = f"{successes}/{trials}"
        raise ValueError(f"There must be at least one trial and no more successes than trials. Got {counts}.")
    share, extra = successes / trials, Z**2 / trials
    centre = (share + extra / 2) / (1 + extra)
    half = Z * math.sqrt(share * (1 - share) / trials + extra / (4 * trials)) / (1 + extra)
    return max(0.0, centre - half), min(1.0, centre + half)


def null_band(alpha: float, tests: int) -> tuple[float, float]:
    """The range in which the rejection rate of a test of level α lies with probability 99 % if P = Q."""
    from scipy import stats  # slow to import

    low, high = stats.binom.interval(0.99, tests, alpha)
    return low / tests, high / tests


def duration(seconds: float) -> str:
    """A duration in words.

    >>> duration(0.4), duration(75), duration(7200)
    ('1 s', '75 s', '2.0 h')
    """
    if seconds < 120:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def count_of(number: int, noun: str) -> str:
    """The number with its noun, in the plural unless there is one."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
