"""The grid of a spec: its cells and their learners by key, and stored results as a tidy table."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

import pandas as pd

from m2st_core.sweeps.cells import Cell, CellResult, LearnerSpec, cell_data
from m2st_core.sweeps.spec import SweepSpec, origin_of
from m2st_core.testing.methods import METHODS

KEYS = ["task", "null", "method", "closeness", "n_tasks", "rows_per_task", "m_tr", "m_te"]
COLUMNS = [*KEYS, "repeat", "tests", "alpha", "n_permutations", "rule", "seed"]
MOST_IN_GRIDS = 60_000  # cells in the cache of grids (30 MB)
MOST_IN_TABLE = 2_000  # cells of a table that is cached


@dataclass(frozen=True)
class Grid:
    """The cells of a spec, and the learners they need, by their keys."""

    cells: dict[str, Cell]

    @cached_property
    def learner_keys(self) -> dict[str, str]:
        """The key of its learner for each cell that needs one."""
        return {key: learner.key for key, cell in self.cells.items() if (learner := cell.learner) is not None}

    @cached_property
    def learners(self) -> dict[str, LearnerSpec]:
        """Each learner once, in the order of the cells."""
        learners = dict[str, LearnerSpec]()
        for key, learner_key in self.learner_keys.items():
            if learner_key not in learners and (learner := self.cells[key].learner) is not None:
                learners[learner_key] = learner
        return learners


_grids: OrderedDict[tuple[str, str], Grid] = OrderedDict()
_lock = threading.Lock()


def grid_of(spec: SweepSpec) -> Grid:
    """The grid of a spec. The latest are cached, because hashing many cells takes long."""
    return _grid(*_described(spec))


def _described(spec: SweepSpec) -> tuple[str, str]:
    """A spec, and what else the keys of its cells depend on."""
    revisions = [METHODS[name].revision for name in spec.methods if name in METHODS]
    return spec.to_json(), f"{revisions} {cell_data(spec.task)}"


def _grid(text: str, stamp: str) -> Grid:
    with _lock:
        if (text, stamp) in _grids:
            _grids.move_to_end((text, stamp))
            return _grids[text, stamp]
    grid = Grid({cell.key: cell for cell in SweepSpec.from_json(text).cells()})
    with _lock:
        _grids[text, stamp] = grid
        while sum(len(grid.cells) for grid in _grids.values()) > MOST_IN_GRIDS and len(_grids) > 1:
            _grids.popitem(last=False)
    return grid


def as_rows(results: Iterable[tuple[Cell, CellResult]]) -> pd.DataFrame:
    """Cells with their results as a tidy table, with the origin of each method."""
    rows = [
        {name: getattr(cell, name) for name in COLUMNS}
        | {"origin": origin_of(cell.method)}
        | {"rejections": r.rejections, "rate": r.rejections / r.tests, "seconds": r.seconds}
        for cell, r in results
    ]
    return pd.DataFrame(rows, columns=[*COLUMNS, "origin", "rejections", "rate", "seconds"])


def grid_table(spec: SweepSpec, results: Mapping[str, CellResult]) -> pd.DataFrame:
    """Those of these results that are cells of the spec, as a tidy table in the order of the grid."""
    described = _described(spec)
    stored = tuple((key, results[key]) for key in _grid(*described).cells if key in results)
    return (_table if len(stored) <= MOST_IN_TABLE else _table.__wrapped__)(*described, stored)


@lru_cache(maxsize=32)
def _table(text: str, stamp: str, results: tuple[tuple[str, CellResult], ...]) -> pd.DataFrame:
    """Results of a spec as a table: one object for equal results, so that what is made of it can be cached."""
    stored = dict(results)
    return as_rows((cell, stored[key]) for key, cell in _grid(text, stamp).cells.items() if key in stored)


def forget_grid_tables() -> None:
    """Clear the caches of grids and tables."""
    with _lock:
        _grids.clear()
    _table.cache_clear()


def grid_keys(specs: Iterable[str]) -> tuple[set[str], set[str]]:
    """The keys of all cells of these specs, and of their learners."""
    grids = [grid_of(SweepSpec.from_json(text)) for text in specs if text]
    return {key for grid in grids for key in grid.cells}, {key for grid in grids for key in grid.learners}
