"""Results that come with the software: how they are written and read, and that those in the repository hold."""

import json
from dataclasses import replace

import pandas as pd
import pytest

from benchmarks.reproduction import fill_page
from m2st_core.paper import committed as module
from m2st_core.paper.committed import Outdated, commit, committed, file_name, read_about
from m2st_core.paper.experiments import LAYERS, PAPER
from m2st_core.paper.published import FOLDER, UNEXPLAINED, compare, explanations
from m2st_core.sweeps.store import Store
from m2st_core.sweeps.summary import as_text, summarise
from m2st_core.sweeps.trial import CODE, CellResult, run_cell

TABLE_3 = PAPER["table3"]


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "reproduction"


def fill(store, experiment, layer="paper", repeats=20, leave_out=()):
    """Pretend that these repeats were computed: repeat + m_te % 7 rejections."""
    store.start_run(experiment.spec("full", layer))
    for cell in experiment.spec("full", layer).cells():
        if cell.repeat < repeats and (cell.method, cell.repeat) not in leave_out:
            store.add_cell(cell, CellResult(cell.repeat + cell.m_te % 7, cell.tests, 1.5))


def test_what_is_read_is_what_the_store_has(store, folder):
    fill(store, TABLE_3)
    assert commit(TABLE_3, "paper", store, folder) == "table3"
    found, rows = committed(TABLE_3, "paper", folder), store.rows(TABLE_3.full)
    pd.testing.assert_frame_equal(found.rows.drop(columns="seconds"), rows.drop(columns="seconds"))
    assert as_text(summarise(found.rows)) == as_text(summarise(rows))
    assert found.origin.startswith("preset `paper`, 20 repeats × 100 test samples, 20")
    lines = (folder / "table3.csv").read_text().splitlines()
    assert lines[0] == "method,closeness,n_tasks,m_tr,m_te,repeat,rejections"
    assert lines[1] == "Meta-MKL,0.3,100,10,200,0,4" and "Meta-MKL-A,0.3,100,,200,0,4" in lines
    entry = json.loads((folder / "about.json").read_text())["table3"]
    assert (entry["spec"], entry["code"], entry["preset"]) == (TABLE_3.full.hash, CODE, "paper")


def test_unfinished_runs_say_how_far_they_are(store, folder):
    fill(store, TABLE_3, repeats=12, leave_out={("AGT-KL", 11)})
    commit(TABLE_3, "paper", store, folder)
    assert "11 to 12 of 20 repeats" in committed(TABLE_3, "paper", folder).origin
    fill(store, TABLE_3, repeats=12)
    assert commit(TABLE_3, "paper", store, folder) == "table3"
    assert "12 of 20 repeats" in committed(TABLE_3, "paper", folder).origin


def test_a_method_that_has_no_row_yet_makes_a_run_unfinished(store, folder):
    fill(store, TABLE_3, leave_out={("AGT-KL", repeat) for repeat in range(20)})
    commit(TABLE_3, "paper", store, folder)
    assert "0 to 20 of 20 repeats" in committed(TABLE_3, "paper", folder).origin


def test_fewer_rows_do_not_replace_more(store, folder, tmp_path):
    fill(store, TABLE_3, repeats=3)
    commit(TABLE_3, "paper", store, folder)
    other = Store(tmp_path / "other")
    assert commit(TABLE_3, "paper", other, folder) == ""
    fill(other, TABLE_3, repeats=2)
    assert commit(TABLE_3, "paper", other, folder) == ""
    assert committed(TABLE_3, "paper", folder).rows["repeat"].nunique() == 3


def test_an_experiment_that_nobody_ran_has_no_file(store, folder):
    fill(store, PAPER["fig2a"], repeats=1)
    assert commit(PAPER["fig3c"], "paper", store, folder) == ""  # its cells are all there
    store.start_run(PAPER["fig3c"].full)
    assert commit(PAPER["fig3c"], "paper", store, folder) == "fig3c"
    assert len(committed(PAPER["fig3c"], "paper", folder).rows) == 4 * 7


def test_experiments_with_the_same_sweep_share_a_file(store, folder):
    fill(store, PAPER["table5"], "ours", repeats=1)
    assert commit(PAPER["table5"], "ours", store, folder) == "table5_ours"
    assert commit(PAPER["table6"], "ours", store, folder) == ""
    rows = committed(PAPER["table6"], "ours", folder).rows
    assert len(rows) == 4 * 6 * 7 and (folder / "table5_ours.csv").is_file()
    assert not (folder / "table6_ours.csv").exists()


def test_without_files_there_is_nothing(folder):
    assert committed(TABLE_3, "paper", folder) is None and read_about(folder) == {}


def test_rows_of_an_older_version_or_another_sweep_are_refused(store, folder, monkeypatch):
    fill(store, TABLE_3, repeats=1)
    commit(TABLE_3, "paper", store, folder)
    other = replace(TABLE_3, full=TABLE_3.full.with_(tests=50))
    with pytest.raises(Outdated, match="other settings"):
        committed(other, "paper", folder)
    monkeypatch.setattr("m2st_core.sweeps.trial.CODE", "next")
    monkeypatch.setattr(module, "CODE", "next")
    with pytest.raises(Outdated, match="older version"):
        committed(TABLE_3, "paper", folder)
    fill(store, TABLE_3, repeats=1)  # computed by the next version
    assert commit(TABLE_3, "paper", store, folder) == "table3"
    assert len(committed(TABLE_3, "paper", folder).rows) == 7


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("Meta-MKL,0.3,100,10,200,0,4", "twice"),
        ("Meta-MKL,0.3,100,10,201,0,4", "its sweep lacks"),
        ("Meta-MKL,0.3,100,10,200,20,4", "its sweep lacks"),
        ("Feature-MKL,0.3,100,10,200,0,4", "its sweep lacks"),
        ("Meta-MKL,0.3,100,10,200,1,101", "101 rejections of 100"),
    ],
)
def test_lines_that_are_no_cells_are_errors(store, folder, line, message):
    fill(store, TABLE_3, repeats=1)
    commit(TABLE_3, "paper", store, folder)
    with (folder / "table3.csv").open("a") as file:
        file.write(f"{line}\n")
    with pytest.raises(ValueError, match=message):
        committed(TABLE_3, "paper", folder)


def test_the_repository_lists_every_file():
    assert sorted(path.stem for path in FOLDER.glob("*.csv") if path.stem != "explanations") == sorted(read_about())


def test_the_rows_in_the_repository_belong_to_this_version_and_its_sweeps():
    layers = {file_name(e.name, layer): (e, layer) for e in PAPER.values() if e.full for layer in LAYERS}
    for name, entry in read_about().items():
        experiment, layer = layers[name]
        found = committed(experiment, layer)  # refuses cells that its sweep lacks, and cells that come twice
        assert entry["spec"] == found.spec.hash and entry["code"] == CODE and entry["preset"] == found.spec.preset
        assert len(found.rows) > 0


@pytest.mark.parametrize("method", ["ME", "MMD-O"])
def test_a_cell_in_the_repository_can_be_computed_again(method):
    found = committed(PAPER["fig2a"], "paper")
    assert found is not None, "docs/reproduction/fig2a.csv is missing"
    (cell,) = [c for c in found.spec.cells() if (c.method, c.m_te, c.repeat) == (method, min(found.spec.m_te), 0)]
    kept = found.rows.query(f"method == {method!r} and m_te == {cell.m_te} and repeat == 0")["rejections"]
    assert run_cell(cell, None, "cpu").rejections == kept.item()


def test_every_cell_that_is_far_off_has_a_sentence():
    unexplained = []
    for experiment in PAPER.values():
        found = committed(experiment, "paper") if experiment.full else None
        if found is not None:
            table = compare(experiment.name, found.rows)
            unexplained += [
                f"{experiment.name}: {r.method}, N={r.n_tasks}, m_te={r.m_te}: {r.difference:+.1f} SE"
                for r in table[table["why"] == UNEXPLAINED].itertuples()
            ]
    assert unexplained == []


def test_every_sentence_belongs_to_an_experiment():
    for row in explanations().itertuples():
        assert row.method in PAPER[row.experiment].full.methods and row.sentence.endswith(".")


def test_the_page_has_the_numbers_of_the_files():
    page = (FOLDER.parent / "reproduction.md").read_text(encoding="utf-8")
    assert fill_page(page) == page
    for name, experiment in PAPER.items():
        assert (f"<!-- begin {name} -->" in page) == (experiment.kind != "images"), name
