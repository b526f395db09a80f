"""HDGM(Δ): the paper's synthetic task, two Gaussian modes whose correlation differs between P and Q."""

from __future__ import annotations

import numpy as np

from m2st_core.tasks.base import DIMENSION, IndependentTask, Parameter


class HDGM(IndependentTask):
    """P = ½N(0, I) + ½N(½·1, I), Q(Δ) = ½N(0, Σ(−Δ)) + ½N(½·1, Σ(+Δ)).

    Σ(Δ) is the identity with Δ between the first two coordinates. Rows are drawn i.i.d. from the mixture; with
    ``stratified=True`` exactly half of the rows come from each mode (n must be even), in random order.
    """

    name = "hdgm"
    title = "HDGM"
    description = "The paper's synthetic task: two Gaussian modes, in Q with correlated columns."
    rows_per_size = 2
    strength = "delta"
    parameters = (
        Parameter("delta", "correlation Δ", 0.7, "How strongly Q's first two columns are correlated.", 0.0, 0.95, 0.05),
        DIMENSION,
        Parameter("stratified", "equal rows per mode", False, "Draw exactly half of the rows from each mode."),
    )

    def draw_p(self, n: int, generator: np.random.Generator) -> np.ndarray:
        """Rows of P: (n, d)."""
        return self._draw(n, 0.0, generator)

    def draw_q(self, n: int, generator: np.random.Generator) -> np.ndarray:
        """Rows of Q(Δ): (n, d)."""
        return self._draw(n, self.settings["delta"], generator)

    def log_likelihood_ratio(self, x: np.ndarray) -> np.ndarray:
        """log p(x)/q(x), the best possible witness: (…, d) → (…)."""
        return self._log_density(x, 0.0) - self._log_density(x, float(self.settings["delta"]))

    def _log_density(self, x: np.ndarray, delta: float) -> np.ndarray:
        """Up to a constant that P and Q share."""
        free = 1 - delta**2
        exponents = []
        for shift, correlation in ((0.0, -delta), (0.5, delta)):
            u = x - shift
            pair = (u[..., 0] ** 2 - 2 * correlation * u[..., 0] * u[..., 1] + u[..., 1] ** 2) / free
            exponents.append(-0.5 * (pair + (u[..., 2:] ** 2).sum(axis=-1)))
        return np.logaddexp(*exponents) - 0.5 * np.log(free)

    def _draw(self, n: int, delta: float, generator: np.random.Generator) -> np.ndarray:
        mode = self._modes(n, generator)
        rows = generator.standard_normal((n, int(self.settings["dimension"])))
        correlation = np.where(mode == 1, delta, -delta)
        rows[:, 1] = correlation * rows[:, 0] + np.sqrt(1 - delta**2) * rows[:, 1]
        return rows + 0.5 * mode[:, None]

    def _modes(self, n: int, generator: np.random.Generator) -> np.ndarray:
        if not self.settings["stratified"]:
            return generator.integers(0, 2, size=n)
        if n % 2:
            raise ValueError(f"With equal rows per mode the sample size must be even. Got {n}.")
        return generator.permutation(np.arange(n) % 2)
