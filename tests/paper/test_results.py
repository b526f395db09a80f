"""Results that come with the software: how they are written and read, and that those in the repository hold."""

import json
from dataclasses import replace

import pandas as pd
import pytest

from benchmarks.reproduction import PAGE, fill_page, section
from m2st_core.paper import results as module
from m2st_core.paper.experiments import OURS, PAPER, SHIPPED_LAYERS
from m2st_core.paper.published import FOLDER, UNEXPLAINED, compare_with_published, read_published_explanations
from m2st_core.paper.results import (
    commit_results,
    read_provenance,
    results_file,
    results_of,
    take_over_results,
)
from m2st_core.sweeps.cells import CODE, CellResult, run_cell
from m2st_core.sweeps.store import Store
from m2st_core.sweeps.summary import summarise, summary_text
from m2st_core.testing.methods import METHODS

TABLE_3 = PAPER["table3"]


def committed_results(experiment, layer, folder=None):
    return results_of(experiment, folder)[0].get(layer)


def problems_of(experiment, folder):
    return " ".join(results_of(experiment, folder)[1])


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "reproduction"


def fill(store, experiment, layer="paper", repeats=20, leave_out=()):
    """Pretend that these repeats were computed: repeat + m_te % 7 rejections."""
    store.runs.start(experiment.spec("full", layer))
    for cell in experiment.spec("full", layer).cells():
        if cell.repeat < repeats and (cell.method, cell.repeat) not in leave_out:
            store.cells.add([(cell, CellResult(cell.repeat + cell.m_te % 7, cell.tests, 1.5))])


def test_what_is_read_is_what_the_store_has(store, folder):
    fill(store, TABLE_3)
    assert commit_results(TABLE_3, "paper", store, folder) == "table3"
    found, rows = committed_results(TABLE_3, "paper", folder), store.cells.rows(TABLE_3.full)
    pd.testing.assert_frame_equal(found.rows.drop(columns="seconds"), rows.drop(columns="seconds"))
    assert summary_text(summarise(found.rows)) == summary_text(summarise(rows))
    assert found.origin.startswith("20 repeats × 100 test samples, 20")
    lines = (folder / "table3.csv").read_text().splitlines()
    assert lines[0] == "method,closeness,n_tasks,m_tr,m_te,repeat,rejections"
    assert lines[1] == "Meta-MKL,0.3,100,10,200,0,4" and "Meta-MKL-A,0.3,100,,200,0,4" in lines
    entry = json.loads((folder / "about.json").read_text())["table3"]
    assert (entry["spec"], entry["code"]) == (TABLE_3.full.hash, CODE)


def test_unfinished_runs_say_how_far_they_are(store, folder):
    fill(store, TABLE_3, repeats=12, leave_out={("AGT-KL", 11)})
    commit_results(TABLE_3, "paper", store, folder)
    assert "11 to 12 of 20 repeats" in committed_results(TABLE_3, "paper", folder).origin
    fill(store, TABLE_3, repeats=12)
    assert commit_results(TABLE_3, "paper", store, folder) == "table3"
    assert "12 of 20 repeats" in committed_results(TABLE_3, "paper", folder).origin


def test_a_method_that_has_no_row_yet_makes_a_run_unfinished(store, folder):
    fill(store, TABLE_3, leave_out={("AGT-KL", repeat) for repeat in range(20)})
    commit_results(TABLE_3, "paper", store, folder)
    assert "20 repeats × 100 test samples at 6 of 7 points" in committed_results(TABLE_3, "paper", folder).origin


def test_fewer_rows_do_not_replace_more(store, folder, tmp_path):
    fill(store, TABLE_3, repeats=3)
    commit_results(TABLE_3, "paper", store, folder)
    other = Store(tmp_path / "other")
    assert commit_results(TABLE_3, "paper", other, folder) == ""
    fill(other, TABLE_3, repeats=2)
    assert commit_results(TABLE_3, "paper", other, folder) == ""
    assert committed_results(TABLE_3, "paper", folder).rows["repeat"].nunique() == 3


def test_an_experiment_that_nobody_ran_has_no_file(store, folder):
    fill(store, PAPER["fig2a"], repeats=1)
    assert commit_results(PAPER["fig3c"], "paper", store, folder) == ""  # its cells are all there
    store.runs.start(PAPER["fig3c"].full)
    assert commit_results(PAPER["fig3c"], "paper", store, folder) == "fig3c"
    assert len(committed_results(PAPER["fig3c"], "paper", folder).rows) == 4 * 7


def test_experiments_with_the_same_sweep_share_a_file(store, folder):
    fill(store, PAPER["table5"], "ours", repeats=1)
    assert commit_results(PAPER["table5"], "ours", store, folder) == "table5_ours"
    assert commit_results(PAPER["table6"], "ours", store, folder) == ""
    rows = committed_results(PAPER["table6"], "ours", folder).rows
    assert len(rows) == 4 * 6 * 7 and (folder / "table5_ours.csv").is_file()
    assert not (folder / "table6_ours.csv").exists()


def test_without_files_there_is_nothing(folder):
    assert committed_results(TABLE_3, "paper", folder) is None and read_provenance(folder) == {}


def test_rows_of_an_older_version_or_another_sweep_are_refused(store, folder, monkeypatch):
    fill(store, TABLE_3, repeats=1)
    commit_results(TABLE_3, "paper", store, folder)
    other = replace(TABLE_3, full=TABLE_3.full.with_(tests=50))
    assert "other settings" in problems_of(other, folder) and committed_results(other, "paper", folder) is None
    monkeypatch.setattr("m2st_core.sweeps.cells.CODE", "next")
    monkeypatch.setattr(module, "CODE", "next")
    assert "older version" in problems_of(TABLE_3, folder) and committed_results(TABLE_3, "paper", folder) is None
    fill(store, TABLE_3, repeats=1)  # computed by the next version
    assert commit_results(TABLE_3, "paper", store, folder) == "table3"
    assert len(committed_results(TABLE_3, "paper", folder).rows) == 7


def revise(monkeypatch, *names):
    """Pretend that the algorithms of these methods changed."""
    for name in names:
        monkeypatch.setitem(METHODS, name, replace(METHODS[name], revision=METHODS[name].revision + 1))


def test_rows_of_a_revised_method_are_not_shown(store, folder, monkeypatch):
    fill(store, TABLE_3, "ours", repeats=1)
    commit_results(TABLE_3, "ours", store, folder)
    assert read_provenance(folder)["table3_ours"]["revisions"] == {name: METHODS[name].revision for name in OURS}
    revise(monkeypatch, "Meta-FUSE")
    found = committed_results(TABLE_3, "ours", folder)
    assert set(found.rows["method"]) == {*OURS} - {"Meta-FUSE"}
    assert problems_of(TABLE_3, folder) == "Not shown: Meta-FUSE, which changed after table3_ours.csv was computed."
    revise(monkeypatch, *OURS)
    assert "Feature-MKL, Meta-WiTS, Meta-Witness and Meta-FUSE, which changed" in problems_of(TABLE_3, folder)
    assert committed_results(TABLE_3, "ours", folder) is None


def test_rows_without_a_recorded_revision_have_revision_0(store, folder):
    for layer in SHIPPED_LAYERS:
        fill(store, TABLE_3, layer, repeats=1)
        commit_results(TABLE_3, layer, store, folder)
    about = read_provenance(folder)
    for entry in about.values():
        del entry["revisions"]
    (folder / "about.json").write_text(json.dumps(about))
    assert len(committed_results(TABLE_3, "paper", folder).rows) == 7
    assert "which changed after" in problems_of(TABLE_3, folder) and committed_results(TABLE_3, "ours", folder) is None


def test_new_rows_replace_outdated_ones_however_few(store, folder, tmp_path, monkeypatch):
    fill(store, TABLE_3, "ours", repeats=3)
    commit_results(TABLE_3, "ours", store, folder)
    revise(monkeypatch, *OURS)
    other = Store(tmp_path / "other")
    fill(other, TABLE_3, "ours", repeats=1)
    assert commit_results(TABLE_3, "ours", other, folder) == "table3_ours"
    assert len(committed_results(TABLE_3, "ours", folder).rows) == 4


def test_experiments_share_cells(store, folder):
    """Figure 3c and a part of Table 5 are in the grid of Figure 2a."""
    fill(store, PAPER["fig2a"], repeats=2)
    commit_results(PAPER["fig2a"], "paper", store, folder)
    shared = committed_results(PAPER["fig3c"], "paper", folder)
    assert len(shared.rows) == 2 * 4 * 7 and shared.origin.startswith("2 of 20 repeats × 100")
    part = committed_results(PAPER["table5"], "paper", folder)
    assert set(part.rows["n_tasks"]) == {100} and "at 7 of 42 points" in part.origin
    assert committed_results(PAPER["fig2b"], "paper", folder) is None  # it shares nothing but the limit


def test_a_store_takes_over_what_comes_with_the_software(store, folder, tmp_path):
    fill(store, PAPER["fig2a"])
    commit_results(PAPER["fig2a"], "paper", store, folder)
    spec, other = PAPER["table5"].full, Store(tmp_path / "other")
    assert take_over_results(other, spec, folder) == 140
    assert len(other.cells.rows(spec)) == 140 and other.cells.rows(spec)["rejections"].equals(
        store.cells.rows(spec)["rejections"]
    )
    assert take_over_results(other, PAPER["table5"].spec("full", "released"), folder) == 0
    assert take_over_results(other, spec.with_(rule="b/B, ≥"), folder) == 140  # rejects alike with 199 permutations
    assert take_over_results(other, spec.with_(rule="b/B, >"), folder) == 0
    assert take_over_results(other, PAPER["table5"].quick, folder) == 0


def test_a_cell_computed_here_stays(store, folder, tmp_path):
    fill(store, TABLE_3, repeats=1)
    commit_results(TABLE_3, "paper", store, folder)
    other, (first, *_) = Store(tmp_path / "other"), TABLE_3.full.cells()
    other.cells.add([(first, CellResult(99, 100, 1.0))])
    assert take_over_results(other, TABLE_3.full, folder) == 7
    assert other.cells.results([first.key])[first.key].rejections == 99
    other.cells.drop_shipped(cell.key for cell in TABLE_3.full.cells())
    assert other.cells.rows(TABLE_3.full)["rejections"].tolist() == [99]


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
    commit_results(TABLE_3, "paper", store, folder)
    with (folder / "table3.csv").open("a") as file:
        file.write(f"{line}\n")
    with pytest.raises(ValueError, match=message):
        committed_results(TABLE_3, "paper", folder)


def test_the_repository_lists_every_file():
    others = {"explanations", "nested"}
    assert {path.stem for path in FOLDER.glob("*.csv")} - others == set(read_provenance(FOLDER))


def test_the_rows_in_the_repository_belong_to_this_version_and_its_sweeps():
    """Rows of our methods may be outdated. Then they are not shown, and a sentence says so."""
    layers = {results_file(e.name, layer): (e, layer) for e in PAPER.values() if e.full for layer in SHIPPED_LAYERS}
    for name, entry in read_provenance(FOLDER).items():
        experiment, layer = layers[name]
        spec = experiment.spec("full", layer)
        assert (entry["spec"], entry["code"]) == (spec.hash, CODE)
        results, problems = results_of(experiment)
        assert layer in results or (layer == "ours" and any(f"{name}.csv" in problem for problem in problems))


@pytest.mark.parametrize("method", ["ME", "MMD-O"])
def test_a_cell_in_the_repository_can_be_computed_again(method):
    found = committed_results(PAPER["fig2a"], "paper")
    assert found is not None, "fig2a.csv is missing"
    (cell,) = [c for c in found.spec.cells() if (c.method, c.m_te, c.repeat) == (method, min(found.spec.m_te), 0)]
    kept = found.rows.query(f"method == {method!r} and m_te == {cell.m_te} and repeat == 0")["rejections"]
    assert run_cell(cell, None, "cpu").rejections == kept.item()


def test_every_cell_that_is_far_off_has_a_sentence():
    unexplained = []
    for experiment in PAPER.values():
        found = committed_results(experiment, "paper") if experiment.full else None
        if found is not None:
            table = compare_with_published(experiment.name, found.rows)
            unexplained += [
                f"{experiment.name}: {r.method}, N={r.n_tasks}, m_te={r.m_te}: {r.difference:+.1f} SE"
                for r in table[table["why"] == UNEXPLAINED].itertuples()
            ]
    assert unexplained == []


def test_every_sentence_belongs_to_an_experiment():
    for row in read_published_explanations().itertuples():
        assert row.method in PAPER[row.experiment].full.methods and row.sentence.endswith(".")


def test_the_page_has_the_numbers_of_the_files():
    page = PAGE.read_text(encoding="utf-8")
    assert fill_page(page) == page
    assert "<!-- begin verdict -->" in page and "<!-- begin nested -->" in page
    for name, experiment in PAPER.items():
        assert (f"<!-- begin {name} -->" in page) == (experiment.kind != "images"), name


def test_the_misprint_is_said_and_not_compared():
    """0.497 ± 0.038 against the printed 0.426 would look like agreement."""
    table = compare_with_published("table6", committed_results(PAPER["table6"], "paper").rows)
    (one,) = [row for row in table.itertuples() if (row.n_tasks, row.m_te) == (120, 150)]
    assert one.published == 0.426 and pd.isna(one.difference) and "misprint" in one.why
    assert "0.497 ± 0.038<br>published 0.426 ± 0.023<br>not compared" in section(PAPER["table6"])
    assert "N = 120, m_te = 150: Not compared: a misprint" in section(PAPER["table6"])
