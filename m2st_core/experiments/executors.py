"""Where cells run: in this process, in a pool of processes, or on a Dask cluster."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from m2st_core.device import resolve_device
from m2st_core.experiments.cluster import DaskExecutor
from m2st_core.experiments.executor import Executor, Report, WorkerLost, drain, reporting
from m2st_core.experiments.pool import PoolExecutor
from m2st_core.types import Cancelled

__all__ = ["DaskExecutor", "Executor", "InlineExecutor", "PoolExecutor", "WorkerLost", "make_executor"]


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
        return DaskExecutor(address)
    raise ValueError(f"Unknown executor {name!r}. Use inline, pool or dask.")
