"""The line below every page says what computes, and looks again only while something runs."""

import pytest
from streamlit.testing.v1 import AppTest

from m2st_core.dashboard.widgets import page as status
from tests.fake_gpu import GPU_NAME, fake_gpu


class NoSweeps:
    """No sweep of anybody."""

    def counts(self):
        return 0, 0


def page():
    from m2st_core.dashboard.widgets.page import show_status

    show_status()


@pytest.fixture(autouse=True)
def no_sweeps(monkeypatch):
    monkeypatch.setattr(status, "sweep_queue", NoSweeps)
    monkeypatch.delenv("M2ST_DASK", raising=False)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)


def said():
    app = AppTest.from_function(page).run()
    assert not app.exception
    return [caption.value for caption in app.caption]


def test_without_a_gpu():
    assert said() == ["Computing on the CPU of this server.", "No sweep is running."]


def test_the_gpu_is_named_with_its_memory():
    with fake_gpu():
        assert said()[0] == f"Computing on the GPU {GPU_NAME} (8 GB of memory) of this server."


def test_a_cluster_has_devices_of_its_own(monkeypatch):
    monkeypatch.setenv("M2ST_DASK", "tcp://somewhere:8786")
    assert said()[0] == "Computing on a Dask cluster."


def test_it_polls_only_while_sweeps_run(monkeypatch):
    asked = []
    fragment = status.st.fragment
    monkeypatch.setattr(status.st, "fragment", lambda run_every: asked.append(run_every) or fragment)
    said()
    monkeypatch.setattr(NoSweeps, "counts", lambda self: (1, 2))
    assert said()[1] == "Sweeps: 1 running, 2 waiting."
    assert asked == [None, status.POLL_SECONDS]
