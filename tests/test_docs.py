"""README.md and docs/ list what there is, and their commands and code run."""

import re
import shlex
from pathlib import Path

import pytest

import m2st_core as m2st
from m2st_core.__main__ import BENCHMARKS, build_parser
from m2st_core.testing.methods import METHODS

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
TABLES = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")


def table(text):
    return [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")]


def blocks(path, language):
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_every_benchmark_is_listed():
    listed = {row[0].strip("`") for row in table((ROOT / "docs" / "shell.md").read_text(encoding="utf-8"))[1:]}
    there = {path.stem for path in (ROOT / "benchmarks").glob("*.py") if "\ndef main(" in path.read_text("utf-8")}
    assert listed == set(BENCHMARKS.split(", ")) == there


@pytest.mark.parametrize("name", METHODS)
def test_the_table_of_tests_says_what_each_does(name):
    base = METHODS[name].algorithm or name
    (row,) = [row for row in table(TABLES.split("\n## Omnibus")[0]) if base in row[0].split(", ")]
    assert row[2] == ("exact" if METHODS[name].by_permutation else "asymptotic")
    assert row[3] == ("yes" if METHODS[name].needs_split else "no")


def test_methods_stand_in_the_table_of_their_origin():
    for name, method in METHODS.items():
        section = TABLES.split(f"** (`{method.origin}`):")[1].split("\n\n**")[0]
        assert any((method.algorithm or name) in row[0].split(", ") for row in table(section)), name


def test_every_change_of_settings_is_in_the_tables():
    text = " ".join(TABLES.split())
    for method in METHODS.values():
        assert method.changes.split(": ", 1)[-1].rstrip(".") in text, method.name


def test_every_command_on_a_page_has_options_that_exist():
    text = "\n".join(block.replace("\\\n", " ") for path in PAGES for block in blocks(path, "sh"))
    commands = [line for line in text.splitlines() if line.startswith("python -m m2st_core ")]
    assert len(commands) > 12
    for command in commands:
        build_parser().parse_args(shlex.split(command, comments=True)[3:])


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_links_lead_to_files(path):
    for target in re.findall(r"\]\(([^)#]+)", path.read_text(encoding="utf-8")):
        assert target.startswith("https://") or (path.parent / target).exists(), target


@pytest.mark.slow
@pytest.mark.parametrize("name", ["README.md", "docs/python.md"])
def test_the_code_runs(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    draw = m2st.hdgm_related_tasks  # fewer tasks than on the page: that the code runs is tested, not its power
    monkeypatch.setattr(m2st, "hdgm_related_tasks", lambda **settings: draw(**settings | {"n_tasks": 12}))
    for file, rows in zip(("P.csv", "Q.csv"), m2st.make_task("mean_shift").sample(40), strict=True):
        lines = [",".join(f"{value:.6f}" for value in row) for row in rows.tolist()]
        Path(file).write_text("\n".join(["a,b", *lines]))
    scope = {}
    for block in blocks(ROOT / name, "python"):
        exec(block, scope)
    assert "p = " in capsys.readouterr().out
