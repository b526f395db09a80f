"""What a sweep needs of whoever runs its cells.

``submit`` returns a Future. The function gets a ``progress`` that reports to ``executor.reports`` and raises Cancelled
once ``cancel`` was called. What is submitted after a cancel runs: an executor may serve one sweep after another.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, Protocol

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
