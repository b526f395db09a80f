"""γ̂ and power against the closeness C, for one target and several sets of related tasks. Sizes are per mode."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from m2st_core.analysis.related import sense_sentence, senses_of
from m2st_core.data.synthetic import HDGM
from m2st_core.device import resolve_device
from m2st_core.learners.relatedness import SAME_TASK_PAIRS, relatedness
from m2st_core.progress import part_of
from m2st_core.rng import Streams
from m2st_core.studies.synthetic import DELTA, Rate, many_tests
from m2st_core.sweeps.cost import machine_factor
from m2st_core.testing.meta import MetaLearner, meta_train
from m2st_core.types import Progress

ALPHA = 0.05
BASE_SECONDS, STEP_SECONDS, ROWS_POWER = 2.3, 0.0098, 0.9  # per closeness, and per step of a kernel with 100 rows
ROWS_PER_TASK = 100  # per sample of each related task that Meta-Witness learns from: 50 per mode


@dataclass(frozen=True)
class RelatednessResult:
    """``curve`` has a row per closeness: γ̂ on both halves, its spread and noise floor, and power with its interval.

    ``values`` has a row per γ̂_it. ``senses`` says at each closeness how many related tasks point the same way.
    """

    curve: pd.DataFrame
    values: pd.DataFrame
    senses: dict[float, str]


@dataclass(frozen=True)
class RelatednessStudy:
    """The settings. They are hashable, so they also identify the job."""

    rows: int
    tasks: int
    restarts: int
    steps: int
    n_tasks: int
    m_te: int
    seed: int
    delta: float = DELTA
    tests: int = 60
    closenesses: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5)

    @property
    def expected_seconds(self) -> float:
        """A prediction of the duration, from the kernels that γ̂ and its noise floor train."""
        rounds = 1 + math.ceil(SAME_TASK_PAIRS / self.tasks)
        steps = rounds * self.tasks * self.restarts * self.steps
        seconds = BASE_SECONDS + STEP_SECONDS * steps * (self.rows / 100) ** ROWS_POWER
        return machine_factor() * len(self.closenesses) * seconds

    def run(self, progress: Progress | None = None) -> RelatednessResult:
        """Measure one closeness after another, with the same target."""
        streams = Streams(self.seed).child("relatedness study")
        task = HDGM(delta=self.delta)
        target = task.sample(4 * self.rows, seed=streams.child("target").seed)
        curve, values, senses = [], [], {}
        count = len(self.closenesses)
        for index, closeness in enumerate(self.closenesses):
            seed = streams.child("tasks").seed
            tasks = task.draw_related_tasks(closeness=closeness, n_tasks=100, rows=4 * self.rows, seed=seed)
            measured = relatedness(
                target,
                tasks,
                restarts=self.restarts,
                max_tasks=self.tasks,
                steps=self.steps,
                seed=self.seed,
                progress=part_of(progress, index / count, (index + 0.9) / count),
            )
            largest = measured.on_test_rows.max(axis=1)
            seed = streams.child("power").seed
            learner = witness_learner(closeness, self.n_tasks, seed, self.delta)
            senses[closeness] = sense_sentence(senses_of(learner))
            power = Rate(witness_p_values(learner, self.m_te, self.tests, seed, self.delta), ALPHA)
            curve.append(
                {
                    "closeness": closeness,
                    "on_training_rows": measured.gamma(on_training_rows=True),
                    "on_test_rows": measured.gamma(),
                    "lowest": float(largest.min()),
                    "highest": float(largest.max()),
                    "floor": measured.floor,
                    "gamma": measured.gamma(),
                    "rate": power.share,
                    "low": power.interval[0],
                    "high": power.interval[1],
                }
            )
            values += [
                {"closeness": closeness, "task": name, "restart": restart, "gamma": gamma, "floor": measured.floor}
                for name, gammas in zip(measured.task_names, measured.on_test_rows.tolist(), strict=True)
                for restart, gamma in enumerate(gammas)
            ]
            if progress is not None:
                progress(index + 1, count, measured.gamma())
        return RelatednessResult(pd.DataFrame(curve), pd.DataFrame(values), senses)


def witness_learner(closeness: float, n_tasks: int, seed: int, delta: float = DELTA) -> MetaLearner:
    """Meta-Witness, learned from N related tasks with 50 rows per mode."""
    tasks = HDGM(delta=delta).draw_related_tasks(closeness=closeness, n_tasks=n_tasks, rows=ROWS_PER_TASK, seed=seed)
    return meta_train("Meta-Witness", tasks, seed=seed, device="cpu")


def witness_p_values(learner: MetaLearner, m_te: int, tests: int, seed: int, delta: float = DELTA) -> np.ndarray:
    """P-values of this learner on fresh targets."""
    return many_tests(learner.bound(resolve_device("cpu")), delta, False, m_te, tests, seed)


def gamma_finding(curve: pd.DataFrame, closeness: float) -> str:
    """Say what γ̂ of the nearest measured closeness means for someone who has related tasks.

    ``curve`` has columns closeness, on_test_rows and floor.
    """
    row = curve.loc[(curve["closeness"] - closeness).abs().idxmin()]
    gamma, floor = row["on_test_rows"], row["floor"]
    nearest = "" if abs(row["closeness"] - closeness) < 1e-9 else ", the nearest value that was measured,"
    said = (
        f"At C = {row['closeness']:g}{nearest} the signal Ĵ of a kernel on fresh rows differs by up to "
        f"**γ̂ = {gamma:.3f}** between a related task and the target. Noise alone gives {floor:.3f}"
    )
    return f"{said}: these rows cannot tell how related the tasks are." if gamma <= floor else f"{said}."


def order_sentence(curve: pd.DataFrame) -> str:
    """Say which of the two estimates is lower here, and why that can change."""
    below = (curve["on_test_rows"] < curve["on_training_rows"]).mean()
    fresh = "lower" if below == 1 else "higher" if below == 0 else "sometimes lower, sometimes higher"
    return (
        f"Here the estimate on fresh rows is **{fresh}** than the one on training rows. With few rows, noise decides "
        "which is higher."
    )


FAILURE_RATE = 0.05
SIZES = [20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000]


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
