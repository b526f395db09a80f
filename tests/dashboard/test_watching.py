"""A page's job: done, refused with a sentence, run again, left behind."""

import time

import pytest
from streamlit.testing.v1 import AppTest


def page():
    import streamlit as st

    from m2st_core.dashboard.jobs.jobs import watch_job

    settings = st.number_input("n", 0, 10, 2, key="n")

    def work(progress):
        calls = st.test_calls = getattr(st, "test_calls", 0) + 1
        progress(1, 2, 0.0)
        if settings == 0:
            raise ValueError("n must be positive.")
        return f"{settings}, call {calls}"

    job = watch_job("test page", settings, work, "Working…")
    if job.state == "done":
        st.success(job.result)


@pytest.fixture
def app():
    import streamlit as st

    st.test_calls = 0
    return settle(AppTest.from_function(page, default_timeout=30).run())


def settle(app):
    deadline = time.monotonic() + 20
    while not (app.success or app.error) and time.monotonic() < deadline:
        time.sleep(0.1)
        app.run()
    assert not app.exception
    return app


def test_a_result_is_computed_once_and_kept(app):
    assert app.success[0].value == "2, call 1"
    assert settle(app.run()).success[0].value == "2, call 1"


def test_other_settings_are_another_job(app):
    app.number_input(key="n").set_value(3)
    assert settle(app.run()).success[0].value == "3, call 2"


def test_bad_settings_are_a_sentence_and_can_be_tried_again(app):
    app.number_input(key="n").set_value(0)
    settle(app.run())
    assert app.error[0].value == "n must be positive." and not app.success
    app.button(key="test page_again").click()
    settle(app.run())
    import streamlit as st

    assert app.error and st.test_calls == 3


def test_two_sessions_do_not_share_a_job(app):
    other = settle(AppTest.from_function(page, default_timeout=30).run())
    assert other.success[0].value == "2, call 2" and app.success[0].value == "2, call 1"
