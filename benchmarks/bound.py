"""How much power any combination of tests must lose against the best of them, whichever that is.

Each of k statistics is N(0, 1) under the null hypothesis, and the correlation of any two is ρ. If the samples differ in
kind j, the mean of statistic j is the one that gives it the power of --power at 5 %. The means of the others are a
share of it. The likelihood ratio, averaged over kinds, has the best average power over all kinds (Neyman, Pearson).
Kinds are exchangeable, so no test has more against each of them. Beside it stand the harmonic mean of p-values, as in
Omnibus, and the least p-value. The thresholds of all three come from the same simulated null.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import stats

from benchmarks.common import ALPHA, Page, parse

CASES = ((2, 0.0, 0.0), (3, 0.0, 0.0), (4, 0.0, 0.0), (2, 0.5, 0.5), (3, 0.5, 0.5))  # k, ρ, share of the mean


def powers(count: int, correlation: float, spill: float, power: float, draws: int, seed: int) -> list[float]:
    """Power of the likelihood ratio, the harmonic mean of p-values and the least p-value."""
    generator = np.random.default_rng(seed)
    mean = stats.norm.isf(ALPHA) + stats.norm.ppf(power)
    means = mean * (spill + (1 - spill) * np.eye(count))  # a row per kind
    covariance = correlation + (1 - correlation) * np.eye(count)
    noise = generator.standard_normal((2, draws, count)) @ np.linalg.cholesky(covariance).T
    precision = np.linalg.inv(covariance)
    levels = 0.5 * np.einsum("ij,jk,ik->i", means, precision, means)

    def ratio(z: np.ndarray) -> np.ndarray:
        return np.exp(z @ precision @ means.T - levels).mean(axis=1)

    def harmonic(z: np.ndarray) -> np.ndarray:
        return (1 / stats.norm.sf(z)).mean(axis=1)

    rates = []
    for statistic in (ratio, harmonic, lambda z: z.max(axis=1)):
        threshold = np.quantile(statistic(noise[0]), 1 - ALPHA)
        rates.append(float((statistic(noise[1] + means[0]) > threshold).mean()))
    return rates


def main(arguments: Sequence[str] = ()) -> None:
    """Print the table."""
    options = parse(arguments, __doc__, power=0.7, draws=400_000, seed=0)
    error = (0.25 / options.draws + ALPHA * (1 - ALPHA) / options.draws * 16) ** 0.5
    page = Page()
    page.say(
        f"Each statistic alone has power {options.power:g} against its kind. {options.draws:,} draws, seed "
        f"{options.seed}; standard error at most about {error:.3f}.\n"
    )
    page.head("statistics", "correlation", "what each sees of the others' kinds", "bound", "harmonic", "least p")
    for count, correlation, spill in CASES:
        shown = powers(count, correlation, spill, options.power, options.draws, options.seed)
        page.row(count, f"{correlation:g}", f"{spill:g}", *(f"{value:.3f}" for value in shown))
