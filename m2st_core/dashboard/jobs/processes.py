"""Studies in processes of their own: on a served instance, nobody's training holds up another's page."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from contextlib import contextmanager
from typing import Any

from m2st_core.dashboard.host import Once
from m2st_core.sweeps.executors import LOW, REPORT_SECONDS, PoolExecutor
from m2st_core.types import Cancelled, Progress


class Processes:
    """Processes that start when they are needed, one for each study at a time, and stay."""

    def __init__(self) -> None:
        self._free, self._busy = list[PoolExecutor](), list[PoolExecutor]()
        self._lock = threading.Lock()

    def run(self, work: Callable[[Progress], Any], progress: Progress) -> Any:
        """The result of ``work``, computed in a process. It is cancelled when ``progress`` raises Cancelled."""
        with self._process() as process:
            outcome, latest = process.submit("study", _work, work), deque([("study", 0, 1)], maxlen=1)
            try:
                while wait([outcome], REPORT_SECONDS).not_done:
                    latest.extend(process.reports())
                    progress(*latest[0][1:], 0.0)
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


def _work(work: Callable[[Progress], Any], device: str, progress: Progress) -> Any:
    return work(progress)


@Once
def study_processes() -> Processes:
    """The server's processes for studies."""
    return Processes()
