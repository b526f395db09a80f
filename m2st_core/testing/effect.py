"""The power of a next study after a significant result, corrected for the luck that made the result significant."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtr

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
