"""What is wrong with the settings of a test, said before anything is computed."""

from __future__ import annotations

import math

import numpy as np

from m2st_core.testing.labellings import Labellings
from m2st_core.testing.methods import Method


def check_settings(alpha: float, n_permutations: int, train_fraction: float) -> None:
    """Numbers outside their bounds give a ValueError that names the bounds."""
    for name, value, low, high in (("alpha", alpha, 0, 1), ("train_fraction", train_fraction, 0.01, 0.99)):
        number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
        inside = number and (low <= value <= high if low else 0 < value < 1)
        if not inside:
            allowed = f"from {low} to {high}" if low else "between 0 and 1, both excluded"
            raise ValueError(f"{name} must be a number {allowed}. Got {value!r}.")
    whole = isinstance(n_permutations, (int, np.integer)) and not isinstance(n_permutations, bool)
    if not whole or n_permutations < 1:
        raise ValueError(f"n_permutations must be a whole number ≥ 1. Got {n_permutations!r}.")


def check_splits(method: Method, splits: int) -> None:
    """Several splits need a method that splits."""
    if isinstance(splits, bool) or not isinstance(splits, (int, np.integer)) or splits < 1:
        raise ValueError(f"splits must be a whole number ≥ 1. Got {splits!r}.")
    if splits > 1 and not method.needs_split:
        raise ValueError(
            f"{method.name} splits nothing: it tests every row, and splits={splits} would change nothing. "
            "Leave splits at 1."
        )


def check_reach(method: Method, alpha: float, smallest: float, labellings: Labellings, n_test: tuple[int, int]) -> None:
    """A test that cannot reject, whatever the rows say, is refused before it runs, with what would help."""
    if smallest <= alpha:
        return
    can = f"{method.name} cannot reject at alpha={alpha:g}: its smallest possible p-value is {smallest:.3g}"
    if not labellings.enumerated:
        times = round(smallest / labellings.smallest_p)
        raise ValueError(
            f"{can}, with {labellings.used - 1} permutations. Use at least {math.ceil(times / alpha) - 1}."
        )
    raise ValueError(
        f"{can}, because its {n_test[0]} and {n_test[1]} test rows have only {labellings.used} labellings. "
        "It needs more rows."
    )
