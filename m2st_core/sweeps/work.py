"""The work of a sweep: its missing cells, the learners they wait for, what is in flight here, and what elsewhere."""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from m2st_core.progress import Pace
from m2st_core.sweeps.cost import relative_seconds
from m2st_core.sweeps.database import StoreError
from m2st_core.sweeps.executors import Executor, WorkerLost
from m2st_core.sweeps.results import LEASE_SECONDS, Results, new_holder
from m2st_core.sweeps.spec import SweepSpec
from m2st_core.sweeps.trial import Cell, LearnerSpec, run_cell, train_learner
from m2st_core.types import Cancelled

ATTEMPTS = 3
POLL_SECONDS = 0.2
LOOK_SECONDS = 1.0  # between two looks at what others compute
KEPT_LEARNERS = 8  # in memory, those used last: a sweep may have hundreds
LOST = "A trained learner was removed or damaged. Start the sweep again: it is trained again."


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
    spent: float = 0.0  # seconds of computing, of all workers


Watcher = Callable[[SweepProgress], None]


@dataclass
class Job:
    """A learner's training or a cell, in flight."""

    spec: LearnerSpec | Cell
    name: str
    began: float
    attempts: int = 1
    share: float = 0.0


class Work:
    """The missing cells of a sweep, the learners they wait for, and the jobs in flight."""

    def __init__(self, spec: SweepSpec, store: Results, executor: Executor, progress: Watcher | None) -> None:
        self.store, self.executor, self.progress = store, executor, progress
        self.cells = {cell.key: cell for cell in spec.cells()}
        self.place = {key: index for index, key in enumerate(self.cells)}
        stored = store.results(self.cells)
        self.done, self.computed, self.learners, self.work_done = len(stored), 0, 0, 0.0
        self.ready: list[tuple[int, Cell]] = []  # a heap, by place in the grid
        self.waiting: dict[str, list[Cell]] = {}  # by learner
        self.to_train: deque[LearnerSpec] = deque()
        self.parts_of = lru_cache(KEPT_LEARNERS)(store.learner)
        self.jobs: dict[Future[Any], Job] = {}
        self.errors: list[BaseException] = []
        self.holder, self.renewed, self.looked = new_holder(), time.monotonic(), time.monotonic()
        self.elsewhere: dict[str, Cell | LearnerSpec] = {}  # what others have claimed
        self.claimed, self.spent = False, 0.0
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
        try:
            while self.ready or self.to_train or self.jobs or self.elsewhere:
                while len(self.jobs) < 2 * self.executor.workers and self._submit_next():
                    pass
                if not self.jobs:
                    time.sleep(POLL_SECONDS)
                finished, _ = wait(self.jobs, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED)
                for future in finished:
                    self._finish(future, self.jobs.pop(future))
                self._look_elsewhere()
                self._report()
            self._report()
        finally:
            if self.claimed:
                with suppress(StoreError):  # what is not given back is free when its lease ends
                    self.store.give_back(self.holder)

    def _claim(self, work: Cell | LearnerSpec) -> bool:
        """Whether this is ours to compute. Otherwise somebody computes it now, and it is looked at again."""
        if self.store.claim([work.key], self.holder):
            self.claimed = True
            return True
        self.elsewhere[work.key] = work
        return False

    def _look_elsewhere(self) -> None:
        """Renew our claims, and take in what others have finished or left."""
        now = time.monotonic()
        if now - self.renewed > LEASE_SECONDS / 3:
            self.store.renew_claims(self.holder)
            self.renewed = now
        if self.elsewhere and now - self.looked > LOOK_SECONDS:
            self.looked, others = now, self.elsewhere
            self.elsewhere = {}
            for work in others.values():
                if isinstance(work, Cell):
                    heapq.heappush(self.ready, (self.place[work.key], work))
                else:
                    self.to_train.append(work)

    def _submit_next(self) -> bool:
        """Alternate trainings and cells, so that results come early and no worker waits for a learner."""
        trainings = sum(isinstance(job.spec, LearnerSpec) for job in self.jobs.values())
        first = not self.jobs and not self.computed  # show a first row at once, if one is ready
        if self.to_train and (trainings < self.executor.workers or not self.ready) and not (first and self.ready):
            spec = self.to_train.popleft()
            trained = self.store.learner(spec.key) is not None
            if not trained and self._claim(spec):
                trained = self.store.learner(spec.key) is not None  # it may have been finished before our claim
                if not trained:
                    self._submit(Job(spec, f"learner-{spec.key}", time.monotonic()))
            if trained:
                self.work -= relative_seconds(spec)
                self._release(spec)
            return True
        if self.ready:
            _, cell = heapq.heappop(self.ready)
            ours = self._claim(cell)
            if self.store.results([cell.key]):  # another owner has finished it
                self.elsewhere.pop(cell.key, None)
                self.work -= relative_seconds(cell)
                self._count(cell)
            elif ours:
                self._submit(Job(cell, f"cell-{cell.key}", time.monotonic()))
            return True
        return False

    def _count(self, cell: Cell) -> None:
        """Count a cell that the store has now."""
        self.done += 1
        if (learner := cell.learner) is not None:
            self.waiting[learner.key].remove(cell)

    def _submit(self, job: Job) -> None:
        if isinstance(job.spec, Cell):
            learner = job.spec.learner
            parts = self.parts_of(learner.key) if learner is not None else None
            if learner is not None and parts is None:
                self.errors.append(StoreError(LOST))
                return
            future = self.executor.submit(job.name, run_cell, job.spec, parts)
        else:
            future = self.executor.submit(job.name, train_learner, job.spec)
        self.jobs[future] = job

    def _release(self, spec: LearnerSpec) -> None:
        """Put the cells of a trained learner at their place in the grid's order, repeat by repeat."""
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
            seconds = time.monotonic() - job.began
            self.store.add_learner(job.spec, future.result(), seconds)
            self._release(job.spec)
            self.learners, self.spent = self.learners + 1, self.spent + seconds
        else:
            result = future.result()
            self.store.add_cell(job.spec, result)
            self.computed, self.spent = self.computed + 1, self.spent + result.seconds
            self._count(job.spec)

    def _report(self) -> None:
        shares = {name: step / max(total, 1) for name, step, total in self.executor.reports()}
        for job in self.jobs.values():
            job.share = shares.get(job.name, job.share)
        if self.progress is None:
            return
        done = self.work_done + sum(job.share * relative_seconds(job.spec) for job in self.jobs.values())
        share = min(1.0, done / self.work) if self.work else 1.0
        seconds, left = time.monotonic() - self.pace.began, self.pace.left(share)
        self.progress(
            SweepProgress(len(self.cells), self.done, self.computed, self.learners, share, seconds, left, self.spent)
        )
