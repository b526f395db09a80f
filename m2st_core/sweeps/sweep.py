"""The owner of a run: it trains and measures what the store lacks, and stores every result as it arrives."""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from typing import Any

import pandas as pd

from m2st_core.sweeps.cost import relative_seconds
from m2st_core.sweeps.executors import Executor, WorkerLost
from m2st_core.sweeps.spec import SweepSpec
from m2st_core.sweeps.store import Store
from m2st_core.sweeps.summary import Pace
from m2st_core.sweeps.trial import Cell, LearnerParts, LearnerSpec, run_cell, train_learner
from m2st_core.types import Cancelled

ATTEMPTS = 3
POLL_SECONDS = 0.2
STOPPED = "Stopped on request; finished cells are kept."


@dataclass(frozen=True)
class SweepProgress:
    """Progress of a sweep. ``share`` includes parts of running jobs; ``seconds_left`` is None until it is known."""

    cells: int
    done: int
    computed: int
    learners: int
    share: float
    seconds: float
    seconds_left: float | None


Watcher = Callable[[SweepProgress], None]


@dataclass
class Job:
    """A learner's training or a cell, in flight."""

    spec: LearnerSpec | Cell
    name: str
    began: float
    attempts: int = 1
    share: float = 0.0


class SweepFailed(RuntimeError):
    """Some cells could not be computed; the others are in the store. ``sentences`` tell a user what to do."""

    def __init__(self, message: str, sentences: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.sentences = tuple(sentences)


def run_sweep(
    spec: SweepSpec, store: Store, executor: Executor, *, name: str = "", progress: Watcher | None = None
) -> pd.DataFrame:
    """Compute what the store lacks as a run of its own, and return the spec's tidy table."""
    run = store.start_run(spec, name)
    try:
        compute_sweep(spec, store, executor, progress)
    except BaseException as error:
        end_run(store, run, error)
        raise
    end_run(store, run)
    return store.rows(spec)


def end_run(store: Store, run: str, error: BaseException | None = None, message: str = "") -> None:
    """Write how a run ended: done, cancelled, or failed with a message. Only the owner of the run calls this."""
    if error is None:
        store.set_state(run, "done")
    elif isinstance(error, Cancelled):
        store.set_state(run, "cancelled", STOPPED)
    else:
        store.set_state(run, "failed", message or _described(error))


def compute_sweep(spec: SweepSpec, store: Store, executor: Executor, progress: Watcher | None = None) -> None:
    """Compute what the store lacks. The state of the run is left to its owner.

    ``progress`` is called a few times per second. If it raises Cancelled, the work stops within two seconds, finished
    cells stay, and Cancelled is raised again.
    """
    work = _Work(spec, store, executor, progress)
    try:
        work.finish_all()
    except BaseException:
        executor.cancel()
        raise
    if work.errors:
        described = "; ".join(sorted({_described(error) for error in work.errors}))
        sentences = sorted({str(error) for error in work.errors if isinstance(error, ValueError)})
        raise SweepFailed(f"{len(work.errors)} jobs of {len(work.cells)} cells failed: {described}", sentences)


def warm_up(executor: Executor) -> None:
    """Start every worker and load what cells need, so that the first sweep does not wait for it."""
    spec = SweepSpec(methods=("MMD-M",), m_te=(4,), repeats=executor.workers, tests=1, n_permutations=19)
    wait([executor.submit("warm-up", run_cell, cell, None) for cell in spec.cells()])


def _described(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".removesuffix(": ")


class _Work:
    """The missing cells of a sweep, the learners they wait for, and the jobs in flight."""

    def __init__(self, spec: SweepSpec, store: Store, executor: Executor, progress: Watcher | None) -> None:
        self.store, self.executor, self.progress = store, executor, progress
        self.cells = {cell.key: cell for cell in spec.cells()}
        self.place = {key: index for index, key in enumerate(self.cells)}
        stored = store.results(self.cells)
        self.done, self.computed, self.learners, self.work_done = len(stored), 0, 0, 0.0
        self.ready: list[tuple[int, Cell]] = []  # a heap, by place in the grid
        self.waiting: dict[str, list[Cell]] = {}  # by learner
        self.to_train: deque[LearnerSpec] = deque()
        self.parts: dict[str, LearnerParts] = {}
        self.jobs: dict[Future[Any], Job] = {}
        self.errors: list[BaseException] = []
        self.pace = Pace(min(0.5, max(0.1, 1 / spec.repeats)))  # one repeat has every method and size
        for key, cell in self.cells.items():
            if key in stored:
                continue
            if (learner := cell.learner) is None:
                self.ready.append((self.place[key], cell))
                continue
            if learner.key not in self.waiting:
                self.to_train.append(learner)
            self.waiting.setdefault(learner.key, []).append(cell)
        missing: list[Cell | LearnerSpec] = [cell for key, cell in self.cells.items() if key not in stored]
        self.work = float(sum(map(relative_seconds, [*missing, *self.to_train])))  # in predicted seconds

    def finish_all(self) -> None:
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
        """Alternate trainings and cells, so that results come early and no worker waits for a learner."""
        trainings = sum(isinstance(job.spec, LearnerSpec) for job in self.jobs.values())
        first = not self.jobs and not self.computed  # show a first row at once, if one is ready
        if self.to_train and (trainings < self.executor.workers or not self.ready) and not (first and self.ready):
            spec = self.to_train.popleft()
            parts = self.store.learner(spec)
            if parts is not None:
                self.work -= relative_seconds(spec)
                self._release(spec, parts)
            else:
                self._submit(Job(spec, f"learner-{spec.key}", time.monotonic()))
            return True
        if self.ready:
            _, cell = heapq.heappop(self.ready)
            self._submit(Job(cell, f"cell-{cell.key}", time.monotonic()))
            return True
        return False

    def _submit(self, job: Job) -> None:
        if isinstance(job.spec, Cell):
            parts = self.parts[learner.key] if (learner := job.spec.learner) else None
            future = self.executor.submit(job.name, run_cell, job.spec, parts)
        else:
            future = self.executor.submit(job.name, train_learner, job.spec)
        self.jobs[future] = job

    def _release(self, spec: LearnerSpec, parts: LearnerParts) -> None:
        """Put the cells of a trained learner at their place in the grid's order, repeat by repeat."""
        self.parts[spec.key] = parts
        for cell in self.waiting[spec.key]:
            heapq.heappush(self.ready, (self.place[cell.key], cell))

    def _finish(self, future: Future[Any], job: Job) -> None:
        error = future.exception()
        self.work_done += relative_seconds(job.spec) if error is None else 0
        if isinstance(error, Cancelled):
            raise Cancelled
        if isinstance(error, WorkerLost) and job.attempts < ATTEMPTS:
            job.attempts += 1
            self._submit(job)
        elif error is not None:
            self.errors.append(error)
            if isinstance(job.spec, LearnerSpec):
                del self.waiting[job.spec.key]
        elif isinstance(job.spec, LearnerSpec):
            self.store.add_learner(job.spec, future.result(), time.monotonic() - job.began)
            self._release(job.spec, future.result())
            self.learners += 1
        else:
            self.store.add_cell(job.spec, future.result())
            self.done, self.computed = self.done + 1, self.computed + 1
            if (learner := job.spec.learner) is not None:
                (waiting := self.waiting[learner.key]).remove(job.spec)
                if not waiting:
                    del self.parts[learner.key]

    def _report(self) -> None:
        shares = {name: step / max(total, 1) for name, step, total in self.executor.reports()}
        for job in self.jobs.values():
            job.share = shares.get(job.name, job.share)
        if self.progress is None:
            return
        done = self.work_done + sum(job.share * relative_seconds(job.spec) for job in self.jobs.values())
        share = min(1.0, done / self.work) if self.work else 1.0
        seconds, left = time.monotonic() - self.pace.began, self.pace.left(share)
        self.progress(SweepProgress(len(self.cells), self.done, self.computed, self.learners, share, seconds, left))
