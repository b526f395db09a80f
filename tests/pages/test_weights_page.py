"""Weights: bars, the chosen kernel beside the mixture, variation."""

import threading

import pytest

from m2st_core.dashboard.jobs.jobs import SHIPPED
from m2st_core.studies.weights import WeightsStudy
from tests.pages.harness import FORMER, charts, numbers, open_page, run, settle, words
from tests.quick import use_few_steps

SMALL = {"n_tasks": "12", "weights_repeats": "5", "weights_m_tr": "25"}
CHARTS = 7  # with the picture of the related tasks


def test_the_page_shows_what_the_study_finds():
    app = settle(open_page("weights", **SMALL, seed="3"), CHARTS)
    study = WeightsStudy(0.3, 12, 50, 0.7, 25, 5, (10, 25, 50, 100), 3)
    result = study.run()
    _, bars, kernel, mixture = charts(app)[:4]
    largest = result.table.sort_values("influence", ascending=False, kind="stable").head(12).query("influence >= 0.005")
    assert numbers(bars["data"][0]["x"]) == pytest.approx(largest["influence"].tolist())
    assert kernel["data"][0]["name"] == largest["kernel"].iloc[0] and mixture["data"][0]["name"] == "mixture"
    mean = result.features.shares.query("m_tr == 25")["share"].mean()
    assert result.finding(study) in words(app)
    assert f"**{100 * mean:.0f} %** of the statistic's spread, on average over 5 training samples." in words(app)
    assert f"In the one shown it is **{100 * result.features.share:.0f} %**" in words(app)
    assert "10 of the 12 tasks, drawn at random, have a kernel of their own" in words(app)
    assert list(app.dataframe[0].value["kernel"]) == list(result.table["kernel"])


def test_the_papers_mixture_is_one_click_away(monkeypatch):
    """With the first steps of its training only: here the page is looked at, not the kernel."""
    use_few_steps(monkeypatch)
    app = open_page("weights", **SMALL, weights_view="β")
    choice = app.get("button_group")[0]
    assert choice.value == "Feature-MKL" and choice.options == ["Feature-MKL (ours)", "Meta-MKL · tuned"]
    choice.set_value("Meta-MKL · tuned")
    run(app)
    settle(app, CHARTS - 1)
    bars, used, best, uniform = charts(app)[1]["data"]
    assert bars["type"] == "bar" and {mark["type"] for mark in (used, best, uniform)} == {"scatter"}
    assert bars["name"] == "Meta-MKL · tuned: learned" and used["name"] == "Meta-MKL · tuned: used"
    assert best["name"] == "Meta-Best1 · tuned: best" and "80 % of it uniform" in words(app)
    assert "deep kernels of single related tasks" in words(app)
    assert "trusted" not in words(app) and "are generic" not in words(app)


def test_at_first_the_page_shows_the_shipped_result_and_says_so(monkeypatch):
    monkeypatch.setattr(WeightsStudy, "run", pytest.fail)
    app = open_page("weights")
    assert len(charts(app)) == CHARTS and WeightsStudy().shipped().finding(WeightsStudy()) in words(app)
    assert SHIPPED in words(app)


def test_other_settings_are_not_said_to_be_shipped():
    assert SHIPPED not in words(settle(open_page("weights", **SMALL), CHARTS))


def test_weights_are_seen_as_shares_of_the_statistic_or_as_beta():
    app = settle(open_page("weights", **SMALL), CHARTS)
    shares = numbers(charts(app)[1]["data"][0]["x"])
    app = settle(open_page("weights", **SMALL, weights_view="β"), CHARTS)
    beta = numbers(charts(app)[1]["data"][0]["x"])
    assert 0.9 < sum(shares) <= 1.001 and shares == sorted(shares, reverse=True) and beta != pytest.approx(shares)


def test_an_edited_setting_starts_another_study():
    app = settle(open_page("weights", **SMALL), CHARTS)
    before = numbers(charts(app)[1]["data"][0]["x"])
    app.slider(key="closeness").set_value(0.1)
    run(app)
    settle(app, CHARTS)
    assert numbers(charts(app)[1]["data"][0]["x"]) != before


def test_nonsense_in_the_address_is_ignored():
    app = open_page("weights", n_tasks="0", weights_m_tr="x", hdgm_delta="7", weights_repeats="5")
    assert app.number_input(key="n_tasks").value == 100 and app.slider(key="hdgm_delta").value == 0.7


def test_the_former_result_stays_and_is_marked_while_another_is_computed(monkeypatch):
    ended = threading.Event()
    monkeypatch.setattr(WeightsStudy, "run", lambda self, progress=None: ended.wait(60))
    app = open_page("weights")
    app.number_input(key="n_tasks").set_value(20)
    run(app)
    assert len(charts(app)) == CHARTS and FORMER in words(app) and "Before, with N=100: " in words(app)
    ended.set()
