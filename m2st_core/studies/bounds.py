"""The paper's bounds on J* − J(k̂) for three ways to a kernel.

Each term is known up to a constant, taken as 1 here, with λ = m^{−1/3}. The bounds hold with probability at least 1−2δ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import pandas as pd

DELTA = 0.05
SIZES = [20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000]


def direct_training(m: int, dimension: int, s: float, lipschitz: float = 1.0) -> float:
    """ξ_m of Proposition 1, the uniform error of Ĵ over kernels with D parameters, learned from m rows.

    ξ_m = O(1/(s²m^{1/3})·[1/s + √(D·log(R_Ω·m) + log(1/δ)) + L_k]), with R_Ω = 1.

    >>> direct_training(10_000, 10, 0.1) < direct_training(100, 10, 0.1)
    True
    """
    complexity = math.sqrt(dimension * math.log(m) + math.log(1 / DELTA))
    return (1 / s + complexity + lipschitz) / (s**2 * m ** (1 / 3))


def multiple_kernels(m: int, n_kernels: int, s: float) -> float:
    """ξ_m of Theorem 4, learning β for N kernels bounded by K = 1: Proposition 1 with D = N and L_k = K√N."""
    return direct_training(m, n_kernels, s, math.sqrt(n_kernels))


def best_of_many(m: int, n_kernels: int, s: float) -> float:
    """ζ_m of Lemma 3, the error of Ĵ over N given kernels: O(1/(s²m^{1/3})·[1/s + 1/√m + √log(N/δ)])."""
    return (1 / s + 1 / math.sqrt(m) + math.sqrt(math.log(n_kernels / DELTA))) / (s**2 * m ** (1 / 3))


@dataclass(frozen=True)
class BoundSettings:
    """γ, n rows per related task, m rows of the target, N base kernels, D parameters of a deep kernel, and s."""

    gamma: float
    n: int
    m: int
    n_tasks: int
    parameters: int
    s: float

    def bounds(self) -> dict[str, dict[str, float]]:
        """The terms, each twice, of Proposition 1 (2ξ_m), Theorem 6 (choose one best) and Theorem 4 (Meta-MKL)."""
        shared = {
            "2γ: relatedness": 2 * self.gamma,
            "2ξₙ: learning base kernels": 2 * direct_training(self.n, self.parameters, self.s),
        }
        direct = {"2ξₘ: learning a deep kernel": 2 * direct_training(self.m, self.parameters, self.s)}
        choice = {"2ζₘ: choosing one kernel": 2 * best_of_many(self.m, self.n_tasks, self.s)}
        weights = {"2ξₘ: learning the weights β": 2 * multiple_kernels(self.m, self.n_tasks, self.s)}
        return {"direct training": direct, "choose one best": shared | choice, "Meta-MKL": shared | weights}


def bound_table(settings: BoundSettings) -> pd.DataFrame:
    """One row per term of each bound: columns bound, term, value."""
    terms = [(bound, term, value) for bound, terms in settings.bounds().items() for term, value in terms.items()]
    return pd.DataFrame(terms, columns=["bound", "term", "value"])


def bound_courses(settings: BoundSettings) -> tuple[list[int], dict[str, list[float]]]:
    """Numbers of target rows m, and the value of each bound at each of them."""
    by_size = [replace(settings, m=size).bounds() for size in SIZES]
    return SIZES, {name: [sum(bounds[name].values()) for bounds in by_size] for name in by_size[0]}
