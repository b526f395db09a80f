"""γ̂ against the closeness C of a target of any family, and power against γ̂."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from m2st_core.data import make_task, size_unit
from m2st_core.learners.relatedness import SAME_TASK_PAIRS, relatedness
from m2st_core.progress import part_of
from m2st_core.rng import Streams
from m2st_core.studies.explore import CLOSENESSES, GRID, SIZES, ExploreSetting, shipped_rows
from m2st_core.sweeps.cost import machine_factor
from m2st_core.sweeps.summary import summarise
from m2st_core.tasks import Setting
from m2st_core.testing.methods import label_of
from m2st_core.types import Progress, in_words

META_TESTS, OTHER_TESTS = ("Meta-MKL", "Meta-KL"), ("MMD-O", "MMD-D")
CLEAR = 2.0  # standard errors
STEP_SECONDS, PAIR_SECONDS = 2.8e-3, 3.5e-8  # of a kernel: per step, and per pair of rows that Ĵ takes


@dataclass(frozen=True)
class RelatednessStudy:
    """What γ̂ at each closeness depends on. ``rows`` are those of each sample and half."""

    task: str
    parameters: tuple[tuple[str, Setting], ...]
    n_tasks: int
    seed: int = 0
    rows: int = 2_000
    tasks: int = 5
    restarts: int = 2
    steps: int = 40
    closenesses: tuple[float, ...] = (0.1, 0.3, 0.5)

    @property
    def expected_seconds(self) -> float:
        """A prediction of the duration, from the kernels that γ̂ and its noise floor train and measure."""
        drawn = min(self.tasks, self.n_tasks)
        pairs = drawn * math.ceil(SAME_TASK_PAIRS / drawn)
        training = (drawn + pairs) * self.steps * STEP_SECONDS
        measuring = 2 * (2 * drawn + pairs) * self.rows**2 * PAIR_SECONDS  # both halves, and one for the floor
        return machine_factor() * len(self.closenesses) * self.restarts * (training + measuring)

    def run(self, progress: Progress | None = None) -> pd.DataFrame:
        """Measure one closeness after another, with the same rows of the target: a row for each.

        Columns are closeness, γ̂ on training and on test rows, the range of the tasks' largest, and the noise floor.
        """
        streams = Streams(self.seed).child("relatedness study")
        parameters: dict[str, Any] = dict(self.parameters)
        task = make_task(self.task, **parameters)
        target = task.sample(2 * self.rows, seed=streams.child("target").seed)
        count, curve = len(self.closenesses), []
        for index, closeness in enumerate(self.closenesses):
            seed = streams.child("tasks").seed
            measured = relatedness(
                target,
                task.draw_related_tasks(closeness=closeness, n_tasks=self.n_tasks, rows=2 * self.rows, seed=seed),
                restarts=self.restarts,
                max_tasks=self.tasks,
                steps=self.steps,
                seed=self.seed,
                progress=part_of(progress, index / count, (index + 1) / count),
            )
            largest = measured.on_test_rows.max(axis=1)
            curve.append(
                {
                    "closeness": closeness,
                    "on_training_rows": measured.gamma(on_training_rows=True),
                    "on_test_rows": measured.gamma(),
                    "lowest": float(largest.min()),
                    "highest": float(largest.max()),
                    "floor": measured.floor,
                }
            )
        return pd.DataFrame(curve)


def power_by_closeness(setting: ExploreSetting) -> pd.DataFrame:
    """Shipped power at each closeness C, at the setting's sizes: of tests with related tasks, and of those without.

    Columns are method, closeness (without: NaN), m_te (the shipped size nearest to the setting's), rate and error.
    """
    spec = setting.sweep((*META_TESTS, *OTHER_TESTS), closeness=CLOSENESSES, m_te=tuple(sorted({*SIZES, *GRID.m_te})))
    tables = [shipped_rows(spec.with_(closeness=(closeness,))) for closeness in CLOSENESSES]
    rows = pd.concat(tables, ignore_index=True).drop_duplicates(["method", "closeness", "m_te", "repeat"])
    if rows.empty:
        return rows.reindex(columns=["method", "closeness", "m_te", "rate", "error"]).astype({"closeness": float})
    counts = rows.groupby("m_te")[["method", "closeness"]].apply(lambda group: len(group.drop_duplicates()))
    full = counts[counts == counts.max()].index
    nearest = min(full, key=lambda size: abs(size - setting.m_te))
    table = summarise(rows[rows["m_te"] == nearest])[["method", "closeness", "m_te", "rate", "error"]]
    return table.astype({"closeness": float, "rate": float, "error": float})


def with_gamma(power: pd.DataFrame, gamma: pd.DataFrame) -> pd.DataFrame:
    """The power of tests with related tasks, with γ̂ on fresh rows of their closeness as the column gamma."""
    known = gamma[["closeness", "on_test_rows"]].rename(columns={"on_test_rows": "gamma"})
    return power.dropna(subset=["closeness"]).merge(known, on="closeness").sort_values(["method", "gamma"])


def _best_without(power: pd.DataFrame) -> pd.Series | None:
    """The row of the best test without related tasks, if there is one."""
    rows = power[power["closeness"].isna()]
    return rows.loc[rows["rate"].idxmax()] if len(rows) else None


def gamma_finding(setting: ExploreSetting, gamma: pd.DataFrame, power: pd.DataFrame) -> str:
    """Say how far the related tasks move away as C grows, and what power that costs."""
    if gamma.empty:
        return "γ̂ has not been measured for this target yet."
    joined = with_gamma(power, gamma)
    spanned = gamma[gamma["closeness"].isin(joined["closeness"])] if len(joined) else gamma
    near, far = spanned.iloc[0], spanned.iloc[-1]
    if (spanned["on_test_rows"] <= spanned["floor"]).all():
        most = spanned["on_test_rows"].max()
        return (
            f"γ̂ is at most **{most:.2f}**, which noise alone gives: these rows cannot tell how related the tasks are."
        )
    said = (
        f"From C = {near['closeness']:g} to {far['closeness']:g} the related tasks move from "
        f"**γ̂ = {near['on_test_rows']:.2f}** to **{far['on_test_rows']:.2f}** away from the target"
    )
    if joined.empty:
        return f"{said}."
    courses = [_course(method, joined[joined["method"] == method]) for method in joined["method"].unique()[::-1]]
    return f"{said}. {in_words(courses)}. {_comparison(joined, power)}".strip()


def _course(method: str, rows: pd.DataFrame) -> str:
    """How the power of a test changes from the smallest to the largest C."""
    first, last = rows.iloc[0], rows.iloc[-1]
    change = last["rate"] - first["rate"]
    clear = abs(change) > CLEAR * np.hypot(first["error"], last["error"])
    moves = "hardly changes" if not clear else "rises" if change > 0 else "falls"
    found = f"{100 * first['rate']:.0f} to {100 * last['rate']:.0f} of 100 samples"
    return f"**{label_of(method)}**'s power {moves} ({found})"


def _comparison(joined: pd.DataFrame, power: pd.DataFrame) -> str:
    """Up to which C history helps, beside the best test without it."""
    best = _best_without(power)
    if best is None:
        return ""
    error = np.hypot(joined["error"], best["error"])
    helps = joined[joined["rate"] > best["rate"] + CLEAR * error]
    words = f"**{label_of(best['method'])}**, which has no related tasks, finds {100 * best['rate']:.0f}"
    if helps.empty:
        return f"At no C do they clearly beat a test of the target alone: {words}."
    return f"They clearly beat a test of the target alone up to C = {helps['closeness'].max():g}: {words}."


def sizes_words(setting: ExploreSetting, power: pd.DataFrame) -> str:
    """The sizes behind the power curves, in words."""
    sizes = f"m_te = {power['m_te'].iloc[0]} and m_tr = {setting.m_tr} rows {size_unit(setting.task)}"
    return f"{sizes}, N = {setting.n_tasks}"
