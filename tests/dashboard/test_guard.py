"""Errors on a page are sentences."""

from streamlit.testing.v1 import AppTest


def test_bad_input_is_said_and_surprises_get_a_reference(caplog):
    def page():
        from m2st_core.dashboard.widgets.page import run_page

        def bad():
            raise ValueError("The store cannot be made.")

        def surprise():
            raise KeyError("secret detail")

        run_page(bad)
        run_page(surprise)

    app = AppTest.from_function(page, default_timeout=60).run()
    assert not app.exception and app.error[0].value == "The store cannot be made."
    assert "secret" not in app.error[1].value and app.error[1].value.split()[-1].rstrip(".") in caplog.text
