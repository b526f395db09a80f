import pytest
from scipy.stats import binomtest

from m2st_core.paper.published import measured_gamma, measured_learning, published_gamma
from m2st_core.sweeps.summary import wilson_interval


@pytest.mark.parametrize("trials", [1, 8, 60, 2000])
def test_wilsons_interval_is_that_of_scipy(trials):
    for successes in {0, 1, trials // 3, trials}:
        interval = binomtest(successes, trials).proportion_ci(method="wilson")
        assert wilson_interval(successes, trials) == pytest.approx((interval.low, interval.high), abs=1e-5)


@pytest.mark.parametrize(("successes", "trials"), [(-1, 3), (4, 3), (0, 0)])
def test_impossible_counts_are_refused(successes, trials):
    with pytest.raises(ValueError, match="at least one trial"):
        wilson_interval(successes, trials)


def test_our_gammas_stand_beside_the_published_ones():
    ours = measured_gamma()
    assert list(ours["closeness"]) == list(published_gamma()["closeness"])
    assert (ours["lowest"] <= ours["on_test_rows"]).all() and (ours["on_test_rows"] <= ours["highest"]).all()


def test_what_few_rows_teach_does_not_hold_on_fresh_rows():
    table = measured_learning()
    assert table["train"].is_monotonic_decreasing and (table["train"] > table["fresh"]).all()
    assert (
        table["power"].between(table["low"], table["high"]).all() and table["power"].iloc[-1] > 0.3 > table["power"][0]
    )
