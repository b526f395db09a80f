"""Blobs: a 3×3 grid of Gaussians whose shape, not position, differs between P and Q."""

from __future__ import annotations

import numpy as np

from m2st_core.tasks.base import IndependentTask, Parameter

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
