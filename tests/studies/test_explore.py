"""The shipped grid: what is shown at a setting, of which precision, and the sentence that joins power, β and γ̂."""

import numpy as np
import pandas as pd
import pytest

from m2st_core.paper.results import reproduction_rows
from m2st_core.studies.explore import (
    DEFAULT_SWEEP,
    GRID,
    PAPER_TESTS,
    ExploreSetting,
    overview_sentence,
    shipped_gamma,
    shipped_level,
    shipped_mixture,
    shipped_rows,
)
from m2st_core.sweeps.summary import summarise

SETTING = ExploreSetting()


def test_rows_with_the_most_tests_are_shown():
    """At the setting of Figure 2a these are the reproduction's 20 x 100, elsewhere the grid's 8 x 50."""
    rows = shipped_rows(DEFAULT_SWEEP)
    assert set(rows["method"]) == set(DEFAULT_SWEEP.methods)
    assert set(rows["tests"]) == {100} and rows.groupby(["method", "m_te"])["repeat"].nunique().eq(20).all()
    committed = reproduction_rows()
    own = committed[(committed["method"] == "Meta-MKL") & (committed["m_te"] == 200) & (committed["m_tr"] == 50)]
    own = own[(own["closeness"] == 0.3) & (own["n_tasks"] == 100) & ~own["null"].astype(bool)]
    rate = summarise(rows).set_index(["method", "m_te"])["rate"][("Meta-MKL", 200)]
    assert rate == pytest.approx(own["rejections"].sum() / own["tests"].sum())
    other = shipped_rows(SETTING.with_(closeness=0.5, m_tr=10).sweep(("Meta-MKL",)))
    assert set(other["tests"]) == {GRID.tests} and other["repeat"].nunique() == GRID.repeats


@pytest.mark.parametrize(
    "change",
    [{"n_tasks": 40}, {"m_tr": 30}, {"seed": 1}, {"rows_per_task": 80}, {"closeness": 0.6}, {"preset": "tuned"}],
)
def test_another_setting_has_no_rows(change):
    assert shipped_rows(SETTING.with_(**change).sweep(("Meta-MKL", "Meta-KL"))).empty


def test_other_parameters_or_more_repeats_have_no_rows():
    assert shipped_rows(DEFAULT_SWEEP.with_(settings={"delta": 0.6})).empty
    assert shipped_rows(DEFAULT_SWEEP.with_(repeats=21, tests=100)).empty
    assert shipped_rows(DEFAULT_SWEEP.with_(alpha=0.01)).empty


def test_every_setting_of_the_grid_is_shipped_for_every_method():
    for closeness in GRID.closeness:
        for n_tasks in GRID.n_tasks:
            for m_tr in GRID.m_tr:
                setting = SETTING.with_(closeness=closeness, n_tasks=n_tasks, m_tr=m_tr)
                counts = shipped_rows(setting.sweep(GRID.methods, m_te=GRID.m_te)).groupby(["method", "m_te"]).size()
                assert len(counts) == len(GRID.methods) * len(GRID.m_te) and counts.min() >= GRID.repeats, setting


def test_the_level_is_shipped_for_the_tests_that_are_shown_first():
    rows = shipped_level(DEFAULT_SWEEP)
    assert set(rows["method"]) == set(DEFAULT_SWEEP.methods) and rows["null"].all()
    assert 0.03 < rows["rejections"].sum() / rows["tests"].sum() < 0.07  # 14,000 tests: the band is +- 0.006


def test_beta_is_a_distribution_over_ten_kernels_in_every_repeat():
    for m_tr in GRID.m_tr:
        mixed = shipped_mixture(SETTING.with_(m_tr=m_tr))
        sums = mixed.table.groupby("repeat")["beta"].agg(["sum", "size", "min"])
        np.testing.assert_allclose(sums["sum"], 1, atol=1e-3)
        assert (sums["size"] == 10).all() and (sums["min"] >= 0).all() and len(sums) == GRID.repeats
        assert (
            mixed.maps.shape[0] == 10
            and mixed.table.groupby("repeat")["strength"]
            .apply(lambda strengths: strengths.is_monotonic_increasing)
            .all()
        )
    assert shipped_mixture(SETTING.with_(n_tasks=40)) is None and shipped_mixture(SETTING.with_(preset="tuned")) is None


def test_gamma_follows_the_closeness_and_the_number_of_tasks():
    gamma = shipped_gamma(SETTING)
    assert gamma["closeness"].tolist() == list(GRID.closeness) and (gamma["on_test_rows"] > gamma["floor"]).all()
    assert shipped_gamma(SETTING.with_(seed=1)).empty


def test_the_sentence_joins_the_three_numbers():
    rows, gamma = shipped_rows(SETTING.sweep(PAPER_TESTS)), shipped_gamma(SETTING)
    mixed = shipped_mixture(SETTING)
    largest = mixed.table.groupby("repeat")["beta"].max().mean()
    assert overview_sentence(SETTING, rows, gamma, mixed) == (
        f"At C = 0.3 the related tasks are **γ̂ = 0.09** away. **Meta-MKL**, which puts {100 * largest:.0f} % of its "
        "weight on one of 10 earlier kernels, finds the difference in **72 of 100** samples of 200 rows per mode; "
        "MMD-O, without related tasks, in 78."
    )
    empty = pd.DataFrame(columns=rows.columns)
    assert overview_sentence(SETTING, empty, gamma, None) == "At C = 0.3 the related tasks are **γ̂ = 0.09** away."
    assert overview_sentence(SETTING, empty, gamma[:0], None) == ""
