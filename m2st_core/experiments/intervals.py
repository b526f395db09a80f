"""How sure a share of rejections is."""

from __future__ import annotations

import math


def wilson_interval(successes: int, trials: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's interval for a probability, 95 % by default; unlike the naive one it is sensible at 0 and 1.

    >>> wilson_interval(0, 10)[0], round(wilson_interval(0, 10)[1], 3)
    (0.0, 0.278)
    """
    if not 0 <= successes <= trials or trials < 1:
        raise ValueError(
            f"There must be at least one trial and no more successes than trials. Got {successes}/{trials}."
        )
    share, extra = successes / trials, z**2 / trials
    centre = (share + extra / 2) / (1 + extra)
    half = z * math.sqrt(share * (1 - share) / trials + extra / (4 * trials)) / (1 + extra)
    return max(0.0, centre - half), min(1.0, centre + half)
