"""The owner of a run: what is missing is trained and measured, and every result is stored as it comes."""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from typing import Any

import pandas as pd

from m2st_core.sweeps.executors import Executor, WorkerLost
from m2st_core.sweeps.spec import Cell, LearnerSpec, SweepSpec
from m2st_core.sweeps.store import Store
from m2st_core.sweeps.trial import LearnerParts, run_cell, train_learner
from m2st_core.types import Cancelled

ATTEMPTS = 3
POLL_SECONDS = 0.2


@dataclass(frozen=True)
class SweepProgress:
    """Where a sweep stands. ``share`` counts parts of running jobs too; ``seconds_left`` is None until it is known."""

    cells: int
    done: int
    computed: int
    learners: int
    share: float
    seconds: float
    seconds_left: float | None


@dataclass
class Job:
    """A piece of work in flight: a learner's training, or a cell."""

    name: str
    what: LearnerSpec | Cell
    began: float
    attempts: int = 1
    share: float = 0.0


class SweepFailed(RuntimeError):
    """Some cells could not be computed; the others are in the store. ``sentences``: what a user can do about it."""

    def __init__(self, message: str, sentences: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.sentences = tuple(sentences)


def run_sweep(
    spec: SweepSpec,
    store: Store,
    executor: Executor,
    *,
    name: str = "",
    progress: Callable[[SweepProgress], None] | None = None,
) -> pd.DataFrame:
    """Compute what the store does not have yet, and return the spec's tidy table.

    ``progress`` is called a few times per second; if it raises Cancelled, the work stops within two seconds, finished
    cells stay, and Cancelled is raised again.
    """
    run = store.start_run(spec, name)
    owner = _Owner(spec, store, executor, progress)
    try:
        owner.work()
    except Cancelled:
        executor.cancel()
        store.set_state(run, "cancelled", "Stopped on request; finished cells are kept.")
        raise
    except BaseException as error:
        executor.cancel()
        store.set_state(run, "failed", f"{type(error).__name__}: {error}")
        raise
    if owner.errors:
        message = "; ".join(sorted({_in_words(error) for error in owner.errors}))
        store.set_state(run, "failed", message)
        sentences = sorted({str(error) for error in owner.errors if isinstance(error, ValueError)})
        raise SweepFailed(f"{len(owner.errors)} jobs of {len(owner.cells)} cells failed: {message}", sentences)
    store.set_state(run, "done")
    return store.rows(spec)


def warm_up(executor: Executor) -> None:
    """Have every worker start and load what cells need, so that the first sweep does not wait for it."""
    spec = SweepSpec(methods=("MMD-M",), m_te=(4,), repeats=executor.workers, tests=1, n_permutations=19)
    wait([executor.submit("warm-up", run_cell, cell, None) for cell in spec.cells()])


def _in_words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


class _Owner:
    """The state of one run."""

    def __init__(
        self, spec: SweepSpec, store: Store, executor: Executor, progress: Callable[[SweepProgress], None] | None
    ) -> None:
        self.store, self.executor, self.progress = store, executor, progress
        self.cells = list(spec.cells())
        known = store.results(self.cells)
        missing = [cell for cell in self.cells if cell.key not in known]
        self.done, self.computed = len(self.cells) - len(missing), 0
        self.place = {cell.key: index for index, cell in enumerate(self.cells)}
        self.ready = [(self.place[cell.key], cell) for cell in missing if cell.learner is None]  # a heap, by place
        self.waiting: dict[str, list[Cell]] = {}  # by learner
        self.to_train: deque[LearnerSpec] = deque()
        self.parts: dict[str, LearnerParts] = {}
        self.jobs: dict[Future[Any], Job] = {}
        self.errors: list[BaseException] = []
        self.learners = 0
        self.began = time.monotonic()
        for cell in missing:
            learner = cell.learner
            if learner is not None:
                if learner.key not in self.waiting:
                    self.to_train.append(learner)
                self.waiting.setdefault(learner.key, []).append(cell)

    def work(self) -> None:
        """Keep the workers busy until nothing is left."""
        while self.ready or self.to_train or self.jobs:
            while len(self.jobs) < 2 * self.executor.workers and self._submit_next():
                pass
            finished, _ = wait(self.jobs, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED)
            for future in finished:
                self._finish(future, self.jobs.pop(future))
            self._report()
        self._report()

    def _submit_next(self) -> bool:
        """Trainings and cells in turn, so that results come early and no worker waits for a learner."""
        trainings = sum(isinstance(job.what, LearnerSpec) for job in self.jobs.values())
        first = not self.jobs and not self.computed  # let a first row come at once, if one can
        if self.to_train and (trainings < self.executor.workers or not self.ready) and not (first and self.ready):
            spec = self.to_train.popleft()
            stored = self.store.learner(spec)
            if stored is not None:
                self._release(spec, stored)
            else:
                self._submit(Job(f"learner-{spec.key}", spec, time.monotonic()))
            return True
        if self.ready:
            _, cell = heapq.heappop(self.ready)
            self._submit(Job(f"cell-{cell.key}", cell, time.monotonic()))
            return True
        return False

    def _submit(self, job: Job) -> None:
        if isinstance(job.what, Cell):
            learner = job.what.learner
            parts = None if learner is None else self.parts[learner.key]
            future = self.executor.submit(job.name, run_cell, job.what, parts)
        else:
            future = self.executor.submit(job.name, train_learner, job.what)
        self.jobs[future] = job

    def _release(self, spec: LearnerSpec, parts: LearnerParts) -> None:
        """A learner is there: its cells take their place in the grid's order, repeat by repeat."""
        self.parts[spec.key] = parts
        for cell in self.waiting[spec.key]:
            heapq.heappush(self.ready, (self.place[cell.key], cell))

    def _finish(self, future: Future[Any], job: Job) -> None:
        error = future.exception()
        if isinstance(error, Cancelled):
            raise Cancelled
        if isinstance(error, WorkerLost) and job.attempts < ATTEMPTS:
            job.attempts += 1
            self._submit(job)
            return
        if error is not None:
            self.errors.append(error)
            if isinstance(job.what, LearnerSpec):
                del self.waiting[job.what.key]
            return
        if isinstance(job.what, Cell):
            self.store.add_cell(job.what, future.result())
            self.done += 1
            self.computed += 1
            self._forget(job.what)
        else:
            self.store.add_learner(job.what, future.result(), time.monotonic() - job.began)
            self.learners += 1
            self._release(job.what, future.result())

    def _forget(self, cell: Cell) -> None:
        """Let go of a learner when its last cell is done."""
        learner = cell.learner
        if learner is not None:
            self.waiting[learner.key].remove(cell)
            if not self.waiting[learner.key]:
                self.parts.pop(learner.key, None)

    def _report(self) -> None:
        shares = {name: step / max(total, 1) for name, step, total in self.executor.reports()}
        for job in self.jobs.values():
            job.share = shares.get(job.name, job.share)
        if self.progress is None:
            return
        seconds = time.monotonic() - self.began
        partial = sum(job.share for job in self.jobs.values())
        total = max(1, len(self.cells) - (self.done - self.computed) + len(self.to_train))
        share = min(1.0, (self.computed + 0.5 * partial) / total) if self.jobs or self.ready or self.to_train else 1.0
        left = seconds * (1 - share) / share if self.computed and share > 0 else None
        self.progress(SweepProgress(len(self.cells), self.done, self.computed, self.learners, share, seconds, left))
