"""Weights: bars, the chosen kernel beside the mixture, variation."""

import pytest

from m2st_core.dashboard.jobs.jobs import job_manager
from m2st_core.studies.weights import WeightsStudy
from tests.pages.harness import charts, numbers, open_page, run, settle, words
from tests.quick import use_few_steps

SMALL = {"weights_n_tasks": "10", "weights_repeats": "5", "weights_m_tr": "25"}
CHARTS = 6


def test_the_page_shows_what_the_study_finds():
    app = settle(open_page("weights", **SMALL, seed="3"), CHARTS)
    result = WeightsStudy(0.3, 10, 50, 0.7, 25, 5, (10, 25, 50, 100), 3).run()
    bars, kernel, mixture = charts(app)[:3]
    assert numbers(bars["data"][0]["x"]) == pytest.approx(result.table["learned"].tolist())
    best = result.table["kernel"][result.table["criterion"].argmax()]
    assert kernel["data"][0]["name"] == best and mixture["data"][0]["name"] == "mixture"
    assert f"**{result.features.share:.0%}**" in words(app)
    assert list(app.dataframe[0].value["kernel"]) == list(result.table["kernel"])


def test_the_papers_mixture_is_one_click_away(monkeypatch):
    """With the first steps of its training only: here the page is looked at, not the kernel."""
    use_few_steps(monkeypatch)
    app = open_page("weights", **SMALL)
    choice = app.get("button_group")[0]
    assert choice.value == "Feature-MKL" and choice.options == ["Feature-MKL (ours)", "Meta-MKL"]
    choice.set_value("Meta-MKL")
    run(app)
    settle(app, CHARTS - 1)
    names = [trace["name"] for trace in charts(app)[0]["data"]]
    assert names == ["Meta-MKL: learned", "Meta-Best1: best", "Meta-MKL-A: uniform"]
    assert "deep kernels of single related tasks" in words(app)
    assert "trusted" not in words(app) and "Gaussian" not in words(app)


def test_at_first_the_page_shows_what_the_server_has_computed_before():
    """The server runs ``WeightsStudy()`` when it has its first visitor, whatever page that one opens."""
    app = settle(open_page("weights"), CHARTS)
    assert app.session_state["weights_job"][2] == WeightsStudy()
    known = job_manager().submit("another visitor's", pytest.fail, WeightsStudy())
    assert known.state == "done" and known.result is not None


def test_weights_can_be_seen_as_shares_of_the_statistic():
    app = settle(open_page("weights", **SMALL), CHARTS)
    before = numbers(charts(app)[0]["data"][0]["x"])
    app = settle(open_page("weights", **SMALL, weights_view="share of the statistic"), CHARTS)
    after = numbers(charts(app)[0]["data"][0]["x"])
    assert sum(after) == pytest.approx(1) and after != pytest.approx(before)


def test_an_edited_setting_starts_another_study():
    app = settle(open_page("weights", **SMALL), CHARTS)
    before = numbers(charts(app)[0]["data"][0]["x"])
    app.select_slider(key="weights_closeness").set_value(0.1)
    run(app)
    settle(app, CHARTS)
    assert numbers(charts(app)[0]["data"][0]["x"]) != before


def test_nonsense_in_the_address_is_ignored():
    app = open_page("weights", weights_n_tasks="0", weights_m_tr="x", weights_delta="7", weights_repeats="5")
    assert app.select_slider(key="weights_n_tasks").value == 40 and app.slider(key="weights_delta").value == 0.7
