"""Where sweeps run, and what a page says of them."""

from types import SimpleNamespace

import pytest
from streamlit.testing.v1 import AppTest

from m2st_core.dashboard.jobs import sweeps
from m2st_core.dashboard.jobs.host import Visitor
from m2st_core.dashboard.jobs.runs import RunDesk, RunStatus, SweepView
from m2st_core.sweeps.spec import SweepSpec
from m2st_core.sweeps.store import Run
from m2st_core.sweeps.work import SweepProgress


def test_a_dask_address_is_used_where_there_is_one(monkeypatch):
    made = []
    monkeypatch.setattr(sweeps, "make_executor", lambda *arguments: made.append(arguments))
    monkeypatch.delenv("M2ST_DASK", raising=False)
    sweeps.start_executor()
    monkeypatch.setenv("M2ST_DASK", "tcp://host:8786")
    sweeps.start_executor()
    assert made == [("pool",), ("dask", "tcp://host:8786")]


HALF = SweepProgress(36, 18, 18, 4, 0.5, 10.0, 10.0)


@pytest.mark.parametrize(
    ("status", "said", "buttons"),
    [
        (RunStatus("waiting", position=2, sessions=frozenset(["me"])), "2 sweeps come first", ["Cancel"]),
        (RunStatus("waiting", position=0, sessions=frozenset(["me"])), "workers are starting", ["Cancel"]),
        (RunStatus("waiting", position=1, sessions=frozenset(["me"])), "1 sweep comes first", ["Cancel"]),
        (RunStatus("running", progress=HALF, sessions=frozenset(["me"])), "18 of 36 cells, 4 trainings", ["Cancel"]),
        (RunStatus("running", progress=HALF, sessions=frozenset(["me"])), "about 10 s left", ["Cancel"]),
        (RunStatus("running", progress=HALF, sessions=frozenset(["other"])), "Another browser session", []),
        (RunStatus("running", progress=HALF), "Stopping", []),
        (RunStatus("failed", "It broke; reference 1234."), "reference 1234", ["Retry"]),
        (RunStatus("interrupted"), "was interrupted", ["Resume"]),
        (RunStatus("cancelled", "Stopped on request."), "Stopped on request.", ["Resume"]),
        (RunStatus("done"), "", []),
    ],
)
def test_every_state_is_shown_with_what_can_be_done(status, said, buttons, monkeypatch):
    monkeypatch.setattr("m2st_core.dashboard.jobs.runs.is_open", lambda session: True)
    desk = RunDesk(SimpleNamespace(store=None), Visitor("me"))
    run = Run("0123456789ab", "a run", SweepSpec().to_json(), status.state, status.message, 0.0, 0.0, "")
    view = SweepView(SweepSpec(), run, status, mine=True, rows=None, stored=frozenset(), cells=1)

    def page(desk, view):
        from m2st_core.dashboard.jobs.sweeps import show_sweep_state

        show_sweep_state(desk, view, "test")

    app = AppTest.from_function(page, args=(desk, view)).run()
    assert not app.exception and [button.label for button in app.button] == buttons
    text = [element.value for element in [*app.error, *app.warning, *app.info, *app.caption]]
    assert said in " ".join([*text, *(bar.proto.text for bar in app.get("progress"))])
