"""The store: owners, leases, undo, garbage, and what happens when it cannot be read or written."""

import errno
import json
import os
import sqlite3
import threading
import time
from pathlib import Path

import pytest

from m2st_core.__main__ import main
from m2st_core.sweeps import database, results, sweep, work
from m2st_core.sweeps.database import SCHEMA, StoreError
from m2st_core.sweeps.executors import InlineExecutor
from m2st_core.sweeps.results import HOST, LEASE_SECONDS, is_held, new_holder
from m2st_core.sweeps.spec import SweepSpec
from m2st_core.sweeps.store import UNDO_SECONDS, UNKNOWN, Store, own_id
from m2st_core.sweeps.sweep import RunDeleted, run_sweep
from m2st_core.sweeps.trial import CellResult, digest

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
    run = store.start_run(spec)
    for cell in spec.cells():
        store.add_cell(cell, CellResult(1, 4, 1.0))
        if cell.learner:
            folder = store.home / "learners" / cell.learner.key
            folder.mkdir(exist_ok=True)
    store.set_state(run, "done")
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
    listed = store.runs().set_index("id")
    assert listed["state"].to_dict() == {run: UNKNOWN, other: "done"} and listed.loc[other, "done"] == 4
    with pytest.raises(StoreError, match=f"Run {run} has settings that this version does not know"):
        store.run(run)
    assert store.run(other).spec == SPEC
    monkeypatch.setenv("M2ST_HOME", str(store.home))
    assert main(["runs", "list"]) == 0 and "does not know" in capsys.readouterr().out
    assert main(["runs", "delete", run]) == 0 and store.runs()["id"].tolist() == [other]


@pytest.mark.parametrize("start", ["%", "_", "", "0%"])
def test_ids_have_no_wildcards(store, start):
    fill(store, QUICK)
    with pytest.raises(StoreError, match="There is no run"):
        store.delete_run(start)
    assert len(store.runs()) == 1


def test_a_deletion_can_be_undone_for_a_week(store, monkeypatch, capsys):
    run = fill(store, SPEC)
    monkeypatch.setenv("M2ST_HOME", str(store.home))
    assert main(["runs", "delete", run[:5]]) == 0 and f"runs restore {run}" in capsys.readouterr().out
    assert store.runs().empty and store.run(run) is None and store.collect() == (0, 0, 0)
    assert main(["runs", "restore", run[:5]]) == 0
    assert store.run(run).state == "done" and len(store.rows(SPEC)) == 4
    store.delete_run(run)
    execute(store, "UPDATE runs SET deleted = deleted - ?", UNDO_SECONDS)
    assert store.collect() == (1, 4, 2)
    assert store.rows(SPEC).empty and not list((store.home / "learners").iterdir())
    with pytest.raises(StoreError, match="no deleted run"):
        store.restore_run(run)


def test_garbage_is_what_no_run_needs(store):
    first, second = fill(store, SPEC), fill(store, SPEC.with_(repeats=1))
    store.delete_run(first)
    assert store.collect(0) == (1, 2, 1)  # the first repeat is the second run's, too
    assert len(store.rows(SPEC)) == 2
    for cell in QUICK.with_(seed=5).cells():  # of a run that was purged by force while it was computed
        store.add_cell(cell, CellResult(1, 4, 1.0))
    old = store.home / "learners" / "tmpabc"
    old.mkdir()
    os.utime(old, (1, 1))
    assert store.collect(orphans=True) == (0, 2, 1) and not old.exists()
    assert store.run(second).state == "done" and len(store.rows(SPEC)) == 2
    put_unknown(store, task="tomorrow")
    store.add_cell(next(iter(QUICK.with_(seed=5).cells())), CellResult(1, 4, 1.0))
    assert store.collect(orphans=True) == (0, 0, 0)  # it may be needed by the run that cannot be read


def test_a_run_that_is_deleted_while_it_is_computed_ends_with_a_sentence(store, monkeypatch, capsys):
    monkeypatch.setattr(sweep, "RENEW_SECONDS", 0.0)

    def delete(at):
        if at.computed and not store.runs().empty:
            Store(store.home).delete_run(QUICK.run_id)

    with pytest.raises(RunDeleted, match=f"Run {QUICK.run_id} was deleted elsewhere while it was computed"):
        compute(QUICK, store, progress=delete)
    assert store.runs().empty
    spec = store.home / "spec.toml"
    spec.write_text(QUICK.with_(seed=1).to_toml())
    monkeypatch.setenv("M2ST_HOME", str(store.home))
    monkeypatch.setattr(Store, "hold", lambda self, run, holder: False)
    assert main(["sweep", str(spec), "--executor", "inline"]) == 2
    assert "was deleted elsewhere" in capsys.readouterr().err


def test_others_see_that_a_run_is_computed_until_its_process_dies(store):
    run = fill(store, QUICK)
    assert not store.is_computed(run)
    seen = []
    compute(QUICK.with_(seed=1), store, progress=lambda at: seen.append(store.is_computed(QUICK.with_(seed=1).run_id)))
    assert all(seen) and seen and not store.is_computed(QUICK.with_(seed=1).run_id)
    store.hold(run, f"{HOST}:999999999:abc")  # a process that is gone
    assert not store.is_computed(run)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the system does not tell when a process started")
def test_a_process_with_the_number_of_a_dead_one_is_another(store):
    """A container that is started again has a server of the same number: what its predecessor had is free at once."""
    own = new_holder()
    before = own.replace(":" + own.rsplit(":", 1)[1].partition("-")[0] + "-", ":1-")
    run = fill(store, QUICK.with_(repeats=1))
    store.hold(run, own)
    assert store.is_computed(run) and before != own
    store.hold(run, before)
    assert not store.is_computed(run)
    keys = {cell.key for cell in QUICK.cells()}
    assert store.claim(keys, before) == store.claim(keys, own) == keys and not store.claim(keys, "another")


def test_a_clock_that_jumps_frees_a_lease_or_keeps_it_briefly():
    now, holder = time.time(), new_holder()
    assert is_held(holder, now + LEASE_SECONDS - 1)
    assert not is_held(holder, now - 1)
    assert not is_held(holder, now + 3600)  # written before the clock was set back by an hour
    assert is_held("elsewhere:1:abc", now + 5) and not is_held("", now + 5)


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
    assert not execute(store, "SELECT * FROM claims")


def test_work_that_a_dead_owner_claimed_is_done_by_another(store):
    store.claim([cell.key for cell in QUICK.cells()], f"{HOST}:999999999:abc")
    assert len(compute(QUICK, store)) == 2


def read_only(monkeypatch):
    monkeypatch.setattr(database, "is_writable", lambda path: False)


@pytest.mark.parametrize("schema", [2, 3])
def test_a_read_only_store_can_be_read(store, schema, monkeypatch, capsys):
    run = fill(store, QUICK)
    if schema == 2:
        make_schema_2(store)
    store.close()
    before = (store.home / "store.sqlite").read_bytes()
    read_only(monkeypatch)
    monkeypatch.setenv("M2ST_HOME", str(store.home))
    assert main(["runs", "list"]) == main(["runs", "show", run]) == 0
    assert "2/2 cells" in capsys.readouterr().out
    assert main(["runs", "delete", run]) == 2
    assert "can be read but not written" in capsys.readouterr().err
    assert (store.home / "store.sqlite").read_bytes() == before
    assert sorted(path.name for path in store.home.iterdir()) == ["learners", "store.sqlite"]


def make_schema_2(store):
    """The store as the previous version wrote it."""
    store.close()
    execute(store, "PRAGMA journal_mode = DELETE")
    for column in database.RUN_COLUMNS:
        execute(store, f"ALTER TABLE runs DROP COLUMN {column}")
    for table in ("claims", "usage"):
        execute(store, f"DROP TABLE {table}")
    execute(store, "PRAGMA user_version = 2")


def test_a_store_of_the_previous_version_is_brought_up_to_date(store):
    run = fill(store, QUICK)
    make_schema_2(store)
    updated = Store(store.home)
    assert updated.run(run).spec == QUICK and updated.run(run).owner == "" and len(updated.rows(QUICK)) == 2
    assert execute(store, "PRAGMA user_version") == [(SCHEMA,)]


def a_learner():
    return next(cell.learner for cell in SPEC.cells() if cell.learner)


def test_a_full_disk_leaves_no_part_of_a_learner(store, monkeypatch):
    def full(path, data):
        path.write_bytes(data[:3])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(results, "write_durably", full)
    with pytest.raises(StoreError, match="could not be stored in .*: No space left on device"):
        store.add_learner(a_learner(), ("{}", b"tensors"), 1.0)
    assert not list((store.home / "learners").iterdir())
    with pytest.raises(StoreError, match="No space left"):
        compute(SPEC, store)
    assert store.runs()["state"].item() == "failed" and not list((store.home / "learners").iterdir())


def test_a_learner_is_on_the_disk_before_its_folder_has_its_name(store, monkeypatch):
    synced, there, fsync = [], [], os.fsync
    folder = store.home / "learners" / a_learner().key

    def note(descriptor):
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}").rsplit("/", 1)[-1])
        there.append(folder.exists())
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note)
    store.add_learner(a_learner(), ("{}", b"tensors"), 1.0)
    assert synced == ["learner.safetensors", "learner.json", "learners"] and there == [False, False, True]


def test_runs_belong_to_who_started_them(store):
    ann, bob = store.seen_by("ann"), store.seen_by("bob")
    mine, theirs = ann.start_run(QUICK, "Ann's"), bob.start_run(QUICK, "Bob's")
    assert mine == own_id(QUICK.run_id, "ann") and len({mine, theirs, QUICK.run_id}) == 3
    assert ann.runs()["name"].tolist() == ["Ann's"] and bob.runs()["name"].tolist() == ["Bob's"]
    assert bob.run(mine) is None and not bob.owns(mine) and ann.owns(mine)
    assert ann.resolve(QUICK.run_id) == mine and bob.run(QUICK.run_id).name == "Bob's"  # a spec means one's own run
    for refused in (bob.rename_run, bob.share_run):
        with pytest.raises(StoreError, match="no run .* of yours"):
            refused(mine, "stolen")
    for refused in (bob.delete_run, bob.restore_run):
        with pytest.raises(StoreError, match="There is no"):
            refused(mine)
    assert store.run(mine).name == "Ann's"  # on the machine itself everything can be seen
    assert len(store.runs()) == 2 and store.seen_by("").runs().empty


def test_a_shared_run_can_be_read_until_sharing_ends(store):
    ann = store.seen_by("ann")
    run = ann.start_run(QUICK, "Ann's")
    token = ann.share_run(run)
    assert token == ann.share_run(run) and len(token) >= 32
    bob = store.seen_by("bob", (token,))
    assert bob.run(run).name == "Ann's" and bob.runs()["owner"].tolist() == ["ann"] and not bob.owns(run)
    with pytest.raises(StoreError, match="of yours"):
        bob.delete_run(run)
    assert store.seen_by("bob", ("", "guess")).run(run) is None
    ann.share_run(run, shared=False)
    assert bob.run(run) is None


def test_time_is_counted_by_person_and_day(store, monkeypatch):
    store.add_usage("ann", 20.0)
    store.add_usage("ann", 10.0)
    store.add_usage("bob", 40.0)
    assert store.used_today("ann") == 30.0 and store.usage() == [("bob", 40.0), ("ann", 30.0)]
    monkeypatch.setattr(database, "today", lambda: "2099-01-01")
    assert store.used_today("ann") == 0.0


def test_connections_are_used_again_but_never_for_a_store_that_was_moved_away(tmp_path, monkeypatch):
    opened, open_ = [], Store._open
    monkeypatch.setattr(Store, "_open", lambda self: opened.append(1) or open_(self))
    here, there = tmp_path / "here", tmp_path / "there"
    store = Store(here)
    store.seen_by("ann").start_run(SPEC)
    assert len(store.runs()) == 1 and len(opened) == 1
    with pytest.raises(StoreError), store._connect() as broken:
        raise sqlite3.ProgrammingError
    with pytest.raises(sqlite3.ProgrammingError):
        broken.execute("SELECT 1")  # what failed is closed
    here.rename(there)
    with pytest.raises(StoreError):
        store.runs()
    Store(here)
    assert store.runs().empty and len(Store(there).runs()) == 1


def test_threads_at_once_have_connections_of_their_own(store):
    def count():
        for _ in range(20):
            store.add_usage("ann", 1.0)

    threads = [threading.Thread(target=count) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert store.used_today("ann") == 120 and len(store._idle) <= database.MOST_IDLE
