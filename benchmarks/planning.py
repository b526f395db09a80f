"""The rows named for 80 % power after a significant pilot study, and the power that they really have.

Each setting has a power curve, found once by simulation on a grid of sizes and made monotone, so that the true power
at any named size can be read off. Every pilot is then analysed as a user would, and its named size is looked up.
“Without correction” is the size at which the observed difference, taken as the true one, has 80 % power.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import isotonic_regression
from scipy.special import ndtri

import m2st_core as m2st
from benchmarks.common import CPU, Page, batch, parse, rejection_rate
from m2st_core.analysis.effect import TARGET_POWER, PowerModel, power_model
from m2st_core.rng import Streams
from m2st_core.testing.method import Method
from m2st_core.types import DEFAULT_TEST

GRID = 2.0 ** np.arange(-3, 5, 0.5)  # times the pilot's rows
FEWEST_ROWS = 8


class Setting(NamedTuple):
    """A task, a test and the pilot's rows."""

    task: str
    settings: dict[str, float]
    method: str
    rows: tuple[int, int]


SETTINGS = {
    "mean shift 0.5": Setting("mean_shift", {"shift": 0.5}, DEFAULT_TEST, (60, 60)),
    "variance shift 1.8": Setting("variance_shift", {"scale": 1.8}, DEFAULT_TEST, (60, 60)),
    "blobs": Setting("blobs", {}, DEFAULT_TEST, (150, 150)),
    "mean shift 0.9, unequal": Setting("mean_shift", {"shift": 0.9}, DEFAULT_TEST, (30, 60)),
    "mean shift 1.3, strong": Setting("mean_shift", {"shift": 1.3}, DEFAULT_TEST, (50, 50)),
    "mean shift 0.3, weak": Setting("mean_shift", {"shift": 0.3}, DEFAULT_TEST, (50, 50)),
    "no difference": Setting("mean_shift", {"shift": 0.0}, DEFAULT_TEST, (60, 60)),
    "mean shift 0.5, MMD-M": Setting("mean_shift", {"shift": 0.5}, "MMD-M", (50, 50)),
    "variance shift 1.8, MMD-FUSE": Setting("variance_shift", {"scale": 1.8}, "MMD-FUSE", (60, 60)),
    "HDGM 0.6, Meta-FUSE": Setting("hdgm", {"delta": 0.6}, "Meta-FUSE", (100, 100)),
    "mean shift 0.8, C2ST-L": Setting("mean_shift", {"shift": 0.8}, "C2ST-L · tuned", (60, 60)),
    "HDGM 0.6, Meta-WiTS": Setting("hdgm", {"delta": 0.6}, "Meta-WiTS", (100, 100)),
    "mean shift 0.9, MMD-M, unequal": Setting("mean_shift", {"shift": 0.9}, "MMD-M", (30, 60)),
    "mean shift 1.3, MMD-M, strong": Setting("mean_shift", {"shift": 1.3}, "MMD-M", (50, 50)),
    "mean shift 0.3, MMD-M, weak": Setting("mean_shift", {"shift": 0.3}, "MMD-M", (50, 50)),
    "no difference, MMD-M": Setting("mean_shift", {"shift": 0.0}, "MMD-M", (60, 60)),
}
HEAD = (
    "true power", "estimated after p ≤ α", "90 % interval covers", "p ≤ α", "names a size", "factor for 80 %",
    "median factor named", "power there", "below 50 %", "without correction",
)  # fmt: skip


def uncorrected_factor(effect: PowerModel) -> float:
    """The factor at which the observed signal, taken as the true one, has 80 % power."""
    needed = effect.mean(effect.distance(effect.threshold) + ndtri(TARGET_POWER))
    return float((needed / max(effect.signal, 1e-24)) ** (1 / effect.order))


def power_curve(
    setting: Setting, method: Method, tests: int, permutations: int, streams: Streams
) -> Callable[[np.ndarray], np.ndarray]:
    """The true power at any number of times the pilot's rows, by monotone interpolation of log k."""
    task = m2st.make_task(setting.task, **setting.settings)
    factors: list[float] = []
    rates: list[float] = []
    for factor in GRID:
        n, m = (round(rows * factor) for rows in setting.rows)
        if min(n, m) < FEWEST_ROWS:
            continue
        here = streams.child(f"{factor:g} times the rows")
        sample = batch(lambda seed, n=n, m=m: task.sample(n, m, seed=seed), tests, here)
        factors.append(float(factor))
        rates.append(rejection_rate(sample, method, permutations, here))
        if rates[-1] > 0.99 or (factor >= 2 and rates[-1] < 0.08):
            break
    smooth = isotonic_regression(rates).x
    return lambda k: np.interp(np.log(k), np.log(factors), smooth)


def study(setting: Setting, pilots: int, tests: int, permutations: int, seed: int) -> list[float]:
    """One row of the table, in the order of HEAD."""
    streams = Streams(seed).child(f"planning, {setting.method}, {setting.task}, {setting.settings}")
    learners: dict[str, m2st.MetaLearner] = {}
    method = m2st.METHODS[setting.method]
    if method.uses_related_tasks:
        tasks = m2st.hdgm_related_tasks(n_tasks=20, rows=100, seed=seed)
        learners[setting.method] = m2st.meta_train(setting.method, tasks, seed=seed, device="cpu")
        method = learners[setting.method].bound(CPU)
    true = power_curve(setting, method, tests, permutations, streams.child("curve"))
    source = m2st.make_task(setting.task, **setting.settings)
    significant, named, powers, covered, naive = 0, [], [], [], []
    now = float(true(np.array(1.0)))
    for index in range(pilots):
        pilot_seed = streams.child(f"pilot {index}").seed
        x, y = source.sample(*setting.rows, seed=pilot_seed)
        analysis = m2st.analyse(
            x, y, setting.method, learners=learners, n_permutations=permutations, seed=pilot_seed, device="cpu"
        )
        effect = analysis.effect
        if effect.rows_for_power is not None:
            named.append(effect.rows_for_power[0] / setting.rows[0])
        if effect.power is not None and effect.power_interval is not None:
            significant += 1
            powers.append(effect.power)
            low, high = np.round(effect.power_interval, 2)  # as they are shown
            covered.append(low <= round(now, 2) <= high)
            naive.append(uncorrected_factor(power_model(analysis.evidence, analysis.primary)))
    there = true(np.array(named))
    grid = np.geomspace(GRID[0], GRID[-1], 400)
    enough = grid[true(grid) >= TARGET_POWER]
    return [
        now, np.mean(powers), np.mean(covered), significant / pilots, len(named) / pilots,
        enough[0] if len(enough) else np.inf, np.median(named), there.mean(), np.mean(there < 0.5),
        true(np.array(naive)).mean(),
    ]  # fmt: skip


def main(arguments: Sequence[str] = ()) -> None:
    """Print the table; ``--tests`` are simulated studies for each point of a power curve."""
    options = parse(arguments, __doc__, pilots=200, tests=200, permutations=199, settings=SETTINGS, seed=0)
    page = Page()
    page.say(f"α=0.05, {options.pilots} pilots, {options.tests} studies for each point of a power curve", "")
    page.head("setting", "rows", *HEAD, "seconds")
    for title in options.settings:
        began, setting = time.perf_counter(), SETTINGS[title]
        cells = study(setting, options.pilots, options.tests, options.permutations, options.seed)
        spent = f"{time.perf_counter() - began:.0f}"
        page.row(title, f"{setting.rows[0]} + {setting.rows[1]}", *(f"{cell:.2f}" for cell in cells), spent)
