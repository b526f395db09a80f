import pytest

from m2st_core.paper.published import measured_gamma, measured_learning, published_gamma
from m2st_core.sweeps.summary import wilson_interval


@pytest.mark.parametrize(("successes", "expected"), [(0, (0.0, 0.0602)), (30, (0.3774, 0.6226)), (60, (0.9398, 1.0))])
def test_wilsons_interval_is_that_of_the_tables(successes, expected):
    assert wilson_interval(successes, 60) == pytest.approx(expected, abs=2e-4)


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
