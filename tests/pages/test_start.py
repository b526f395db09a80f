"""Start: the first page, the picture, the doors, the last runs."""

import pytest
from streamlit.testing.v1 import AppTest

import app as front
import m2st_core as m2st
from m2st_core.sweeps.spec import SweepSpec
from m2st_core.sweeps.store import Store
from tests.pages.harness import button, charts, numbers, open_page, run, words


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("M2ST_HOME", str(tmp_path))
    return tmp_path


def test_start_is_the_first_page():
    assert next(iter(front.PAGES.values()))[0] == "Start"
    app = run(AppTest.from_file(front.__file__, default_timeout=60))
    assert app.title[0].value == "Are these two samples different?"


def test_drawing_again_shows_other_samples():
    app = open_page("start")
    expected = m2st.make_task("hdgm", delta=0.7).sample(100, seed=0).x[:, 0].tolist()
    assert numbers(charts(app)[0]["data"][0]["x"]) == pytest.approx(expected)
    button(app, "Draw again").click()
    run(app)
    expected = m2st.make_task("hdgm", delta=0.7).sample(100, seed=1).x[:, 0].tolist()
    assert numbers(charts(app)[0]["data"][0]["x"]) == pytest.approx(expected)


def test_the_doors_lead_to_registered_pages_only():
    links = [link.proto.page for link in open_page("start").get("page_link")]
    known = {path.removeprefix("pages/").removesuffix(".py") for path in front.PAGES}
    assert len(links) >= 3 and set(links) <= known and {"learn", "your_data"} <= set(links)


def test_an_empty_store_says_what_to_do():
    assert "Nothing has been run yet" in words(open_page("start"))


def test_the_last_runs_are_listed(home):
    Store(home).start_run(SweepSpec(methods=("MMD-M",), repeats=2), name="my run")
    table = open_page("start").dataframe[0].value
    assert list(table["Run"]) == ["my run"] and table["Cells done"][0].startswith("0 of ")


def test_a_broken_store_is_a_sentence(home):
    (home / "store.sqlite").write_bytes(b"this is no database" * 100)
    assert "cannot be read" in words(open_page("start"))


def test_nonsense_in_the_address_is_ignored():
    assert len(charts(open_page("start", start_seed="x", whatever="<script>"))) == 1
