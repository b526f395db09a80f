"""Open a page of the app as a user would, with settings in its address."""

import base64
import json
import time
from pathlib import Path

import numpy as np
from streamlit.testing.v1 import AppTest

APP = Path(__file__).parents[2] / "app.py"


def open_page(page, **query):
    app = AppTest.from_file(APP, default_timeout=60).switch_page(f"pages/{page}.py")
    for name, value in query.items():
        app.query_params[name] = value
    return run(app)


def run(app):
    app.run()
    assert not app.exception and not app.error
    return app


def settle(app, charts_expected):
    """Run until the job behind the page has ended (AppTest has no timers)."""
    deadline = time.monotonic() + 60
    while len(app.get("plotly_chart")) < charts_expected and time.monotonic() < deadline:
        time.sleep(0.2)
        run(app)
    assert len(app.get("plotly_chart")) == charts_expected
    return app


def charts(app):
    return [json.loads(chart.proto.spec) for chart in app.get("plotly_chart")]


def metrics(app):
    return {metric.label: metric.value for metric in app.metric}


def numbers(values):
    """What plotly sends, as a list: small arrays as they are, larger ones packed."""
    if isinstance(values, dict):
        return np.frombuffer(base64.b64decode(values["bdata"]), dtype=values["dtype"]).tolist()
    return list(values)
