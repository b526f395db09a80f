import io
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing

import numpy as np
import pytest

from m2st_core.__main__ import main
from m2st_core.sweeps.spec import SweepSpec
from m2st_core.sweeps.store import Store
from m2st_core.testing.method import ORIGINS
from m2st_core.testing.methods import METHODS
from tests import practitioner


@pytest.fixture
def files(tmp_path):
    generator = np.random.default_rng(0)
    paths = []
    for name, shift in (("P.csv", 0), ("Q.csv", 2)):
        path = tmp_path / name
        np.savetxt(path, generator.standard_normal((30, 2)) + shift, delimiter=",", header="a,b", comments="")
        paths.append(str(path))
    return paths


def test_people_get_words(files, capsys):
    assert main(["test", *files, "--method", "MMD-M", "--seed", "3"]) == 0
    out = capsys.readouterr().out
    floor = "p ≤ 0.001, the smallest that 999 permutations can give"
    assert f"Evidence of a difference at α=0.05: MMD-M gives {floor}, on 30 and 30 test rows." in out
    assert "999 permutations" in out and "seed 3" in out


def test_programs_get_one_json_object(files, capsys):
    assert main(["test", *files, "--method", "ME", "--alpha", "0.1", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["method"] == "ME" and result["rejected"] is True and result["alpha"] == 0.1
    assert result["n_train"] == [15, 15] and result["n_test"] == [15, 15]


def test_not_rejecting_is_no_failure(files, tmp_path, capsys):
    other = tmp_path / "R.csv"
    rows = np.random.default_rng(5).standard_normal((30, 2))
    np.savetxt(other, rows, delimiter=",", header="a,b", comments="")
    assert main(["test", files[0], str(other), "--method", "MMD-M"]) == 0
    assert "No evidence of a difference" in capsys.readouterr().out


def test_the_same_file_twice_is_refused(files, capsys):
    assert main(["test", files[0], files[0], "--method", "MMD-M"]) == 2
    assert "same" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--method", "MMD-X"], "Did you mean"),
        (["--method", "Feature-MKL"], "related tasks"),
        (["--alpha", "2"], "alpha must be"),
        (["--seed", "-1"], "seed must be"),
        (["--preset", "tuned"], "Name one, such as --method Meta-MKL"),
        (["--method", "mmd-o", "--preset", "papers"], "MMD-O has no preset 'papers'. It has: 'paper', 'tuned'"),
        (["--device", "tpu"], "device"),
    ],
)
def test_bad_settings_give_one_line_and_code_2(files, capsys, change, message):
    assert main(["test", *files, *change]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and message in captured.err and captured.err.count("\n") == 1


@pytest.mark.parametrize(("old", "new"), [("--meta", "--related"), ("--meta-group-column", "--related-group-column")])
def test_old_names_of_options_are_refused_with_the_new_one(files, capsys, old, new):
    for option in ([old, "RELATED.csv"], [f"{old}=RELATED.csv"]):
        assert main(["test", *files, *option]) == 2
        assert capsys.readouterr().err == f"m2st_core: {old} is now called {new}.\n"


def test_a_terminal_without_greek_letters_shows_question_marks(files, monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    assert main(["test", *files, "--method", "MMD-M"]) == 0
    assert b"Evidence of a difference at ?=0.05" in written.getvalue()


def test_a_reader_that_leaves_early_does_no_harm(files):
    """As ``head`` does."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "m2st_core", "test", *files, "--method", "MMD-M"]
    closed = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert closed.returncode == 0 and closed.stderr == b""


def test_bad_usage_gives_one_line_and_code_2(capsys):
    for arguments in ([], ["test", "a", "b", "--alpha", "x"], ["tset", "a", "b"]):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert main(["bench", "nothing"]) == 2 and main(["test"]) == 2


def test_a_fresh_process_with_more_threads_gives_the_same_bits(files, capsys):
    """MMD-D trains, splits and permutes: everything random and everything summed takes part."""
    arguments = ["test", *files, "--method", "MMD-D", "--preset", "tuned", "--seed", "5", "--json"]
    environment = os.environ | {"OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"}
    command = [sys.executable, "-m", "m2st_core", *arguments]
    fresh = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert main(arguments) == 0
    there, here = (json.loads(text) for text in (fresh.stdout, capsys.readouterr().out))
    assert there | {"seconds": 0} == here | {"seconds": 0}


@pytest.mark.parametrize("name", ["learner", "learner.zip"])
def test_meta_train_then_test(files, tmp_path, capsys, name):
    generator = np.random.default_rng(1)
    lines = ["task,a,group,b"]
    for task in ("north", "south"):
        for group, shift in (("old", 0), ("new", 1)):
            lines += [f"{task},{a},{group},{b}" for a, b in generator.standard_normal((15, 2)) + shift]
    meta = tmp_path / "RELATED.csv"
    meta.write_text("\n".join(lines))
    out = str(tmp_path / name)
    assert main(["meta-train", str(meta), "--method", "Meta-WiTS", "--out", out]) == 0
    assert "Meta-WiTS (ours) learned from 2 tasks with 2 columns" in capsys.readouterr().out
    assert main(["test", *files, "--learner", out, "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert (result["method"], result["origin"]) == ("Meta-WiTS", "ours") and result["rejected"]
    assert not any("names" in note for note in result["notes"])
    if name == "learner":
        about = tmp_path / name / "learner.json"
        about.write_text(json.dumps(json.loads(about.read_text()) | {"format": 8}))
        assert main(["test", *files, "--learner", out]) == 2
        assert "learner format 8, and this version reads format 10. Train again." in capsys.readouterr().err
    else:
        assert os.path.isfile(out)
    meta.write_text("\n".join(line for line in lines if ",old," not in line or "south" in line))
    assert main(["meta-train", str(meta), "--out", out]) == 2
    assert "task 'north' has 1 groups (new). It needs two." in capsys.readouterr().err
    meta.write_text("task,a\nx,1\n")
    assert main(["meta-train", str(meta), "--out", out]) == 2
    assert "a column called 'group' is needed" in capsys.readouterr().err


@pytest.fixture
def table(tmp_path):
    """One table of two groups, with a category and a missing cell."""
    generator = np.random.default_rng(2)
    lines = ["a;colour;arm", ";red;old"]
    for arm, shift in (("old", 0.0), ("new", 2.0)):
        lines += [
            f"{v:.3f};{'red' if v > 1 else 'blue'};{arm}".replace(".", ",") for v in generator.normal(shift, 1, 30)
        ]
    path = tmp_path / "DATA.csv"
    path.write_text("\n".join(lines))
    return str(path)


@pytest.fixture
def history(tmp_path):
    """Related tasks as files of their own."""
    generator = np.random.default_rng(3)
    paths = []
    for task in ("north", "south"):
        lines = ["a,colour,arm"]
        for arm in ("old", "new"):
            lines += [f"{v},{'red' if v > 1 else 'blue'},{arm}" for v in generator.normal(2 * (arm == "new"), 1, 20)]
        path = tmp_path / f"{task}.csv"
        path.write_text("\n".join(lines))
        paths.append(str(path))
    return paths


def test_one_file_with_a_group_column(table, capsys):
    base = ["test", table, "--group-column", "arm", "--method", "MMD-M"]
    assert main(base) == 2
    assert "DATA.csv: row 2, column 'a': the value is missing" in capsys.readouterr().err
    for missing, rows, columns in (
        ("drop rows", 30, "a, colour"),
        ("median and indicator", 31, "a, a is missing, colour"),
    ):
        assert main([*base, "--missing", missing, "--scaling", "robust"]) == 0
        out = capsys.readouterr().out
        assert "Evidence of a difference" in out and f"tested on {rows} + 30" in out and f"columns    {columns}" in out
        assert "median and interquartile range" in out


def test_related_tasks_from_files_at_once_or_before(table, history, tmp_path, capsys):
    base = ["test", table, "--group-column", "arm", "--missing", "drop rows", "--json"]
    assert main([*base, "--related", *history, "--method", "Meta-WiTS"]) == 0
    at_once = json.loads(capsys.readouterr().out)
    assert at_once["rejected"] and at_once["n_test"] == [15, 15]
    out = str(tmp_path / "learner")
    assert main(["meta-train", *history, "--group-column", "arm", "--method", "Meta-WiTS", "--out", out]) == 0
    assert "learned from 2 tasks with 4 columns" in capsys.readouterr().out
    assert main([*base, "--learner", out]) == 0
    before = json.loads(capsys.readouterr().out)
    assert before["p_value"] == at_once["p_value"] and before["statistic"] == at_once["statistic"]
    for option, value in (("--scaling", "none"), ("--preset", "tuned")):
        assert main([*base, "--learner", out, option, value]) == 2
        assert f"{option} was chosen when the learner was trained" in capsys.readouterr().err
    assert main([*base, "--learner", out, "--preset", "tuned", "--secondary", "SCF"]) == 2
    assert "--preset was chosen" in capsys.readouterr().err
    assert main([*base, "--learner", out, "--method", "meta-witness"]) == 0  # it is trained alike
    assert json.loads(capsys.readouterr().out)["method"] == "Meta-Witness"
    assert main([*base, "--learner", out, "--method", "Feature-MKL"]) == 2
    assert "The learner is for Meta-WiTS" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "two files, or one with --group-column"),
        (["--group-column", "farm"], "there is no column called 'farm'"),
        (["--group-column", "colour", "--missing", "guess"], "missing must be one of"),
        (["--group-column", "arm", "--related", "nowhere.csv"], "nowhere.csv: there is no such file"),
    ],
)
def test_bad_tables_give_one_line_and_code_2(table, capsys, arguments, message):
    assert main(["test", table, *arguments]) == 2
    captured = capsys.readouterr()
    assert message in captured.err and captured.err.count("\n") == 1


TINY = """
methods = ["MMD-M", "limit"]
m_te = [10]
repeats = 2
tests = 5
n_permutations = 39
"""


def test_a_sweep_is_run_listed_shown_exported_and_deleted(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("M2ST_HOME", str(tmp_path / "home"))
    (tmp_path / "spec.toml").write_text(TINY)
    out, figure = tmp_path / "rows.csv", tmp_path / "power.html"
    arguments = [
        "sweep",
        str(tmp_path / "spec.toml"),
        "--executor",
        "inline",
        "--out",
        str(out),
        "--figure",
        str(figure),
    ]
    assert main(arguments) == 0
    assert "limit" in capsys.readouterr().out
    assert len(out.read_text().splitlines()) == 5 and "plotly" in figure.read_text()
    assert main(["runs"]) == 0
    line = capsys.readouterr().out
    assert "4/4 cells" in line and "done" in line
    run = line.split()[0]
    assert main(["runs", "show", run]) == 0 and "m_te=10" in capsys.readouterr().out
    assert main(["runs", "export", run]) == 0
    (tmp_path / "again.toml").write_text(capsys.readouterr().out)
    assert main(["sweep", str(tmp_path / "again.toml"), "--executor", "inline"]) == 0
    assert main(["runs", "resume", run, "--executor", "inline"]) == 0
    assert main(["runs", "delete", run]) == 0
    capsys.readouterr()
    assert main(["runs"]) == 0 and "no runs" in capsys.readouterr().out


def test_a_run_of_another_version_is_listed_refused_and_deleted(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("M2ST_HOME", str(tmp_path / "home"))
    with monkeypatch.context() as patch:
        patch.setattr("m2st_core.sweeps.cells.CODE", "4")
        run = Store().runs.start(SweepSpec.from_toml(TINY))
    assert main(["runs"]) == 0
    assert f"Run {run} was made by another version" in " ".join(capsys.readouterr().out.split())
    for action in ("show", "resume", "export"):
        assert main(["runs", action, run]) == 2
        printed = capsys.readouterr()
        assert "Use that version, or delete the run." in printed.err and not printed.out
    assert main(["runs", "delete", run]) == 0 and main(["runs"]) == 0
    assert "no runs" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["test", "meta-train"])
def test_help_lists_methods_by_whose_they_are(command, capsys):
    with pytest.raises(SystemExit):
        main([command, "--help"])
    said = "".join(capsys.readouterr().out.split())  # lines break within names
    for origin, words in ORIGINS.items():
        own = [
            name
            for name, method in METHODS.items()
            if method.origin == origin and not method.changes and (command == "test" or method.uses_related_tasks)
        ]
        listed = "".join(f"{', '.join(own)} ({words})".split())
        assert (bool(own) and listed in said) == ((command, origin) != ("meta-train", "general"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["paper", "fig9"], "Unknown experiment 'fig9'"),
        (["paper", "table1"], "CIFAR-10 is not in"),
        (["runs", "show"], "needs the id of a run"),
        (["runs", "show", "zzz"], "There is no run"),
        (["sweep", "missing.toml"], "cannot be read"),
    ],
)
def test_bad_experiments_are_one_line_and_exit_code_2(arguments, message, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("M2ST_HOME", str(tmp_path))
    monkeypatch.delenv("M2ST_DATA", raising=False)
    assert main(arguments) == 2
    assert message in capsys.readouterr().err


def grouped(path, count=40, tasks=()):
    """One file with a group column, a site, and tasks if there are any."""
    generator = np.random.default_rng(4)
    lines = ["a,b,g,site" + (",task" if tasks else "")]
    for task in tasks or ("",):
        for i in range(count):
            a, b = generator.standard_normal(2) + 2 * (i % 2)
            lines.append(f"{a:.4f},{b:.4f},{'old' if i % 2 else 'new'},{i % 3}" + (f",{task}" if tasks else ""))
    path.write_text("\n".join(lines))
    return str(path)


def test_a_report_is_written_with_related_tasks_secondary_tests_and_blocks(tmp_path, capsys):
    data, meta = grouped(tmp_path / "DATA.csv"), grouped(tmp_path / "RELATED.csv", tasks=("n", "s", "w"))
    report = tmp_path / "report.html"
    command = ["test", "--group-column", "g", data, "--related", meta, "--method", "Meta-WiTS", "--report", str(report)]
    assert main([*command, "--secondary", "MMD-M", "--block-column", "site", "--seed", "5"]) == 0
    out = capsys.readouterr().out
    assert "Meta-WiTS (ours) gives p" in out and "by MMD-M (secondary): Holm-corrected" in out
    p = next(line for line in out.splitlines() if line.startswith("p-value")).split()[1]
    text = report.read_text(encoding="utf-8")
    assert (
        p in text
        and "can reach 0.1" in text
        and "seed 5" in text
        and "Permutation p-values" in text
        and "3 blocks of" in text
    )
    assert main([*command[:-1], str(tmp_path / "nowhere" / "report.html")]) == 2
    assert "cannot be written" in capsys.readouterr().err


def test_an_example_needs_no_files(files, capsys):
    assert main(["test", "--example", "diabetes", "--method", "MMD-M"]) == 0
    assert "on 18 and 34 test rows" in capsys.readouterr().out
    assert main(["test", "--example", "diabets"]) == 2 and "Did you mean" in capsys.readouterr().err
    assert main(["test", *files, "--example", "diabetes"]) == 2 and "not both" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--block-column", "nothing"], "there is no column called 'nothing'"),
        (["--block-column", "site", "--method", "ME"], "cannot honour blocks"),
        (["--leave-out", "a", "b", "site"], "no column can be compared"),
        (["--levels", "0"], "levels must be"),
        (["--secondary", "MMD-D", "--method", "MMD-D"], "named twice"),
    ],
)
def test_bad_choices_about_a_file_are_one_line(tmp_path, capsys, more, message):
    assert main(["test", grouped(tmp_path / "DATA.csv"), "--group-column", "g", *more]) == 2
    captured = capsys.readouterr()
    assert message in captured.err and captured.err.count("\n") == 1 and not captured.out


def test_the_recommended_method_is_used_and_explained(capsys):
    assert main(["test", "--example", "diabetes", "--method", "recommended"]) == 0
    printed = capsys.readouterr()
    assert "recommended: Meta-FUSE (ours)" in printed.err and "left out in turn" in printed.err
    assert "Meta-FUSE (ours) gives p" in printed.out


def test_without_a_choice_the_method_suits_the_data(files, capsys):
    assert main(["test", *files, "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["method"] == "Omnibus" and "recommended: Omnibus" in printed.err


@pytest.mark.parametrize("options", [["--method", "scf tuned"], ["--method", "SCF", "--preset", "tuned"]])
def test_a_line_is_named_in_any_spelling_or_by_its_preset(files, options, capsys):
    assert main(["test", *files, *options, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["method"] == "SCF · tuned"


def test_a_preset_holds_for_all_tests_of_the_paper_that_are_named(files, capsys):
    options = ["--method", "MMD-M", "--secondary", "SCF", "MMD-O · tuned", "--preset", "released", "--json"]
    assert main(["test", *files, *options]) == 0
    result = json.loads(capsys.readouterr().out)
    named = [result["method"], *(one["method"] for one in result["secondary"])]
    assert named == ["MMD-M", "SCF · code", "MMD-O · tuned"]


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        (["sweep", "{spec}", "--out", "{tmp}/no/rows.csv"], "no/rows.csv"),
        (["sweep", "{spec}", "--figure", "{tmp}/no/power.html"], "no/power.html"),
        (["sweep", "{spec}", "--out", "{tmp}"], ""),
        (["paper", "fig2a", "--out", "{tmp}/no/rows.csv"], "no/rows.csv"),
        (["paper", "gamma", "--figure", "{tmp}/no/f.html"], "no/f.html"),
        (["runs", "--out", "{tmp}/no/rows.csv"], "no/rows.csv"),
        (["meta-train", "{spec}", "--out", "{spec}/x"], "spec.toml/x"),
        (["test", "{spec}", "--report", "{tmp}/no/report.html"], "no/report.html"),
    ],
)
def test_a_place_that_cannot_be_written_is_named_before_anything_is_computed(
    arguments, place, tmp_path, monkeypatch, capsys
):
    monkeypatch.setenv("M2ST_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("m2st_core.commands.sweeps.run_sweep", None)
    (tmp_path / "spec.toml").write_text(TINY)
    assert main([part.format(tmp=tmp_path, spec=tmp_path / "spec.toml") for part in arguments]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert f"{place} cannot be written: " in said


def test_sigterm_stops_a_sweep_as_ctrl_c_does(tmp_path, monkeypatch, capsys):
    def stopped_by_a_service_manager(*_, **__):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(10)

    monkeypatch.setenv("M2ST_HOME", str(tmp_path))
    monkeypatch.setattr("m2st_core.commands.sweeps.run_sweep", stopped_by_a_service_manager)
    (tmp_path / "spec.toml").write_text(TINY)
    before = signal.getsignal(signal.SIGTERM)
    assert main(["sweep", str(tmp_path / "spec.toml"), "--executor", "inline"]) == 2
    assert "Stopped. Finished work is kept" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_sweep_that_does_not_fit_into_memory_is_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("M2ST_HOME", str(tmp_path))
    monkeypatch.setattr("m2st_core.testing.plan.free_bytes", lambda: 10**9)
    (tmp_path / "spec.toml").write_text(TINY.replace("n_permutations = 39", "n_permutations = 1000000"))
    assert main(["sweep", str(tmp_path / "spec.toml"), "--executor", "inline"]) == 2
    assert "This sweep needs about" in capsys.readouterr().err


def test_a_damaged_store_is_a_sentence(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("M2ST_HOME", str(tmp_path))
    store = Store()
    for number in range(40):
        store.runs.start(SweepSpec.from_toml(TINY).with_(seed=number))
    with closing(sqlite3.connect(tmp_path / "store.sqlite")) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    path = tmp_path / "store.sqlite"
    content = bytearray(path.read_bytes())
    content[3 * 4096 :] = b"\xa5" * (len(content) - 3 * 4096)
    path.write_bytes(content)
    assert main(["runs"]) == 2
    said = capsys.readouterr().err
    assert "cannot be read or written" in said and said.count("\n") == 1


def test_splits_and_family_from_the_shell(files, capsys):
    command = [
        "test",
        *files,
        "--method",
        "MMD-O · tuned",
        "--secondary",
        "MMD-M",
        "--permutations",
        "99",
        "--splits",
        "3",
    ]
    assert main([*command, "--family", "all"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Evidence of a difference by MMD-O · tuned (primary): Holm-corrected p = ")
    assert "\nsplits     " in out and "the random splits are not included" in out and "is at most α=0.05" in out
    assert main([*command, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["split_p_values"]) == 3 and found["smallest_p"] == 0.02 and found["family"] == "primary"
    assert main(["test", *files, "--method", "MMD-M", "--splits", "3"]) == 2
    assert "MMD-M does not split the rows" in capsys.readouterr().err


def test_too_few_rows_to_reject_are_refused(tmp_path, capsys):
    for name, rows in (("P.csv", "a\n1\n2\n3\n"), ("Q.csv", "a\n7\n8\n")):
        (tmp_path / name).write_text(rows)
    assert main(["test", str(tmp_path / "P.csv"), str(tmp_path / "Q.csv"), "--method", "MMD-M"]) == 2
    captured = capsys.readouterr()
    assert "test rows have only 10 labellings. It needs more rows." in captured.err and not captured.out


@pytest.fixture
def control_group(tmp_path):
    """A control group in P.csv and in three related tasks; no sample differs from another."""
    generator = np.random.default_rng(4)
    control = generator.standard_normal((30, 2))
    samples = {"P": control, "Q": generator.standard_normal((30, 2))}
    samples |= {
        f"t{i}_{side}": control if side == "P" else generator.standard_normal((30, 2))
        for i in range(3)
        for side in "PQ"
    }
    for name, rows in samples.items():
        np.savetxt(tmp_path / f"{name}.csv", rows, delimiter=",", header="a,b", comments="", fmt="%.12g")
    return tmp_path


@pytest.mark.parametrize("change", [lambda rows: rows, lambda rows: rows.round(3), lambda rows: 1000 * rows])
def test_a_shared_control_group_neither_teaches_nor_passes_a_saved_learner(control_group, change, capsys):
    paths = [str(control_group / f"{side}.csv") for side in "PQ"]
    for path in paths:
        rows = np.loadtxt(path, delimiter=",", skiprows=1)
        np.savetxt(path, change(rows), delimiter=",", header="a,b", comments="", fmt="%.12g")
    history = [str(path) for path in sorted(control_group.glob("t*.csv"))]
    assert main(["test", *paths, "--related", *history, "--method", "Meta-Witness", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["p_value"] > 0.05
    assert any(note.startswith("30 rows of the target are also in the related tasks") for note in found["notes"])
    assert main(["test", *paths, "--related", *history, "--method", "recommended", "--json"]) == 0
    assert "recommended: Meta-FUSE" in capsys.readouterr().err
    out = str(control_group / "learner")
    assert main(["meta-train", *history, "--method", "Meta-Witness", "--out", out]) == 0
    assert main(["test", *paths, "--learner", out]) == 2
    assert "30 rows of x and y, or nearly equal ones, are among" in capsys.readouterr().err


def test_a_file_without_its_group_column_is_answered_with_the_likely_ones(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, data in practitioner.files(4).items():
        (tmp_path / name).write_bytes(data)
    assert main(["test", "tablets.csv"]) == 2
    assert "Likely: --group-column machine (A 35, B 25) or line (new 30, old 30)." in capsys.readouterr().err
    related = ["--related", "six_earlier.csv"]
    assert main(["test", "tablets.csv", *related]) == 2
    assert "Likely: --group-column line (new 30, old 30) or machine (A 35, B 25)." in capsys.readouterr().err
    told = []
    for groups in ("old new", "new old"):
        base = ["test", "tablets.csv", "--group-column", "line", *related, "--method", "Meta-WiTS"]
        assert main([*base, "--groups", *groups.split(), "--report", "report.html"]) == 0
        told.append(capsys.readouterr().out.splitlines())
        assert f"--groups {groups}" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert told[0][2] == told[1][2] and told[0][2].startswith("p-value")


def test_the_sides_of_related_tasks_with_other_values_are_chosen_by_an_option(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, labels in (("d.csv", ("old", "new")), ("m.csv", ("A", "B"))):
        rows = "".join(f"{i * 7 % 11},{labels[i % 2]},{i // 10}\n" for i in range(40))
        (tmp_path / name).write_text(f"a,g,task\n{rows}", encoding="utf-8")
    base = ["test", "d.csv", "--group-column", "g", "--related", "m.csv", "--method", "MMD-M"]
    for more, said in (([], "“A” stands for “old”"), (["--related-groups", "B", "A"], "“B” stands for “old”")):
        assert main([*base, *more]) == 0
        assert said in capsys.readouterr().out
    assert main([*base, "--related-groups", "C", "D"]) == 2
    assert "no related task compares 'C' with 'D'" in capsys.readouterr().err
