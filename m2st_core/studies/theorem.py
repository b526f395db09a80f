"""The theorem on Meta-MKL: J* − J(k̂) ≤ 2(γ + ξ_n + ξ_m), its parts, and what was measured of its left side."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import pandas as pd

from m2st_core.studies.explore import ExploreSetting, shipped_gamma
from m2st_core.studies.shipped import Shipped, load_shipped

CLOSENESSES = (0.1, 0.3, 0.5)
N_ROWS = (50, 100, 300, 1_000)  # of each sample of a related task
M_ROWS = (20, 50, 100, 200, 500)  # of each sample of the target
REGULARISATION = 1e-8
FAILURE_RATE = 0.05
SIZES = [20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000]
DONE = {  # with the kernels of related tasks, or without them
    "weighed": "weighed by β",
    "best": "best one chosen",
    "alone": "target alone",
}


def direct_training(m: int, dimension: int, s: float, lipschitz: float = 1.0) -> float:
    """ξ_m of Proposition 1, the uniform error of Ĵ over kernels with D parameters, learned from m rows.

    ξ_m = O(1/(s²m^{1/3})·[1/s + √(D·log(R_Ω·m) + log(1/δ)) + L_k]), with R_Ω = 1.

    >>> direct_training(10_000, 10, 0.1) < direct_training(100, 10, 0.1)
    True
    """
    complexity = math.sqrt(dimension * math.log(m) + math.log(1 / FAILURE_RATE))
    return (1 / s + complexity + lipschitz) / (s**2 * m ** (1 / 3))


def multiple_kernels(m: int, n_kernels: int, s: float) -> float:
    """ξ_m of Theorem 4, learning β for N kernels bounded by K = 1: Proposition 1 with D = N and L_k = K√N."""
    return direct_training(m, n_kernels, s, math.sqrt(n_kernels))


def best_of_many(m: int, n_kernels: int, s: float) -> float:
    """ζ_m of Lemma 3, the error of Ĵ over N given kernels: O(1/(s²m^{1/3})·[1/s + 1/√m + √log(N/δ)])."""
    return (1 / s + 1 / math.sqrt(m) + math.sqrt(math.log(n_kernels / FAILURE_RATE))) / (s**2 * m ** (1 / 3))


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


def bound_courses(settings: BoundSettings) -> tuple[list[int], dict[str, list[float]]]:
    """Numbers of target rows m, and the value of each bound at each of them."""
    by_size = [replace(settings, m=size).bounds() for size in SIZES]
    return SIZES, {name: [sum(bounds[name].values()) for bounds in by_size] for name in by_size[0]}


@dataclass(frozen=True)
class TheoremView:
    """What was measured of J* − J(k̂), and the parts of its bound, at one n, m and closeness. Rows are per sample.

    ``by_n`` has a row for each n and line at this m, ``by_m`` one for each m and line at this n: rows, line, value and
    error, which is a standard error between repeats and empty for the bound.
    """

    closeness: float
    n: int
    m: int
    best: float
    by_n: pd.DataFrame
    by_m: pd.DataFrame

    @property
    def sentence(self) -> str:
        """The measured loss beside its bound."""
        here = self.by_m[self.by_m["rows"] == self.m].set_index("line")["value"]
        lost, bound, gamma = here[DONE["weighed"]], here[BOUND], here["2γ̂"]
        loss = f"loses **{lost:.3f}**" if lost > 0 else "loses nothing"
        times = f", {_rounded(bound / lost)} times what is lost" if lost > 0 else ""
        alone = ", which is more than J* itself" if gamma > self.best else ""
        return (
            f"With n = {self.n:,} rows of each related task and m = {self.m:,} of the target, Meta-MKL {loss} of J* = "
            f"{self.best:.3f}; a deep kernel trained on the {self.m:,} rows alone loses {here[DONE['alone']]:.3f}. The "
            f"bound is {_rounded(bound)}{times}: the errors ξ of learning from few rows make it so loose. Its smallest "
            f"part is 2γ̂ = {gamma:.2f}{alone}."
        )


BOUND = "bound"


def _rounded(value: float) -> str:
    """A large number with two digits that count."""
    digits = max(0, math.floor(math.log10(value)) - 1)
    return f"{round(value, -digits):,.0f}" if value >= 10 else f"{value:.2g}"


@lru_cache(maxsize=1)
def _measured() -> Shipped:
    return load_shipped("theorem")


def theorem_view(setting: ExploreSetting) -> TheoremView | None:
    """The measured n, m and C that are nearest to the setting's; None for a target without measurements."""
    gamma = shipped_gamma(setting.with_(rows_per_task=ExploreSetting.rows_per_task))
    if gamma.empty:
        return None
    closeness = min(CLOSENESSES, key=lambda value: abs(value - setting.closeness))
    n = min(N_ROWS, key=lambda rows: abs(rows - setting.rows))
    m = min(M_ROWS, key=lambda rows: abs(rows - setting.m_tr * setting.rows_per_size))
    measured, known = _measured().tables["gap"], _measured().values
    bound = BoundSettings(
        float(gamma.loc[gamma["closeness"] == closeness, "on_test_rows"].iloc[0]),
        n, m, int(known["kernels"]), int(known["parameters"]), float(known["sigma"]),
    )  # fmt: skip
    here = measured[(measured["closeness"] == closeness) | measured["closeness"].isna()]
    by_n = _lines(here[here["m"] == m].dropna(subset=["n"]), bound, "n")
    by_m = _lines(here[(here["n"] == n) | here["n"].isna()], bound, "m")
    return TheoremView(closeness, n, m, float(known["best"]), by_n, by_m)


def _lines(measured: pd.DataFrame, bound: BoundSettings, axis: str) -> pd.DataFrame:
    """Measured values and the parts of the bound at each size of one axis."""
    lines = pd.concat([measured[measured["done"] == done].assign(line=line) for done, line in DONE.items()])
    lines = lines.assign(rows=lines[axis].astype(int)).rename(columns={"gap": "value"})
    tables = [lines[["rows", "line", "value", "error"]]]
    for rows in sorted(lines["rows"].unique()):
        parts = list(replace(bound, **{axis: int(rows)}).bounds()["Meta-MKL"].values())
        named = dict(zip(("2γ̂", "2ξₙ", "2ξₘ", BOUND), [*parts, sum(parts)], strict=True))
        tables.append(pd.DataFrame({"rows": rows, "line": named.keys(), "value": named.values(), "error": math.nan}))
    return pd.concat(tables, ignore_index=True)
