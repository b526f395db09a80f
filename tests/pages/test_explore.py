"""Explore: power, β and γ̂ at one setting, from the shipped grid, and the way to what is not shipped."""

import pytest

from m2st_core.studies.explore import ExploreSetting, shipped_mixture
from tests.pages.harness import charts, numbers, open_page, run, words

PAGE = "explore"


def test_it_opens_on_three_charts_and_the_sentence_that_joins_them(store):
    app = open_page(PAGE)
    said = words(app)
    assert "the related tasks are **γ̂ = 0.09** away. **Meta-MKL**" in said and "**72 of 100** samples" in said
    power, beta, gamma = charts(app)
    assert {"Meta-MKL", "Meta-KL", "AGT-KL", "MMD-D", "MMD-O", "MMD-M"} <= {
        trace.get("name") for trace in power["data"]
    }
    mean = shipped_mixture(ExploreSetting()).mean
    assert numbers(beta["data"][0]["y"]) == pytest.approx(mean.tolist()) and len(mean) == 10
    assert gamma["layout"]["shapes"][0]["x0"] == 0.3
    assert "20 repeats × 100 samples" in said and store.all_runs().empty


def test_all_three_follow_the_rail(store):
    app = open_page(PAGE)
    before = charts(app)
    app.session_state["closeness"] = 0.1
    app.select_slider(key="m_tr").set_value(10)
    run(app)
    after = charts(app)
    curve = [next(t for t in each[0]["data"] if t.get("name") == "Meta-MKL")["y"] for each in (before, after)]
    assert numbers(curve[0]) != numbers(curve[1])
    assert numbers(before[1]["data"][0]["y"]) != numbers(after[1]["data"][0]["y"])
    assert after[2]["layout"]["shapes"][0]["x0"] == 0.1 and "At C = 0.1" in words(app)


def test_a_setting_that_is_not_shipped_says_so_and_leads_on(store):
    app = open_page(PAGE, n_tasks="40")
    said = words(app)
    assert (
        "Not computed at this setting: Meta-MKL, Meta-KL and AGT-KL." in said and "C = 0.1, 0.2, 0.3, 0.4, 0.5" in said
    )
    assert "β is shipped for HDGM" in said
    assert {"Compute them in Power", "Compute β"} <= {link.proto.label for link in app.get("page_link")}
    tuned = open_page(PAGE, algorithms="tuned")
    assert "Not computed at this setting: Meta-MKL · tuned" in words(tuned)


def test_a_second_target_has_a_small_grid(store):
    app = open_page(PAGE, task="Blobs", m_te="100")
    assert "finds the difference" in words(app) and "γ̂ is shipped for HDGM" in words(app)
