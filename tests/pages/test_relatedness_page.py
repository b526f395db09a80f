"""γ̂: its finding at once from shipped numbers, a measurement on request, the theorem, and one's own tasks."""

import pytest

from m2st_core.dashboard.jobs.jobs import job_manager
from m2st_core.studies.explore import ExploreSetting, shipped_gamma
from m2st_core.studies.relatedness import RelatednessStudy, gamma_finding, power_by_closeness
from m2st_core.studies.theorem import theorem_view
from tests.pages.harness import FAILED, button, charts, numbers, open_page, run, until, words

SHIPPED = ExploreSetting()
QUICK = {"relatedness_rows": "250", "n_tasks": "3"}


def measure(app):
    next(one for one in app.button if one.label.startswith("Measure this setting")).click()
    return run(app)


def test_the_page_opens_on_shipped_numbers_and_computes_nothing(monkeypatch):
    monkeypatch.setattr(RelatednessStudy, "run", lambda self, progress: pytest.fail("computed"))
    app = open_page("relatedness")
    gamma, power = shipped_gamma(SHIPPED), power_by_closeness(SHIPPED)
    assert gamma_finding(SHIPPED, gamma, power) in words(app) and "**γ̂** says how much" in words(app)
    course, against, by_n, by_m = charts(app)
    assert numbers(course["data"][1]["y"]) == list(gamma["on_test_rows"])
    assert {trace["name"] for trace in against["data"]} == {"Meta-MKL", "Meta-KL"}
    assert theorem_view(SHIPPED).sentence in words(app) and len(by_n["data"]) >= 6 and len(by_m["data"]) >= 6
    assert all(chart.proto.alt for chart in app.get("plotly_chart")) and not app.error
    assert any("about" in one.label for one in app.button if one.key == "relatedness_measure")


def test_a_setting_without_shipped_numbers_says_so():
    app = open_page("relatedness", hdgm_delta="0.3")
    assert "γ̂ has not been measured for this target yet." in words(app) and "γ̂ is shipped for HDGM" in words(app)
    assert "It was measured for HDGM with Δ = 0.7." in words(app) and not charts(app)


@pytest.mark.parametrize("family", ["Blobs", "Variance shift"])
def test_the_button_measures_another_family(family):
    app = measure(open_page("relatedness", task=family, **QUICK))
    until(app, lambda app: charts(app))
    course = charts(app)[0]["data"]
    assert numbers(course[1]["x"]) == [0.1, 0.3, 0.5] and "Measured now, on fresh rows." in words(app)
    assert min(numbers(course[1]["y"])) >= 0 and "γ̂" in words(app)


def test_a_measurement_can_be_cancelled():
    app = measure(open_page("relatedness", hdgm_delta="0.4", relatedness_rows="2000"))
    button(app, "Cancel").click()
    until(run(app), lambda app: "Cancelled" in words(app))
    assert button(app, "Run again")


def test_a_link_alone_measures_nothing():
    app = open_page("relatedness", hdgm_delta="0.45", relatedness_rows="250", relatedness_asked="true")
    assert not any(one.label == "Cancel" for one in app.button) and FAILED not in words(app)


def test_uploaded_related_tasks_have_gamma_by_name():
    app = open_page("test_my_data")
    app.button(key="data_example_diabetes").click()
    run(app)
    app.switch_page("pages/relatedness.py")
    run(app)
    assert "without any label of your own data" in words(app)
    app.button(key="relatedness_files_go").click()
    run(app)
    until(app, lambda app: len(charts(app)) == 5)
    data = app.session_state["own_data"]
    bars, floors = charts(app)[4]["data"]
    names = data.prepared(data.upload).related.names
    assert bars["y"] == list(names[: len(bars["y"])]) and len(bars["y"]) == min(12, len(names))
    assert min(numbers(floors["x"])) > 0 and "tasks were each compared with the most similar" in words(app)


def test_without_an_upload_a_link_leads_to_one():
    app = open_page("relatedness")
    assert "Bring your data with at least two related tasks" in words(app) and job_manager() is not None
