"""Learn: every step answers, follows its controls, the address and the seed, and can be reset."""

import time

import pytest

import m2st_core as m2st
from m2st_core.dashboard.learn.lessons import LESSONS
from tests.pages.harness import button, charts, metrics, open_page, run

STEPS = range(1, len(LESSONS) + 1)


@pytest.mark.parametrize("step", STEPS)
def test_every_step_has_words_a_formula_controls_with_help_and_a_chart_with_text(step):
    app = open_page("learn", step=str(step))
    assert app.header[0].value == f"{step}. {LESSONS[step - 1].title}"
    assert app.latex and charts(app)
    controls = [*app.select_slider, *app.toggle, *app.get("button_group"), *app.button]
    assert all(control.proto.help for control in controls) and len(controls) > 3
    assert all(chart.proto.alt for chart in app.get("plotly_chart"))


def test_back_and_next_walk_through_the_steps_and_the_address():
    app = open_page("learn")
    assert button(app, "← Back").disabled
    button(app, "Next →").click()
    run(app)
    assert app.header[0].value.startswith("2.") and app.query_params["step"] == "2"
    button(app, "← Back").click()
    run(app)
    assert app.header[0].value.startswith("1.") and "step" not in app.query_params


@pytest.mark.parametrize("step", ["0", "99", "two", ""])
def test_a_step_that_does_not_exist_is_the_first(step):
    assert open_page("learn", step=step).header[0].value.startswith("1.")


def test_nonsense_settings_are_ignored():
    app = open_page("learn", step="2", learn2_width="-1", learn2_delta="nan", seed="x", learn2_size="<b>")
    assert metrics(app) == metrics(open_page("learn", step="2"))


def test_a_setting_changes_the_answer_and_reset_brings_it_back_with_the_same_seed():
    app = open_page("learn", step="2", seed="4")
    before = metrics(app)
    app.select_slider(key="learn2_width").set_value(20.0)
    run(app)
    assert metrics(app) != before
    button(app, "Reset").click()
    run(app)
    assert metrics(app) == before and app.number_input(key="seed").value == 4


def test_reseeding_draws_other_samples_and_keeps_the_settings():
    app = open_page("learn", step="2", learn2_width="5.0")
    before = metrics(app)
    button(app, "Re-seed").click()
    run(app)
    assert metrics(app) != before and app.select_slider(key="learn2_width").value == 5.0
    assert app.number_input(key="seed").value == 1


def test_the_permutation_null_ends_at_the_librarys_p_value():
    app = open_page("learn", step="3", learn3_shown="999", learn3_delta="0.9", learn3_size="50", seed="2")
    x, y = m2st.make_task("hdgm", delta=0.9).sample(100, seed=2)
    assert metrics(app)["p-value so far"] == f"{m2st.two_sample_test(x, y, 'MMD-M', seed=2).p_value:.3f}"


def test_related_tasks_can_be_seen_as_features_weights_and_witness():
    app = open_page("learn", step="6", learn6_n_tasks="10")
    assert [data["type"] for chart in charts(app) for data in chart["data"]].count("heatmap") == 2
    app = open_page("learn", step="6", learn6_n_tasks="10", learn6_view="Weights β")
    assert charts(app)[0]["data"][0]["type"] == "bar"
    app = open_page("learn", step="6", learn6_n_tasks="10", learn6_view="Witness")
    assert "mixture" in charts(app)[0]["data"][0]["name"]


@pytest.mark.parametrize("step", STEPS)
def test_a_redraw_is_quick(step):
    app = open_page("learn", step=str(step))
    began = time.perf_counter()
    button(app, "Re-seed").click()
    run(app)
    assert time.perf_counter() - began < 5  # about 1 s on an idle machine; this guards against far worse
