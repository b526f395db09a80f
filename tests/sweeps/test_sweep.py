"""Runs that stream, stop, die and go on."""

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from m2st_core.numbers import null_band
from m2st_core.paper.published import published_table, with_published
from m2st_core.studies.power import sweep_figure
from m2st_core.sweeps import cells as cells_module
from m2st_core.sweeps import work as work_module
from m2st_core.sweeps.cells import CellResult
from m2st_core.sweeps.database import StoreError
from m2st_core.sweeps.executors import (
    GRACE_SECONDS,
    PAUSE_SECONDS,
    DaskExecutor,
    InlineExecutor,
    PoolExecutor,
    WorkerLost,
    make_executor,
)
from m2st_core.sweeps.spec import LIMIT, SweepSpec, origin_of
from m2st_core.sweeps.store import UNKNOWN, Store
from m2st_core.sweeps.summary import summarise, summary_text
from m2st_core.sweeps.work import SweepFailed, run_sweep, warm_up_worker
from m2st_core.types import Cancelled

ROOT = Path(__file__).parents[2]
SPEC = SweepSpec(
    methods=("MMD-M", "Meta-WiTS", LIMIT), m_te=(10, 20), n_tasks=(4,), rows_per_task=8, m_tr=(8,), repeats=2, tests=8,
    n_permutations=39,
)  # fmt: skip


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """The rows of an undisturbed run, and its store."""
    store = Store(tmp_path_factory.mktemp("reference"))
    executor = InlineExecutor()
    rows = run_sweep(SPEC, store, executor)
    executor.close()
    return rows.drop(columns="seconds"), store


def same(rows, reference):
    return rows.drop(columns="seconds").equals(reference[0])


def run(spec, store, **settings):
    executor = InlineExecutor()
    try:
        return run_sweep(spec, store, executor, **settings)
    finally:
        executor.close()


def count_calls(monkeypatch, name):
    calls = []
    original = getattr(work_module, name)

    def counted(*arguments):
        calls.append(arguments)
        return original(*arguments)

    monkeypatch.setattr(work_module, name, counted)
    return calls


def test_rows_are_tidy_and_complete(reference):
    rows, _ = reference
    assert len(rows) == len(list(SPEC.cells())) == 12
    assert set(rows["method"]) == set(SPEC.methods) and rows["rate"].between(0, 1).all()
    assert rows.query("method == 'MMD-M'")["closeness"].isna().all()


def test_nothing_is_computed_twice(reference, monkeypatch):
    _, store = reference
    cells, learners = count_calls(monkeypatch, "run_cell"), count_calls(monkeypatch, "train_learner")
    assert same(run(SPEC, store), reference) and not cells and not learners
    run(SPEC.with_(m_te=(10, 30), methods=(*SPEC.methods, "Meta-Witness")), store)
    assert not learners  # another size, and a method that learns in the same way
    assert len(cells) == 2 * (3 + 2)  # m_te=30 for three methods, and the new method at both sizes; two repeats


def test_a_pool_gives_the_same_rows_and_survives_the_death_of_a_worker(reference, tmp_path):
    executor = PoolExecutor(workers=2)
    killed = []

    def kill_one(progress):
        workers = list(executor._pool._processes or {})
        if not killed and workers:
            killed.append(workers[0])
            os.kill(workers[0], signal.SIGKILL)

    try:
        rows = run_sweep(SPEC, Store(tmp_path), executor, progress=kill_one)
    finally:
        executor.close()
    assert killed and same(rows, reference)


def test_cancelling_keeps_what_is_done_and_the_run_goes_on(reference, tmp_path):
    store = Store(tmp_path)

    def stop(progress):
        if progress.done >= 3:
            raise Cancelled

    began = time.monotonic()
    with pytest.raises(Cancelled):
        run(SPEC, store, progress=stop)
    assert time.monotonic() - began < 30
    assert store.all_runs()["state"].item() == "cancelled" and 3 <= len(store.cells.rows(SPEC)) < 12
    assert same(run(SPEC, store), reference) and store.all_runs()["state"].item() == "done"


def hang(device, progress):
    """A job whose next step is far away."""
    progress(0, 1, 0.0)
    time.sleep(60)


def steps(device, progress):
    """A job of many short steps."""
    for step in range(6000):
        progress(step, 6000, 0.0)
        time.sleep(0.01)


@pytest.fixture(scope="module")
def pool():
    """A pool of one worker, whose start takes seconds."""
    executor = PoolExecutor(workers=1)
    warm_up_worker(executor)
    yield executor
    executor.close()


def started(executor, work):
    """A job that has reached its first step."""
    future = executor.submit(work.__name__, work)
    while not list(executor.reports()):
        time.sleep(0.02)
    return future


@pytest.mark.parametrize("work", [steps, hang])
def test_a_pool_stops_within_two_seconds_and_serves_the_next(work, pool):
    running, waiting = started(pool, work), pool.submit("b", work)
    began = time.monotonic()
    pool.cancel()
    for future in (running, waiting):
        assert isinstance(future.exception(timeout=2), Cancelled | WorkerLost)
    assert time.monotonic() - began < 2
    assert pool.submit("c", answer).result(timeout=60) == 42


def answer(device, progress):
    progress(1, 1, 0.0)
    return 42


def test_an_inline_executor_serves_the_next_after_a_cancel():
    executor = InlineExecutor()
    stopped = executor.submit("a", steps)
    time.sleep(0.1)
    executor.cancel()
    assert executor.submit("b", answer).result(timeout=5) == 42
    assert isinstance(stopped.exception(), Cancelled)
    executor.close()


def test_a_killed_owner_loses_only_cells_in_flight(reference, tmp_path):
    script = f"""
    from m2st_core.sweeps.executors import InlineExecutor
    from m2st_core.sweeps.spec import SweepSpec
    from m2st_core.sweeps.store import Store
    from m2st_core.sweeps.work import run_sweep
    def tell(progress):
        print(progress.done, flush=True)
    run_sweep(SweepSpec.from_json({SPEC.to_json()!r}), Store({str(tmp_path)!r}), InlineExecutor(), progress=tell)
    """
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    owner = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(script)], stdout=subprocess.PIPE, text=True, env=environment
    )
    for line in owner.stdout:
        if int(line) >= 2:
            break
    owner.kill()
    owner.wait()
    store = Store(tmp_path)
    assert len(store.cells.rows(SPEC)) >= 2
    assert same(run(SPEC, store), reference)


def test_a_damaged_learner_is_trained_again(reference, tmp_path, monkeypatch):
    store = Store(tmp_path)
    run(SPEC, store)
    for file in tmp_path.glob("learners/*/learner.safetensors"):
        file.write_bytes(file.read_bytes()[:-7])
    learners = count_calls(monkeypatch, "train_learner")
    rows = run(SPEC.with_(m_te=(10, 20, 30)), store)
    assert len(learners) == 2
    assert same(rows.query("m_te < 30").reset_index(drop=True), reference)


def test_a_learner_that_is_lost_while_its_cells_wait_is_named_and_trained_again(reference, tmp_path, monkeypatch):
    original = work_module.Work._release

    def lose(work, learner):
        original(work, learner)
        (tmp_path / "learners" / learner / "learner.safetensors").write_bytes(b"")

    store = Store(tmp_path)
    with monkeypatch.context() as patched, pytest.raises(SweepFailed, match="4 jobs of 12 cells") as failed:
        patched.setattr(work_module.Work, "_release", lose)
        run(SPEC, store)
    assert failed.value.sentences == (work_module.LOST,) and len(store.cells.rows(SPEC)) == 8
    assert same(run(SPEC, store), reference)


def test_a_sweep_holds_few_of_its_learners(tmp_path, monkeypatch):
    """Those of 500 repeats would fill the memory of the server."""
    monkeypatch.setattr(work_module, "KEPT_LEARNERS", 1)
    spec, works = SPEC.with_(methods=("Meta-WiTS",), repeats=4), []
    original = work_module.Work._report
    monkeypatch.setattr(work_module.Work, "_report", lambda work: works.append(work) or original(work))
    rows = run(spec, Store(tmp_path))
    kept = works[-1].parts_of.cache_info()
    assert len(rows) == 8 and works[-1].trained == 4 and kept.currsize == 1 and kept.misses < 8


def test_a_failing_cell_is_reported_and_the_others_are_kept(tmp_path, monkeypatch):
    original = work_module.run_cell

    def sometimes(cell, *rest):
        if cell.method == "MMD-M":
            raise RuntimeError("no luck")
        return original(cell, *rest)

    monkeypatch.setattr(work_module, "run_cell", sometimes)
    store = Store(tmp_path)
    with pytest.raises(SweepFailed, match="4 jobs of 12 cells failed: RuntimeError: no luck") as failed:
        run(SPEC, store)
    assert failed.value.sentences == ()  # for users are only the messages of bad input
    assert len(store.cells.rows(SPEC)) == 8 and store.all_runs()["state"].item() == "failed"


def test_progress_rises_to_one(tmp_path):
    seen = []
    run(SPEC.with_(methods=("MMD-M",)), Store(tmp_path), progress=seen.append)
    shares = [progress.share for progress in seen]
    assert shares == sorted(shares) and shares[-1] == 1 and seen[-1].done == seen[-1].cells == 4


def test_dask_gives_the_same_rows(reference, tmp_path):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None
    ) as cluster:
        executor = DaskExecutor(cluster.scheduler_address)
        stopped = executor.submit("stopped", steps)
        while not list(executor.reports()):
            time.sleep(0.05)
        executor.cancel()
        assert isinstance(stopped.exception(timeout=5), Cancelled)
        rows = run_sweep(SPEC, Store(tmp_path), executor)
        executor.close()
    assert same(rows, reference)


def test_executors_that_cannot_be_made_are_named():
    with pytest.raises(ValueError, match="Unknown executor 'cloud'"):
        make_executor("cloud")
    with pytest.raises(ValueError, match="needs the address"):
        make_executor("dask")


def test_stores_that_cannot_be_used_are_named(tmp_path):
    Store(tmp_path)
    with sqlite3.connect(tmp_path / "store.sqlite") as db:
        db.execute("PRAGMA user_version = 99")
    with pytest.raises(StoreError, match="has schema 99"):
        Store(tmp_path)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "store.sqlite").write_bytes(b"this is no database" * 100)
    with pytest.raises(StoreError, match="cannot be read"):
        Store(tmp_path / "b")
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be made"):
        Store(tmp_path / "file")


def test_runs_are_listed_found_and_deleted(reference, tmp_path):
    store = Store(tmp_path)
    first, second = SPEC.with_(methods=("MMD-M",)), SPEC.with_(methods=("MMD-M", LIMIT))
    for spec in (first, second):
        run(spec, store)
    assert store.all_runs()["done"].tolist() == [8, 4]
    assert store.runs.find(second.hash[:5]) == second.run_id
    assert store.runs.get(second.run_id).spec == second and store.runs.get(second.hash[:5]) is None
    with pytest.raises(StoreError, match="There is no run"):
        store.runs.find("zzz")
    store.delete_run(second.run_id)
    store.collect(0)
    assert len(store.cells.rows(first)) == 4 and len(store.cells.rows(second)) == 4  # what the first run has, stays


@pytest.fixture
def other(tmp_path, monkeypatch):
    """A store with the same run twice, by another version, with its id, and by this one."""
    store, spec = Store(tmp_path), SPEC.with_(methods=("MMD-M",), repeats=1)
    with monkeypatch.context() as patch:
        patch.setattr(cells_module, "CODE", "4")
        other_id = store.runs.start(spec)
        store.runs.set_state(other_id, "done")
        store.cells.add((cell, CellResult(8, 8, 1.0)) for cell in spec.cells())
    run(spec, store)
    return store, other_id, spec


def test_a_run_of_another_version_is_listed_and_refused(other):
    store, other_id, spec = other
    listed = store.all_runs().set_index("id")
    assert listed["state"].to_dict() == {other_id: UNKNOWN, spec.run_id: "done"}
    assert listed.loc[other_id, ["done", "cells"]].tolist() == [0, 0]
    assert "whose results this version cannot show" in listed.loc[other_id, "message"]
    with pytest.raises(StoreError, match=f"Run {other_id} was made by another version"):
        store.runs.get(other_id)
    assert store.runs.get(spec.run_id).spec == spec
    assert (store.cells.rows(spec)["rejections"] < 8).any()  # its own cells, not those of the other version


def test_a_run_of_another_version_can_be_deleted_and_leaves_the_present_one(other):
    store, other_id, spec = other
    store.delete_run(other_id[:6])
    assert store.all_runs()["id"].tolist() == [spec.run_id] and len(store.cells.rows(spec)) == len(list(spec.cells()))
    store.delete_run(spec.run_id)
    store.collect(0)
    assert store.all_runs().empty and store.cells.rows(spec).empty


def test_rows_and_summaries_say_whose_a_method_is(reference):
    rows, _ = reference
    assert set(zip(rows["method"], rows["origin"], strict=True)) == {(m, origin_of(m)) for m in SPEC.methods}
    ours = summarise(rows.drop(columns="origin").assign(method="Meta-WiTS").head(1))  # as in files of before
    assert ours["origin"].tolist() == ["ours"] and summary_text(ours).splitlines()[1].startswith("Meta-WiTS (ours)")


def test_summaries_have_errors_between_repeats_and_published_numbers(reference):
    rows, _ = reference
    table = summarise(rows)
    one = table.query("method == 'MMD-M' and m_te == 10").iloc[0]
    rates = rows.query("method == 'MMD-M' and m_te == 10")["rate"]
    assert one["rate"] == rates.mean() and one["error"] == pytest.approx(rates.std() / 2**0.5)
    known = rows.assign(method="Meta-MKL", n_tasks=100, closeness=0.3, m_tr=50, m_te=200, rate=0.859).head(1)
    found = with_published(summarise(known)).iloc[0]
    assert found["published"] == 0.759 and np.isnan(found["difference"])  # one repeat says too little
    assert "(published 0.759)" in summary_text(with_published(summarise(known)))
    often = pd.concat([known.assign(repeat=index, rate=0.849 + 0.005 * index) for index in range(5)])
    assert with_published(summarise(often))["difference"].item() == pytest.approx(
        0.1 / (0.005**2 / 2 + 0.027**2) ** 0.5
    )
    assert "(published 0.759, +3.7 SE)" in summary_text(with_published(summarise(often)))
    assert "published" not in summary_text(summarise(often))
    assert "Nothing" in summary_text(with_published(summarise(rows.head(0))))
    assert found["low"] < rows.head(1)["rate"].item() < found["high"]
    ablation = rows.assign(method="Meta-KL", n_tasks=100, closeness=0.3, m_tr=10, m_te=200).head(1)
    assert with_published(summarise(ablation))["published"].item() == 0.509  # Table 3


def test_a_valid_test_lies_in_the_band_and_tables_are_found():
    low, high = null_band(0.05, 2000)
    assert 0.035 < low < 0.05 < high < 0.065
    assert [len(published_table(name)) for name in ("table3", "table1", "fig2a", "fig2b")] == [7, 54, 14, 0]


def test_the_figure_has_the_band_of_the_tests_done(reference):
    """Half of the repeats are done: the band is wider than the one of the whole sweep."""
    rows, _ = reference
    spec = SPEC.with_(null=True)
    figure = sweep_figure(spec, with_published(summarise(rows[rows["repeat"] == 0])))
    (band,) = [shape for shape in figure.layout.shapes if shape.type == "rect"]
    assert (band.x0, band.x1) == null_band(spec.alpha, spec.tests) != null_band(spec.alpha, 2 * spec.tests)


def slow_step(device, progress):
    """A job whose steps take longer than a cancel waits."""
    for step in range(3):
        progress(step, 3, 0.0)
        time.sleep(1.5 * GRACE_SECONDS)


def test_a_pause_keeps_the_workers(pool):
    """New processes would load everything again, while others wait for their turn."""
    before = pool.submit("a", process_id).result(timeout=60)
    paused = started(pool, slow_step)
    pool.cancel(PAUSE_SECONDS)
    assert isinstance(paused.exception(timeout=2), Cancelled)
    assert pool.submit("c", process_id).result(timeout=60) == before


def process_id(device, progress):
    return os.getpid()
