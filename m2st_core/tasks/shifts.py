"""Gaussians that differ in one mean or in one variance: the simplest tasks there are."""

from __future__ import annotations

import numpy as np

from m2st_core.tasks.base import DIMENSION, IndependentTask, Parameter


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
