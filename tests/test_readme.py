"""What README.md lists is what there is."""

import re
from pathlib import Path

import pytest

from m2st_core.__main__ import BENCHMARKS
from m2st_core.testing.methods import METHODS

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_every_benchmark_is_listed():
    listed = re.search(r"^benchmarks/ +python -m m2st_core bench ([\w|\s]+)```", README, re.MULTILINE)
    named = re.sub(r"\s", "", listed[1]).split("|")
    there = {path.stem for path in (ROOT / "benchmarks").glob("*.py") if "\ndef main(" in path.read_text("utf-8")}
    assert set(named) == set(BENCHMARKS.split(", ")) == there


@pytest.mark.parametrize("name", METHODS)
def test_the_table_of_tests_says_what_each_does(name):
    rows = [line.strip("| \n").split(" | ") for line in README.splitlines() if line.startswith("| ")]
    (row,) = [row for row in rows if name in row[0].split(", ") and len(row) == 4]
    assert row[2] == ("exact" if METHODS[name].by_permutation else "asymptotic")
    assert row[3] == ("yes" if METHODS[name].needs_split else "no, tests all")


def test_methods_stand_under_the_head_that_says_whose_they_are():
    heads = {"no history": "No history", "paper": "The paper's", "ours": "Ours"}
    parts = {origin: README.split(f"**{head}**:")[1].split("\n\n**")[0] for origin, head in heads.items()}
    for name, method in METHODS.items():
        rows = [line.split(" | ")[0].strip("| ").split(", ") for line in parts[method.origin].splitlines()]
        assert any(name in row for row in rows), name
