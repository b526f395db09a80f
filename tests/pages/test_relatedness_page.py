"""Relatedness: the published curve at once, a measurement on request."""

from m2st_core.paper.published import measured_gamma, published_gamma
from tests.pages.harness import button, charts, numbers, open_page, run, settle, until, words

SMALL = {
    "relatedness_rows": "50",
    "relatedness_tasks": "2",
    "relatedness_restarts": "2",
    "relatedness_steps": "20",
    "n_tasks": "10",
    "relatedness_m_te": "25",
}


def test_the_published_and_our_measured_curve_are_there_at_once():
    app = open_page("relatedness")
    assert len(charts(app)) == 2 and "at five values of C: about" in words(app)
    floor, published, _, fresh = charts(app)[1]["data"]
    assert "At C = 0.3 the signal Ĵ of a kernel on fresh rows differs by up to **γ̂ = 0.087**" in words(app)
    assert "on fresh rows is **higher**" in words(app)
    assert "noise floor" in floor["name"] and numbers(floor["y"]) == list(measured_gamma()["floor"])
    assert numbers(published["y"]) == list(published_gamma()["gamma_hat"])
    assert numbers(fresh["y"]) == list(measured_gamma()["on_test_rows"])


def test_the_finding_says_which_setting_it_is_of():
    app = open_page("relatedness", hdgm_delta="0.3", closeness="0.6")
    assert "For Δ = 0.7, not yours: At C = 0.5, the nearest value that was measured, the signal" in words(app)


def test_switching_it_on_measures():
    app = open_page("relatedness", **SMALL)
    app.toggle(key="relatedness_run").set_value(True)
    run(app)
    settle(app, 5)
    curve = app.dataframe[0].value
    assert list(curve["closeness"]) == [0.1, 0.2, 0.3, 0.4, 0.5]
    assert numbers(charts(app)[2]["data"][3]["y"]) == list(curve["on_test_rows"])
    assert "The noise floor" in words(app) and "stands out" in words(app)
    assert "At C = 0.3: 10 of 10 related tasks point the same way." in words(app)
    assert all(chart.proto.alt for chart in app.get("plotly_chart"))


def test_a_running_measurement_can_be_cancelled_and_run_again():
    app = open_page("relatedness", relatedness_run="true", relatedness_rows="500", relatedness_steps="100")
    assert "This takes about" in words(app)  # a link asks before it starts heavy work
    button(app, "Compute it").click()
    button(run(app), "Cancel").click()
    until(run(app), lambda app: "Cancelled" in words(app))
    assert button(app, "Run again") and len(charts(app)) == 2


def test_nonsense_in_the_address_is_ignored():
    app = open_page("relatedness", relatedness_rows="7", relatedness_tasks="x", relatedness_run="maybe")
    assert app.select_slider(key="relatedness_rows").value == 100 and len(charts(app)) == 2
