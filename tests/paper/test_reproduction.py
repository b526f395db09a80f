"""Published against ours: which cells are far off, and which sentence belongs to each."""

import pandas as pd
import pytest

from m2st_core.paper.experiments import PAPER
from m2st_core.paper.published import (
    UNEXPLAINED,
    compare_with_published,
    read_published_explanations,
    reasons_of_differences,
)
from m2st_core.sweeps.cells import CellResult
from m2st_core.sweeps.grid import as_rows


def rows_of(name, rejections, repeats=6):
    """Every cell of an experiment, with so many rejections of 100, one more in odd repeats."""
    cells = [cell for cell in PAPER[name].full.cells() if cell.repeat < repeats]
    return as_rows((cell, CellResult(rejections(cell) + cell.repeat % 2, 100, 1.0)) for cell in cells)


def sentences(*rows):
    return pd.DataFrame(rows, columns=["experiment", "method", "closeness", "n_tasks", "m_te", "sentence"])


def test_a_cell_near_the_published_number_needs_no_sentence():
    near = {50: 18, 80: 32, 100: 39, 120: 49, 150: 60, 200: 76, 250: 87}  # Meta-MKL, published
    table = compare_with_published("fig2a", rows_of("fig2a", lambda cell: near[cell.m_te]), sentences())
    assert set(table["method"]) == {"Meta-KL", "Meta-MKL"} and len(table) == 14  # the others are pictures only
    by_method = table.set_index(["method", "m_te"])["why"]
    assert set(by_method["Meta-MKL"]) == {""} and by_method["Meta-KL", 200] == UNEXPLAINED


def test_the_narrowest_sentence_counts():
    rows = rows_of("table5", lambda cell: 99)
    known = sentences(
        ("table5", "Meta-KL", None, None, None, "All."),
        ("table5", "Meta-KL", None, 20, None, "Few tasks."),
        ("table5", "Meta-KL", None, 20, 50, "Few of both."),
        ("table6", "Meta-KL", None, None, None, "Another table."),
    )
    why = compare_with_published("table5", rows, known).set_index(["n_tasks", "m_te"])["why"]
    assert (why[20, 50], why[20, 80], why[50, 50]) == ("Few of both.", "Few tasks.", "All.")
    where = dict((why, where) for where, why in reasons_of_differences(compare_with_published("table5", rows, known)))
    assert where["Few of both."] == "Meta-KL, N = 20, m_te = 50"
    assert where["Few tasks."] == "Meta-KL, N = 20, m_te = 80, 100, 120, 150, 200, 250"
    assert where["All."].startswith("Meta-KL, N = 50, m_te = 50, 80") and "; N = 80, m_te = 50" in where["All."]


@pytest.mark.parametrize("rejections", [42, 99])
def test_a_doubtful_number_is_not_compared_however_near(rejections):
    known = sentences(("table6", "Meta-MKL", None, 120, None, "Few tasks."))
    table = compare_with_published("table6", rows_of("table6", lambda cell: rejections), known).set_index(
        ["n_tasks", "m_te"]
    )
    doubtful = table.loc[(120, 150)]
    assert doubtful["why"].startswith("Not compared: a misprint") and pd.isna(doubtful["difference"])
    assert table["difference"].isna().sum() == 1 and table["why"][120, 50] == "Few tasks."


def test_tests_without_a_split_are_compared_at_all_210_rows():
    known = compare_with_published("table3-all", rows_of("table3-all", lambda cell: 50), sentences())
    assert known["published"].tolist() == [0.780, 0.358, 0.058]
    assert set(compare_with_published("table3", rows_of("table3", lambda cell: 50), sentences())["method"]) == {
        "Meta-MKL", "Meta-KL", "AGT-MKL", "AGT-KL"}  # fmt: skip


def test_few_repeats_have_no_difference():
    table = compare_with_published("table3", rows_of("table3", lambda cell: 99, repeats=4), sentences())
    assert len(table) == 4 and table["difference"].isna().all() and set(table["why"]) == {""}


def test_a_copy_without_documents_has_no_sentences(tmp_path):
    assert read_published_explanations(tmp_path).empty
    (tmp_path / "explanations.csv").write_text(
        "experiment,method,closeness,n_tasks,m_te,sentence\ntable5,Meta-KL,,20,,Why.\n"
    )
    assert read_published_explanations(tmp_path)["n_tasks"].item() == pytest.approx(20)
