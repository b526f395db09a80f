"""What Explore opens with: power and β on a grid of settings, and γ̂ at each closeness and number of related tasks.

``python -m m2st_core bench explore`` computes what the store lacks, in two to three hours of one core. It can be
stopped and started again. ``--write`` writes what is there into the package. The draws of a repeat are the same in all
its cells. Rows of the reproduction are shown instead of these where they have more tests.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
import torch

from benchmarks.common import parse
from m2st_core.criterion import witness
from m2st_core.data import make_task
from m2st_core.device import one_thread_per_operation
from m2st_core.kernels.mixtures import Family, kernel_names, mixture_of
from m2st_core.learners.mixtures import base_families
from m2st_core.paper.experiments import GAMMA, run_gamma, summarise_gamma
from m2st_core.paper.published import measured_gamma, published_gamma
from m2st_core.rng import Streams
from m2st_core.studies.explore import GRID, MAP_AXIS, MIXTURE, SIZES, SMALL_GRID
from m2st_core.studies.shipped import Shipped, shipped_stamp
from m2st_core.sweeps.cells import Cell, learned_method
from m2st_core.sweeps.executors import make_executor
from m2st_core.sweeps.grid import grid_of
from m2st_core.sweeps.store import Store
from m2st_core.sweeps.work import SweepProgress, run_sweep
from m2st_core.testing.learner_files import learner_from_parts

LIKE_THE_REPRODUCTION = GRID.with_(  # MMD-M, which the paper's figures lack
    methods=("MMD-M",), closeness=(0.3,), n_tasks=(100,), m_tr=(50,), m_te=SIZES, repeats=20, tests=100
)
SWEEPS = (GRID, LIKE_THE_REPRODUCTION, SMALL_GRID)
PLACE = ["task", "null", "method", "closeness", "n_tasks", "m_tr", "m_te", "repeat", "rejections", "tests"]
MAP_ROWS = 1_000  # of each sample behind a witness
LEVELS = 127  # of a map's values


def power_rows(store: Store) -> pd.DataFrame:
    """The computed cells of all sweeps."""
    rows = pd.concat([store.cells.rows(spec) for spec in SWEEPS], ignore_index=True)
    whole = {name: rows[name].astype("Int64") for name in ("n_tasks", "m_tr")}
    return rows.assign(**whole)[PLACE].drop_duplicates(PLACE[:-2], keep="last")


def _mixtures(store: Store) -> Iterator[tuple[Cell, tuple[str, bytes]]]:
    """A cell of Meta-MKL for each setting and repeat whose learner is in the store, with the learner."""
    grid, seen = grid_of(GRID.with_(methods=(MIXTURE,), m_te=GRID.m_te[:1])), {}
    for key, cell in grid.cells.items():
        learner = grid.learner_keys[key]
        if learner not in seen:
            seen = {learner: store.cells.learner(learner)}
        if (parts := seen[learner]) is not None:
            yield cell, parts


def strengths(families: Sequence[Family]) -> list[float]:
    """Δ of the task of each base kernel."""
    return [float(name.partition("=")[2].split()[0]) for name in kernel_names(families)]


def beta_rows(store: Store) -> pd.DataFrame:
    """β of Meta-MKL by setting, repeat and kernel; kernels are ordered by Δ."""
    rows = []
    for cell, parts in _mixtures(store):
        fit = learned_method(cell, parts, "cpu").fit
        weights = fit().weights[0] if fit is not None else {}
        named = sorted((float(name.partition("=")[2].split()[0]), beta) for name, beta in weights.items())
        rows += [
            (cell.closeness, cell.n_tasks, cell.m_tr, cell.repeat, kernel, strength, beta)
            for kernel, (strength, beta) in enumerate(named)
        ]
    names = ["closeness", "n_tasks", "m_tr", "repeat", "kernel", "strength", "beta"]
    return pd.DataFrame(rows, columns=names)


@one_thread_per_operation()
@torch.no_grad()
def maps(store: Store) -> dict[str, np.ndarray]:
    """The witness of each base kernel of the first repeat, (C, N, K, g, g) as shares of its ``scale``, (C, N, K)."""
    places = torch.from_numpy(np.stack(np.meshgrid(MAP_AXIS, MAP_AXIS), axis=-1).reshape(-1, 2))
    x, y = make_task(GRID.task, **GRID.settings).sample(MAP_ROWS, seed=Streams(0).child("maps of Explore").seed)
    shape = len(GRID.closeness), len(GRID.n_tasks)
    drawn, scale = None, None
    for cell, parts in _mixtures(store):
        if cell.repeat or cell.m_tr != GRID.m_tr[0]:
            continue
        families = base_families(learner_from_parts(*parts).knowledge)
        order = np.argsort(strengths(families))
        single = torch.eye(len(order), dtype=torch.float64)[order]
        seen = [witness(mixture_of(families, row[None]), x, y, places[None])[0].numpy() for row in single]
        values = np.stack(seen).reshape(len(order), len(MAP_AXIS), len(MAP_AXIS))
        largest = np.abs(values).max(axis=(1, 2))
        if drawn is None or scale is None:
            drawn, scale = np.zeros((*shape, *values.shape), np.int8), np.zeros((*shape, len(order)), np.float32)
        place = GRID.closeness.index(cell.closeness), GRID.n_tasks.index(cell.n_tasks)
        drawn[place], scale[place] = np.rint(LEVELS * values / largest[:, None, None]), largest / LEVELS
    return {"maps": drawn, "scale": scale} if drawn is not None and scale is not None else {}


def gamma_rows(store: Store) -> pd.DataFrame:
    """γ̂ by C and N: the reproduction's for N = 100, and measured in the same way for other N."""
    published = published_gamma().rename(columns={"gamma_hat": "published"})
    measured = measured_gamma().drop(columns="date").assign(n_tasks=100).merge(published, on="closeness", how="left")
    tables = [measured]
    for n_tasks in GRID.n_tasks:
        cells = [cell.with_tasks(n_tasks) for cell in GAMMA["full"]]
        if n_tasks != 100 and all(store.cells.measurement(cell.key) is not None for cell in cells):
            rows = pd.DataFrame([row for cell in cells for row in store.cells.measurement(cell.key) or []])
            tables.append(summarise_gamma(rows).assign(n_tasks=n_tasks))
    return pd.concat(tables, ignore_index=True)[["n_tasks", *measured.columns.drop("n_tasks")]]


def compute(store: Store, workers: int | None) -> None:
    """Compute what the store lacks."""
    executor = make_executor("pool", workers=workers)
    try:
        for spec in SWEEPS:
            run_sweep(spec, store, executor, name="Explore's grid", progress=_say)
        for n_tasks in GRID.n_tasks:
            if n_tasks != 100:
                run_gamma([cell.with_tasks(n_tasks) for cell in GAMMA["full"]], store, executor)
    finally:
        executor.close()


def _say(at: SweepProgress) -> None:
    left = "" if at.seconds_left is None else f", {at.seconds_left / 60:.0f} min left"
    print(f"\r{at.done} of {at.cells} cells{left}   ", end="", flush=True)


def main(arguments: Sequence[str] = ()) -> None:
    """Compute, or with --write put what is there into the package."""
    options = parse(arguments, __doc__, write=False, workers=0)
    store = Store()
    if not options.write:
        compute(store, options.workers or None)
    tables = {"power": power_rows(store), "beta": beta_rows(store), "gamma": gamma_rows(store)}
    path = Shipped(maps(store), tables, stamp=shipped_stamp(GRID.methods)).save("explore")
    print(f"{path.name}: {path.stat().st_size / 1e3:.0f} kB, {len(tables['power']):,} cells")
