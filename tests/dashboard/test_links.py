"""Numbers in a link that no widget can show leave the default; no page breaks."""

import pytest
from streamlit.testing.v1 import AppTest

from m2st_core.dashboard.explore.rail import M_TR, N_TASKS
from m2st_core.dashboard.widgets.controls import ALPHA, PERMUTATIONS, SEED

CONTROLS = (ALPHA, PERMUTATIONS, SEED, M_TR, N_TASKS)


def draw_controls():
    from m2st_core.dashboard.explore.rail import M_TR, N_TASKS
    from m2st_core.dashboard.widgets.controls import ALPHA, PERMUTATIONS, SEED, ask_controls

    ask_controls((ALPHA, PERMUTATIONS, SEED, M_TR, N_TASKS))


@pytest.mark.parametrize("text", ["inf", "-inf", "nan", "1e309", "-1e309", "9" * 400, "", "[]", "null", "Infinity"])
def test_a_number_that_is_none_leaves_the_default(text):
    app = AppTest.from_function(draw_controls, default_timeout=120)
    for control in CONTROLS:
        app.query_params[control.key] = text
    app.run()
    assert not app.exception
    shown = {
        widget.key: widget.value for kind in ("number_input", "slider", "select_slider") for widget in app.get(kind)
    }
    assert shown == {control.key: control.default for control in CONTROLS}


def test_a_number_within_bounds_is_taken():
    app = AppTest.from_function(draw_controls, default_timeout=120)
    app.query_params[SEED.key] = "7"
    assert app.run().number_input(key=SEED.key).value == 7
