"""Home: the first page, one sample through two lenses, and the doors."""

import pytest
from streamlit.testing.v1 import AppTest

import app as front
from m2st_core.studies import lessons as home
from tests.pages.harness import button, charts, numbers, open_page, run, words

TABLE = home.home_table()


@pytest.fixture(autouse=True)
def store(tmp_path, monkeypatch):
    monkeypatch.setenv("M2ST_HOME", str(tmp_path))


def dots(app, lens):
    """The first column of the sample from P."""
    rows = next(trace for trace in charts(app)[lens]["data"] if trace["type"] == "scatter")
    return numbers(rows["x"])


def bar(app, lens):
    return numbers(charts(app)[lens]["data"][-1]["x"])[0]


def test_home_is_the_first_page():
    assert next(iter(front.PAGES.values())) == "Home"
    assert [title.value for title in run(AppTest.from_file(front.__file__, default_timeout=60)).title] == [
        "Are these two samples different?"
    ]


def test_both_lenses_show_the_same_rows_and_their_own_verdict():
    app = open_page("home")
    assert dots(app, 0) == dots(app, 1) == pytest.approx(TABLE.x[0, :, 0].tolist())
    generic, taught = (100 * power for power, _ in TABLE.powers(3))
    assert (bar(app, 0), bar(app, 1)) == pytest.approx((generic, taught))
    assert f"finds the difference **{generic:.0f} times**, the taught test **{taught:.0f} times**" in words(app)
    assert "p = 0.62: misses the difference" in words(app)


def test_relatedness_moves_the_taught_lens_alone():
    powers = [TABLE.powers(place)[1][0] for place in range(6)]
    app = open_page("home", home_related="hardly")
    before = charts(app)
    assert bar(app, 1) == pytest.approx(100 * powers[0]) and "C = 0.6" in words(app)
    app.select_slider[0].set_value("very closely")
    run(app)
    assert bar(app, 1) == pytest.approx(100 * powers[-1]) and "C = 0.1" in words(app)
    assert charts(app)[0] == before[0]


def test_another_sample_steps_through_all_and_starts_again():
    app = open_page("home")
    for seed in (1, 2):
        button(app, "Another sample").click()
        run(app)
        assert dots(app, 0) == pytest.approx(TABLE.x[seed, :, 0].tolist())
    app.session_state["home_sample"] = home.SAMPLES
    assert dots(run(app), 0) == pytest.approx(TABLE.x[0, :, 0].tolist())


def test_the_doors_lead_to_registered_pages():
    links = [link.proto.page for link in open_page("home").get("page_link")]
    known = {path.removeprefix("pages/").removesuffix(".py") for path in front.PAGES}
    assert len(links) == 5 and set(links) <= known


def test_nonsense_in_the_address_is_ignored():
    assert len(charts(open_page("home", home_related="x", whatever="<script>"))) == 2
