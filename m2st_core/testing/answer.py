"""How large the difference is, and how many rows a next study needs. Approximate, and it says so."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import ndtr

from m2st_core.criterion import h_matrix, power_criterion
from m2st_core.testing.examined import Examined
from m2st_core.testing.seen import Seen, what_was_seen

WANTED = 0.8
LARGEST_FACTOR = 1e4
CONFIDENCE = 1.645  # standard errors either side: 90 %
CAVEAT = (
    "Power found after the test restates its p-value in other words and says nothing new about these rows. "
    "Use it to plan the next sample, and look at its interval: it is wide because these rows are all it rests on."
)


@dataclass(frozen=True)
class Effect:
    """A statistic that grows clear of its threshold as rows are added: k times the rows of both samples.

    Its mean stays ``signal``; its threshold falls as k^−``order``, the first part of its variance as 1/k and the
    second, which is all there is without a difference, as 1/k².
    """

    signal: float
    threshold: float
    first: float
    second: float
    order: float

    def deviation(self, factor: float = 1.0) -> float:
        """The standard deviation of the statistic with this many times the rows."""
        return math.sqrt(self.first / factor + self.second / factor**2)

    def power(self, factor: float = 1.0, shift: float = 0.0) -> float:
        """Φ((signal − threshold)/deviation); ``shift`` moves the signal by that many of its present deviations."""
        signal = self.signal + shift * self.deviation()
        return float(ndtr((signal - self.threshold / factor**self.order) / self.deviation(factor)))

    def factor_for(self, power: float = WANTED, shift: float = 0.0) -> float | None:
        """The smallest k with this power, or None if there is none below 10,000."""
        if self.signal + shift * self.deviation() <= 0 or self.power(LARGEST_FACTOR, shift) < power:
            return None
        low, high = 1e-3, LARGEST_FACTOR
        for _ in range(60):
            middle = math.sqrt(low * high)
            low, high = (low, middle) if self.power(middle, shift) >= power else (middle, high)
        return high


@dataclass(frozen=True)
class Answer:
    """What a test's result means in size. Intervals are 90 %; None where these rows allow no statement.

    ``mmd2`` and ``criterion`` (Ĵ) are of the kernel that ``how`` names; for tests without a kernel, ``mmd2`` is the
    squared difference of mean scores. ``rows_for_power`` counts rows of (x, y) in all, at the same split and the same
    ratio, for 80 % power.
    """

    mmd2: float
    criterion: float | None
    power: float
    power_interval: tuple[float, float]
    rows_for_power: tuple[int, int] | None
    rows_interval: tuple[tuple[int, int] | None, tuple[int, int] | None]
    how: str
    sentences: tuple[str, ...]
    caveat: str = CAVEAT


def answer(examined: Examined, seen: Seen | None = None) -> Answer:
    """Effect size, estimated power at these sizes, and the rows needed for 80 % power."""
    seen = what_was_seen(examined) if seen is None else seen
    result = examined.result
    effect = _effect(seen, result.n_test)
    sizes = tuple(train + test for train, test in zip(result.n_train, result.n_test, strict=True))

    def rows(shift: float) -> tuple[int, int] | None:
        factor = effect.factor_for(shift=shift)
        return None if factor is None else (math.ceil(sizes[0] * factor), math.ceil(sizes[1] * factor))

    power, low, high = (max(effect.power(shift=shift), result.alpha) for shift in (0.0, -CONFIDENCE, CONFIDENCE))
    needed, most, least = rows(0.0), rows(-CONFIDENCE), rows(CONFIDENCE)
    statistic = float(seen.statistic(seen.sample.pooled, seen.sample.sizes[0])[0])
    how = (
        f"Normal approximation of the statistic of {seen.how}, on {seen.sample.sizes[0]} and {seen.sample.sizes[1]} "
        f"test rows: its mean and variance as these rows show them, its threshold from {len(seen.null)} permutations"
        + (" within blocks." if examined.codes is not None else ".")
    )
    return Answer(
        mmd2=statistic if seen.kernel is not None else statistic**2,
        criterion=_criterion(seen) if result.criterion is None else result.criterion,
        power=power,
        power_interval=(low, high),
        rows_for_power=needed,
        rows_interval=(least, most),
        how=how,
        sentences=_sentences(power, (low, high), needed, least, most, sizes),
    )


def _sentences(
    power: float,
    interval: tuple[float, float],
    needed: tuple[int, int] | None,
    least: tuple[int, int] | None,
    most: tuple[int, int] | None,
    sizes: tuple[int, ...],
) -> tuple[str, str]:
    low, high = interval
    first = (
        f"If the difference is as large as these rows suggest, a new study of {sizes[0]} and {sizes[1]} rows would "
        f"find it with probability about {power:.2f} (approximate; rough 90 % interval {low:.2f} to {high:.2f})."
    )
    if needed is None:
        return first, "These rows show no difference from which a sample size for 80 % power could be extrapolated."
    most_words = "no number that these rows could name" if most is None else f"{most[0]} and {most[1]}"
    least_words = "a few" if least is None else f"{least[0]} and {least[1]}"
    return first, (
        f"About {needed[0]} and {needed[1]} rows would give 80 % power (approximate; the rough 90 % interval goes from "
        f"{least_words} to {most_words})."
    )


@torch.no_grad()
def _effect(seen: Seen, sizes: tuple[int, int]) -> Effect:
    """The effect at the test's own sizes, from the rows that were looked at."""
    n, m = seen.sample.sizes
    signal = float(seen.statistic(seen.sample.pooled, seen.sample.sizes[0])[0])
    if seen.kernel is None:
        x, y = (seen.scorer(rows)[0].double().var().item() for rows in seen.sample)
        effect = Effect(signal, seen.threshold, x / n + y / m, 0.0, 0.5)
    else:
        x, y = seen.at_rows()
        both = float(4 * np.var(x) / n + 4 * np.var(y) / m)
        second = float(np.var(seen.null))
        effect = Effect(signal, seen.threshold, max(both - 2 * second, 0.0), second, 1.0)
    scale = (1 / n + 1 / m) / (1 / sizes[0] + 1 / sizes[1])  # rows tested per row looked at
    return Effect(
        effect.signal,
        effect.threshold / scale**effect.order,
        max(effect.first / scale, 1e-24),
        effect.second / scale**2,
        effect.order,
    )


@torch.no_grad()
def _criterion(seen: Seen) -> float | None:
    """Ĵ of the kernel that was seen."""
    if seen.kernel is None:
        return None
    count = min(seen.sample.sizes)
    h = h_matrix(seen.kernel, seen.sample.x[:, :count], seen.sample.y[:, :count])
    return float(power_criterion(h.reshape(1, count, count), regularisation=1e-8))
