"""Where cells run: in this process, in a pool of processes, or on a Dask cluster."""

from __future__ import annotations

import multiprocessing
import os
import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Protocol

import torch

from m2st_core.device import resolve_device
from m2st_core.types import Cancelled, Progress

REPORT_SECONDS = 0.25
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


def reporting(job: str, stopped: Callable[[], bool], send: Callable[[Report], None]) -> Progress:
    """A progress that sends a report now and then, and raises Cancelled when it finds that it is to stop."""
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


def drain(source: Any) -> Iterator[Report]:
    """What a queue has now."""
    while True:
        try:
            yield source.get_nowait()
        except queue.Empty:
            return


LOW_PRIORITY = 10  # of worker processes: whoever started them comes first, so that a server stays responsive
GRACE_SECONDS = 1.0  # for running jobs to reach their next step after a cancel, before their processes are ended


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
        return drain(self._reports)

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
    return function(*arguments, _worker["device"], reporting(job, stopped, _worker["reports"].put))


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
        return function(*arguments, self._device, reporting(job, stop.is_set, self._reports.put))

    def reports(self) -> Iterator[Report]:
        """The progress that came in since the last call."""
        return drain(self._reports)

    def cancel(self) -> None:
        """Stop at the next step."""
        self._stop.set()
        self._stop = threading.Event()

    def close(self) -> None:
        """Wait for the thread."""
        self._threads.shutdown(wait=True, cancel_futures=True)


def make_executor(name: str = "pool", address: str | None = None, workers: int | None = None) -> Executor:
    """By name: "inline", "pool" (default) or "dask", which needs an address."""
    if name == "inline":
        return InlineExecutor()
    if name == "pool":
        return PoolExecutor(workers)
    if name == "dask":
        if not address:
            raise ValueError("The Dask executor needs the address of a scheduler, such as tcp://host:8786.")
        from m2st_core.sweeps.cluster import DaskExecutor  # only here: it needs Dask, and this module

        return DaskExecutor(address)
    raise ValueError(f"Unknown executor {name!r}. Use inline, pool or dask.")
