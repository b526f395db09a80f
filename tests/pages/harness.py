"""Open a page of the app as a user would, with settings in its address, and read what it shows."""

import base64
import json
import time
from pathlib import Path

import numpy as np
from streamlit.testing.v1 import AppTest

APP = Path(__file__).parents[2] / "app.py"
FOLDED = (  # the expanders that are filled when they are opened
    "lab_numbers", "lab_code", "lab_training", "runs_numbers", "one_test_code", "story_table", "weights_table",
    "weights_variation", "weights_mixed", "relatedness_maths", "relatedness_theorem_maths", "learn_maths",
)  # fmt: skip
FORMER = "It stays until there is a new one."  # beside a result of other settings
FAILED = "Something went wrong on our side."
TEXTS = ("title", "header", "subheader", "markdown", "caption", "info", "warning", "error")


def open_page(page, *, unfolded=True, **query):
    """Open a page by the stem of its file, with its expanders open."""
    app = AppTest.from_file(APP, default_timeout=300).switch_page(f"pages/{page}.py")
    for name in FOLDED if unfolded else ():
        app.session_state[f"{name}_unfolded"] = True
    for name, value in query.items():
        app.query_params[name] = value
    return run(app)


def run(app):
    app.run()
    assert not app.exception
    return app


def until(app, holds, seconds=600):
    """Run a page until something holds, as AppTest has no timers. A page that failed is not run again."""
    deadline = time.monotonic() + seconds
    while not holds(app) and time.monotonic() < deadline:
        assert FAILED not in words(app)
        time.sleep(0.2)
        run(app)
    assert holds(app)
    return app


def settle(app, charts_expected):
    """Run until the job behind the page is done and all its charts are drawn."""
    until(app, lambda app: FORMER not in words(app) and len(app.get("plotly_chart")) >= charts_expected)
    assert len(app.get("plotly_chart")) == charts_expected and not app.error
    return app


def charts(app):
    """The charts of a page as plotly's JSON."""
    return [json.loads(chart.proto.spec) for chart in app.get("plotly_chart")]


def metrics(app):
    return {metric.label: metric.value for metric in app.metric}


def words(app):
    """All text of a page, with plain spaces."""
    return " ".join(element.value for kind in TEXTS for element in app.get(kind)).replace("\u00a0", " ")


def button(app, label):
    return next(button for button in app.button if button.label == label)


def numbers(values):
    """An array that plotly sends, packed if it is large, as a list."""
    if isinstance(values, dict):
        return np.frombuffer(base64.b64decode(values["bdata"]), dtype=values["dtype"]).tolist()
    return list(values)
