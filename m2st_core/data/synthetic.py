"""Gaussians that differ in one mean or in one variance: the simplest tasks there are."""

from __future__ import annotations

import numpy as np

from m2st_core.data.task import DIMENSION, IndependentTask, Parameter


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


VARIANCE = 0.03  # of each blob in each direction; neighbouring centres are 1 apart


class Blobs(IndependentTask):
    """Nine blobs on a unit grid: round in P, with correlation ρ between the two columns in Q."""

    name = "blobs"
    title = "Blobs"
    description = "A 3×3 grid of small Gaussians: round in P, correlated in Q. Wide kernels see nothing."
    strength = "correlation"
    parameters = (
        Parameter("correlation", "correlation ρ", 0.7, "Tilt of Q's blobs; P's are round.", -0.95, 0.95, 0.05),
    )

    def draw_p(self, n: int, generator: np.random.Generator) -> np.ndarray:
        """Rows of P: (n, 2)."""
        return self._draw(n, 0.0, generator)

    def draw_q(self, n: int, generator: np.random.Generator) -> np.ndarray:
        """Rows of Q(ρ): (n, 2)."""
        return self._draw(n, self.settings["correlation"], generator)

    @staticmethod
    def _draw(n: int, correlation: float, generator: np.random.Generator) -> np.ndarray:
        centres = generator.integers(0, 3, size=(n, 2))
        rows = generator.standard_normal((n, 2))
        rows[:, 1] = correlation * rows[:, 0] + np.sqrt(1 - correlation**2) * rows[:, 1]
        return centres + np.sqrt(VARIANCE) * rows


class MeanShift(IndependentTask):
    """P = N(0, I), Q = N(shift·e₁, I)."""

    name = "mean_shift"
    title = "Mean shift"
    description = "Standard Gaussians; the first column of Q has another mean."
    strength = "shift"
    parameters = (
        Parameter("shift", "shift of the mean", 0.5, "Difference of the first column's means.", -5.0, 5.0, 0.1),
        DIMENSION,
    )

    def draw_p(self, n: int, generator: np.random.Generator) -> np.ndarray:
        """Rows of P: (n, d)."""
        return generator.standard_normal((n, int(self.settings["dimension"])))

    def draw_q(self, n: int, generator: np.random.Generator) -> np.ndarray:
        """Rows of Q: (n, d)."""
        rows = self.draw_p(n, generator)
        rows[:, 0] += self.settings["shift"]
        return rows


class VarianceShift(MeanShift):
    """P = N(0, I), Q = N(0, diag(scale², 1, …, 1))."""

    name = "variance_shift"
    title = "Variance shift"
    description = "Standard Gaussians; the first column of Q has another standard deviation."
    strength = "scale"
    parameters = (
        Parameter("scale", "standard deviation in Q", 1.5, "Of Q's first column; P's is 1.", 0.1, 5.0, 0.1),
        DIMENSION,
    )

    def draw_q(self, n: int, generator: np.random.Generator) -> np.ndarray:
        """Rows of Q: (n, d)."""
        rows = self.draw_p(n, generator)
        rows[:, 0] *= self.settings["scale"]
        return rows
