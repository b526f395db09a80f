"""The bounds of three ways to a kernel, side by side, for the bound explorer."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pandas as pd

from m2st_core.criterion.bounds import (
    Bound,
    best_of_many,
    best_one_bound,
    direct_training,
    meta_mkl_bound,
    multiple_kernels,
)

SIZES = [20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000]


@dataclass(frozen=True)
class BoundSettings:
    """γ; n rows per meta-task, m rows of the target, N base kernels, D parameters of a deep kernel, s."""

    gamma: float
    n: int
    m: int
    n_tasks: int
    parameters: int
    s: float

    def bounds(self) -> dict[str, Bound]:
        """Direct training (2ξ_m, Proposition 1), choose one best (Theorem 6) and Meta-MKL (Theorem 4)."""
        learning = direct_training(self.n, dimension=self.parameters, s=self.s)
        learning = replace(learning, name="ξₙ, learning base kernels")
        direct = direct_training(self.m, dimension=self.parameters, s=self.s)
        weights = multiple_kernels(self.m, n_kernels=self.n_tasks, s=self.s)
        choice = best_of_many(self.m, n_kernels=self.n_tasks, s=self.s)
        return {
            "direct training": Bound((replace(direct, name="ξₘ, learning a deep kernel"),), 0.95),
            "choose one best": best_one_bound(self.gamma, learning, replace(choice, name="ζₘ, choosing one kernel")),
            "Meta-MKL": meta_mkl_bound(self.gamma, learning, replace(weights, name="ξₘ, learning the weights β")),
        }


def bound_table(settings: BoundSettings) -> pd.DataFrame:
    """Twice each term: columns bound, term, value."""
    return pd.DataFrame(
        [
            {"bound": name, "term": "2" + term.name.replace(",", ":", 1), "value": 2 * term.value}
            for name, bound in settings.bounds().items()
            for term in bound.terms
        ]
    )


def bound_courses(settings: BoundSettings) -> tuple[list[int], dict[str, list[float]]]:
    """Each bound as m grows."""
    found = [replace(settings, m=size).bounds() for size in SIZES]
    return SIZES, {name: [bounds[name].value for bounds in found] for name in found[0]}
