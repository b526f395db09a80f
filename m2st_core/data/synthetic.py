"""Tasks of Gaussians: the paper's HDGM, a grid of blobs, and shifts of one mean or one variance."""

from __future__ import annotations

import numpy as np

from m2st_core.tasks import IndependentTask, Parameter
from m2st_core.types import TwoSample

DIMENSION = Parameter("dimension", "dimension d", 2, "Columns of each row; those beyond the second are noise.", 2, 1000)
BLOB_VARIANCE = 0.03  # in each direction; neighbouring centres are 1 apart


def _correlate(rows: np.ndarray, correlation: float | np.ndarray) -> np.ndarray:
    """Mix the first column of independent normal rows (n, d) into the second, in place."""
    rows[:, 1] = correlation * rows[:, 0] + np.sqrt(1 - correlation**2) * rows[:, 1]
    return rows


class HDGM(IndependentTask):
    """P = ½N(0, I) + ½N(½·1, I), Q(Δ) = ½N(0, Σ(−Δ)) + ½N(½·1, Σ(+Δ)).

    Σ(Δ) is the identity with Δ between the first two coordinates. Rows are drawn i.i.d. from the mixture. With
    ``stratified=True`` exactly half of the rows come from each mode, in random order, and n must be even.
    """

    name = "hdgm"
    title = "HDGM"
    description = "The paper's synthetic task: two Gaussian modes, with correlated columns in Q."
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
        """Log-density up to a constant that P and Q share."""
        free = 1 - delta**2
        exponents = []
        for shift, correlation in ((0.0, -delta), (0.5, delta)):
            u = x - shift
            pair = (u[..., 0] ** 2 - 2 * correlation * u[..., 0] * u[..., 1] + u[..., 1] ** 2) / free
            exponents.append(-0.5 * (pair + (u[..., 2:] ** 2).sum(axis=-1)))
        return np.logaddexp(*exponents) - 0.5 * np.log(free)

    def _draw(self, n: int, delta: float, generator: np.random.Generator) -> np.ndarray:
        if not self.settings["stratified"]:
            mode = generator.integers(0, 2, size=n)
        elif n % 2:
            raise ValueError(f"With equal rows per mode the sample size must be even. Got {n}.")
        else:
            mode = generator.permutation(np.arange(n) % 2)
        rows = generator.standard_normal((n, int(self.settings["dimension"])))
        return _correlate(rows, np.where(mode == 1, delta, -delta)) + 0.5 * mode[:, None]


def hdgm_related_tasks(
    closeness: float = 0.3, n_tasks: int = 100, rows: int = 100, *, seed: int = 0
) -> dict[str, TwoSample]:
    """Draw the paper's synthetic related tasks: HDGM(Δ_i) with Δ_i = (0.6 − C) + 0.1·i/N.

    >>> list(hdgm_related_tasks(closeness=0.3, n_tasks=2, rows=10))
    ['Δ=0.350', 'Δ=0.400']
    """
    return HDGM(delta=0.7).draw_related_tasks(closeness=closeness, n_tasks=n_tasks, rows=rows, seed=seed)


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
        return centres + np.sqrt(BLOB_VARIANCE) * _correlate(generator.standard_normal((n, 2)), correlation)


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
    same_at = 1.0
    parameters = (
        Parameter("scale", "standard deviation in Q", 1.5, "Of Q's first column; P's is 1.", 0.1, 5.0, 0.1),
        DIMENSION,
    )

    def draw_q(self, n: int, generator: np.random.Generator) -> np.ndarray:
        """Rows of Q: (n, d)."""
        rows = self.draw_p(n, generator)
        rows[:, 0] *= self.settings["scale"]
        return rows
