"""Pages with an empty store of their own, and sweeps in this process."""

import pytest

from m2st_core.dashboard.jobs import sweeps
from m2st_core.dashboard.jobs.host import close_server
from m2st_core.sweeps import cells
from m2st_core.sweeps.executors import InlineExecutor
from m2st_core.sweeps.spec import SweepSpec
from m2st_core.sweeps.store import Store
from m2st_core.sweeps.work import run_sweep
from tests.data import miniature

SMALL = SweepSpec(
    methods=("MMD-M", "limit"), m_te=(10, 20), m_tr=(8,), n_tasks=(4,), rows_per_task=8, repeats=2, tests=8,
    n_permutations=99,
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def no_real_server(tmp_path_factory):
    """No test touches the user's store or starts processes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("M2ST_HOME", str(tmp_path_factory.mktemp("home")))
        patch.delenv("M2ST_DATA", raising=False)
        patch.setattr(sweeps, "start_executor", InlineExecutor)
        yield


@pytest.fixture
def miniature_images(tmp_path_factory, monkeypatch):
    """CIFAR-10, CIFAR-100 and CIFAR-10.1 of random pixels."""
    root = tmp_path_factory.mktemp("images")
    miniature.write_all(root, per_class=150)
    monkeypatch.setenv("M2ST_DATA", str(root))
    return root


@pytest.fixture
def store(tmp_path, monkeypatch):
    """The server's store, empty."""
    monkeypatch.setenv("M2ST_HOME", str(tmp_path))
    close_server()
    yield Store(tmp_path)
    close_server()


@pytest.fixture
def finished(store):
    """A run that is done: its spec."""
    executor = InlineExecutor()
    run_sweep(SMALL, store, executor, name="A small run")
    executor.close()
    return SMALL


@pytest.fixture
def other_run(store):
    """A run that another version left in the store: its id."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cells, "CODE", "4")
        run = store.runs.start(SMALL.with_(methods=("Meta-WiTS",)), "Another run")
        store.runs.set_state(run, "done")
    return run
