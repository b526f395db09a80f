"""What Explore opens with: power, β and γ̂ of the paper's tests on a grid of settings, and the reproduction's rows.

``python -m m2st_core bench explore`` computes the grid. All its cells share their draws: in each repeat the related
tasks, training samples and test samples of different methods, closenesses and sizes come from the same streams.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd

from m2st_core.data import TASKS, make_task, size_unit
from m2st_core.paper.results import reproduction_rows
from m2st_core.presets import PAPER
from m2st_core.studies.shipped import Shipped, load_shipped
from m2st_core.sweeps.cells import CODE
from m2st_core.sweeps.spec import SweepSpec, origin_of
from m2st_core.sweeps.summary import summarise
from m2st_core.tasks import Setting, Task
from m2st_core.testing.methods import METHODS, find_method, label_of
from m2st_core.types import TwoSample

ROWS_PER_TASK = 50  # per mode for HDGM, per sample elsewhere
PAPER_TESTS = ("Meta-MKL", "Meta-KL", "AGT-KL", "MMD-D", "MMD-O", "MMD-M")
OUR_TEST = "Meta-WiTS"
CLOSENESSES = (0.1, 0.2, 0.3, 0.4, 0.5)
GRID = SweepSpec(
    methods=("Meta-MKL", "Meta-KL", "Meta-MKL-A", "AGT-KL", "MMD-D", "MMD-O", "MMD-M", "C2ST-L", "ME"),
    closeness=CLOSENESSES,
    n_tasks=(20, 50, 100, 150),
    m_tr=(10, 50, 100, 150),
    m_te=(50, 100, 150, 200, 250),
    repeats=8,
    tests=50,
)
SMALL_GRID = GRID.with_(
    task="blobs", settings={}, methods=PAPER_TESTS, closeness=(0.1, 0.3, 0.5), n_tasks=(20, 100), m_tr=(50,),
    m_te=(50, 100, 200), repeats=4,
)  # fmt: skip
SIZES = (50, 80, 100, 120, 150, 200, 250)  # rows to test, as in the paper's figures
SAME = ("settings", "alpha", "n_permutations", "seed", "rows_per_task")  # of a grid, wherever its rows are shown
MIXTURE = "Meta-MKL"
MAP_AXIS = np.linspace(-3.0, 3.5, 33)  # of both coordinates of a witness map


@dataclass(frozen=True)
class ExploreSetting:
    """The one setting of all tabs: the target, its related tasks, the target's rows, and the algorithms' settings.

    ``m_tr`` and ``m_te`` count rows per mode for HDGM and per sample elsewhere. ``preset`` is that of the paper's
    tests: its text, its code, or tuned.
    """

    task: str = "hdgm"
    parameters: tuple[tuple[str, Setting], ...] = tuple((one.name, one.default) for one in TASKS["hdgm"].parameters)
    closeness: float = 0.3
    n_tasks: int = 100
    m_tr: int = 50
    m_te: int = 200
    preset: str = PAPER.name
    rows_per_task: int = ROWS_PER_TASK
    seed: int = 0

    @property
    def settings(self) -> dict[str, Any]:
        """The parameters of the task by name."""
        return dict(self.parameters)

    @property
    def rows_per_size(self) -> int:
        """Rows of each sample per unit of size."""
        return TASKS[self.task].rows_per_size

    @property
    def rows(self) -> int:
        """Rows of each sample of a related task."""
        return self.rows_per_task * self.rows_per_size

    def target(self, null: bool = False) -> Task:
        """The task that the samples are drawn from."""
        return make_task(self.task, null=null, **self.settings)

    def related_tasks(self) -> Mapping[str, TwoSample]:
        """Draw the related tasks."""
        return self.target().draw_related_tasks(
            closeness=self.closeness, n_tasks=self.n_tasks, rows=self.rows, seed=self.seed
        )

    def with_(self, **changes: Any) -> ExploreSetting:
        """Copy the setting with these entries changed."""
        return replace(self, **changes)

    def line(self, method: str) -> str:
        """The name of a test of the paper with the chosen settings; other names stay."""
        if method not in METHODS or METHODS[method].algorithm != method:
            return method
        try:
            return find_method(method, self.preset).name
        except ValueError:  # no such settings: those of the text
            return method

    def sweep(self, methods: Sequence[str], **changes: Any) -> SweepSpec:
        """A sweep over the sizes of test samples at this setting."""
        values: dict[str, Any] = dict(
            task=self.task, settings=self.settings, methods=tuple(map(self.line, methods)),
            closeness=(self.closeness,), n_tasks=(self.n_tasks,), m_tr=(self.m_tr,), m_te=SIZES,
            rows_per_task=self.rows_per_task, repeats=GRID.repeats, tests=GRID.tests, seed=self.seed,
        )  # fmt: skip
        return SweepSpec(**values | changes)


@lru_cache(maxsize=1)
def _grid() -> Shipped:
    return load_shipped("explore")


@lru_cache(maxsize=1)
def _rows() -> pd.DataFrame:
    """All shipped rows: those of the grids, of methods that have not been revised since, and the reproduction's."""
    shipped = _grid()
    current = [name for name in METHODS if shipped.stamp.get(name) == METHODS[name].revision]
    grid = shipped.tables["power"]
    grid = grid[grid["method"].isin(current)] if shipped.stamp.get("code") == CODE else grid[:0]
    return pd.concat([grid, reproduction_rows()], ignore_index=True)


def shipped_rows(spec: SweepSpec) -> pd.DataFrame:
    """Rows of a sweep at one setting that come with the software; of each method those at more sizes, then tests.

    Methods for which the sweep asks for more tests than were shipped, and than the grid has, have none.
    """
    rows, grid = _rows(), SMALL_GRID if spec.task == SMALL_GRID.task else GRID
    if spec.task != grid.task or any(getattr(spec, name) != getattr(grid, name) for name in SAME):
        return _tidy(rows[:0], spec)
    here = (rows["task"] == spec.task) & (rows["null"] == spec.null)
    for name in ("closeness", "n_tasks", "m_tr"):
        here &= rows[name].isna() | rows[name].isin(getattr(spec, name))
    rows = rows[here & rows["method"].isin(spec.methods) & rows["m_te"].isin(spec.m_te)]
    same = rows.groupby(["method", "tests"])
    count = same["repeat"].transform("nunique") * rows["tests"]
    rank = 1e6 * same["m_te"].transform("nunique") + count
    best = rank == rank.groupby(rows["method"]).transform("max")
    asked = spec.repeats * spec.tests
    return _tidy(rows[best & ((count >= asked) | (asked <= GRID.repeats * GRID.tests))], spec)


def _tidy(rows: pd.DataFrame, spec: SweepSpec) -> pd.DataFrame:
    """The columns of a sweep's table."""
    same = {name: getattr(spec, name) for name in ("rows_per_task", "alpha", "n_permutations", "rule", "seed")}
    rows = rows.assign(**same, origin=rows["method"].map(origin_of), rate=rows["rejections"] / rows["tests"])
    order = {name: place for place, name in enumerate(spec.methods)}
    rows = rows.assign(seconds=np.nan).sort_values(["method", "m_te", "repeat"], key=lambda c: c.replace(order))
    return rows.reset_index(drop=True)


DEFAULT_SWEEP = ExploreSetting().sweep((*PAPER_TESTS, OUR_TEST))


def shipped_level(spec: SweepSpec) -> pd.DataFrame:
    """Rows with P = Q of a sweep's methods, from the reproduction: at C = 0.3, N = 100 and m_te = 100 per mode."""
    rows = _rows()
    if spec.alpha != GRID.alpha:
        return _tidy(rows[:0], spec)
    return _tidy(rows[rows["null"] & (rows["task"] == GRID.task) & rows["method"].isin(spec.methods)], spec)


def shipped_settings(task: str) -> str:
    """The settings whose curves come with the software, in words."""
    grid = {one.task: one for one in (GRID, SMALL_GRID)}.get(task)
    if grid is None:
        return ""
    listed = {"C": grid.closeness, "N": grid.n_tasks, "m_tr": grid.m_tr}
    return "; ".join(f"{name} = {', '.join(f'{value:g}' for value in values)}" for name, values in listed.items())


@dataclass(frozen=True)
class Mixture:
    """β of Meta-MKL at one setting: ``table`` has a row per kernel and repeat, ``maps`` a witness per kernel (K, g, g).

    The table's columns are repeat, kernel (its position by Δ), strength (Δ of its task) and beta.
    """

    table: pd.DataFrame
    maps: np.ndarray

    @property
    def mean(self) -> pd.Series:
        """Mean weight by the kernel's position."""
        return self.table.groupby("kernel")["beta"].mean()


def shipped_mixture(setting: ExploreSetting) -> Mixture | None:
    """β of Meta-MKL, as the paper's text has it, over the repeats of a setting; None where it is not shipped."""
    shipped = _grid()
    if not _is_of_grid(setting) or shipped.stamp.get(MIXTURE) != METHODS[MIXTURE].revision:
        return None
    table = shipped.tables["beta"]
    here = (table["closeness"] == setting.closeness) & (table["n_tasks"] == setting.n_tasks)
    table = table[here & (table["m_tr"] == setting.m_tr)]
    if table.empty:
        return None
    place = GRID.closeness.index(setting.closeness), GRID.n_tasks.index(setting.n_tasks)
    maps = shipped.arrays["maps"][place].astype(float) * shipped.arrays["scale"][place][:, None, None]
    return Mixture(table.reset_index(drop=True), maps)


def shipped_gamma(setting: ExploreSetting) -> pd.DataFrame:
    """γ̂ with its noise floor at each closeness C, for the setting's number of related tasks or the nearest one."""
    table = _grid().tables["gamma"]
    if not _is_of_grid(setting.with_(preset=PAPER.name)):
        return table[:0]
    counts = table["n_tasks"].unique()
    nearest = min(counts, key=lambda count: abs(count - setting.n_tasks))
    return table[table["n_tasks"] == nearest].reset_index(drop=True)


def _is_of_grid(setting: ExploreSetting) -> bool:
    """Whether β and γ̂ of the setting's target come with the software."""
    usual = {name: getattr(GRID, name) for name in ("task", "settings", "rows_per_task", "seed")}
    return all(getattr(setting, name) == value for name, value in usual.items()) and setting.preset == PAPER.name


def overview_sentence(setting: ExploreSetting, rows: pd.DataFrame, gamma: pd.DataFrame, mixed: Mixture | None) -> str:
    """One sentence that joins γ̂, β and power at a setting; parts that are not known are left out."""
    here = gamma[gamma["closeness"] == setting.closeness]
    known = rows[(rows["method"] == setting.line(MIXTURE)) & ~rows["null"].astype(bool)]
    away = (
        f"At C = {setting.closeness:g} the related tasks are **γ̂ = {here['on_test_rows'].iloc[0]:.2f}** away. "
        if len(here)
        else ""
    )
    if known.empty:
        return away.strip()
    sizes = sorted(known["m_te"].unique())
    size = setting.m_te if setting.m_te in sizes else sizes[-1]
    power = summarise(rows[rows["m_te"] == size]).set_index("method")["rate"]
    weight = ""
    if mixed is not None:
        largest = mixed.table.groupby("repeat")["beta"].max().mean()
        weight = f", which puts {100 * largest:.0f} % of its weight on one of {len(mixed.mean)} earlier kernels,"
    name = setting.line(MIXTURE)
    found = f"**{label_of(name)}**{weight} finds the difference in **{100 * power[name]:.0f} of 100** samples"
    alone = power[[not _learns(method) for method in power.index]]
    other = (
        f"; {label_of(str(alone.idxmax()))}, without related tasks, in {100 * alone.max():.0f}" if len(alone) else ""
    )
    return f"{away}{found} of {size} rows {size_unit(setting.task)}{other}."


def _learns(method: str) -> bool:
    return method not in METHODS or METHODS[method].uses_related_tasks
