"""What is made once for all sessions."""

from collections import OrderedDict

import pandas as pd
import pytest

from m2st_core.dashboard.jobs import host
from m2st_core.dashboard.widgets.page import _made, forget_shared, shared
from m2st_core.data.tables.cells import read_cell
from m2st_core.serving import visitors
from m2st_core.studies.explore import DEFAULT_SWEEP as DEFAULT
from m2st_core.studies.explore import shipped_rows
from m2st_core.sweeps import grid
from m2st_core.sweeps.cells import CellResult
from m2st_core.sweeps.store import Store


def counted():
    calls = []

    def make(*arguments, **named):
        calls.append((arguments, named))
        return object()

    return make, calls


def test_equal_arguments_share_what_is_made():
    make, calls = counted()
    assert shared(make, (1, "a"), now=2) is shared(make, (1, "a"), now=2)
    assert len(calls) == 1
    assert shared(make, (1, "b"), now=2) is not shared(make, (1, "a"), now=2)
    assert shared(make, (1, "a"), now=3) is not shared(make, (1, "a"), now=2)


def test_a_table_counts_as_the_same_only_if_it_is_the_same_object():
    make, calls = counted()
    table = pd.DataFrame({"a": [1]})
    assert shared(make, [table]) is shared(make, [table])
    assert shared(make, [table]) is not shared(make, [table.copy()])
    assert len(calls) == 2


def test_an_error_is_not_kept():
    tries = []

    def fail():
        tries.append(1)
        raise ValueError("no")

    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            shared(fail)
    assert len(tries) == 2


def test_rows_are_the_same_table_until_a_cell_is_added(tmp_path):
    store = Store(tmp_path)
    spec = DEFAULT.with_(repeats=1)
    cells = list(spec.cells())
    store.cells.add([(cells[0], CellResult(3, 10, 0.5))])
    before = store.cells.rows(spec)
    assert store.cells.rows(spec) is before and len(before) == 1
    store.cells.add([(cells[1], CellResult(4, 10, 0.5))])
    assert len(store.cells.rows(spec)) == 2 and len(before) == 1
    other = Store(tmp_path / "other")
    other.cells.add([(cells[0], CellResult(9, 10, 0.5))])
    assert other.cells.rows(spec)["rejections"].tolist() == [9]


def test_what_is_drawn_leaves_the_shared_tables_as_they_are():
    from m2st_core.dashboard.explore.results import Earlier, _draw_curves
    from m2st_core.paper.published import with_published
    from m2st_core.sweeps.summary import summarise

    rows = shipped_rows(DEFAULT)
    tables = rows, shared(summarise, rows), shared(with_published, shared(summarise, rows))
    copies = [table.copy(deep=True) for table in tables]
    for kind in ("power", "total"):
        _draw_curves(DEFAULT, tables[2], kind, (Earlier("before", tables[1], True), Earlier("pale", tables[1], False)))
    for table, copy in zip(tables, copies, strict=True):
        pd.testing.assert_frame_equal(table, copy)


@pytest.mark.parametrize(("tabs", "factor"), [(1, 1.0), (15, 1.0), (30, 2.0), (60, 4.0)])
def test_pages_ask_less_often_if_many_tabs_are_open(monkeypatch, tabs, factor):
    class Open:
        connected = True

    monkeypatch.setattr(host, "all_sessions", lambda: [Open()] * tabs)
    assert host.poll_seconds(0.5) == 0.5 * factor


def test_cells_of_tables_are_forgotten_with_the_session():
    read_cell("a cell of somebody's table")
    visitors.clear_caches()
    assert read_cell.cache_info().currsize == 0


@pytest.mark.parametrize(("left", "kept"), [([], 0), ([object()], 1)])
def test_what_all_share_is_forgotten_when_nobody_is_left(monkeypatch, left, kept):
    forget_shared()
    shared(sorted, (3, 1, 2))
    monkeypatch.setattr(visitors, "all_sessions", lambda: left)
    grid.grid_of(DEFAULT)
    visitors.clear_caches()
    assert len(_made) == kept and bool(grid._grids) == bool(kept)


def test_grids_in_memory_are_bounded_by_their_cells(monkeypatch):
    monkeypatch.setattr(grid, "_grids", OrderedDict())
    monkeypatch.setattr(grid, "MOST_IN_GRIDS", 300)
    specs = [DEFAULT.with_(repeats=2, seed=seed) for seed in range(8)]
    size = len(grid.grid_of(specs[0]).cells)
    assert 0 < size <= 100
    for spec in specs:
        assert len(grid.grid_of(spec).cells) == size
    assert sum(len(each.cells) for each in grid._grids.values()) <= 300 and len(grid._grids) == 300 // size
    assert grid.grid_of(specs[-1]) is grid.grid_of(specs[-1])
    large = DEFAULT.with_(repeats=40)  # kept alone: it is what is being looked at
    assert grid.grid_of(large) is grid.grid_of(large) and len(grid._grids) == 1


def test_a_grid_has_each_learner_once_in_the_order_of_its_cells():
    whole = grid.grid_of(DEFAULT.with_(repeats=3))
    learners = [cell.learner.key for cell in whole.cells.values() if cell.learner is not None]
    assert list(whole.learners) == list(dict.fromkeys(learners))
    assert all(learner.key == key for key, learner in whole.learners.items())
