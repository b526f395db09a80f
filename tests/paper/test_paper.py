"""The paper's experiments in two layers, and the command that runs them."""

from dataclasses import replace
from typing import get_args

import pytest
import torch

from m2st_core.__main__ import main
from m2st_core.paper import results
from m2st_core.paper.experiments import OURS, PAPER
from m2st_core.permutation.labellings import permutation_p_value
from m2st_core.sweeps.cells import CellResult
from m2st_core.sweeps.spec import LIMIT
from m2st_core.sweeps.store import Store
from m2st_core.testing.methods import METHODS
from m2st_core.types import EXACT, PValueRule

SWEEPS = [name for name, experiment in PAPER.items() if experiment.full is not None]
GRID = ("task", "settings", "null", "closeness", "n_tasks", "rows_per_task", "m_tr", "m_te", "repeats", "tests",
        "alpha", "n_permutations", "seed")  # fmt: skip


@pytest.mark.parametrize("name", SWEEPS)
@pytest.mark.parametrize("scale", ["quick", "full"])
def test_ours_is_a_layer_on_the_same_samples(name, scale):
    theirs, ours = PAPER[name].spec(scale), PAPER[name].spec(scale, "ours")
    assert all(getattr(theirs, field) == getattr(ours, field) for field in GRID)
    assert {METHODS[method].origin for method in theirs.methods if method != LIMIT} <= {"paper", "general"}
    assert {METHODS[method].origin for method in ours.methods} == {"ours"}


@pytest.mark.parametrize(("layer", "line"), [("released", "Meta-MKL · code"), ("tuned", "Meta-MKL · tuned")])
def test_the_papers_algorithms_have_the_settings_that_are_asked_for(layer, line):
    theirs, other = PAPER["fig2a"].spec("quick"), PAPER["fig2a"].spec("quick", layer)
    assert other.methods[0] == line and other.methods[-1] == LIMIT and len(other.methods) == len(theirs.methods)
    assert ("MMD-D" in other.methods) == (layer == "released")  # its settings in the code are those of the text


@pytest.mark.parametrize("scale", ["quick", "full"])
def test_the_published_p_value_rejects_the_same_samples_as_the_exact_one(scale):
    """For every number of labellings that reach the observed statistic, at the B and α of all experiments."""
    specs = [PAPER[name].spec(scale) for name in SWEEPS]
    assert {spec.rule for spec in specs} == {EXACT}
    for count, alpha in {(spec.n_permutations, spec.alpha) for spec in specs}:
        reached = torch.tril(torch.ones(count + 1, count), -1)  # 0, 1, …, B of them
        statistics = torch.cat([torch.full((count + 1, 1), 0.5), reached], dim=1)
        rejected = [
            permutation_p_value(statistics, torch.zeros(count + 1), rule) <= alpha for rule in get_args(PValueRule)
        ]
        assert torch.equal(rejected[0], rejected[1]) and torch.equal(rejected[0], rejected[2])


def test_ours_splits_only_where_the_paper_does():
    assert PAPER["table3"].spec("full", "ours").methods == OURS
    assert PAPER["table3-all"].spec("full", "ours").methods == ("Meta-Witness", "Meta-FUSE")
    assert not any(METHODS[method].needs_split for method in PAPER["table3-all"].full.methods)


@pytest.fixture
def small(monkeypatch, tmp_path):
    """Table 3 with little to compute, and an empty store."""
    monkeypatch.setenv("M2ST_HOME", str(tmp_path))
    full = PAPER["table3"].full.with_(
        methods=("MMD-M", LIMIT), n_tasks=(4,), rows_per_task=8, m_te=(10,), repeats=2, tests=4, n_permutations=19
    )
    monkeypatch.setitem(PAPER, "table3", replace(PAPER["table3"], full=full))
    return full


@pytest.mark.parametrize(
    ("options", "layer", "words", "rule"),
    [
        ([], "paper", "the paper's algorithms", EXACT),
        (["--ours"], "ours", "ours", EXACT),
        (["--preset", "released"], "released", "the paper's algorithms, as in its code", EXACT),
        (["--p-value", "published"], "paper", "the paper's algorithms, p = b/B, ≥", "b/B, ≥"),
    ],
)
def test_the_first_line_names_experiment_scale_layer_and_p_value(small, capsys, options, layer, words, rule):
    assert main(["paper", "table3", "--scale", "full", "--executor", "inline", *options]) == 0
    first, *_ = capsys.readouterr().out.splitlines()
    assert first == f"{PAPER['table3'].title}, full scale: {words}"
    spec = PAPER["table3"].spec("full", layer).with_(rule=rule)
    rows = Store().cells.rows(spec)
    assert len(rows) == len(list(spec.cells())) and set(rows["method"]) == set(spec.methods)


def test_cells_that_come_with_the_software_are_not_computed_again(small, capsys, tmp_path, monkeypatch):
    """Half of the cells come with the software, with a result that no computation gives."""
    monkeypatch.setattr(results, "FOLDER", tmp_path / "reproduction")
    other, spec = Store(tmp_path / "other"), PAPER["table3"].full
    other.runs.start(spec)
    for cell in spec.cells():
        if cell.repeat == 0:
            other.cells.add([(cell, CellResult(4, 4, 1.0))])
    results.commit_results(PAPER["table3"], "paper", other)
    command = ["paper", "table3", "--scale", "full", "--executor", "inline"]
    assert main(command) == 0
    assert capsys.readouterr().out.splitlines()[1] == "2 of 4 cells come with this software."
    assert Store().cells.rows(spec).query("repeat == 0")["rejections"].tolist() == [4, 4]
    computed = Store().cells.rows(spec).query("repeat == 1")
    assert main([*command, "--fresh"]) == 0
    assert "come with this software" not in capsys.readouterr().out
    rows = Store().cells.rows(spec)
    assert len(rows) == 4 and rows.query("repeat == 0")["rejections"].tolist() != [4, 4]
    assert rows.query("repeat == 1")["seconds"].equals(computed["seconds"])  # what was computed here is kept


def test_a_layer_has_one_preset_at_a_time(small, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["paper", "table3", "--ours", "--preset", "paper"])
    assert stopped.value.code == 2 and "not allowed with" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["paper", "table3", "--preset", "papers"])
    assert "'paper', 'released', 'tuned'" in capsys.readouterr().err.replace("paper,", "'paper',")
    assert main(["paper", "gamma", "--ours"]) == 2 and "a measurement of its own" in capsys.readouterr().err
