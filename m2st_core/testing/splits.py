"""Several random splits of the same rows, combined into one valid p-value."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from m2st_core.rng import Streams

NOISY = 200  # draws that show how the errors of single p-values move the combined one


def combine_splits(p_values: Sequence[float] | np.ndarray) -> tuple[float, int]:
    """Twice the smallest running median of S p-values, at most 1, and the position of the one that decides.

    p = 2·min_{ℓ≤S} median(p_1, …, p_ℓ), the median being the ⌈ℓ/2⌉-th smallest; a single p-value is left as it is.

    Valid for p-values of independent random splits of the same rows. Given the rows these are i.i.d., so they are
    exchangeable. Then e_s = 2·1[p_s ≤ α/2] has mean at most α, and its running means, read from the last to the first,
    are a martingale: by Doob's inequality one of them reaches 1 with probability at most α. It does where at least half
    of the first ℓ p-values are at most α/2, which is p ≤ α. (Gasparin, Wang, Ramdas 2025, Combining exchangeable
    p-values. Under arbitrary dependence only ℓ = S is allowed, "twice the median", which has far less power.)

    >>> combine_splits([0.04, 0.3, 0.01])
    (0.08, 0)
    >>> combine_splits([0.3, 0.02, 0.01])
    (0.04, 1)
    """
    p = np.asarray(p_values, dtype=float)
    if len(p) == 1:
        return float(p[0]), 0
    deciding = [int(np.argsort(p[:count], kind="stable")[(count + 1) // 2 - 1]) for count in range(1, len(p) + 1)]
    best = min(deciding, key=lambda index: float(p[index]))
    return min(1.0, 2 * float(p[best])), best


def combined_error(p_values: Sequence[float], errors: Sequence[float], seed: int) -> float:
    """The standard error of the combined p-value, if each p-value has its own, independent and normal."""
    p, error = np.asarray(p_values), np.asarray(errors)
    if not error.any():
        return 0.0
    noise = Streams(seed).numpy("errors of p-values").standard_normal((NOISY, len(p)))
    return float(np.std([combine_splits((p + error * draw).clip(0, 1))[0] for draw in noise], ddof=1))


def split_seeds(seed: int, splits: int) -> list[int]:
    """The seed of each split; the first has the test's own, so one split is the first of many."""
    return [seed, *(Streams(seed).child(f"split {number}").seed for number in range(2, splits + 1))]
