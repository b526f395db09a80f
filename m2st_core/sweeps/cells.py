"""Cells and learners: what they depend on, their keys, and the pure functions that compute them in workers."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import torch

from m2st_core.data import make_task
from m2st_core.data.images.features import FEATURE_COUNTS
from m2st_core.data.images.tasks import DescribedTask, ImageTask
from m2st_core.data.synthetic import HDGM
from m2st_core.device import one_thread_per_operation
from m2st_core.permutation.engine import permuted_mean_difference
from m2st_core.permutation.labellings import permutation_p_value, random_memberships
from m2st_core.progress import part_of
from m2st_core.rng import Streams
from m2st_core.tasks import Task
from m2st_core.testing.learner_files import learner_from_parts
from m2st_core.testing.meta import meta_train
from m2st_core.testing.method import Method
from m2st_core.testing.methods import METHODS, trained_by
from m2st_core.testing.run import learn_once, run_tests
from m2st_core.types import EXACT, Progress, PValueRule, TwoSample

CODE = "5"  # enters every key; changes when the same spec would give other numbers
ELEMENTS_AT_ONCE = 2**25  # largest number of values in the test samples held in memory together
METHODS_KEPT = 32
LearnerParts = tuple[str, bytes]  # JSON and safetensors, which travel between processes


def canonical(value: Any) -> str:
    """JSON text that is the same for equal values."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest(value: Any) -> str:
    """Hash of a value's canonical JSON and of the code's version."""
    return hashlib.sha256(f"{CODE}:{canonical(value)}".encode()).hexdigest()[:32]


def cell_data(task: str) -> str:
    """Fingerprint of the user's images that a task draws; empty if it draws none or has none yet."""
    return made.fingerprint() if isinstance(made := make_task(task), ImageTask) else ""


@dataclass(frozen=True, kw_only=True)
class Unit:
    """The fields that learners and cells share: the task, and the repeat with its randomness."""

    task: str
    settings: dict[str, Any]
    repeat: int
    seed: int
    data: str = ""  # fingerprint of the user's images
    features: str = ""  # what describes the images, if not their pixels

    @property
    def key(self) -> str:
        """The hash under which the result is stored."""
        usual = {"data": "", "features": "", "revision": 0, "rule": EXACT}
        return digest({name: value for name, value in vars(self).items() if usual.get(name) != value})

    @property
    def streams(self) -> Streams:
        """Randomness of the repeat, shared by all methods, sizes and closenesses."""
        return Streams(self.seed).child(f"{self.task}, repeat {self.repeat}")

    @property
    def rows_per_size(self) -> int:
        """Rows that one unit of size stands for."""
        return type(make_task(self.task, **self.settings)).rows_per_size

    def source(self, null: bool = False) -> Task:
        """The task that rows are drawn from."""
        task = make_task(self.task, null=null, **self.settings)
        return DescribedTask(task, self.features) if self.features and isinstance(task, ImageTask) else task


@dataclass(frozen=True, kw_only=True)
class LearnerSpec(Unit):
    """One meta-training, described by what it depends on."""

    learn: str  # the training that some methods share: Method.training
    closeness: float
    n_tasks: int
    rows_per_task: int

    def related_tasks(self) -> Mapping[str, TwoSample]:
        """The tasks to learn from, by name."""
        rows, seed = self.rows_per_task * self.rows_per_size, self.streams.child("meta-tasks").seed
        return self.source().draw_related_tasks(closeness=self.closeness, n_tasks=self.n_tasks, rows=rows, seed=seed)


@dataclass(frozen=True, kw_only=True)
class Cell(Unit):
    """One method at one point of the grid in one repeat. Settings that the method does not use are None."""

    null: bool
    method: str
    closeness: float | None
    n_tasks: int | None
    rows_per_task: int | None
    m_tr: int | None
    m_te: int
    tests: int
    alpha: float
    n_permutations: int
    rule: PValueRule = EXACT
    revision: int = 0  # that of the method

    @property
    def learner(self) -> LearnerSpec | None:
        """The meta-training that the cell needs."""
        if self.closeness is None:
            return None
        shared = {f.name: getattr(self, f.name) for f in fields(LearnerSpec) if f.name != "learn"}
        return LearnerSpec(learn=METHODS[self.method].training, **shared)

    @property
    def target_streams(self) -> Streams:
        """Randomness of the target's samples."""
        return self.streams.child("null" if self.null else "alternative")


@dataclass(frozen=True)
class CellResult:
    """Rejected test samples, all test samples, and seconds taken."""

    rejections: int
    tests: int
    seconds: float


def train_learner(spec: LearnerSpec, device: str, progress: Progress | None = None) -> LearnerParts:
    """Meta-train the learner that cells of a repeat share."""
    method, seed = trained_by(spec.learn).name, spec.streams.child("meta-training").seed
    return meta_train(method, spec.related_tasks(), seed=seed, device=device, progress=progress).parts()


def run_cell(cell: Cell, parts: LearnerParts | None, device: str, progress: Progress | None = None) -> CellResult:
    """Learn from one training sample of the target, then test ``cell.tests`` other samples.

    All methods of a repeat get the same samples at every closeness, so their differences are paired.
    """
    began, rejections = time.perf_counter(), 0
    task = cell.source(cell.null)
    rows, name = cell.m_te * cell.rows_per_size, f"m_te={cell.m_te}"
    method = learned_method(cell, parts, device, part_of(progress, 0, 0)) if cell.method in METHODS else None
    at_once = max(1, ELEMENTS_AT_ONCE // (2 * rows * math.prod(task.shape or (FEATURE_COUNTS.get(cell.features, 1),))))
    for start in range(0, cell.tests, at_once):
        count = min(at_once, cell.tests - start)
        sample = draw_targets(task, rows, count, cell.target_streams.child(name), start)
        seeds = [cell.target_streams.child(f"{name}, test {start + index}").seed for index in range(count)]
        if method is None:
            rejections += _limit_rejections(task, sample, cell, seeds)
            continue
        results = run_tests(
            sample,
            method,
            seeds=seeds,
            alpha=cell.alpha,
            n_permutations=cell.n_permutations,
            rule=cell.rule,
            device=device,
            progress=part_of(progress, start / cell.tests, (start + count) / cell.tests),
        )
        rejections += sum(result.rejected for result in results)
    return CellResult(rejections, cell.tests, time.perf_counter() - began)


def draw_targets(task: Task, rows: int, count: int, streams: Streams, start: int = 0) -> TwoSample:
    """Draw sample pairs number ``start`` and following: x and y are (count, rows, d)."""
    task = task.to_be_tested()
    pairs = [task.sample(rows, seed=streams.child(f"target {start + index}").seed) for index in range(count)]
    return TwoSample(torch.stack([p.x for p in pairs]), torch.stack([p.y for p in pairs]), task.shape)


_learned: dict[tuple[str, str], Method] = {}


def learned_method(cell: Cell, parts: LearnerParts | None, device: str, progress: Progress | None = None) -> Method:
    """The method fitted with its learner and the repeat's training sample; cells that differ in m_te share it."""
    key = replace(cell, m_te=2, tests=1).key, device
    if (known := _learned.get(key)) is not None:
        return known
    method = METHODS[cell.method]
    if parts is not None:
        method = learner_from_parts(*parts).for_method(cell.method).bound(torch.device(device))
    if cell.m_tr is not None:
        streams, rows = cell.target_streams.child(f"m_tr={cell.m_tr}"), cell.m_tr * cell.rows_per_size
        sample = cell.source(cell.null).to_learn_from().sample(rows, seed=streams.child("training sample").seed)
        seed = streams.child("learning").seed
        method = learn_once(method, sample.to(torch.device(device)), seed, progress)
    while len(_learned) >= METHODS_KEPT:
        _learned.pop(next(iter(_learned)), None)
    _learned[key] = method
    return method


def _limit_rejections(task: Task, sample: TwoSample, cell: Cell, seeds: list[int]) -> int:
    if not isinstance(task, HDGM):
        raise ValueError(f"The task {cell.task!r} has no known likelihood ratio.")
    n, m = sample.sizes
    with one_thread_per_operation():
        scores = torch.from_numpy(task.log_likelihood_ratio(sample.pooled.numpy()))
        memberships = random_memberships(n, m, cell.n_permutations, [Streams(s).numpy("permutations") for s in seeds])
        statistics, rounding = permuted_mean_difference(scores, memberships, n, two_sided=False)
        p = permutation_p_value(statistics, rounding, EXACT)
    return int((p <= cell.alpha).sum())
