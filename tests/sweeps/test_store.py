"""The store: rights, heartbeats, undo, garbage, and what happens when it cannot be read or written."""

import errno
import json
import os
import sqlite3
import threading
import time
from pathlib import Path

import pytest

from m2st_core.__main__ import main
from m2st_core.sweeps import database, work
from m2st_core.sweeps import store as store_module
from m2st_core.sweeps.cells import CellResult, digest
from m2st_core.sweeps.database import Database, StoreError
from m2st_core.sweeps.executors import InlineExecutor
from m2st_core.sweeps.spec import SweepSpec
from m2st_core.sweeps.store import HEARTBEAT_SECONDS, HOST, UNDO_SECONDS, UNKNOWN, Store, is_alive, new_holder, own_id
from m2st_core.sweeps.work import RunDeleted, run_sweep

SPEC = SweepSpec(
    methods=("MMD-M", "Meta-WiTS"), m_te=(10,), n_tasks=(4,), rows_per_task=8, m_tr=(8,), repeats=2, tests=4,
    n_permutations=39,
)  # fmt: skip
QUICK = SPEC.with_(methods=("MMD-M",))


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path)


def compute(spec, store, **settings):
    executor = InlineExecutor()
    try:
        return run_sweep(spec, store, executor, **settings)
    finally:
        executor.close()


def fill(store, spec):
    """A finished run without computing it."""
    run = store.runs.start(spec)
    for cell in spec.cells():
        store.cells.add([(cell, CellResult(1, 4, 1.0))])
        if cell.learner:
            folder = store.home / "learners" / cell.learner.key
            folder.mkdir(exist_ok=True)
    store.runs.set_state(run, "done")
    return run


def execute(store, statement, *values):
    with sqlite3.connect(store.home / "store.sqlite") as db:
        return db.execute(statement, values).fetchall()


def put_unknown(store, **changes):
    """A run of a version to come, with an id that fits its spec."""
    spec = QUICK.to_dict() | changes
    run = digest(spec)[:12]
    columns = "(id, name, spec, state, message, created, updated)"
    execute(store, f"INSERT INTO runs {columns} VALUES (?, 'new', ?, 'done', '', 1, 1)", run, json.dumps(spec))
    return run


@pytest.mark.parametrize("changes", [{"task": "tomorrow"}, {"colour": "red"}, {"methods": 3}, {"settings": [[]]}])
def test_a_run_with_unknown_settings_is_listed_and_the_rest_works(store, changes, monkeypatch, capsys):
    run, other = put_unknown(store, **changes), fill(store, SPEC)
    listed = store.all_runs().set_index("id")
    assert listed["state"].to_dict() == {run: UNKNOWN, other: "done"} and listed.loc[other, "done"] == 4
    with pytest.raises(StoreError, match=f"Run {run} was made by another version"):
        store.runs.get(run)
    assert store.runs.get(other).spec == SPEC
    monkeypatch.setenv("M2ST_HOME", str(store.home))
    assert main(["runs", "list"]) == 0 and "another version" in capsys.readouterr().out
    assert main(["runs", "delete", run]) == 0 and store.all_runs()["id"].tolist() == [other]


@pytest.mark.parametrize("start", ["%", "_", "", "0%"])
def test_ids_have_no_wildcards(store, start):
    fill(store, QUICK)
    with pytest.raises(StoreError, match="There is no run"):
        store.delete_run(start)
    assert len(store.all_runs()) == 1


def test_a_deletion_can_be_undone_for_a_week(store, monkeypatch, capsys):
    run = fill(store, SPEC)
    monkeypatch.setenv("M2ST_HOME", str(store.home))
    assert main(["runs", "delete", run[:5]]) == 0 and f"runs restore {run}" in capsys.readouterr().out
    assert store.all_runs().empty and store.runs.get(run) is None and store.collect() == (0, 0, 0)
    assert main(["runs", "restore", run[:5]]) == 0
    assert store.runs.get(run).state == "done" and len(store.cells.rows(SPEC)) == 4
    store.delete_run(run)
    execute(store, "UPDATE runs SET deleted = deleted - ?", UNDO_SECONDS)
    assert store.collect() == (1, 4, 2)
    assert store.cells.rows(SPEC).empty and not list((store.home / "learners").iterdir())
    with pytest.raises(StoreError, match="no deleted run"):
        store.runs.restore(run)


def test_garbage_is_what_no_run_needs(store):
    first, second = fill(store, SPEC), fill(store, SPEC.with_(repeats=1))
    store.delete_run(first)
    assert store.collect(0) == (1, 2, 1)  # the first repeat is the second run's, too
    assert len(store.cells.rows(SPEC)) == 2
    for cell in QUICK.with_(seed=5).cells():  # of a run that was purged by force while it was computed
        store.cells.add([(cell, CellResult(1, 4, 1.0))])
    old = store.home / "learners" / "tmpabc"
    old.mkdir()
    os.utime(old, (1, 1))
    assert store.collect(orphans=True) == (0, 2, 1) and not old.exists()
    assert store.runs.get(second).state == "done" and len(store.cells.rows(SPEC)) == 2
    put_unknown(store, task="tomorrow")
    store.cells.add([(next(iter(QUICK.with_(seed=5).cells())), CellResult(1, 4, 1.0))])
    assert store.collect(orphans=True) == (0, 0, 0)  # it may be needed by the run that cannot be read


def test_a_run_that_is_deleted_while_it_is_computed_ends_with_a_sentence(store, monkeypatch, capsys):
    monkeypatch.setattr(work, "BEAT_SECONDS", 0.0)

    def delete(at):
        if at.computed and not store.all_runs().empty:
            Store(store.home).delete_run(QUICK.run_id)

    with pytest.raises(RunDeleted, match=f"Run {QUICK.run_id} was deleted elsewhere while it was computed"):
        compute(QUICK, store, progress=delete)
    assert store.all_runs().empty
    spec = store.home / "spec.toml"
    spec.write_text(QUICK.with_(seed=1).to_toml())
    monkeypatch.setenv("M2ST_HOME", str(store.home))
    monkeypatch.setattr(store_module.Runs, "beat", lambda self, run, holder: False)
    assert main(["sweep", str(spec), "--executor", "inline"]) == 2
    assert "was deleted elsewhere" in capsys.readouterr().err


def test_others_see_that_a_run_is_computed_until_its_process_dies(store):
    run = fill(store, QUICK)
    assert not store.runs.is_computed(run)
    seen = []
    compute(
        QUICK.with_(seed=1), store, progress=lambda at: seen.append(store.runs.is_computed(QUICK.with_(seed=1).run_id))
    )
    assert all(seen) and seen and not store.runs.is_computed(QUICK.with_(seed=1).run_id)
    store.runs.beat(run, f"{HOST}:999999999:abc")  # a process that is gone
    assert not store.runs.is_computed(run)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the system does not tell when a process started")
def test_a_process_with_the_number_of_a_dead_one_is_another(store):
    """A container that is started again has a server of the same number: what its predecessor had is free at once."""
    present = new_holder()
    before = present.replace(":" + present.rsplit(":", 1)[1].partition("-")[0] + "-", ":1-")
    run, keys = fill(store, QUICK.with_(repeats=1)), {cell.key for cell in QUICK.cells()}
    assert before != present and store.runs.beat(run, before) and not store.runs.is_computed(run)
    assert store.cells.claim(keys, before) == keys
    assert store.runs.beat(run, present) and store.runs.is_computed(run)
    assert store.cells.claim(keys, present) == keys and not store.cells.claim(keys, "another")


def test_claims_last_as_long_as_the_heartbeat(store):
    run, keys = fill(store, QUICK), {cell.key for cell in QUICK.cells()}
    first, second = new_holder(), new_holder()
    assert store.cells.claim(keys, first) == keys == store.cells.claim(keys, second)  # nobody lives yet
    store.runs.beat(run, second)
    assert not store.cells.claim(keys, first) and store.cells.claim(keys, second) == keys
    execute(store, "UPDATE heartbeats SET until = until - ?", HEARTBEAT_SECONDS)
    assert store.cells.claim(keys, first) == keys
    store.runs.leave(first)
    assert not execute(store, "SELECT * FROM heartbeats") and not execute(store, "SELECT * FROM claimed")


def test_a_clock_that_jumps_ends_a_heartbeat_or_keeps_it_briefly():
    now, holder = time.time(), new_holder()
    assert is_alive(holder, now + HEARTBEAT_SECONDS - 1)
    assert not is_alive(holder, now - 1)
    assert not is_alive(holder, now + 3600)  # written before the clock was set back by an hour
    assert is_alive("elsewhere:1:abc", now + 5)


def test_three_owners_do_not_repeat_one_another_s_work(store, monkeypatch):
    computed, lock = [], threading.Lock()
    for name in ("run_cell", "train_learner"):
        original = getattr(work, name)

        def counted(spec, *rest, original=original):
            with lock:
                computed.append(spec.key)
            time.sleep(0.02)
            return original(spec, *rest)

        monkeypatch.setattr(work, name, counted)
    monkeypatch.setattr(work, "LOOK_SECONDS", 0.05)
    spec, found = SPEC.with_(repeats=4), []
    owners = [threading.Thread(target=lambda: found.append(compute(spec, Store(store.home)))) for _ in range(3)]
    for owner in owners:
        owner.start()
    for owner in owners:
        owner.join(60)
    assert [len(rows) for rows in found] == [8, 8, 8] and len(computed) == len(set(computed)) == 12
    assert not execute(store, "SELECT * FROM claimed") and not execute(store, "SELECT * FROM heartbeats")


def test_work_that_a_dead_owner_claimed_is_done_by_another(store):
    dead = f"{HOST}:999999999:abc"
    store.runs.beat(store.runs.start(QUICK), dead)
    store.cells.claim([cell.key for cell in QUICK.cells()], dead)
    assert len(compute(QUICK, store)) == 2


def read_only(monkeypatch):
    monkeypatch.setattr(database, "is_writable", lambda path: False)


def test_a_read_only_store_can_be_read(store, monkeypatch, capsys):
    run = fill(store, QUICK)
    store.database.close()
    before = (store.home / "store.sqlite").read_bytes()
    read_only(monkeypatch)
    monkeypatch.setenv("M2ST_HOME", str(store.home))
    assert main(["runs", "list"]) == main(["runs", "show", run]) == 0
    assert "2/2 cells" in capsys.readouterr().out
    assert main(["runs", "delete", run]) == 2
    assert "can be read but not written" in capsys.readouterr().err
    assert (store.home / "store.sqlite").read_bytes() == before
    assert sorted(path.name for path in store.home.iterdir()) == ["learners", "store.sqlite"]


def test_tables_that_a_store_lacks_are_made(store):
    run = fill(store, QUICK)
    execute(store, "DROP TABLE heartbeats")
    assert Store(store.home).runs.beat(run, new_holder()) and len(store.cells.rows(QUICK)) == 2


def a_learner():
    return next(cell.learner for cell in SPEC.cells() if cell.learner)


def test_a_full_disk_leaves_no_part_of_a_learner(store, monkeypatch):
    def full(path, data):
        path.write_bytes(data[:3])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(store_module, "write_durably", full)
    with pytest.raises(StoreError, match="could not be stored in .*: No space left on device"):
        store.cells.add_learner(a_learner(), ("{}", b"tensors"), 1.0)
    assert not list((store.home / "learners").iterdir())
    with pytest.raises(StoreError, match="No space left"):
        compute(SPEC, store)
    assert store.all_runs()["state"].item() == "failed" and not list((store.home / "learners").iterdir())


def test_a_learner_is_on_the_disk_before_its_folder_has_its_name(store, monkeypatch):
    synced, there, fsync = [], [], os.fsync
    folder = store.home / "learners" / a_learner().key

    def note(descriptor):
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}").rsplit("/", 1)[-1])
        there.append(folder.exists())
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    store.cells.add_learner(a_learner(), ("{}", b"tensors"), 1.0)
    assert synced == ["learner.safetensors", "learner.json", "learners"] and there == [False, False, True]


def test_runs_belong_to_who_started_them(store):
    ann, bob = store.seen_by("ann"), store.seen_by("bob")
    mine, theirs = ann.runs.start(QUICK, "Ann's"), bob.runs.start(QUICK, "Bob's")
    assert mine == own_id(QUICK.run_id, "ann") and len({mine, theirs, QUICK.run_id}) == 3
    assert ann.all_runs()["name"].tolist() == ["Ann's"] and bob.all_runs()["name"].tolist() == ["Bob's"]
    assert bob.runs.get(mine) is None and not bob.runs.owns(mine) and ann.runs.owns(mine)
    assert (
        ann.runs.get(QUICK.run_id).id == mine and bob.runs.get(QUICK.run_id).name == "Bob's"
    )  # a spec means one's own run
    with pytest.raises(StoreError, match="no run .* of yours"):
        bob.runs.rename(mine, "stolen")
    with pytest.raises(StoreError, match="no run .* of yours"):
        bob.runs.share(mine)
    for refused in (bob.delete_run, bob.runs.restore):
        with pytest.raises(StoreError, match="There is no"):
            refused(mine)
    assert store.runs.get(mine).name == "Ann's"  # on the machine itself everything can be seen
    assert len(store.all_runs()) == 2 and store.seen_by("").all_runs().empty


def test_a_shared_run_can_be_read_until_it_is_deleted(store):
    ann = store.seen_by("ann")
    run = ann.runs.start(QUICK, "Ann's")
    token = ann.runs.share(run)
    assert token == ann.runs.share(run) and len(token) >= 32
    bob = store.seen_by("bob", (token,))
    assert bob.runs.get(run).name == "Ann's" and bob.all_runs()["owner"].tolist() == ["ann"] and not bob.runs.owns(run)
    with pytest.raises(StoreError, match="of yours"):
        bob.delete_run(run)
    assert store.seen_by("bob", ("", "guess")).runs.get(run) is None
    ann.delete_run(run)
    ann.runs.restore(run)
    assert bob.runs.get(run) is None and ann.runs.share(run) != token


def test_time_is_counted_by_person_and_day(store, monkeypatch):
    store.usage.add("ann", 20.0)
    store.usage.add("ann", 10.0)
    store.usage.add("bob", 40.0)
    assert store.usage.of("ann") == 30.0 and store.usage.by_person() == [("bob", 40.0), ("ann", 30.0)]
    monkeypatch.setattr(store_module, "today", lambda: "2099-01-01")
    assert store.usage.of("ann") == 0.0


def test_connections_are_used_again_but_never_for_a_store_that_was_moved_away(tmp_path, monkeypatch):
    opened, open_ = [], Database._open
    monkeypatch.setattr(Database, "_open", lambda self: opened.append(1) or open_(self))
    here, there = tmp_path / "here", tmp_path / "there"
    store = Store(here)
    store.seen_by("ann").runs.start(SPEC)
    assert len(store.all_runs()) == 1 and len(opened) == 1
    with pytest.raises(StoreError), store.database.transaction() as broken:
        raise sqlite3.ProgrammingError
    with pytest.raises(sqlite3.ProgrammingError):
        broken.execute("SELECT 1")  # what failed is closed
    here.rename(there)
    with pytest.raises(StoreError):
        store.all_runs()
    Store(here)
    assert store.all_runs().empty and len(Store(there).all_runs()) == 1


def test_threads_at_once_have_connections_of_their_own(store):
    def count():
        for _ in range(20):
            store.usage.add("ann", 1.0)

    threads = [threading.Thread(target=count) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert store.usage.of("ann") == 120 and len(store.database._idle) <= database.MOST_IDLE
