"""Cells in a pool of processes on this machine."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any

import torch

from m2st_core.device import resolve_device
from m2st_core.experiments.executor import Report, WorkerLost, drain, reporting
from m2st_core.types import Cancelled

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
