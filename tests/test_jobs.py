"""Jobs run, report, stop, fail politely, and are found again by their key."""

import os
import threading
from functools import partial
from pathlib import Path

import pytest

from m2st_core.dashboard.jobs.jobs import KEPT_ANSWERS, KEPT_JOBS, PER_PERSON, JobManager
from m2st_core.sweeps.executors import LOW, Processes


@pytest.fixture
def manager():
    return JobManager(workers=1)


def test_a_job_is_computed_once_per_key(manager):
    calls = []
    for _ in range(2):
        job = manager.submit("a", lambda progress: calls.append(1) or 42)
        job.wait(5)
    assert job.state == "done" and job.result == 42 and calls == [1]
    assert manager.submit("b", lambda progress: 43) is not job


def test_an_answer_is_kept_for_all_and_a_job_for_its_owner(manager):
    release, calls = threading.Event(), []

    def work(progress):
        calls.append(1)
        assert release.wait(5)
        return 42

    first = manager.submit(("me", "page"), work, "question")
    second = manager.submit(("you", "page"), work, "question")
    assert first is not second  # so that my cancelling it leaves yours alone
    manager.drop(("me", "page"))
    release.set()
    second.wait(5)
    assert second.result == 42
    later = manager.submit(("them", "page"), work, "question")
    assert later.state == "done" and later.result == 42 and len(calls) <= 2
    manager.forget("them")
    assert manager.submit(("them", "page"), work, "question").state == "done"
    other = manager.submit(("them", "other page"), work)
    other.wait(5)
    assert len(calls) <= 3 and calls  # without a question nothing is shared


def test_only_so_many_answers_are_kept(manager):
    for index in range(KEPT_ANSWERS + 1):
        manager.submit(index, lambda progress, index=index: index, ("question", index)).wait(5)
    manager.submit("wait", lambda progress: 0).wait(5)
    assert manager.submit("new", lambda progress: 0, ("question", KEPT_ANSWERS)).result == KEPT_ANSWERS
    fresh = manager.submit("fresh", lambda progress: "again", ("question", 0))
    fresh.wait(5)
    assert fresh.result == "again"


def test_progress_is_seen_and_cancelling_stops_the_work(manager):
    started, steps = threading.Event(), []

    def work(progress):
        for step in range(1, 10_000):
            progress(step, 10_000, 0.0)
            steps.append(step)
            if step == 2_000:
                started.set()
            if step >= 2_000:
                threading.Event().wait(0.001)

    job = manager.submit("long", work)
    assert started.wait(5)
    assert job.active and 0.2 <= job.share < 1 and job.seconds_left > 0
    manager.scheduler.cancel(job)
    job.wait(5)
    assert job.state == "cancelled" and len(steps) < 9_999


def test_a_waiting_job_can_be_cancelled_and_started_anew(manager):
    release = threading.Event()
    manager.submit("first", lambda progress: release.wait(5))
    waiting = manager.submit("second", lambda progress: 1)
    assert waiting.state == "waiting"
    manager.drop("second")
    assert waiting.state == "cancelled"
    release.set()
    again = manager.submit("second", lambda progress: 2)
    again.wait(5)
    assert again.result == 2 and waiting.result is None


def test_dropping_keeps_a_finished_job(manager):
    job = manager.submit("a", lambda progress: 1)
    job.wait(5)
    manager.drop("a")
    manager.drop("unknown")
    assert manager.submit("a", lambda progress: 2) is job


def test_bad_input_is_shown_and_surprises_get_a_reference(manager, caplog):
    def bad(progress):
        raise ValueError("x has 1 row.")

    def surprise(progress):
        raise KeyError("secret detail")

    jobs = [manager.submit(name, work) for name, work in (("bad", bad), ("surprise", surprise))]
    for job in jobs:
        job.wait(5)
        assert job.state == "failed"
    assert jobs[0].error == "x has 1 row."
    assert "secret" not in jobs[1].error and jobs[1].error.split()[-1].rstrip(".") in caplog.text


def test_old_jobs_of_a_session_are_forgotten(manager):
    for index in range(KEPT_JOBS + 5):
        manager.submit(("me", index), lambda progress, index=index: index).wait(5)
    recent = manager.submit(("me", KEPT_JOBS + 4), lambda progress: "new")
    assert recent.result == KEPT_JOBS + 4
    fresh = manager.submit(("me", 1), lambda progress: "new")
    fresh.wait(5)
    assert fresh.result == "new"


def test_many_quick_jobs_of_one_session_evict_nobody_else_s(manager):
    release = threading.Event()
    long = manager.submit(("you", "long"), lambda progress: release.wait(5))
    known = manager.submit(("you", "done"), lambda progress: 1, "kept")
    for index in range(100):
        manager.submit(("me", index), lambda progress: 1, "kept")
    assert long.active and not long.stop.is_set() and manager.submit(("you", "long"), pytest.fail) is long
    release.set()
    known.wait(5)
    assert long.state == known.state == "done"


def test_a_person_has_so_many_computations_at_once_and_keeps_them(manager):
    release = threading.Event()
    own = [manager.submit(("tab", n), lambda progress: release.wait(5), person="ann") for n in range(PER_PERSON)]
    refused = manager.submit(("other tab", 0), lambda progress: 1, person="ann")
    assert refused.state == "failed" and f"{PER_PERSON} computations of yours" in refused.error
    other = manager.submit(("bob's tab", 0), lambda progress: 2, person="bob")
    assert other.state == "waiting" and all(job.active for job in own)
    release.set()
    other.wait(5)
    assert other.result == 2


def test_nobody_waits_for_all_jobs_of_another():
    manager, release, order = JobManager(workers=2), threading.Event(), []
    for n in range(5):
        manager.submit(("ann", n), lambda progress, n=n: release.wait(5) and order.append(f"ann {n}"))
    bob = manager.submit(("bob", 0), lambda progress: order.append("bob"))
    assert bob.state == "waiting"
    release.set()
    bob.wait(5)
    assert order.index("bob") <= 3  # after the two that ran, and at most one beside it
    manager.close()


def test_jobs_stop_when_their_session_is_gone_and_when_the_server_stops(manager):
    def steps(progress):
        for step in range(10_000):
            progress(step, 10_000, 0.0)
            threading.Event().wait(0.001)

    gone, waiting = manager.submit(("ann", 0), steps), manager.submit(("ann", 1), steps)
    manager.forget("ann")
    gone.wait(5)
    assert gone.state == "cancelled" and waiting.state == "cancelled" and manager.scheduler.counts() == (0, 0)
    last = manager.submit(("bob", 0), steps)
    manager.close()
    last.wait(5)
    assert last.state == "cancelled"


def test_the_time_of_a_job_is_told(manager):
    told = []
    manager.submit(("ann", 0), lambda progress: threading.Event().wait(0.05), person="ann", spend=told.append).wait(5)
    manager.submit(("ann", 1), lambda progress: 1).wait(5)
    assert len(told) == 1 and 0.04 < told[0] < 5


def own_process(progress):
    progress(1, 2, 0.0)
    return os.getpid(), os.getpriority(os.PRIO_PROCESS, 0)


def endless(progress):
    while True:
        progress(1, 4, 0.0)


def refuse(progress):
    raise ValueError("Bring two columns.")


def test_a_study_runs_in_a_process_of_low_priority_that_stays_and_can_be_cancelled(manager):
    processes = Processes()

    def submit(key, work):
        return manager.submit(key, partial(processes.run, work))

    try:
        first, again, bad = (submit(index, work) for index, work in enumerate((own_process, own_process, refuse)))
        for job in (first, again, bad):
            job.wait(60)
        assert first.result == again.result and first.result[0] != os.getpid() and first.result[1] == LOW
        assert bad.state == "failed" and bad.error == "Bring two columns."
        job = submit("endless", endless)
        for _ in range(200):
            if job.share == 0.25:
                break
            job.wait(0.05)
        assert job.share == 0.25
        manager.scheduler.cancel(job)
        job.wait(10)
        assert job.state == "cancelled"
        last = submit("last", own_process)
        last.wait(60)
        assert last.result == first.result  # it reached its next step, so its process was not killed
    finally:
        processes.close()
    assert not Path(f"/proc/{first.result[0]}").exists()


@pytest.mark.parametrize("work", [own_process, lambda progress: None])
def test_closing_ends_a_process_that_has_only_started(manager, work):
    """Also one that never gets its work, as that cannot be sent."""
    processes = Processes()
    job = manager.submit("early", partial(processes.run, work))
    job.wait(0.5)
    processes.close()
    job.wait(20)
    assert job.state == "failed"
