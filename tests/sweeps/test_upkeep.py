"""Backup, restoration and readiness."""

import sqlite3
import zipfile
from contextlib import closing

import pytest

from m2st_core.__main__ import main
from m2st_core.commands import service
from m2st_core.commands.service import entry_point
from m2st_core.sweeps.cells import CellResult, train_learner
from m2st_core.sweeps.database import StoreError, restore_store
from m2st_core.sweeps.spec import SweepSpec
from m2st_core.sweeps.store import Store, new_holder

SPEC = SweepSpec(methods=("Meta-WiTS",), m_te=(10,), n_tasks=(2,), rows_per_task=8, repeats=1, tests=3)


@pytest.fixture
def store(tmp_path, monkeypatch):
    """A store with a run, a cell and a learner."""
    monkeypatch.setenv("M2ST_HOME", str(tmp_path / "home"))
    made = Store()
    made.runs.start(SPEC, "mine")
    (cell,) = SPEC.cells()
    made.cells.add([(cell, CellResult(2, 3, 0.1))])
    made.cells.add_learner(cell.learner, train_learner(cell.learner, "cpu"), 0.2)
    return made


def contents(store):
    return (
        store.cells.rows(SPEC).to_dict(),
        store.all_runs().to_dict(),
        store.cells.learner(next(SPEC.cells()).learner.key),
    )


def test_a_backup_restores_runs_cells_and_learners(store, tmp_path, monkeypatch, capsys):
    (tmp_path / "home" / "secret").write_text("by which visitors are known")
    assert main(["store", "backup", str(tmp_path / "b.zip")]) == 0
    assert "1 learners" in capsys.readouterr().out and (tmp_path / "b.zip").stat().st_mode & 0o077 == 0
    monkeypatch.setenv("M2ST_HOME", str(tmp_path / "new"))
    (tmp_path / "new" / "learners").mkdir(parents=True)  # as a mounted volume may have it
    assert main(["store", "restore", str(tmp_path / "b.zip")]) == 0
    assert contents(Store()) == contents(store)
    new = sorted(path for path in (tmp_path / "new").iterdir() if "-" not in path.name)
    assert [path.name for path in new] == ["learners", "secret", "store.sqlite"]
    assert new[1].read_text() == "by which visitors are known" and new[1].stat().st_mode & 0o077 == 0


def test_a_run_that_a_stopped_process_left_is_called_unfinished(store, capsys):
    run = SPEC.run_id
    assert main(["runs"]) == 0 and f"runs resume {run}" in (said := capsys.readouterr().out) and "unfinished" in said
    store.runs.beat(run, new_holder())
    assert main(["runs"]) == 0 and "running" in (said := capsys.readouterr().out) and "unfinished" not in said


def test_a_backup_is_consistent_while_somebody_writes(store, tmp_path):
    with closing(sqlite3.connect(store.home / "store.sqlite")) as db:
        db.execute("BEGIN IMMEDIATE")
        db.execute("UPDATE runs SET name = 'half'")
        store.database.back_up(tmp_path / "b.zip")
        db.rollback()
    assert Store(restore_store(tmp_path / "b.zip", tmp_path / "new")).all_runs()["name"].tolist() == ["mine"]


def test_a_store_is_never_overwritten(store, tmp_path, capsys):
    store.database.back_up(tmp_path / "b.zip")
    assert main(["store", "restore", str(tmp_path / "b.zip")]) == 2
    assert "There is a store in" in capsys.readouterr().err


@pytest.mark.parametrize("member", ["../evil", "learners/x/learner.json", "learners/../../evil", "/etc/evil"])
def test_a_foreign_member_is_refused(store, tmp_path, member):
    store.database.back_up(tmp_path / "b.zip")
    with zipfile.ZipFile(tmp_path / "b.zip", "a") as archive:
        archive.writestr(member, "x")
    with pytest.raises(StoreError, match="is not a backup of a store: it holds"):
        restore_store(tmp_path / "b.zip", tmp_path / "new")
    assert not list(tmp_path.glob("**/*evil"))


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 no", b"x" * 5000])
def test_a_file_that_is_no_backup_is_a_sentence(tmp_path, content, monkeypatch, capsys):
    monkeypatch.setenv("M2ST_HOME", str(tmp_path / "new"))
    (tmp_path / "b.zip").write_bytes(content)
    assert main(["store", "restore", str(tmp_path / "b.zip")]) == 2
    said = capsys.readouterr().err
    assert "is not a backup of a store, or it is damaged." in said and said.count("\n") == 1
    assert main(["store", "restore", str(tmp_path / "missing.zip")]) == 2


def test_a_damaged_database_is_refused(store, tmp_path):
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as archive:
        archive.writestr("store.sqlite", b"SQLite format 3\x00" + b"\xa5" * 5000)
    with pytest.raises(StoreError, match="damaged or another version"):
        restore_store(tmp_path / "b.zip", tmp_path / "new")
    assert not (tmp_path / "new" / "store.sqlite").exists()


def test_a_store_of_another_schema_is_refused_with_a_sentence(store, tmp_path, capsys):
    store.database.back_up(tmp_path / "b.zip")
    store.database.execute("PRAGMA user_version = 2")
    assert main(["runs"]) == 2 and "has schema 2, and this version reads 3" in capsys.readouterr().err


def test_ready_says_what_is_missing(store, monkeypatch, capsys):
    assert main(["ready"]) == 0 and capsys.readouterr().out == "ready\n"
    assert main(["ready", "127.0.0.1:9"]) == 2 and "must begin with http" in capsys.readouterr().err
    assert main(["ready", "http://127.0.0.1:9"]) == 2
    assert "The dashboard does not answer at http://127.0.0.1:9/_stcore/health" in capsys.readouterr().err
    monkeypatch.setattr(service, "LEAST_DISK", 2**70)
    assert main(["ready"]) == 2 and "MB free" in capsys.readouterr().err
    with closing(sqlite3.connect(store.home / "store.sqlite")) as db:
        db.execute("BEGIN EXCLUSIVE")
        monkeypatch.setattr("m2st_core.sweeps.database.PATIENCE", 0.1)
        assert main(["ready"]) == 2 and "cannot be written" in capsys.readouterr().err


def test_the_dashboard_is_found_in_the_repository_and_where_it_is_installed(tmp_path):
    assert entry_point().name == "app.py"
    (tmp_path / "m2st_app" / "pages").mkdir(parents=True)
    (tmp_path / "m2st_app" / "serve.py").touch()
    assert entry_point(served=True, package=tmp_path / "m2st_core") == tmp_path / "m2st_app" / "serve.py"
    with pytest.raises(ValueError, match="The dashboard's app.py is not next to"):
        entry_point(package=tmp_path / "m2st_core")
