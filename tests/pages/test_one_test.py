"""One test: with and without related tasks, an edited setting, a link, nonsense in the link."""

import threading

import pytest

import m2st_core as m2st
from m2st_core.analysis.answer import headline, p_text
from m2st_core.dashboard.jobs.jobs import SHIPPED
from m2st_core.studies.one_test import SingleTest
from m2st_core.testing.methods import label_of
from m2st_core.types import BASELINE
from tests.pages.harness import FORMER, button, charts, metrics, numbers, open_page, run, until, words


def start(**query):
    return settled(open_page("one_test", **query))


def settled(app):
    return until(app, lambda app: (metrics(app) and FORMER not in words(app)) or app.error)


PLAIN = {"method": "MMD-M", "n": "60", "m": "60"}
LEARNED = {"n_tasks": "5", "n": "60", "m": "60", "m_tr": "100", "m_te": "100", "n_permutations": "99"}


def test_a_test_without_related_tasks_gives_an_answer():
    app = start(**PLAIN)
    x, y = m2st.make_task("hdgm").sample(60, seed=0)
    expected = m2st.two_sample_test(x, y, "MMD-M")
    assert metrics(app)["p-value"] == f"{expected.p_value:.3g}"
    assert metrics(app)["Test rows"] == "60 + 60" and metrics(app)["Training rows"] == "none"
    assert "**MMD-M** finds no difference (p = " in words(app)
    assert "does not show that P and Q are the same" in words(app)
    samples, null = charts(app)
    assert len(samples["data"]) == 2
    tail = next(trace for trace in null["data"] if trace["name"].startswith("at least as large"))
    reached = round(expected.p_value * 1000)
    assert f"{reached} of 1,000" in tail["name"] and sum(numbers(tail["y"])) == reached - 1
    assert f"{reached} gave a statistic at least as large" in words(app)


def test_at_first_the_page_shows_the_shipped_result_and_says_so(monkeypatch):
    monkeypatch.setattr(SingleTest, "run", pytest.fail)
    app, shipped = open_page("one_test"), SingleTest().shipped()
    assert headline(shipped.result, shipped.without) in words(app) and metrics(app)["Test rows"] == "400 + 400"
    assert SHIPPED in words(app) and len(charts(app)) == 2
    monkeypatch.undo()
    assert SHIPPED not in words(start(**PLAIN))


@pytest.mark.parametrize("method", ["Meta-Witness", "Meta-WiTS"])
def test_a_test_with_related_tasks_learns_from_those_of_the_setting(method):
    app = start(**LEARNED, method=label_of(method), closeness="0.1")
    task = m2st.make_task("hdgm")
    tasks = task.draw_related_tasks(closeness=0.1, n_tasks=5, rows=100, seed=0)
    expected = m2st.meta_train(method, tasks).test(*task.sample(60, seed=0), n_permutations=99)
    assert metrics(app)["p-value"] == p_text(expected)
    assert f"**{method} (ours)**" in words(app)
    assert f"**{m2st.METHODS[BASELINE].label}**, without related tasks," in words(app)
    assert "draw_related_tasks" in app.code[0].value and "closeness=0.1, n_tasks=5" in app.code[0].value


def test_a_learner_is_kept_for_other_tests_of_the_same_setting(monkeypatch):
    start(**LEARNED, method="Meta-Witness (ours)", seed="9")
    monkeypatch.setattr("m2st_core.studies.one_test.meta_train", pytest.fail)
    app = start(**LEARNED, method="Meta-FUSE (ours)", seed="9")
    assert "**Meta-FUSE (ours)**" in words(app) and not app.error


def test_editing_a_setting_changes_the_answer():
    app = start(**PLAIN)
    app.selectbox(key="task").select("mean_shift")
    run(app)
    app.slider(key="mean_shift_shift").set_value(3.0)
    settled(run(app))
    assert metrics(app)["p-value"] == "≤ 0.001"
    assert "**MMD-M** finds a difference (p ≤ 0.001, the smallest that 999 permutations can give)" in words(app)
    assert "make_task('mean_shift', shift=3.0" in app.code[0].value


def test_a_former_result_stays_and_is_marked_until_the_new_one_is_there(monkeypatch):
    app = start(**PLAIN)
    before, run_now, released = metrics(app), SingleTest.run, threading.Event()

    def run_later(self, progress=None):
        while not released.wait(0.05):
            progress(0, 1, 0.0)  # ends it when it is cancelled
        return run_now(self, progress)

    monkeypatch.setattr(SingleTest, "run", run_later)
    app.number_input(key="n").set_value(40)
    app.number_input(key="seed").set_value(3)
    run(app)
    assert metrics(app) == before and len(charts(app)) == 2
    assert "Before, with seed 0, n=60: **MMD-M** finds no difference" in words(app) and FORMER in words(app)
    button(app, "Cancel").click()
    run(app)
    until(app, lambda app: "Cancelled." in words(app))
    assert metrics(app) == before and FORMER in words(app)
    released.set()
    button(app, "Run again").click()
    settled(run(app))
    assert metrics(app)["Test rows"] == "40 + 60" and "Before" not in words(app)


def test_settings_that_cannot_be_tested_keep_the_former_result(monkeypatch):
    app = start(**PLAIN)
    before = metrics(app)

    def refuse(self):
        if self.n == 40:
            raise ValueError("Too few rows.")
        return draw(self)

    draw = SingleTest.sample
    monkeypatch.setattr(SingleTest, "sample", refuse)
    app.number_input(key="n").set_value(40)
    run(app)
    assert app.error[0].value == "Too few rows." and metrics(app) == before and FORMER in words(app)


@pytest.mark.parametrize("method", ["MMD-M", "SCF · tuned", "C2ST-S · tuned"])
def test_a_link_brings_the_settings_back(method):
    name, _, line = method.partition(" · ")
    link = {"task": "Variance shift", "variance_shift_scale": "3.0", "m_tr": "100", "m_te": "100", "seed": "5"}
    app = start(**link, n="30", m="40", method=name, **({"algorithms": line} if line else {}))
    x, y = m2st.make_task("variance_shift", scale=3.0).sample(30, 40, seed=5)
    assert metrics(app)["p-value"] == p_text(m2st.two_sample_test(x, y, method, seed=5))


def test_nonsense_in_the_link_is_ignored():
    app = open_page("one_test", task="nothing", n="-5", method="<script>", seed="x", alpha="7", hdgm_delta="nan")
    assert app.number_input(key="n").value == 0 and app.selectbox(key="method").value == "Meta-MKL"


def test_errors_are_sentences():
    app = start(task="Digits", n="500", method="MMD-M")
    assert "Digits, 3: 183 images are available here, and 500 were requested." in app.error[0].value
    app = start(method="SCF", n="10", m="10")
    assert "SCF needs at least 14 rows in each sample" in app.error[0].value


@pytest.mark.parametrize("query", [{"method": "MMD-M"}, {"method": "Meta-Witness (ours)", "n_tasks": "5"}])
def test_the_python_code_gives_the_same_answer(capsys, query):
    app = start(task="Blobs", blobs_correlation="0.9", n="60", m="50", seed="2", null="true", **query)
    exec(compile(app.code[0].value, "page", "exec"), {})
    assert float(capsys.readouterr().out.split()[0]) == pytest.approx(
        float(metrics(app)["p-value"].removeprefix("≤ ")), rel=1e-2
    )


def test_the_code_is_sent_when_it_is_asked_for():
    app = open_page("one_test", unfolded=False)
    assert "Repeat this in Python" in [expander.label for expander in app.expander] and not app.code
    app.session_state["one_test_code_unfolded"] = True
    assert "m2st.make_task" in run(app).code[0].value
