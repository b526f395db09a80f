"""The owner of a run: it trains and measures what the store lacks, and stores every result as it arrives."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import wait
from contextlib import suppress

import pandas as pd

from m2st_core.sweeps.database import StoreError
from m2st_core.sweeps.executors import GRACE_SECONDS, PAUSE_SECONDS, Executor
from m2st_core.sweeps.results import new_holder
from m2st_core.sweeps.spec import SweepSpec
from m2st_core.sweeps.store import Store
from m2st_core.sweeps.trial import run_cell
from m2st_core.sweeps.work import SweepProgress, Watcher, Work
from m2st_core.types import Cancelled

STOPPED = "Stopped on request; finished cells are kept."
RENEW_SECONDS = 2.0


class SweepFailed(RuntimeError):
    """Some cells could not be computed; the others are in the store. ``sentences`` tell a user what to do."""

    def __init__(self, message: str, sentences: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.sentences = tuple(sentences)


class RunDeleted(SweepFailed):
    """Somebody deleted the run while it was computed."""

    def __init__(self, run: str) -> None:
        sentence = f"Run {run} was deleted elsewhere while it was computed, so it was stopped. Finished cells are kept."
        super().__init__(sentence, [sentence])


class Lease:
    """Tells other processes that this one computes a run, and this one that the run was deleted."""

    def __init__(self, store: Store, run: str) -> None:
        self.store, self.run, self.holder = store, run, new_holder()
        self.renewed = -RENEW_SECONDS

    def renew(self, *, now: bool = False) -> None:
        """Renew the lease if it is time; a RunDeleted if the run is gone."""
        if now or time.monotonic() - self.renewed > RENEW_SECONDS:
            self.renewed = time.monotonic()
            if not self.store.hold(self.run, self.holder):
                raise RunDeleted(self.run)


def run_sweep(
    spec: SweepSpec, store: Store, executor: Executor, *, name: str = "", progress: Watcher | None = None
) -> pd.DataFrame:
    """Compute what the store lacks as a run of its own, and return the spec's tidy table."""
    run = store.start_run(spec, name)
    lease = Lease(store, run)

    def watch(at: SweepProgress) -> None:
        lease.renew()
        if progress is not None:
            progress(at)

    try:
        compute_sweep(spec, store, executor, watch)
        lease.renew(now=True)
    except BaseException as error:
        with suppress(StoreError):  # the first error says more
            end_run(store, run, error)
        raise
    end_run(store, run)
    return store.rows(spec)


def end_run(store: Store, run: str, error: BaseException | None = None, message: str = "") -> None:
    """Write how a run ended: done, cancelled, or failed with a message. Only the owner of the run calls this."""
    if error is None:
        store.set_state(run, "done")
    elif isinstance(error, Cancelled):
        store.set_state(run, "cancelled", message or STOPPED)
    else:
        store.set_state(run, "failed", message or _described(error))


class Paused(Cancelled):
    """Raised by a watcher to stop the work for now, while others use the workers."""


def compute_sweep(spec: SweepSpec, store: Store, executor: Executor, progress: Watcher | None = None) -> None:
    """Compute what the store lacks. The state of the run is left to its owner.

    ``progress`` is called a few times per second. If it raises Cancelled, the work stops within two seconds, finished
    cells stay, and Cancelled is raised again.
    """
    work = Work(spec, store, executor, progress)
    try:
        work.finish_all()
    except BaseException as error:
        executor.cancel(PAUSE_SECONDS if isinstance(error, Paused) else GRACE_SECONDS)
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
