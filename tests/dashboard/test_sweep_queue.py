"""The queue: fair, bounded, stopped one by one, and never losing what was computed."""

import threading
import time
from concurrent.futures import Future

import pytest

from m2st_core.dashboard.jobs import runs as module
from m2st_core.dashboard.jobs.host import ServerLimits
from m2st_core.dashboard.jobs.runs import QueueFull, SweepQueue
from m2st_core.sweeps.executors import InlineExecutor, WorkerLost
from m2st_core.sweeps.spec import SweepSpec
from m2st_core.sweeps.store import Store
from m2st_core.sweeps.work import SweepFailed, SweepProgress
from m2st_core.types import Cancelled

SPEC = SweepSpec(methods=("MMD-M",), m_te=(10,), repeats=2, tests=4, n_permutations=39)


def spec(seed):
    return SPEC.with_(seed=seed)


def wait_for(holds, seconds=20):
    deadline = time.monotonic() + seconds
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert holds()


class Sweeps:
    """Stands in for compute_sweep: each sweep runs until it is let go, and notes when it began."""

    def __init__(self, home):
        self.home, self.began, self.release, self.errors = home, [], threading.Event(), {}

    def __call__(self, spec, store, executor, run, progress):
        if store.home != self.home:  # what another test left in its queue
            return
        self.began.append(spec.seed)
        while not self.release.wait(0.01):
            progress(SweepProgress(2, 1, 1, 0, 0.5, 1.0, 1.0))
        if spec.seed in self.errors:
            raise self.errors[spec.seed]


@pytest.fixture
def sweeps(monkeypatch, tmp_path):
    stand_in = Sweeps(tmp_path)
    monkeypatch.setattr(module, "compute_sweep", stand_in)
    monkeypatch.setattr(module, "machine_factor", lambda: 1.0)
    yield stand_in
    stand_in.release.set()


@pytest.fixture
def queue(tmp_path, sweeps):
    return SweepQueue(Store(tmp_path), InlineExecutor)


def submit(queue, *jobs):
    """Put (seed, session) pairs in the queue; the first is running when this returns."""
    runs = []
    for seed, session in jobs:
        runs.append(queue.submit(spec(seed), session))
        if len(runs) == 1:
            wait_for(lambda: queue.status(runs[0]).state == "running")
    return runs


def test_sessions_take_turns_and_see_their_place(queue, sweeps):
    runs = submit(queue, (0, "a"), (1, "a"), (2, "a"), (3, "b"), (4, "c"))
    assert [queue.status(run).position for run in runs] == [0, 3, 4, 1, 2] and queue.counts() == (1, 4)
    sweeps.release.set()
    wait_for(lambda: queue.counts() == (0, 0))
    assert sweeps.began == [0, 3, 4, 1, 2] and {queue.status(run).state for run in runs} == {"done"}


def test_a_session_has_a_cap_of_its_own(queue):
    submit(queue, *((seed, "a") for seed in range(ServerLimits().sweeps)))
    with pytest.raises(QueueFull, match="You have 3 sweeps"):
        queue.submit(spec(9), "a")
    assert queue.submit(spec(0), "a") == spec(0).run_id  # asking again for the same is no more
    queue.submit(spec(9), "b")


def test_cancelling_stops_one_job_and_no_other(queue, sweeps):
    first, second, third = submit(queue, (0, "a"), (1, "b"), (2, "b"))
    queue.cancel(second, "b")
    assert queue.status(second).state == "cancelled" and queue.status(first).state == "running"
    began = time.monotonic()
    queue.cancel(first, "a")
    wait_for(lambda: queue.status(first).state == "cancelled")
    assert time.monotonic() - began < 2
    wait_for(lambda: queue.status(third).state == "running")
    queue.cancel("unknown", "a")


def test_who_shares_a_run_withdraws_alone(queue):
    (run,) = submit(queue, (0, "a"))
    assert queue.submit(spec(0), "b") == run
    queue.cancel(run, "a")
    time.sleep(0.1)
    assert queue.status(run).state == "running" and queue.status(run).sessions == {"b"}
    queue.cancel(run)
    wait_for(lambda: queue.status(run).state == "cancelled")


def test_a_run_that_is_requested_again_while_it_stops_starts_again(queue, sweeps, monkeypatch):
    stopping, on = threading.Event(), threading.Event()

    def slow_to_stop(spec, *rest):
        try:
            sweeps(spec, *rest)
        except Cancelled:
            stopping.set()
            on.wait(20)
            raise

    monkeypatch.setattr(module, "compute_sweep", slow_to_stop)
    (run,) = submit(queue, (0, "a"))
    queue.cancel(run, "a")
    assert stopping.wait(20) and queue.status(run).sessions == frozenset()
    assert queue.submit(spec(0), "b") == run and queue.status(run).sessions == {"b"}
    on.set()
    wait_for(lambda: sweeps.began == [0, 0])
    assert queue.store.runs.get(run).state == "running"
    sweeps.release.set()
    wait_for(lambda: queue.status(run).state == "done")


def test_a_long_sweep_makes_room_and_goes_on(queue, sweeps, monkeypatch):
    monkeypatch.setattr(module, "TURN_SECONDS", 0.05)
    long, short = submit(queue, (0, "a"), (1, "b"))
    wait_for(lambda: len(sweeps.began) >= 3)
    assert sweeps.began[:3] == [0, 1, 0]
    sweeps.release.set()
    wait_for(lambda: queue.counts() == (0, 0))
    assert queue.status(long).state == queue.status(short).state == "done"


def test_failures_are_sentences_with_a_reference(queue, sweeps, caplog):
    sweeps.errors = {0: KeyError("secret"), 1: SweepFailed("1 failed", ["There are 183 images."]), 2: SweepFailed("x")}
    runs = submit(queue, (0, "a"), (1, "b"), (2, "c"))
    sweeps.release.set()
    wait_for(lambda: queue.counts() == (0, 0))
    messages = [queue.status(run).message for run in runs]
    assert all(
        queue.status(run).state == "failed" and "kept" in message for run, message in zip(runs, messages, strict=True)
    )
    assert "secret" not in messages[0] and messages[1].startswith("There are 183 images.")
    assert all(message.rstrip(".").split()[-1] in caplog.text for message in messages)
    sweeps.errors = {}
    queue.submit(spec(0), "a")
    wait_for(lambda: queue.status(runs[0]).state == "done")


def test_a_run_that_nobody_owns_is_interrupted_and_goes_on(queue, sweeps):
    run = queue.store.runs.start(spec(5))
    assert queue.status(run).state == "interrupted" and queue.status("0" * 12) is None
    sweeps.release.set()
    queue.submit(queue.store.runs.get(run).spec, "a")
    wait_for(lambda: queue.status(run).state == "done")


def test_a_server_that_stops_leaves_its_run_interrupted(queue, sweeps, caplog):
    sweeps.errors = {0: RuntimeError("cannot schedule new futures after shutdown")}
    (run,) = submit(queue, (0, "a"))
    sweeps.release.set()
    wait_for(lambda: queue.counts() == (0, 0))
    assert queue.status(run).state == "interrupted" and not caplog.text


def test_what_runs_cannot_be_deleted(queue, sweeps):
    (run,) = submit(queue, (0, "a"))
    with pytest.raises(ValueError, match="Cancel it first"):
        queue.delete(run)
    sweeps.release.set()
    wait_for(lambda: queue.counts() == (0, 0))
    queue.delete(run)
    assert queue.status(run) is None


def test_workers_that_cannot_start_fail_the_job_and_are_tried_again(tmp_path, sweeps):
    tries = []

    def start():
        tries.append(1)
        if len(tries) < 3:  # when the queue starts, and for the first job
            raise ValueError("There is no Dask scheduler at 'tcp://nowhere:1'.")
        return InlineExecutor()

    queue = SweepQueue(Store(tmp_path), start)
    run = queue.submit(spec(0), "a")
    wait_for(lambda: queue.status(run).state == "failed")
    assert "no Dask scheduler" in queue.status(run).message
    sweeps.release.set()
    queue.submit(spec(0), "a")
    wait_for(lambda: queue.status(run).state == "done")


def test_real_sweeps_share_the_workers_after_a_cancel(tmp_path):
    queue = SweepQueue(Store(tmp_path), InlineExecutor)
    long = queue.submit(SPEC.with_(repeats=500), "a")
    wait_for(lambda: queue.status(long).progress is not None and queue.status(long).progress.done >= 1)
    queue.cancel(long, "a")
    wait_for(lambda: queue.status(long).state == "cancelled", seconds=2)
    short = queue.submit(spec(7), "b")
    wait_for(lambda: queue.status(short).state == "done")
    assert len(queue.store.cells.rows(spec(7))) == 2 and 1 <= len(queue.store.cells.rows(SPEC.with_(repeats=500))) < 500


def test_a_sweep_that_a_stopping_server_left_goes_on_at_once_in_the_next(tmp_path):
    """Nothing of the stopped server is in the way: its claims are given back, and its lease counts no more."""
    spec, first = SPEC.with_(repeats=40), SweepQueue(Store(tmp_path), InlineExecutor)
    run = first.submit(spec, "a")
    wait_for(lambda: first.status(run).progress is not None and first.status(run).progress.done >= 1)
    first.close()
    before = len(first.store.cells.rows(spec))
    assert 1 <= before < 40 and not first.store.database.execute("SELECT * FROM claimed")
    second = SweepQueue(Store(tmp_path), InlineExecutor)
    assert second.status(run).state == "interrupted" and second.submit(spec, "a") == run
    wait_for(lambda: len(second.store.cells.rows(spec)) > before)
    wait_for(lambda: second.status(run).state == "done", 60)
    assert len(second.store.cells.rows(spec)) == 40
    second.close()


def test_a_server_that_stops_while_a_sweep_pauses_does_not_wait_for_its_cells(tmp_path, monkeypatch):
    """A paused sweep lets its cells reach their next step, for half a minute; a stop has ten seconds."""
    monkeypatch.setattr(module, "machine_factor", lambda: 1.0)
    monkeypatch.setattr(module, "CLOSE_SECONDS", 0.5)
    monkeypatch.setattr(module, "TURN_SECONDS", 0.05)

    class Slow(InlineExecutor):
        """Workers whose cells reach no step; they can only be killed."""

        def __init__(self):
            super().__init__()
            self.killed, self.graces = threading.Event(), []

        def cancel(self, grace=1.0):
            self.graces.append(grace)
            super().cancel(grace)
            if grace == 0:
                self.killed.set()
            self.killed.wait(grace)

    workers = Slow()
    queue = SweepQueue(Store(tmp_path), lambda: workers)
    runs = [queue.submit(SPEC.with_(repeats=500), "a"), queue.submit(spec(3), "b")]
    wait_for(lambda: workers.graces)
    began = time.monotonic()
    queue.close()
    assert time.monotonic() - began < 3 and workers.graces[0] > 10 and queue._scheduler.close()
    with pytest.raises(RuntimeError):
        workers.submit("late", print)  # closed
    after = SweepQueue(Store(tmp_path), InlineExecutor)
    assert [after.status(run).state for run in runs] == ["interrupted", "interrupted"]
    after.close()


def test_a_server_that_stops_while_its_workers_start_does_not_wait_for_them(tmp_path, sweeps):
    class Starting:
        """Workers that are loading for as long as nobody stops them."""

        workers = 1

        def __init__(self):
            self.asked, self.ended = [], []

        def submit(self, job, function, *arguments):
            self.asked.append(Future())
            return self.asked[-1]

        def cancel(self, grace=0.0):
            for future in self.asked:
                future.set_exception(WorkerLost())

        def close(self):
            self.ended.append(True)

    workers = Starting()
    queue = SweepQueue(Store(tmp_path), lambda: workers)
    wait_for(lambda: workers.asked)
    began = time.monotonic()
    queue.close()
    assert time.monotonic() - began < 3 and workers.ended == [True] and queue.started.is_set()
