"""How large the difference is, and how many rows a next study needs. Approximate, and it says so."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch

from m2st_core.criterion import h_matrix, power_criterion
from m2st_core.testing.effect import Effect
from m2st_core.testing.examined import Examined
from m2st_core.testing.methods import METHODS
from m2st_core.testing.seen import Seen, what_was_seen
from m2st_core.types import TestResult

CANNOT_SAY = "These data cannot say how many rows you need"
CAVEAT = (
    "A significant result tends to overstate the difference, because a lucky sample is more likely to be significant. "
    "A power or a number of rows is therefore given only after a significant result, and is averaged over all "
    "differences that could have led to it. To plan without one, simulate the smallest difference that would matter."
)


@dataclass(frozen=True)
class Answer:
    """What a test's result means in size; None where these rows allow no statement.

    ``mmd2`` and ``criterion`` (Ĵ) are of the kernel that ``how`` names; for tests without a kernel, ``mmd2`` is the
    squared difference of mean scores. ``power`` is what a new study of the same sizes can expect, with a 90 % interval,
    and ``rows_for_power`` counts the rows of (x, y) in all, at the same split and the same ratio, for 80 % power. Both
    are given only if the test rejects, and allow for this selection as ``Effect.posterior`` says.
    """

    mmd2: float
    criterion: float | None
    power: float | None
    power_interval: tuple[float, float] | None
    rows_for_power: tuple[int, int] | None
    how: str
    sentences: tuple[str, ...]
    caveat: str = CAVEAT


def answer(examined: Examined, seen: Seen | None = None) -> Answer:
    """Effect size, and after a significant result the power of a new study and the rows needed for 80 % power."""
    seen = what_was_seen(examined) if seen is None else seen
    result = examined.result
    sizes = result.n_train[0] + result.n_test[0], result.n_train[1] + result.n_test[1]
    statistic = float(seen.statistic(seen.sample.pooled, seen.sample.sizes[0])[0])
    how = f"Effect size of {seen.how}, on {seen.sample.sizes[0]} and {seen.sample.sizes[1]} test rows."
    power = interval = rows = None
    why = _why_not(result)
    if not why:
        effect = effect_of(seen, result)
        power, interval, factor = effect.power(), effect.interval(), effect.factor_for()
        if factor is None:
            why = "the result is significant, but so close to its threshold that luck may account for most of it"
        else:
            rows = math.ceil(sizes[0] * factor), math.ceil(sizes[1] * factor)
        within = " within blocks" if examined.codes is not None else ""
        how += (
            " Power by a normal approximation of its statistic: the variance is that of these rows, the threshold that "
            f"of {len(seen.null)} permutations{within}."
        )
    luck = "allowing for the luck of a significant first result"
    sentences = [
        f"About {rows[0]} and {rows[1]} rows should give 80 % power, {luck}." if rows else f"{CANNOT_SAY}: {why}."
    ]
    if power is not None and interval is not None:
        sentences.append(
            f"A new study of {sizes[0]} and {sizes[1]} rows would find the difference again with probability about "
            f"{power:.2f} (rough 90 % interval {interval[0]:.2f} to {interval[1]:.2f})."
        )
    return Answer(
        mmd2=statistic if seen.kernel is not None else statistic**2,
        criterion=_criterion(seen) if result.criterion is None else result.criterion,
        power=power,
        power_interval=interval,
        rows_for_power=rows,
        how=how,
        sentences=tuple(sentences),
    )


def _why_not(result: TestResult) -> str:
    """Why no power can be found from this result; empty if it can."""
    if not result.rejected:
        return "they are compatible with no difference at all"
    if METHODS[result.method].asymptotic is not None:
        return f"how the statistic of {result.method} grows with the rows is not known"
    return ""


@torch.no_grad()
def effect_of(seen: Seen, result: TestResult) -> Effect:
    """The effect at the test's own sizes, from the rows that were looked at.

    A fused test asks less of the kernel seen where its other kernels speak too. A next study may not have their help,
    so its threshold is at least that of the kernel alone.
    """
    n, m = seen.sample.sizes
    signal = float(seen.statistic(seen.sample.pooled, n)[0])
    threshold = max(seen.threshold, float(np.quantile(seen.null, 1 - result.alpha)))
    if seen.kernel is None:
        x, y = (seen.scorer(rows)[0].double().var().item() for rows in seen.sample)
        noise, slope, order = x / n + y / m, 0.0, 0.5
    else:
        x, y = seen.at_rows()
        noise, order = float(np.var(seen.null)), 1.0
        slope = max(float(4 * np.var(x) / n + 4 * np.var(y) / m) - 2 * noise, 0.0) / max(signal, 1e-24)
    share = (1 / result.n_test[0] + 1 / result.n_test[1]) / (1 / n + 1 / m)  # rows looked at per row tested
    shrink = share**order
    return Effect(signal, threshold * shrink, max(noise * shrink**2, 1e-24), slope * shrink, order, share)


@torch.no_grad()
def _criterion(seen: Seen) -> float | None:
    """Ĵ of the kernel that was seen."""
    if seen.kernel is None:
        return None
    count = min(seen.sample.sizes)
    h = h_matrix(seen.kernel, seen.sample.x[:, :count], seen.sample.y[:, :count])
    return float(power_criterion(h.reshape(1, count, count), regularisation=1e-8))
