"""The bounds of three ways to a kernel, side by side, for the bound explorer."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import pandas as pd


@dataclass(frozen=True)
class Term:
    """One term of a bound, with its formula in TeX."""

    name: str
    value: float
    is_rate: bool
    formula: str


@dataclass(frozen=True)
class Bound:
    """J* − J(k̂) ≤ 2·(γ + ξ_n + the adaptation's term), with probability at least ``confidence``."""

    terms: tuple[Term, ...]
    confidence: float

    @property
    def value(self) -> float:
        """Twice the sum of the terms."""
        return 2 * sum(term.value for term in self.terms)

    @property
    def is_rate(self) -> bool:
        """Whether any term is known up to a constant only."""
        return any(term.is_rate for term in self.terms)


def direct_training(
    m: int, *, dimension: int, delta: float = 0.05, s: float = 0.1, radius: float = 1.0, lipschitz: float = 1.0
) -> Term:
    """ξ_m, Proposition 1: the uniform error of Ĵ over kernels with D parameters, learned from m rows (a rate).

    ξ_m = O(1/(s²m^{1/3})·[1/s + √(D·log(R_Ω·m) + log(1/δ)) + L_k]), with λ = m^{−1/3}.

    >>> near, far = (direct_training(m, dimension=10).value for m in (10_000, 100))
    >>> near < far
    True
    """
    _check(m=m, dimension=dimension, delta=delta, s=s, radius=radius)
    complexity = math.sqrt(max(dimension * math.log(radius * m), 0.0) + math.log(1 / delta))
    return Term(
        name="ξ, learning a kernel",
        value=(1 / s + complexity + lipschitz) / (s**2 * m ** (1 / 3)),
        is_rate=True,
        formula=r"\frac{1}{s^2 m^{1/3}}\left[\frac1s+\sqrt{D\log(R_\Omega m)+\log\frac1\delta}+L_k\right]",
    )


def multiple_kernels(
    m: int, *, n_kernels: int, delta: float = 0.05, s: float = 0.1, radius: float = 1.0, largest: float = 1.0
) -> Term:
    """ξ_m of Theorem 4, learning β for N kernels k_i ≤ K: Proposition 1 with D=N, R_Ω=R_B and L_k=K√N (a rate)."""
    lipschitz = largest * math.sqrt(n_kernels)
    term = direct_training(m, dimension=n_kernels, delta=delta, s=s, radius=radius, lipschitz=lipschitz)
    return Term(
        "ξ, learning the weights β", term.value, True, term.formula.replace("D", "N").replace("L_k", r"K\sqrt N")
    )


def mmd_deviation(m: int, *, n_kernels: int, delta: float = 0.05, largest: float = 1.0) -> Term:
    """max_i |η̂_i − η_i| ≤ 16ν/√(2m)·√log(4N/δ), from the proof of Lemma 3; constants as stated there."""
    _check(m=m, n_kernels=n_kernels, delta=delta)
    value = 16 * largest / math.sqrt(2 * m) * math.sqrt(math.log(4 * n_kernels / delta))
    return Term("error of MMD²", value, False, r"\frac{16\nu}{\sqrt{2m}}\sqrt{\log\frac{4N}{\delta}}")


def variance_deviation(m: int, *, n_kernels: int, delta: float = 0.05, largest: float = 1.0) -> Term:
    """max_i |σ̂²_i − σ²_i| ≤ 448·√(2/m·log(4N/δ)) + 1152ν²/m, from the proof of Lemma 3; constants as stated."""
    _check(m=m, n_kernels=n_kernels, delta=delta)
    value = 448 * math.sqrt(2 / m * math.log(4 * n_kernels / delta)) + 1152 * largest**2 / m
    return Term("error of σ̂²", value, False, r"448\sqrt{\frac2m\log\frac{4N}{\delta}}+\frac{1152\nu^2}{m}")


def best_of_many(m: int, *, n_kernels: int, delta: float = 0.05, s: float = 0.1) -> Term:
    """ζ_m, Lemma 3: the error of Ĵ over N given kernels (a rate).

    ζ_m = O(1/(s²m^{1/3})·[1/s + 1/√m + √log(N/δ)]), with λ = m^{−1/3}.
    """
    _check(m=m, n_kernels=n_kernels, delta=delta, s=s)
    bracket = 1 / s + 1 / math.sqrt(m) + math.sqrt(math.log(n_kernels / delta))
    return Term(
        name="ζ, choosing one kernel",
        value=bracket / (s**2 * m ** (1 / 3)),
        is_rate=True,
        formula=r"\frac{1}{s^2 m^{1/3}}\left[\frac1s+\frac{1}{\sqrt m}+\sqrt{\log\frac N\delta}\right]",
    )


def best_of_many_with_constants(
    m: int, *, n_kernels: int, delta: float = 0.05, s: float = 0.1, largest: float = 1.0
) -> Term:
    """The bound inside Lemma 3's proof: 4ν/(s²√λ)·|σ̂²−σ²| + 2νλ/s³ + |η̂−η|/s, with λ = m^{−1/3}.

    Its constants are stated, so it is a bound; at the sizes people have it says nothing, which is worth seeing.
    """
    _check(s=s)
    regularisation = m ** (-1 / 3)
    variance = variance_deviation(m, n_kernels=n_kernels, delta=delta, largest=largest).value
    mmd = mmd_deviation(m, n_kernels=n_kernels, delta=delta, largest=largest).value
    value = 4 * largest * variance / (s**2 * math.sqrt(regularisation)) + 2 * largest * regularisation / s**3 + mmd / s
    formula = r"\frac{4\nu}{s^2\sqrt\lambda}|\hat\sigma^2-\sigma^2|+\frac{2\nu\lambda}{s^3}+\frac{|\hat\eta-\eta|}{s}"
    return Term("ζ with the proof's constants", value, False, formula)


def relatedness_term(gamma: float) -> Term:
    """γ itself: how differently any one kernel does on the target and on the most related task."""
    if gamma < 0:
        raise ValueError(f"gamma must be ≥ 0. Got {gamma!r}.")
    return Term("γ, relatedness", gamma, False, r"\gamma")


def meta_mkl_bound(gamma: float, learning: Term, weights: Term, delta: float = 0.05) -> Bound:
    """Theorem 4 (Meta-MKL): J* − J(k̂_β) ≤ 2(γ + ξ_n + ξ_m), with probability at least 1−2δ."""
    return Bound((relatedness_term(gamma), learning, weights), 1 - 2 * delta)


def best_one_bound(gamma: float, learning: Term, choice: Term, delta: float = 0.05) -> Bound:
    """Theorem 6 (choose one best): J* − J(k̂) ≤ 2(γ + ξ_n + ζ_m), with probability at least 1−2δ."""
    return Bound((relatedness_term(gamma), learning, choice), 1 - 2 * delta)


def _check(**values: float) -> None:
    for name, value in values.items():
        if not value > 0 or (name == "delta" and value >= 1):
            raise ValueError(f"{name} must be positive{' and below 1' if name == 'delta' else ''}. Got {value!r}.")


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
