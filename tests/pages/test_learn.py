"""Learn: each step's sentence has the study's numbers; settings are carried along; the quiz counts."""

import re
import time

import numpy as np
import plotly.graph_objects as go
import pytest

from m2st_core.dashboard.learn.lessons import LAST, LESSONS, QUIZ
from m2st_core.dashboard.learn.pictures import LARGE, LIKE_TASKS, WIDTHS, Sample, larger, power
from m2st_core.studies import synthetic
from m2st_core.studies.lessons import DELTAS, OWN_ROWS, ROWS, TASK_COUNTS, TRAINING_ROWS, LessonCell, lesson_p_values
from tests.pages.harness import button, charts, open_page, run, words

STEPS = [lesson.name for lesson in LESSONS]


def open_step(number, **query):
    return open_page("learn", step=STEPS[number - 1], **query)


def sentence(app):
    """The step's computed sentence, the first text below its title."""
    return app.markdown[0].value.replace("\u00a0", " ")


def percent(*cell, **more):
    return f"{100 * np.mean(lesson_p_values(LessonCell(*cell, **more)) <= 0.05):.0f} %"


@pytest.mark.parametrize("step", STEPS)
def test_every_step_has_one_idea_one_control_one_sentence_its_maths_and_charts_with_texts_and_is_quick(step):
    app = open_page("learn", step=step)
    assert [title.value for title in app.title] == ["Learn"]
    assert app.header[0].value == f"{1 + STEPS.index(step)}. {step}"
    assert [expander.label for expander in app.expander] == ["The maths"] and "$$" in words(app)
    controls = [*app.select_slider, *app.segmented_control, *app.toggle, *app.button]
    assert all(control.proto.help for control in controls)
    labels = [control.label for control in controls]
    assert len(labels) == len(set(labels))
    assert charts(app) and all(chart.proto.alt for chart in app.get("plotly_chart"))
    began = time.process_time()
    run(app)
    assert time.process_time() - began < 2  # a redraw takes about 0.1 s; this guards against far worse


def test_back_and_next_walk_through_the_steps():
    app = open_page("learn")
    assert button(app, "← Back").disabled and app.header[0].value == f"1. {STEPS[0]}"
    for number, name in enumerate(STEPS[1:], start=2):
        button(app, "Next →").click()
        assert run(app).header[0].value == f"{number}. {name}"
    button(app, "Next →").click()
    assert run(app).header[0].value == LAST and button(app, "Next →").disabled
    button(app, "← Back").click()
    assert run(app).header[0].value == f"7. {STEPS[-1]}"


@pytest.mark.parametrize("step", ["0", "99", ""])
def test_a_step_that_does_not_exist_is_the_first(step):
    assert open_page("learn", step=step).header[0].value == f"1. {STEPS[0]}"


def test_nonsense_settings_are_ignored():
    app = open_step(3, learn_width="-1", learn_delta="nan", seed="x", learn_rows="<b>")
    assert sentence(app) == sentence(open_step(3))


def test_the_sample_is_carried_from_step_to_step():
    app = open_step(1)
    app.select_slider(key="learn_delta").set_value(0.9)
    run(app)
    button(app, "New sample").click()
    run(app)
    for _ in range(3):
        button(app, "Next →").click()
        run(app)
    app.select_slider(key="learn_rows").set_value(50)
    run(app)
    for _ in range(2):
        button(app, "Next →").click()
        run(app)
    assert app.select_slider(key="learn_delta").value == 0.9 and app.number_input(key="seed").value == 1
    assert percent("Meta-Witness", 50, 0.9, 40) in sentence(app) and "50 rows" in sentence(app)


def test_step_1_says_whether_a_generic_test_notices():
    p = synthetic.shuffle_labels(0.7, 50, 0).p_value(99)
    assert p > 0.05 and sentence(open_step(1)).endswith(f"does not notice** it: p = {p:.2f}.")
    found = sentence(open_step(1, learn_delta="0.9", learn_rows="800"))
    assert "Δ = 0.9" in found and "**notices**" in found
    assert "the same here" in sentence(open_step(1, learn_delta="0.0"))


@pytest.mark.parametrize("shown", [5, 50, 99])
def test_step_2_counts_shuffles(shown):
    app = open_step(2, learn_shown=str(shown), seed="2")
    shuffles = synthetic.shuffle_labels(0.7, 50, 2)
    reached = int((shuffles.statistics[1 : shown + 1] >= shuffles.statistics[0]).sum())
    said = sentence(app)
    assert f"{reached} of {shown} shuffles reach" in said
    assert f"{1 + reached}/{1 + shown} = **{(1 + reached) / (1 + shown):.2f}**" in said
    assert ("cannot be below 0.17" in said) == (shown == 5)
    (chart,) = charts(app)
    assert chart["frames"][-1]["data"][3]["text"][0].startswith("99 shuffles")


def test_step_2_starts_with_the_real_labels():
    assert "Play" in sentence(open_step(2, learn_shown="0"))


def test_step_3_compares_the_width_with_the_others():
    agreements = {width: synthetic.gaussian_view(0.7, 50, width, 0).agreement for width in WIDTHS}
    best = max(agreements, key=agreements.get)
    said = sentence(open_step(3, learn_width=str(best)))
    assert f"r = {agreements[best]:.2f}" in said and "No other width" in said
    worst = min(agreements, key=agreements.get)
    said = sentence(open_step(3, learn_width=str(worst)))
    assert f"r = {agreements[worst]:.2f}" in said and "Another width" in said
    assert "noise" in sentence(open_step(3, learn_delta="0.0"))


def test_step_4_can_be_answered_with_its_control():
    few = sentence(open_step(4))
    assert percent("MMD-M", 100, 0.7) in few and percent("MMD-M", 100, 0.0) in few and "takes more rows" in few
    many = sentence(open_step(4, learn_rows="800"))
    assert percent("MMD-M", 800, 0.7) in many and "reaches 80 %" in many
    assert "false alarm" in sentence(open_step(4, learn_delta="0.0"))


def test_step_5_says_that_few_rows_teach_noise_and_many_do_not():
    few = sentence(open_step(5))
    assert percent(OWN_ROWS, 100, 0.7, 20) in few and percent("MMD-M", 100, 0.7) in few and "noise" in few
    many = sentence(open_step(5, learn_training="800"))
    assert percent(OWN_ROWS, 100, 0.7, 800) in many and "enough" in many
    assert charts(open_step(5, learn_training="800"))[0]["layout"]["yaxis"]["range"] == [0, 1]


@pytest.mark.parametrize("n_tasks", [3, 40])
def test_step_6_shows_the_same_samples_with_and_without_related_tasks(n_tasks):
    app = open_step(6, learn_tasks=str(n_tasks))
    with_, without = percent("Meta-Witness", 100, 0.7, n_tasks), percent("MMD-M", 100, 0.7)
    assert f"**{with_}**" in sentence(app) and f"**{without}**" in sentence(app)
    titles = [note["text"] for note in charts(app)[0]["layout"]["annotations"]]
    assert titles[0].startswith(f"<b>{without[:-2]} of 100") and titles[1].startswith(f"<b>{with_[:-2]} of 100")


def test_step_7_says_who_is_misled():
    most = {"learned_from": 40}
    new = sentence(open_step(7))
    for name, learned in (("MMD-M", {}), ("Meta-Witness", most), ("Meta-FUSE", most)):
        assert percent(name, 100, shifted=True, **learned) in new
    assert "**mislead**" in new
    like = sentence(open_step(7, learn_target=LIKE_TASKS))
    assert "**help**" in like and percent("Meta-Witness", 100, 0.7, 40) in like


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("rows", ROWS)
def test_every_question_has_an_answer_on_its_control(delta, rows):
    sample = Sample(delta, rows, 0)
    few, questions = sample.few_rows, [lesson.question(sample) for lesson in LESSONS]
    if not delta:
        assert all("the same here" in question for question in questions[2:6])
        return
    goal = re.search(r"give (\d+) % power", questions[3])
    powers = [power(LessonCell("MMD-M", size, delta)).share for size in ROWS]
    assert powers[0] < int(goal[1]) / 100 <= max(powers)
    without = power(LessonCell("MMD-M", few, delta)).share
    own = [power(LessonCell(OWN_ROWS, few, delta, size)).share > without + 0.05 for size in TRAINING_ROWS]
    assert ("before learning pays" in questions[4]) == any(own)
    taught = [power(LessonCell("Meta-Witness", few, delta, size)).share for size in TASK_COUNTS]
    goal = re.search(r"in (half|\d+ %) of the samples", questions[5])
    if goal is None:
        assert questions[5] == "Does it matter here how many related tasks there are?"
    else:
        share = 0.5 if goal[1] == "half" else int(goal[1][:-2]) / 100
        assert max(without, taught[0]) < share <= max(taught)


def test_step_6_asks_what_its_control_can_answer():
    assert "in half of the samples?" in words(open_step(6))
    far = words(open_step(6, learn_delta="0.9", learn_rows="200"))
    assert "half" not in far and "Does it matter here how many related tasks there are?" in far


def test_step_7_has_one_difference():
    app = open_step(7, learn_delta="0.9", learn_rows="800")
    assert words(app).count("Δ =") == 1 and "0.9" not in words(app)
    assert "200 rows each, the most in this step" in words(app)


def test_the_recap_says_why_home_has_other_numbers():
    assert "Home averages over 800 others: 12 % without related tasks, 78 % with them." in words(
        open_page("learn", step=LAST)
    )
    assert "Home" not in words(open_page("learn", step=LAST, learn_delta="0.9"))


def test_the_quiz_explains_each_answer_and_counts():
    app = open_page("learn", step=LAST)
    assert "0 of 5 answered" in words(app)
    for question in QUIZ[:-1]:
        app.radio(key=question.key).set_value(list(question.answers)[question.right])
    run(app)
    assert "4 of 5 answered, 4 right" in words(app)
    last = QUIZ[-1]
    wrong = next(answer for index, answer in enumerate(last.answers) if index != last.right)
    app.radio(key=last.key).set_value(wrong)
    run(app)
    assert last.answers[wrong] in words(app) and "4 of 5 right" in words(app)
    app.radio(key=last.key).set_value(list(last.answers)[last.right])
    assert "5 of 5 right" in words(run(app))


def test_the_recap_has_the_numbers_and_leads_to_ones_own_data():
    app = open_page("learn", step=LAST)
    for share in (percent("MMD-M", 100, 0.7), percent("Meta-Witness", 100, 0.7, 40), percent(OWN_ROWS, 100, 0.7, 20)):
        assert share in words(app)
    (link,) = app.get("page_link")
    assert (link.proto.label, link.proto.page) == ("Test my data", "test_my_data")


def test_the_link_opens_the_teachers_view():
    app = open_page("learn", teacher="1")
    assert app.toggle(key="projector").value
    large = charts(app)[0]["layout"]["font"]["size"]
    app.toggle(key="projector").set_value(False)
    run(app)
    assert "teacher" not in app.query_params and charts(app)[0]["layout"].get("font", {}).get("size") != large


def test_the_recap_without_a_difference_counts_false_alarms():
    said = words(open_page("learn", step="Recap and quiz", learn_delta="0.0"))
    assert "gives a false alarm in" in said and "type-I error" in said and "finds the difference in" not in said


def test_the_teacher_s_large_type_is_the_teacher_s_only():
    figure = go.Figure().add_scatter(x=[0], y=[0]).update_xaxes(title_text="x")
    assert larger(figure).layout.font.size == LARGE and figure.layout.font.size is None
