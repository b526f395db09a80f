"""How large the difference is, and how many rows a next study needs. Approximate, and it says so."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr

from m2st_core.analysis.evidence import Seen, what_was_seen
from m2st_core.criterion import h_matrix, power_criterion
from m2st_core.testing.examined import Examined
from m2st_core.testing.methods import METHODS
from m2st_core.types import TestResult

WANTED = 0.8
LARGEST_FACTOR = 20.0  # times the present rows; beyond that the normal approximation says nothing
SMALLEST_FACTOR = 1e-3
REACH = 8.0  # standard errors either side of the observation that the integral covers
GRID = 1001


@dataclass(frozen=True)
class Effect:
    """A statistic that exceeded its threshold, and how it grows with the rows.

    With k times the rows of both samples the statistic times k^order has mean u = mean·k^order, variance
    noise + slope·u, and the same ``threshold``. ``order`` is 1 for MMD² and 1/2 for a difference of mean scores, whose
    ``slope`` is 0. ``signal`` is the observed value, from ``seen`` times the rows that were tested.
    """

    signal: float
    threshold: float
    noise: float
    slope: float
    order: float
    seen: float = 1.0

    def distance(self, u: np.ndarray | float) -> np.ndarray:
        """Standard errors between 0 and u: ∫₀ᵘ dv/√(noise + slope·v), the variance-stabilised u."""
        u = np.asarray(u, dtype=float)
        return 2 * u / (np.sqrt(np.maximum(self.noise + self.slope * u, 0)) + math.sqrt(self.noise))

    def mean(self, distance: np.ndarray) -> np.ndarray:
        """The mean u at these distances: the inverse of ``distance``."""
        return distance * math.sqrt(self.noise) + self.slope * distance**2 / 4

    @cached_property
    def posterior(self) -> tuple[np.ndarray, np.ndarray]:
        """Distances t ≥ 0 of the true mean from 0, and their probabilities given the observation: (g,), (g,).

        The observed distance z is N(t, 1) and was reported because it exceeded the threshold's distance c. Its density
        is therefore φ(z − t)/Φ(t − c), and all t ≥ 0 are equally likely beforehand. Division by Φ is what corrects
        for the selection: differences that rarely reach the threshold are not ruled out by having reached it once.
        """
        shrink = self.seen**self.order
        observed, width = float(self.distance(self.signal)), REACH / shrink
        t = np.linspace(max(observed - width, 0.0), max(observed, 0.0) + width, GRID)
        z = self.distance(self.signal * shrink) - self.distance(self.mean(t) * shrink)
        log_density = -(z**2) / 2 - log_ndtr(t - self.distance(self.threshold))
        density = np.exp(log_density - log_density.max())
        return t, density / density.sum()

    def powers(self, t: np.ndarray, factor: float = 1.0) -> np.ndarray:
        """The power with this many times the rows if the true mean is at distances t: Φ(distance − threshold's)."""
        return ndtr(self.distance(self.mean(t) * factor**self.order) - self.distance(self.threshold))

    def power(self, factor: float = 1.0) -> float:
        """The expected power with this many times the rows."""
        t, weights = self.posterior
        return float(weights @ self.powers(t, factor))

    def interval(self, factor: float = 1.0, level: float = 0.9) -> tuple[float, float]:
        """Where the power lies with this probability, equal tails."""
        t, weights = self.posterior
        ends = np.interp([(1 - level) / 2, (1 + level) / 2], weights.cumsum() - weights / 2, t)
        low, high = self.powers(ends, factor)
        return float(low), float(high)

    def factor_for(self, power: float = WANTED) -> float | None:
        """The k at which the expected power is the one wanted, or None if it is more than 20."""
        if self.power(LARGEST_FACTOR) < power:
            return None
        if self.power(SMALLEST_FACTOR) >= power:
            return SMALLEST_FACTOR
        ends = math.log(SMALLEST_FACTOR), math.log(LARGEST_FACTOR)
        return math.exp(brentq(lambda log_k: self.power(math.exp(log_k)) - power, *ends))


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
    if not METHODS[result.method].by_permutation:
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
        variance_x, variance_y = seen.score_variances()
        noise, slope, order = variance_x / n + variance_y / m, 0.0, 0.5
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
