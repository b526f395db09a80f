"""One sample, two lenses: the same rows seen by MMD-M and by Meta-Witness, after earlier tasks of several closenesses.

``python -m m2st_core bench home`` computes the table and writes it beside this module. Pages read it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch

from m2st_core.analysis.evidence import Evidence, evidence_of
from m2st_core.data.synthetic import hdgm_related_tasks
from m2st_core.rng import Streams
from m2st_core.studies.synthetic import DELTA, many_tests, two_samples
from m2st_core.sweeps.trial import CODE
from m2st_core.testing.finished import FinishedTest
from m2st_core.testing.meta import MetaLearner, meta_train
from m2st_core.testing.method import TestSettings
from m2st_core.testing.methods import METHODS
from m2st_core.testing.two_sample import examine
from m2st_core.types import GENERIC_TEST

FILE = Path(__file__).with_suffix(".npz")
TAUGHT = "Meta-Witness"
CLOSENESSES = (0.6, 0.5, 0.4, 0.3, 0.2, 0.1)  # the paper's C, from the least related tasks to the most related ones
N_TASKS, ROWS_PER_TASK = 40, 100  # rows of each sample of a task
SIZE = 50  # rows per mode of a target: 100 rows of each sample
SAMPLES = 12  # targets to look at, with the seeds 0, 1, …
REPEATS, TESTS = 8, 100  # of related tasks and learning, and fresh targets tested after each
ALPHA = 0.05
AXIS = np.linspace(-3.5, 4.0, 33)
PLACES = torch.from_numpy(np.stack(np.meshgrid(AXIS, AXIS), axis=-1).reshape(-1, 2))
CPU = torch.device("cpu")
STEP = 1 / 20  # of a field, stored as whole numbers up to ±127


@dataclass(frozen=True)
class View:
    """A test's p-value of one target, and its witness function on the plane (g, g), in steps of 1/20 of ``noise``.

    ``noise`` is the largest standard deviation of the witness if the labels were random.
    """

    p_value: float
    field: np.ndarray


@dataclass(frozen=True)
class HomeTable:
    """Every view of S targets and the power of both tests, at C closenesses.

    ``x`` and ``y`` are (S, n, 2). ``generic_p`` is (S,), ``taught_p`` (C, S), with fields (…, g, g). Power is the share
    of rejected targets in each repeat: ``generic_power`` (repeats,) and ``taught_power`` (C, repeats). ``made_by`` is
    the version of the code.
    """

    closeness: np.ndarray
    x: np.ndarray
    y: np.ndarray
    generic_p: np.ndarray
    generic_field: np.ndarray
    generic_power: np.ndarray
    taught_p: np.ndarray
    taught_field: np.ndarray
    taught_power: np.ndarray
    made_by: str

    def powers(self, closeness: int) -> tuple[tuple[float, float], tuple[float, float]]:
        """The power of MMD-M, and of Meta-Witness at this place in ``closeness``, each with its standard error."""
        generic, taught = self.generic_power, self.taught_power[closeness]
        (a, b), (c, d) = ((p.mean(), p.std(ddof=1) / len(p) ** 0.5) for p in (generic, taught))
        return (float(a), float(b)), (float(c), float(d))

    def save(self, path: Path = FILE) -> None:
        """Write the table."""
        np.savez_compressed(path, **{field.name: getattr(self, field.name) for field in fields(self)})


@lru_cache(1)
def home_table() -> HomeTable:
    """The table as shipped."""
    with np.load(FILE, allow_pickle=False) as stored:
        parts = {name: stored[name] for name in stored.files}
    return HomeTable(**parts | {"made_by": str(parts["made_by"])})


def code_version() -> str:
    """The versions of the sampling and of both tests. Numbers of another version do not agree with the code."""
    return json.dumps({"code": CODE} | {name: METHODS[name].revision for name in (GENERIC_TEST, TAUGHT)})


def repeat_streams(closeness: float, repeat: int) -> Streams:
    """Randomness of one repeat's related tasks."""
    return Streams(repeat).child(f"home, C={closeness:g}")


def learn(closeness: float, repeat: int) -> MetaLearner:
    """Meta-Witness, taught by 40 related tasks."""
    streams = repeat_streams(closeness, repeat)
    tasks = hdgm_related_tasks(closeness, N_TASKS, ROWS_PER_TASK, seed=streams.child("tasks").seed)
    return meta_train(TAUGHT, tasks, seed=streams.child("learning").seed, device="cpu")


def view(seed: int, learner: MetaLearner | None = None) -> View:
    """One target through MMD-M or, with a learner, through Meta-Witness."""
    x, y = two_samples(DELTA, SIZE, seed)
    settings = TestSettings(alpha=ALPHA, seed=seed, device="cpu")
    tested: FinishedTest = examine(x, y, GENERIC_TEST, settings) if learner is None else learner.examine(x, y, settings)
    evidence = evidence_of(tested)
    n, m = evidence.sample.sizes
    noise = _similarities(evidence).std(axis=1, ddof=1).max() * (1 / n + 1 / m) ** 0.5
    values = (evidence.witness(PLACES) / noise / STEP).clip(-127, 127)
    return View(tested.result.p_value, np.rint(values).astype(np.int8).reshape(len(AXIS), len(AXIS)))


@torch.no_grad()
def _similarities(evidence: Evidence) -> np.ndarray:
    """k(place, row) of the test's kernel, (g², N)."""
    kernel = evidence.kernel
    if kernel is None:
        raise TypeError("Both tests have a kernel.")
    rows = evidence.sample.pooled
    return kernel.gram(kernel.embed(PLACES[None].to(rows)), kernel.embed(rows)).reshape(len(PLACES), -1).numpy()


def power(repeat: int, learner: MetaLearner | None = None) -> float:
    """The share of fresh targets that are rejected. All tests of a repeat get the same targets."""
    method = METHODS[GENERIC_TEST] if learner is None else learner.bound(CPU)
    p_values = many_tests(method, DELTA, False, SIZE, TESTS, Streams(repeat).child("home, targets").seed)
    return float((p_values <= ALPHA).mean())


@dataclass(frozen=True)
class Column:
    """The part of the table for one closeness; without one, for MMD-M."""

    views: list[View]
    power: list[float]


def compute_column(closeness: float | None) -> Column:
    """Views of every target, with the first repeat's learner, and the power of every repeat."""
    learners: Sequence[MetaLearner | None] = [None] * REPEATS
    if closeness is not None:
        learners = [learn(closeness, repeat) for repeat in range(REPEATS)]
    views = [view(seed, learners[0]) for seed in range(SAMPLES)]
    return Column(views, [power(repeat, learner) for repeat, learner in enumerate(learners)])


def assemble(generic: Column, taught: Sequence[Column]) -> HomeTable:
    """Make the table of its columns, those of Meta-Witness in the order of ``CLOSENESSES``."""
    targets = [two_samples(DELTA, SIZE, seed) for seed in range(SAMPLES)]
    return HomeTable(
        closeness=np.array(CLOSENESSES),
        x=np.stack([x for x, _ in targets]).astype(np.float32),
        y=np.stack([y for _, y in targets]).astype(np.float32),
        generic_p=np.array([one.p_value for one in generic.views]),
        generic_field=np.stack([one.field for one in generic.views]),
        generic_power=np.array(generic.power),
        taught_p=np.array([[one.p_value for one in column.views] for column in taught]),
        taught_field=np.stack([np.stack([one.field for one in column.views]) for column in taught]),
        taught_power=np.array([column.power for column in taught]),
        made_by=code_version(),
    )
