"""Executors, which run functions in this process, in a pool of processes, or on a Dask cluster."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import queue
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, Protocol

import torch

from m2st_core.device import resolve_device
from m2st_core.types import Cancelled, Progress

REPORT_SECONDS = 0.25
LOW, LOWER = 5, 10  # priorities of processes: pages come first, then what a page waits for, then sweeps
GRACE_SECONDS = 1.0  # time for running jobs to reach their next step after a cancel, before their processes are killed
PAUSE_SECONDS = 30.0  # the same when work is only paused: new processes would take seconds from all others
Report = tuple[str, int, int]  # job, step, total


class WorkerLost(RuntimeError):
    """A worker died while it had this job; another may compute it."""


class Executor(Protocol):
    """Runs jobs somewhere and reports their progress."""

    workers: int

    def submit(self, job: str, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Run ``function(*arguments, device, progress)``. The future of a lost worker raises WorkerLost."""

    def reports(self) -> Iterator[Report]:
        """Progress that arrived since the last call."""

    def cancel(self, grace: float = GRACE_SECONDS) -> None:
        """Stop running jobs at their next step, for which they have some seconds, and drop those that wait."""

    def close(self) -> None:
        """Release the workers."""


def _reporting(job: str, stopped: Callable[[], bool], send: Callable[[Report], None]) -> Progress:
    """Make a progress callback that sends reports at intervals and raises Cancelled once ``stopped`` holds."""
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


class _Reports:
    """The reports that jobs put into a queue."""

    _reports: Any

    def reports(self) -> Iterator[Report]:
        """Progress that arrived since the last call."""
        while True:
            try:
                yield self._reports.get_nowait()
            except queue.Empty:
                return


class PoolExecutor(_Reports):
    """Spawned processes, one per core by default; GPUs are assigned in turn."""

    def __init__(self, workers: int | None = None, priority: int = LOWER) -> None:
        self.workers, self.priority = workers or os.cpu_count() or 1, priority
        self._context = multiprocessing.get_context("spawn")
        self._device = str(resolve_device())
        self._batch = 1  # number of the jobs submitted since the last cancel
        self._running: set[Future[Any]] = set()
        self._pool = self._start()

    def _start(self) -> ProcessPoolExecutor:
        """Start processes with a new queue and flag: a killed process may hold a lock of the old ones."""
        threads = max(1, (os.cpu_count() or 1) // self.workers)
        self._reports = self._context.Queue()
        self._stopped = self._context.RawValue("i", self._batch - 1)  # batches up to this one must stop
        turn = self._context.Value("i", 0)
        arguments = (self._reports, self._stopped, turn, self._device, threads, os.getpid())
        return ProcessPoolExecutor(self.workers, self._context, _start_worker, arguments)

    def submit(self, job: str, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Run in a process; a broken pool is replaced."""
        outcome: Future[Any] = Future()
        before = set(self._pool._processes or ())
        try:
            inner = self._pool.submit(_run_in_worker, self._batch, job, function, arguments)
        except BrokenProcessPool:
            self._pool.shutdown(wait=False)
            self._pool = self._start()
            inner = self._pool.submit(_run_in_worker, self._batch, job, function, arguments)
        for process in set(self._pool._processes or ()) - before:  # at once: each loads torch for seconds
            with suppress(AttributeError, ProcessLookupError):  # not on every system, or it has died
                os.setpriority(os.PRIO_PROCESS, process, self.priority)
        self._running.add(inner)
        inner.add_done_callback(lambda done: self._finish(done, outcome))
        return outcome

    def _finish(self, done: Future[Any], outcome: Future[Any]) -> None:
        """Pass a result on, with Cancelled and WorkerLost as in all executors."""
        self._running.discard(done)
        error = Cancelled() if done.cancelled() else done.exception()
        if error is None:
            outcome.set_result(done.result())
        else:
            outcome.set_exception(WorkerLost() if isinstance(error, BrokenProcessPool) else error)

    def cancel(self, grace: float = GRACE_SECONDS) -> None:
        """Stop jobs at their next step; if they do not reach it in time, or have none, all processes are killed."""
        self._stopped.value = self._batch
        self._batch += 1
        left = [future for future in tuple(self._running) if not future.cancel()]
        if not grace or wait(left, grace).not_done:
            for process in list((self._pool._processes or {}).values()):
                process.kill()
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = self._start()

    def close(self) -> None:
        """End the processes."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        self._reports.close()


_worker: dict[str, Any] = {}


def _start_worker(reports: Any, stopped: Any, turn: Any, device: str, threads: int, owner: int) -> None:
    """Set a process's threads and device, and end the process when its owner is gone."""
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
    return function(*arguments, _worker["device"], _reporting(job, stopped, _worker["reports"].put))


class Processes:
    """Processes that start when they are needed, one for each piece of work at a time, and stay.

    Work of one user is cancelled without that of others, and never delays their pages.
    """

    def __init__(self) -> None:
        self._free, self._busy = list[PoolExecutor](), list[PoolExecutor]()
        self._lock = threading.Lock()

    def run(self, work: Callable[[Progress], Any], progress: Progress) -> Any:
        """The result of ``work``, computed in a process. It is cancelled when ``progress`` raises Cancelled."""
        with self._process() as process:
            outcome, latest = process.submit("work", _call, work), ("work", 0, 1)
            try:
                while wait([outcome], REPORT_SECONDS).not_done:
                    *_, latest = latest, *process.reports()
                    progress(*latest[1:], 0.0)
            except Cancelled:
                process.cancel()
                raise
            return outcome.result()

    @contextmanager
    def _process(self) -> Iterator[PoolExecutor]:
        with self._lock:
            process = self._free.pop() if self._free else PoolExecutor(1, LOW)
            self._busy.append(process)
        try:
            yield process
        finally:
            with self._lock:
                self._busy.remove(process)
                self._free.append(process)

    def close(self) -> None:
        """End the processes, also those that compute."""
        with self._lock:
            for process in (*self._busy, *self._free):
                process.cancel(grace=0)
                process.close()


def _call(work: Callable[[Progress], Any], device: str, progress: Progress) -> Any:
    return work(progress)


class InlineExecutor(_Reports):
    """One job at a time, on a thread of this process."""

    workers = 1

    def __init__(self) -> None:
        self._device = str(resolve_device())
        self._threads = ThreadPoolExecutor(1)
        self._stop = threading.Event()  # stops the jobs submitted since the last cancel
        self._reports = queue.SimpleQueue()

    def submit(self, job: str, function: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Run on the thread."""
        stop, reports = self._stop, self._reports

        def work() -> Any:
            if stop.is_set():
                raise Cancelled
            return function(*arguments, self._device, _reporting(job, stop.is_set, reports.put))

        return self._threads.submit(work)

    def cancel(self, grace: float = GRACE_SECONDS) -> None:
        """Stop jobs at their next step."""
        self._stop.set()
        self._stop = threading.Event()

    def close(self) -> None:
        """Wait for the thread."""
        self._threads.shutdown(wait=True, cancel_futures=True)


class DaskExecutor(_Reports):
    """A running Dask cluster at its scheduler's address. Each job is a task, retried if its worker is lost."""

    def __init__(self, address: str) -> None:
        try:
            import distributed
        except ImportError:
            raise ValueError("Dask is not installed. Run: pip install -r requirements-cluster.txt") from None
        try:
            self._client = distributed.Client(address, timeout=10, set_as_default=False)
        except (OSError, TimeoutError) as error:
            raise ValueError(f"There is no Dask scheduler at {address!r} ({type(error).__name__}).") from None
        self._topic = f"m2st-{uuid.uuid4().hex}"
        self._new_event = lambda: distributed.Event(f"m2st-{uuid.uuid4().hex}", client=self._client)
        self._event = self._new_event()  # stops the jobs submitted since the last cancel
        self._reports = queue.SimpleQueue()
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
            key=f"{job}-{uuid.uuid4().hex[:8]}",
            pure=False,
            retries=2,
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
        except Exception as error:  # the connection may be gone, and the waiting thread must know
            if not outcome.done():
                outcome.set_exception(error)

    def cancel(self, grace: float = GRACE_SECONDS) -> None:
        """Drop waiting tasks. Running tasks check the event, because Dask itself cannot stop them."""
        self._event.set()
        self._event = self._new_event()
        self._client.cancel(list(self._futures))

    def close(self) -> None:
        """Disconnect; the cluster keeps running."""
        self._client.close()


@cache
def _keep_memory() -> None:
    """Make malloc keep freed blocks of up to 32 MiB, once per process.

    Dask's nanny sets a threshold at which malloc returns every block at once. Page faults then double torch's time.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(-3, 2**25)  # M_MMAP_THRESHOLD
        mallopt(-1, 2**30)  # M_TRIM_THRESHOLD


def _run_on_cluster(topic: str, event: str, job: str, function: Callable[..., Any], arguments: Any) -> Any:
    import distributed

    _keep_memory()
    torch.set_num_threads(1)  # the cluster has its own threads
    worker = distributed.get_worker()
    stop = distributed.Event(event, client=distributed.get_client())
    progress = _reporting(job, stop.is_set, lambda report: worker.log_event(topic, report))
    return function(*arguments, str(resolve_device()), progress)


def make_executor(name: str = "pool", address: str | None = None, workers: int | None = None) -> Executor:
    """Make the executor "inline", "pool" or "dask". Dask needs an address."""
    if name == "inline":
        return InlineExecutor()
    if name == "pool":
        return PoolExecutor(workers)
    if name == "dask":
        if not address:
            raise ValueError("The Dask executor needs the address of a scheduler, such as tcp://host:8786.")
        return DaskExecutor(address)
    raise ValueError(f"Unknown executor {name!r}. Use inline, pool or dask.")
