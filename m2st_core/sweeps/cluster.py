"""The executor that runs cells on a Dask cluster."""

from __future__ import annotations

import ctypes
import queue
import sys
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import cache
from typing import Any

import torch

from m2st_core.device import resolve_device
from m2st_core.sweeps.executors import GRACE_SECONDS, Report, WorkerLost, drain, reporting
from m2st_core.types import Cancelled


class DaskExecutor:
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

    def reports(self) -> Iterator[Report]:
        """Progress that arrived since the last call."""
        return drain(self._reports)

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
    progress = reporting(job, stop.is_set, lambda report: worker.log_event(topic, report))
    return function(*arguments, str(resolve_device()), progress)
