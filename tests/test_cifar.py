"""The tables of docs/cifar.md: rows that a stopped run continues from, and a page that says what the rows say."""

from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import cifar
from benchmarks.cifar import ROWS, STAGES, Key, Rows, Stage, Study, tables, write_tables
from m2st_core.presets import TUNED
from m2st_core.testing.methods import METHODS

PAGE = Path(__file__).parents[1] / "docs" / "cifar.md"
KEY = Key("pixels", "MMD-O", 100, "CIFAR-100", 200, 0)


def test_the_page_has_the_tables_of_the_rows(tmp_path):
    copy = tmp_path / "cifar.md"
    copy.write_text(PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    write_tables(copy, tables(Rows(ROWS)))
    assert copy.read_text(encoding="utf-8") == PAGE.read_text(encoding="utf-8")


def test_every_method_of_the_paper_is_in_a_stage():
    planned = {method for stage in STAGES for method in stage.methods}
    assert planned >= {name for name, method in METHODS.items() if method.algorithm and method.preset is TUNED}


def test_rows_are_added_up_and_one_that_was_cut_off_does_not_count(tmp_path):
    path = tmp_path / "rows.csv"
    rows = Rows(path)
    rows.add(KEY, 12, 3, 1.0)
    rows.add(KEY, 8, 7, 1.0)
    with path.open("a") as file:
        file.write("pixels,MMD-O,100,CIFAR-100,200,1,12,")
    again = Rows(path)
    assert again.counts[KEY] == (20, 10) and len(again.counts) == 1
    again.add(KEY._replace(repeat=1), 10, 10, 1.0)
    rates, tests = Rows(path).rates(*KEY[:5])
    assert rates.tolist() == [0.5, 1.0] and tests == 30


def test_a_run_computes_what_is_missing_and_nothing_twice(tmp_path, monkeypatch):
    asked = []

    def some(images, target, m, method, numbers, streams):
        asked.append(numbers)
        return sum(number % 2 for number in numbers)

    stage = Stage("pixels", ("MMD-M",), targets=("CIFAR-100",))
    study = Study(Namespace(repeats=1, tests=8, sizes=(200, 500, 900)), Rows(tmp_path / "rows.csv"))
    empty = cifar.Images(*[np.zeros((9, 2))] * 2, None, *[np.arange(9)] * 3)
    monkeypatch.setattr(study, "images", lambda stage: (empty, []))
    monkeypatch.setattr(cifar, "related_tasks", lambda *_: {})
    monkeypatch.setattr(cifar.Images, "draw", lambda *_: None)
    monkeypatch.setattr(cifar, "rejections", some)
    study.run(stage, ["MMD-M"], 0)
    assert asked == [range(8), range(4), range(2)]
    study.run(stage, ["MMD-M"], 0)
    assert len(asked) == 3
    study.options.tests = 16
    study.run(stage, ["MMD-M"], 0)
    assert asked[3:] == [range(8, 16), range(4, 8), range(2, 4)]
    assert study.rows.counts[Key("pixels", "MMD-M", 0, "CIFAR-100", 200, 0)] == (16, 8)


def test_sizes_for_which_images_suffice():
    columns = STAGES[0].columns("Meta-WiTS")
    assert (100, "class shift", 900) in columns and (200, "class shift", 900) not in columns
    assert [m_tr for m_tr, *_ in STAGES[0].columns("MMD-M")] == [0] * 7


def test_a_page_without_marks_is_refused(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("nothing")
    with pytest.raises(ValueError, match="must have the marks"):
        write_tables(page, {"null": "| |"})
