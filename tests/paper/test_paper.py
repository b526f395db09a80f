"""The paper's experiments in two layers, and the command that runs them."""

from dataclasses import replace

import pytest

from m2st_core.__main__ import main
from m2st_core.paper import committed
from m2st_core.paper.experiments import OURS, PAPER
from m2st_core.sweeps.spec import LIMIT
from m2st_core.sweeps.store import Store
from m2st_core.sweeps.trial import CellResult
from m2st_core.testing.methods import METHODS

SWEEPS = [name for name, experiment in PAPER.items() if experiment.full is not None]
GRID = ("task", "settings", "null", "closeness", "n_tasks", "rows_per_task", "m_tr", "m_te", "repeats", "tests",
        "alpha", "n_permutations", "seed")  # fmt: skip


@pytest.mark.parametrize("name", SWEEPS)
@pytest.mark.parametrize("scale", ["quick", "full"])
def test_ours_is_a_layer_on_the_same_samples(name, scale):
    theirs, ours = PAPER[name].spec(scale), PAPER[name].spec(scale, "ours")
    assert (theirs.preset, ours.preset) == ("paper", "recommended")
    assert all(getattr(theirs, field) == getattr(ours, field) for field in GRID)
    assert {METHODS[method].origin for method in theirs.methods if method != LIMIT} <= {"paper", "no history"}
    assert {METHODS[method].origin for method in ours.methods} == {"ours"}


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
    ("options", "layer", "preset"),
    [
        ([], "the paper's algorithms", "paper"),
        (["--ours"], "ours", "recommended"),
        (["--preset", "released"], "the paper's algorithms", "released"),
    ],
)
def test_the_first_line_names_experiment_scale_layer_and_preset(small, capsys, options, layer, preset):
    assert main(["paper", "table3", "--scale", "full", "--executor", "inline", *options]) == 0
    first, *_ = capsys.readouterr().out.splitlines()
    assert first == f"{PAPER['table3'].title}, full scale: {layer}, preset {preset}"
    spec = PAPER["table3"].spec("full", "ours" if options == ["--ours"] else "paper").with_(preset=preset)
    rows = Store().cells.rows(spec)
    assert len(rows) == len(list(spec.cells())) and set(rows["preset"]) == {preset}


def test_cells_that_come_with_the_software_are_not_computed_again(small, capsys, tmp_path, monkeypatch):
    """Half of the cells come with the software, with a result that no computation gives."""
    monkeypatch.setattr(committed, "FOLDER", tmp_path / "reproduction")
    other, spec = Store(tmp_path / "other"), PAPER["table3"].full
    other.runs.start(spec)
    for cell in spec.cells():
        if cell.repeat == 0:
            other.cells.add([(cell, CellResult(4, 4, 1.0))])
    committed.commit(PAPER["table3"], "paper", other)
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
    assert main(["paper", "table3", "--preset", "papers"]) == 2 and "Did you mean 'paper'" in capsys.readouterr().err
    assert main(["paper", "gamma", "--ours"]) == 2 and "one layer" in capsys.readouterr().err
