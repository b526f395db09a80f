"""γ̂ as a stored experiment."""

import pandas as pd
import pytest

import m2st_core as m2st
from m2st_core.__main__ import main
from m2st_core.paper import experiments
from m2st_core.paper.experiments import GAMMA, GammaCell, run_gamma, summarise_gamma
from m2st_core.sweeps.executors import InlineExecutor
from m2st_core.sweeps.store import Store
from m2st_core.types import Cancelled

SMALL = [GammaCell(closeness, rows=20, tasks=2, restarts=2, steps=2) for closeness in (0.1, 0.5)]


def run(cells, store, progress=None):
    executor = InlineExecutor()
    try:
        return run_gamma(cells, store, executor, progress)
    finally:
        executor.close()


def test_every_task_and_restart_has_a_row_and_nothing_is_computed_twice(tmp_path, monkeypatch):
    store = Store(tmp_path)
    rows = run(SMALL, store)
    assert len(rows) == 2 * 2 * 2 and rows.groupby(["closeness", "task"]).size().eq(2).all()
    assert (rows[["on_training_rows", "on_test_rows", "floor"]] >= 0).all(axis=None)
    monkeypatch.setattr(experiments, "measure_gamma", lambda *_: pytest.fail("computed again"))
    assert run(SMALL, store).equals(rows)


def test_rows_equal_a_direct_call(tmp_path):
    rows = run(SMALL[1:], Store(tmp_path))
    streams = m2st.rng.Streams(0).child("gamma")
    found = m2st.relatedness(
        m2st.make_task("hdgm").sample(40, seed=streams.child("target").seed),
        m2st.hdgm_related_tasks(0.5, 100, 40, seed=streams.child("meta-tasks").seed),
        restarts=2, max_tasks=2, steps=2, seed=streams.child("kernels").seed,
    )  # fmt: skip
    assert rows["on_test_rows"].tolist() == pytest.approx(found.on_test_rows.flatten().tolist())
    table = summarise_gamma(rows)
    assert table["on_test_rows"].item() == pytest.approx(found.gamma())
    assert table["on_training_rows"].item() == pytest.approx(found.gamma(on_training_rows=True))
    assert table["published"].item() == 0.134 and table["floor"].item() == pytest.approx(found.floor)


def test_the_summary_takes_the_smallest_of_the_tasks_largest():
    rows = pd.DataFrame(
        [
            {"closeness": 0.2, "task": task, "restart": i, "on_training_rows": v, "on_test_rows": 2 * v}
            for task, values in (("a", (0.1, 0.4)), ("b", (0.3, 0.2)))
            for i, v in enumerate(values)
        ]
    )
    row = summarise_gamma(rows.assign(floor=0.1, seconds=3.0)).iloc[0]
    assert (row["on_training_rows"], row["on_test_rows"], row["highest"], row["floor"]) == (0.3, 0.6, 0.8, 0.1)


def test_a_cancelled_curve_keeps_what_is_done(tmp_path):
    store = Store(tmp_path)

    def stop(step, total):
        if step >= total / 2:
            raise Cancelled

    with pytest.raises(Cancelled):
        run(SMALL, store, stop)
    done = [store.cells.measurement(cell.key) is not None for cell in SMALL]
    assert any(done)
    assert len(run(SMALL, store)) == 8


def test_the_command_prints_both_halves(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("M2ST_HOME", str(tmp_path))
    monkeypatch.setitem(GAMMA, "quick", SMALL)
    files = ["--out", str(tmp_path / "rows.csv"), "--figure", str(tmp_path / "gamma.html")]
    assert main(["paper", "gamma", "--executor", "inline", *files]) == 0
    printed = capsys.readouterr().out
    assert "training halves" in printed and "test halves" in printed and "noise floor" in printed and "0.134" in printed
    assert len(pd.read_csv(tmp_path / "rows.csv")) == 8
    assert "measured, on fresh rows" in (tmp_path / "gamma.html").read_text(encoding="utf-8")


def test_a_measurement_is_stored_once(tmp_path):
    store = Store(tmp_path)
    store.cells.add_measurement("key", {"a": 1}, [{"b": 2}])
    store.cells.add_measurement("key", {"a": 1}, [{"b": 3}])
    assert store.cells.measurement("key") == [{"b": 2}] and store.cells.measurement("other") is None
