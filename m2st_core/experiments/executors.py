"""Where cells run: in this process, in a pool of processes, or on a Dask cluster. One small interface for all three.

``submit`` returns a Future. The function gets a ``progress`` that reports to ``executor.reports`` and raises Cancelled
once ``cancel`` was called. What is submitted after a cancel runs: an executor may serve one sweep after another.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Protocol

import torch

from m2st_core.device import resolve_device
from m2st_core.types import Cancelled, Progress

REPORT_SECONDS = 0.25
LOW_PRIORITY = 10  # of worker processes: whoever started them comes first, so that a server stays responsive
GRACE_SECONDS = 1.0  # for running jobs to reach their next step after a cancel, before their processes are ended
Report = tuple[str, int, int]
"""(job, step, total)."""


class WorkerLost(RuntimeError):
    """A worker died while it had this job; another may do it."""


class Executor(Protocol):
    """What a sweep needs of an executor."""

    workers: int

    def submit(self, job: str, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Run ``function(*arguments, device, progress)``; a lost worker gives WorkerLost."""

    def reports(self) -> Iterator[Report]:
        """The progress that came in since the last call."""

    def cancel(self) -> None:
        """Stop running jobs at their next step, and forget those that wait."""

    def close(self) -> None:
        """Let go of the workers."""


def _progress(job: str, stopped: Callable[[], bool], send: Callable[[Report], None]) -> Progress:
    last = 0.0

    def progress(step: int, total: int, value: float) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= REPORT_SECONDS:
            last = now
            send((job, step, total))
            if stopped():
                raise Cancelled

    return progress


def _drain(source: Any) -> Iterator[Report]:
    while True:
        try:
            yield source.get_nowait()
        except queue.Empty:
            return


class InlineExecutor:
    """One job at a time, on a thread of this process."""

    workers = 1

    def __init__(self, device: str = "auto") -> None:
        self._device = str(resolve_device(device))
        self._threads = ThreadPoolExecutor(1)
        self._stop = threading.Event()  # of the jobs submitted since the last cancel
        self._reports: queue.SimpleQueue[Report] = queue.SimpleQueue()

    def submit(self, job: str, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Run on the thread."""
        return self._threads.submit(self._run, job, function, arguments, self._stop)

    def _run(self, job: str, function: Callable[..., Any], arguments: tuple[Any, ...], stop: threading.Event) -> Any:
        if stop.is_set():
            raise Cancelled
        return function(*arguments, self._device, _progress(job, stop.is_set, self._reports.put))

    def reports(self) -> Iterator[Report]:
        """The progress that came in since the last call."""
        return _drain(self._reports)

    def cancel(self) -> None:
        """Stop at the next step."""
        self._stop.set()
        self._stop = threading.Event()

    def close(self) -> None:
        """Wait for the thread."""
        self._threads.shutdown(wait=True, cancel_futures=True)


class PoolExecutor:
    """Spawned processes with one torch thread each, as many as there are cores; GPUs are dealt out in turn."""

    def __init__(self, workers: int | None = None, device: str = "auto") -> None:
        self.workers = workers or os.cpu_count() or 1
        self._context = multiprocessing.get_context("spawn")
        self._device = str(resolve_device(device))
        self._batch = 1  # what is submitted between two cancels
        self._running: set[Future[Any]] = set()
        self._pool = self._start()

    def _start(self) -> ProcessPoolExecutor:
        """New processes with a queue and a flag of their own: an ended process may hold a lock of the old ones."""
        threads = max(1, (os.cpu_count() or 1) // self.workers)
        self._reports = self._context.Queue()
        self._stopped = self._context.RawValue("i", self._batch - 1)  # batches up to this one are to stop
        turn = self._context.Value("i", 0)
        arguments = (self._reports, self._stopped, turn, self._device, threads, os.getpid())
        return ProcessPoolExecutor(self.workers, self._context, _start_worker, arguments)

    def submit(self, job: str, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Run in a process; when one was lost, the pool is made anew."""
        outcome: Future[Any] = Future()
        try:
            inner = self._pool.submit(_run_in_worker, self._batch, job, function, arguments)
        except BrokenProcessPool:
            self._pool.shutdown(wait=False)
            self._pool = self._start()
            inner = self._pool.submit(_run_in_worker, self._batch, job, function, arguments)
        self._running.add(inner)
        inner.add_done_callback(lambda done: self._finish(done, outcome))
        return outcome

    def _finish(self, done: Future[Any], outcome: Future[Any]) -> None:
        self._running.discard(done)
        _copy(done, outcome)

    def reports(self) -> Iterator[Report]:
        """The progress that came in since the last call."""
        return _drain(self._reports)

    def cancel(self) -> None:
        """Stop at the next step; processes whose next step is far are ended, and others take their place."""
        self._stopped.value = self._batch
        self._batch += 1
        left = [future for future in tuple(self._running) if not future.cancel()]
        if wait(left, GRACE_SECONDS).not_done:
            for process in list((self._pool._processes or {}).values()):
                process.kill()
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = self._start()

    def close(self) -> None:
        """End the processes."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._reports.close()


def _copy(done: Future[Any], outcome: Future[Any]) -> None:
    """Pass a result on, with a lost worker under one name for all executors."""
    if done.cancelled():
        outcome.set_exception(Cancelled())
    elif isinstance(done.exception(), BrokenProcessPool):
        outcome.set_exception(WorkerLost())
    elif done.exception() is not None:
        outcome.set_exception(done.exception())
    else:
        outcome.set_result(done.result())


_worker: dict[str, Any] = {}


def _start_worker(reports: Any, stopped: Any, turn: Any, device: str, threads: int, owner: int) -> None:
    """Once per process: its threads, its device, and a watch that ends it when its owner is gone."""
    torch.set_num_threads(threads)
    if device.startswith("cuda"):
        with turn.get_lock():
            device = f"cuda:{turn.value % torch.cuda.device_count()}"
            turn.value += 1
    _worker.update(reports=reports, stopped=stopped, device=device)

    def watch() -> None:
        while os.getppid() == owner:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _run_in_worker(batch: int, job: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    def stopped() -> bool:
        return bool(_worker["stopped"].value >= batch)

    if stopped():
        raise Cancelled
    if hasattr(os, "setpriority"):
        os.setpriority(os.PRIO_PROCESS, 0, LOW_PRIORITY)
    return function(*arguments, _worker["device"], _progress(job, stopped, _worker["reports"].put))


class DaskExecutor:
    """A running Dask cluster, by the address of its scheduler; every job is a task, retried if its worker is lost."""

    def __init__(self, address: str, device: str = "auto", resources: dict[str, float] | None = None) -> None:
        try:
            import distributed
        except ImportError:
            raise ValueError("Dask is not installed. Run: pip install -r requirements-cluster.txt") from None
        try:
            self._client = distributed.Client(address, timeout=10, set_as_default=False)
        except (OSError, TimeoutError) as error:
            raise ValueError(f"There is no Dask scheduler at {address!r} ({type(error).__name__}).") from None
        self._device, self._resources = device, resources
        self._topic = f"m2st-{uuid.uuid4().hex}"
        self._new_event = lambda: distributed.Event(f"m2st-{uuid.uuid4().hex}", client=self._client)
        self._event = self._new_event()  # of the jobs submitted since the last cancel
        self._reports: queue.SimpleQueue[Report] = queue.SimpleQueue()
        self._client.subscribe_topic(self._topic, lambda event: self._reports.put(tuple(event[1])))
        self._futures: set[Any] = set()
        self.workers = max(1, sum(self._client.nthreads().values()))

    def submit(self, job: str, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Run as a task."""
        outcome: Future[Any] = Future()
        task = self._client.submit(
            _run_on_cluster,
            self._topic,
            self._event.name,
            job,
            function,
            arguments,
            self._device,
            key=f"{job}-{uuid.uuid4().hex[:8]}",
            pure=False,
            retries=2,
            resources=self._resources,
        )
        self._futures.add(task)
        task.add_done_callback(lambda done: self._finish(done, outcome))
        return outcome

    def _finish(self, done: Any, outcome: Future[Any]) -> None:
        self._futures.discard(done)
        try:
            if done.status == "finished":
                outcome.set_result(done.result())
            elif done.status == "error":
                error = done.exception()
                outcome.set_exception(WorkerLost() if type(error).__name__ == "KilledWorker" else error)
            else:
                outcome.set_exception(Cancelled())
        except Exception as error:  # the connection may be gone by now: whoever waits must hear of it
            if not outcome.done():
                outcome.set_exception(error)

    def reports(self) -> Iterator[Report]:
        """The progress that came in since the last call."""
        return _drain(self._reports)

    def cancel(self) -> None:
        """Tasks that wait are forgotten; those that run look at the event. Dask itself can not stop them."""
        self._event.set()
        self._event = self._new_event()
        self._client.cancel(list(self._futures))

    def close(self) -> None:
        """Leave the cluster as it was."""
        self._client.close()


def _run_on_cluster(topic: str, event: str, job: str, function: Callable[..., Any], arguments: Any, device: str) -> Any:
    import distributed

    torch.set_num_threads(1)  # the cluster has as many of its own threads as it wants busy
    worker = distributed.get_worker()
    stop = distributed.Event(event, client=distributed.get_client())
    progress = _progress(job, stop.is_set, lambda report: worker.log_event(topic, report))
    return function(*arguments, str(resolve_device(device)), progress)


def make_executor(name: str = "pool", address: str | None = None, workers: int | None = None) -> Executor:
    """By name: "inline", "pool" (default) or "dask", which needs an address."""
    if name == "inline":
        return InlineExecutor()
    if name == "pool":
        return PoolExecutor(workers)
    if name == "dask":
        if not address:
            raise ValueError("The Dask executor needs the address of a scheduler, such as tcp://host:8786.")
        return DaskExecutor(address)
    raise ValueError(f"Unknown executor {name!r}. Use inline, pool or dask.")
