import pytest
from scipy.stats import binomtest

from m2st_core.numbers import wilson_interval
from m2st_core.paper.published import measured_gamma, published_gamma
from m2st_core.progress import Pace


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


def test_the_pace_is_silent_at_first_and_then_settles(monkeypatch):
    """Work at an even pace of 100 s, then twice as fast: the estimate follows without leaping."""
    now = [0.0]
    monkeypatch.setattr("m2st_core.progress.time.monotonic", lambda: now[0])
    pace = Pace(began=0.0)
    now[0] = 5.0
    assert pace.left(0.05) is None
    now[0] = 20.0
    assert pace.left(0.2) == pytest.approx(80)
    now[0] = 21.0
    jumped = pace.left(0.6)  # much faster than before
    assert 14 < jumped < 79
