"""Pages of a server for several people: nothing of another person's runs is shown, by links, values or state."""

import pytest

from m2st_core.dashboard.jobs.host import Host, register_host
from m2st_core.serving.visitors import SharedHost, VisitorIdentity
from tests.pages.conftest import SMALL
from tests.pages.harness import button, charts, open_page, words


@pytest.fixture
def served(monkeypatch):
    monkeypatch.setenv("M2ST_SECRET", "of this test")
    register_host(SharedHost())
    yield
    register_host(Host())


@pytest.fixture
def anns(store, served):
    """Ann's finished run: her view of the store, and its id."""
    own = store.seen_by("ann")
    run = own.runs.start(SMALL, "Ann's secret study")
    own.runs.set_state(run, "done")
    return own, run


def test_a_stranger_finds_nothing_of_another_s_run(anns, monkeypatch):
    _, run = anns
    empty = open_page("history")  # with the shipped curves
    assert "there are no runs yet" in words(empty) and "secret" not in words(empty)
    for address in ({"run": run}, {"run": [run, SMALL.run_id]}, {"run": run, "share": "guess"}):
        app = open_page("history", **address)
        assert "there are no runs yet" in words(app) and "secret" not in words(app)
        assert charts(app) == charts(empty) and len(app.dataframe) == len(empty.dataframe)
    app.session_state["runs_shown"] = app.session_state["runs_next"] = [run]
    app.session_state["run_deleted"] = (run, "any")
    app.run()
    assert "secret" not in words(app) and charts(app) == charts(empty)
    app.button(key="run_undo").click().run()  # of a run that is not hers to restore
    assert not app.exception and "There is no deleted run" in app.error[0].value
    app = open_page("power", run=run)
    assert "There is no run" in words(app) and "run" not in app.query_params
    monkeypatch.setattr(SharedHost, "visitor", lambda self: VisitorIdentity("tab", "ann"))
    assert "Ann's secret study" in words(open_page("history", run=run))


def test_a_shared_link_opens_a_run_to_read(anns):
    own, run = anns
    app = open_page("history", run=run, share=own.runs.share(run))
    assert app.header[0].value == "Ann's secret study" and "You can read it" in words(app)
    labels = {each.label for each in app.button}
    assert not labels & {"Delete it", "Rename it", "Make a link", "Resume", "Cancel"}


def test_an_owner_shares_and_deletes(anns, store, monkeypatch):
    own, run = anns
    monkeypatch.setattr(SharedHost, "visitor", lambda self: VisitorIdentity("tab", "ann"))
    app = open_page("history", run=run)
    button(app, "Make a link").click().run()
    token = own.runs.share(run)
    assert any(token in code.value for code in app.code)
    app.button(key=f"runs_delete_{run}").click().run()
    assert own.all_runs().empty and store.seen_by("bob", (token,)).runs.get(run) is None


@pytest.mark.parametrize(("page", "link"), [("one_test", {"n": "40", "m": "40"}), ("weights", {"n_tasks": "10"})])
def test_a_link_to_heavy_work_asks_first(monkeypatch, store, page, link):
    monkeypatch.setattr("m2st_core.dashboard.jobs.jobs.ASK_SECONDS", 0.0)
    app = open_page(page, **link)
    assert button(app, "Compute it") and not app.metric and "This takes about" in words(app)
    button(app, "Compute it").click().run()
    assert not app.exception and "This takes about" not in words(app)


def test_files_for_which_there_is_no_room_are_refused_and_earlier_ones_stay(monkeypatch, served):
    def page():
        import pandas as pd
        import streamlit as st

        from m2st_core.dashboard.your_data.state import user_data
        from m2st_core.data.tables.questions import TableError
        from m2st_core.data.tables.table import Limits, Table

        state = user_data()
        try:
            for name, rows in (("small.csv", 10), ("large.csv", 100_000)):
                state.put("p" if rows == 10 else "q", [Table(name, pd.DataFrame({"a": range(rows)}), name)], Limits())
        except TableError as error:
            st.error(str(error))
        st.write(sorted(state.files))

    monkeypatch.setenv("M2ST_MOST_UPLOAD_BYTES", "100000")
    from streamlit.testing.v1 import AppTest

    app = AppTest.from_function(page, default_timeout=60).run()
    assert not app.exception
    assert "large.csv: the server's memory for files is taken" in app.error[0].value
    assert "still here" in app.error[0].value and app.session_state["own_data"].files.keys() == {"p"}
    app.session_state["own_data"].release("They were let go.")
    assert app.run().warning[0].value == "They were let go."
