"""A sweep is computed: its missing cells, the learners they wait for, and the run that this process owns meanwhile."""

from __future__ import annotations

import heapq
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pandas as pd

from m2st_core.progress import Pace
from m2st_core.sweeps.cells import Cell, LearnerSpec, run_cell, train_learner
from m2st_core.sweeps.cost import relative_seconds
from m2st_core.sweeps.database import StoreError
from m2st_core.sweeps.executors import GRACE_SECONDS, PAUSE_SECONDS, Executor, WorkerLost
from m2st_core.sweeps.grid import grid_of
from m2st_core.sweeps.spec import SweepSpec
from m2st_core.sweeps.store import Store, new_holder
from m2st_core.types import Cancelled

ATTEMPTS = 3
POLL_SECONDS = 0.2
BEAT_SECONDS = 2.0
LOOK_SECONDS = 1.0  # between two looks at what others compute
KEPT_LEARNERS = 8  # in memory, those used last: a sweep may have hundreds
LOST = "A trained learner was removed or damaged. Start the sweep again: it is trained again."
STOPPED = "Stopped on request; finished cells are kept."


class SweepFailed(RuntimeError):
    """Some cells could not be computed; the others are in the store. ``sentences`` tell a user what to do."""

    def __init__(self, message: str, sentences: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.sentences = tuple(sentences)


class RunDeleted(SweepFailed):
    """Raised when the run was deleted while it was computed."""

    def __init__(self, run: str) -> None:
        sentence = f"Run {run} was deleted elsewhere while it was computed, so it was stopped. Finished cells are kept."
        super().__init__(sentence, [sentence])


class Paused(Cancelled):
    """Raised by a watcher to stop the work for now, while others use the workers."""


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


def run_sweep(
    spec: SweepSpec, store: Store, executor: Executor, *, name: str = "", progress: Watcher | None = None
) -> pd.DataFrame:
    """Compute what the store lacks as a run of its own, and return the spec's tidy table."""
    run = store.runs.start(spec, name)
    try:
        compute_sweep(spec, store, executor, run, progress)
    except BaseException as error:
        with suppress(StoreError):  # the first error says more
            end_run(store, run, error)
        raise
    end_run(store, run)
    return store.cells.rows(spec)


def end_run(store: Store, run: str, error: BaseException | None = None, message: str = "") -> None:
    """Write how a run ended: done, cancelled, or failed with a message. Only its own process calls this."""
    if error is None:
        store.runs.set_state(run, "done")
    elif isinstance(error, Cancelled):
        store.runs.set_state(run, "cancelled", message or STOPPED)
    else:
        store.runs.set_state(run, "failed", message or _described(error))


def compute_sweep(spec: SweepSpec, store: Store, executor: Executor, run: str, progress: Watcher | None = None) -> None:
    """Compute what the store lacks, with a heartbeat for the run. Its state is left to the caller.

    ``progress`` is called a few times per second. If it raises Cancelled, the work stops within two seconds, finished
    cells stay, and Cancelled is raised again.
    """
    work = Work(spec, store, executor, run, progress)
    try:
        work.finish_all()
    except BaseException as error:
        executor.cancel(PAUSE_SECONDS if isinstance(error, Paused) else GRACE_SECONDS)
        raise
    if work.errors:
        described = "; ".join(sorted({_described(error) for error in work.errors}))
        sentences = sorted({str(error) for error in work.errors if isinstance(error, ValueError)})
        raise SweepFailed(f"{len(work.errors)} jobs of {len(work.cells)} cells failed: {described}", sentences)


def warm_up_worker(executor: Executor) -> None:
    """Start every worker and load what cells need, so that the first sweep does not wait for it."""
    spec = SweepSpec(methods=("MMD-M",), m_te=(4,), repeats=executor.workers, tests=1, n_permutations=19)
    wait([executor.submit("warm-up", run_cell, cell, None) for cell in spec.cells()])


def _described(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".removesuffix(": ")


@dataclass
class _Submission:
    """A learner's training or a cell, submitted to the executor."""

    key: str
    spec: LearnerSpec | Cell
    began: float
    attempts: int = 1
    share: float = 0.0

    @property
    def name(self) -> str:
        """The name under which an executor reports it."""
        return f"{'cell' if isinstance(self.spec, Cell) else 'learner'}-{self.key}"


class Work:
    """The missing cells of a sweep, the learners they wait for, and what is submitted to the executor."""

    def __init__(self, spec: SweepSpec, store: Store, executor: Executor, run: str, progress: Watcher | None) -> None:
        self.store, self.executor, self.run, self.progress = store, executor, run, progress
        grid = grid_of(spec)
        self.cells, self.learner_of = grid.cells, grid.learner_keys
        self.order = {key: index for index, key in enumerate(self.cells)}
        stored = store.cells.results(self.cells)
        missing = {key: cell for key, cell in self.cells.items() if key not in stored}
        self.waiting: dict[str, list[str]] = {}  # cells by learner
        for key in missing:
            if key in self.learner_of:
                self.waiting.setdefault(self.learner_of[key], []).append(key)
        self.ready = [index for key, index in self.order.items() if key in missing and key not in self.learner_of]
        self.keys = list(self.cells)  # the heap ``ready`` has positions in this list
        self.learners = {key: grid.learners[key] for key in self.waiting}
        self.to_train = deque(self.waiting)
        self.parts_of = lru_cache(KEPT_LEARNERS)(store.cells.learner)
        self.submitted: dict[Future[Any], _Submission] = {}
        self.errors: list[BaseException] = []
        self.done, self.computed, self.trained = len(stored), 0, 0
        self.holder, self.beaten, self.looked = new_holder(), -BEAT_SECONDS, time.monotonic()
        self.elsewhere: list[str] = []  # keys of cells and learners that other processes have claimed
        self.work_done, self.spent = 0.0, 0.0
        units: list[Cell | LearnerSpec] = [*missing.values(), *self.learners.values()]
        self.work = float(sum(map(relative_seconds, units)))  # in predicted seconds
        self.pace = Pace(min(0.5, max(0.1, 1 / spec.repeats)))  # one repeat has every method and size

    def finish_all(self) -> None:
        """Keep the workers busy until nothing is left."""
        try:
            while self.ready or self.to_train or self.submitted or self.elsewhere:
                self._beat()
                while len(self.submitted) < 2 * self.executor.workers and self._submit_next():
                    pass
                if not self.submitted:
                    time.sleep(POLL_SECONDS)
                finished, _ = wait(self.submitted, timeout=POLL_SECONDS, return_when=FIRST_COMPLETED)
                for future in finished:
                    self._finish(future, self.submitted.pop(future))
                self._look_elsewhere()
                self._report()
            self._beat(now=True)
            self._report()
        finally:
            with suppress(StoreError):  # without a heartbeat all claims end
                self.store.runs.leave(self.holder)

    def _beat(self, *, now: bool = False) -> None:
        """Renew the heartbeat if it is time; a RunDeleted if the run is gone."""
        if now or time.monotonic() - self.beaten > BEAT_SECONDS:
            self.beaten = time.monotonic()
            if not self.store.runs.beat(self.run, self.holder):
                raise RunDeleted(self.run)

    def _claim(self, key: str) -> bool:
        """Claim a cell or learner. If another process computes it now, it is looked at again later."""
        if self.store.cells.claim([key], self.holder):
            return True
        self.elsewhere.append(key)
        return False

    def _look_elsewhere(self) -> None:
        """Queue again what other processes had claimed: they may have finished or left it."""
        now = time.monotonic()
        if self.elsewhere and now - self.looked > LOOK_SECONDS:
            self.looked, others = now, self.elsewhere
            self.elsewhere = []
            for key in others:
                if key in self.order:
                    heapq.heappush(self.ready, self.order[key])
                else:
                    self.to_train.append(key)

    def _submit_next(self) -> bool:
        """Alternate trainings and cells, so that results come early and no worker waits for a learner."""
        trainings = sum(isinstance(submission.spec, LearnerSpec) for submission in self.submitted.values())
        first = not self.submitted and not self.computed  # show a first row at once, if one is ready
        if self.to_train and (trainings < self.executor.workers or not self.ready) and not (first and self.ready):
            self._train(self.to_train.popleft())
            return True
        if self.ready:
            self._test(self.keys[heapq.heappop(self.ready)])
            return True
        return False

    def _train(self, key: str) -> None:
        """Train a learner, unless it is stored or another process trains it."""
        spec = self.learners[key]
        trained = self.store.cells.learner(key) is not None
        if not trained and self._claim(key):
            trained = self.store.cells.learner(key) is not None  # it may have been finished before our claim
            if not trained:
                self._submit(_Submission(key, spec, time.monotonic()))
        if trained:
            self.work -= relative_seconds(spec)
            self._release(key)

    def _test(self, key: str) -> None:
        """Compute a cell, unless it is stored or another process computes it."""
        cell = self.cells[key]
        claimed = self._claim(key)
        if self.store.cells.results([key]):  # another process has finished it
            if not claimed:
                self.elsewhere.remove(key)
            self.work -= relative_seconds(cell)
            self._count(key)
        elif claimed:
            self._submit(_Submission(key, cell, time.monotonic()))

    def _count(self, key: str) -> None:
        """Count a cell that the store has now."""
        self.done += 1
        if (learner := self.learner_of.get(key)) is not None:
            self.waiting[learner].remove(key)

    def _submit(self, submission: _Submission) -> None:
        if isinstance(submission.spec, LearnerSpec):
            self.submitted[self.executor.submit(submission.name, train_learner, submission.spec)] = submission
            return
        learner = self.learner_of.get(submission.key)
        parts = self.parts_of(learner) if learner is not None else None
        if learner is not None and parts is None:
            self.errors.append(StoreError(LOST))
        else:
            self.submitted[self.executor.submit(submission.name, run_cell, submission.spec, parts)] = submission

    def _release(self, learner: str) -> None:
        """Make the cells of a trained learner ready, in the order of the grid, repeat by repeat."""
        for key in self.waiting[learner]:
            heapq.heappush(self.ready, self.order[key])

    def _finish(self, future: Future[Any], submission: _Submission) -> None:
        error = future.exception()
        self.work_done += relative_seconds(submission.spec) if error is None else 0
        if isinstance(error, Cancelled):
            raise Cancelled
        if isinstance(error, WorkerLost) and submission.attempts < ATTEMPTS:
            submission.attempts += 1
            self._submit(submission)
        elif error is not None:
            self.errors.append(error)
            if isinstance(submission.spec, LearnerSpec):
                del self.waiting[submission.key]
        elif isinstance(submission.spec, LearnerSpec):
            seconds = time.monotonic() - submission.began
            self.store.cells.add_learner(submission.spec, future.result(), seconds)
            self._release(submission.key)
            self.trained, self.spent = self.trained + 1, self.spent + seconds
        else:
            result = future.result()
            self.store.cells.add([(submission.spec, result)])
            self.computed, self.spent = self.computed + 1, self.spent + result.seconds
            self._count(submission.key)

    def _report(self) -> None:
        shares = {name: step / max(total, 1) for name, step, total in self.executor.reports()}
        for submission in self.submitted.values():
            submission.share = shares.get(submission.name, submission.share)
        if self.progress is None:
            return
        done = self.work_done + sum(
            submission.share * relative_seconds(submission.spec) for submission in self.submitted.values()
        )
        share = min(1.0, done / self.work) if self.work else 1.0
        seconds, left = time.monotonic() - self.pace.began, self.pace.left(share)
        self.progress(
            SweepProgress(len(self.cells), self.done, self.computed, self.trained, share, seconds, left, self.spent)
        )
