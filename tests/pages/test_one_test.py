"""One test: defaults, an edited setting, a URL, nonsense in the URL."""

import pytest

import m2st_core as m2st
from m2st_core.dashboard.widgets.page import p_text
from tests.pages.harness import charts, metrics, open_page, run, until, words


def start(**query):
    return settled(open_page("one_test", **query))


def settled(app):
    return until(app, lambda app: metrics(app) or app.error)


def test_the_defaults_give_an_answer():
    app = start()
    x, y = m2st.make_task("hdgm").sample(100, seed=0)
    expected = m2st.two_sample_test(x, y, "MMD-M")
    assert metrics(app)["p-value"] == f"{expected.p_value:.3g}"
    assert metrics(app)["Test rows"] == "100 + 100"
    assert metrics(app)["Training rows"] == "none"
    assert "no evidence of a difference" in words(app) and "does not show that P and Q are the same" in words(app)
    samples, null = charts(app)
    assert len(samples["data"]) == 2 and null["data"][0]["type"] == "histogram"


def test_editing_a_setting_changes_the_answer():
    app = start()
    app.selectbox(key="task").select("mean_shift")
    run(app)
    app.slider(key="mean_shift_shift").set_value(3.0)
    settled(run(app))
    assert metrics(app)["p-value"] == "≤ 0.001"
    assert "evidence of a difference" in words(app)
    assert "make_task('mean_shift', shift=3.0" in app.code[0].value


@pytest.mark.parametrize("method", [name for name, method in m2st.METHODS.items() if not method.uses_related_tasks])
def test_a_link_brings_the_settings_back(method):
    app = start(task="Variance shift", variance_shift_scale="3.0", n="30", m="40", method=method, seed="5")
    x, y = m2st.make_task("variance_shift", scale=3.0).sample(30, 40, seed=5)
    assert metrics(app)["p-value"] == p_text(m2st.two_sample_test(x, y, method, seed=5))


def test_nonsense_in_the_link_is_ignored():
    app = start(task="nothing", n="-5", method="<script>", seed="x", alpha="7", hdgm_delta="nan")
    assert metrics(app)["Test rows"] == "100 + 100"


def test_errors_are_sentences():
    app = start(task="Digits", n="500")
    assert "Digits, 3: 183 images are available here, and 500 were asked for." in app.error[0].value
    app = start(method="SCF", n="10", m="10")
    assert "SCF needs at least 23 rows in each sample" in app.error[0].value


def test_the_python_code_gives_the_same_answer(capsys):
    app = start(task="Blobs", blobs_correlation="0.9", n="60", m="50", seed="2", null="true")
    exec(compile(app.code[0].value, "page", "exec"), {})
    assert float(capsys.readouterr().out.split()[0]) == pytest.approx(
        float(metrics(app)["p-value"].removeprefix("≤ ")), rel=1e-2
    )
