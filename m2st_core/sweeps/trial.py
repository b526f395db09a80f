"""The work itself, as pure functions: train a learner, or measure one cell. Workers run nothing else."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch

from m2st_core.data import make_task
from m2st_core.data.synthetic import HDGM
from m2st_core.data.task import Task
from m2st_core.device import one_thread_per_operation
from m2st_core.learners.ascent import part_of
from m2st_core.permutation.statistics import permutation_p_value, permuted_mean_difference, random_memberships
from m2st_core.presets import PRESETS
from m2st_core.rng import Streams
from m2st_core.sweeps.spec import LIMIT, Cell, LearnerSpec
from m2st_core.testing.learner_files import learner_from_parts
from m2st_core.testing.meta import meta_train
from m2st_core.testing.method import Method
from m2st_core.testing.methods import METHODS
from m2st_core.testing.run import learn_once, run_tests
from m2st_core.types import Progress, TwoSample

LearnerParts = tuple[str, bytes]
ELEMENTS_AT_ONCE = 2**25  # pixels of the test samples that are held at the same time


@dataclass(frozen=True)
class CellResult:
    """How many of the cell's test samples were rejected, and how long that took."""

    rejections: int
    tests: int
    seconds: float


def train_learner(spec: LearnerSpec, device: str, progress: Progress | None = None) -> LearnerParts:
    """Meta-train what a repeat's cells share; as JSON and safetensors, which travel between processes."""
    streams = _streams(spec)
    tasks = make_task(spec.task, **spec.settings).draw_related_tasks(
        closeness=spec.closeness,
        n_tasks=spec.n_tasks,
        rows=spec.rows_per_task * _rows_per_size(spec),
        seed=streams.child("meta-tasks").seed,
    )
    method = next(name for name, m in METHODS.items() if m.learn is not None and m.learn.__name__ == spec.learn)
    seed = streams.child("meta-training").seed
    return meta_train(method, tasks, preset=spec.preset, seed=seed, device=device, progress=progress).parts()


def run_cell(cell: Cell, parts: LearnerParts | None, device: str, progress: Progress | None = None) -> CellResult:
    """Learn from one training sample of the target, test ``cell.tests`` others.

    All methods of a repeat see the same samples, at every closeness, so that their differences are paired.
    """
    began = time.perf_counter()
    task = make_task(cell.task, null=cell.null, **cell.settings)
    streams = _streams(cell).child("null" if cell.null else "alternative")
    rows = cell.m_te * _rows_per_size(cell)
    method = None if cell.method == LIMIT else learned_method(cell, parts, device, part_of(progress, 0, 0))
    rejections = 0
    at_once = max(1, ELEMENTS_AT_ONCE // (2 * rows * (math.prod(task.shape) if task.shape else 1)))
    for start in range(0, cell.tests, at_once):
        count = min(at_once, cell.tests - start)
        sample = draw_targets(task, rows, count, streams.child(f"m_te={cell.m_te}"), start)
        seeds = [streams.child(f"m_te={cell.m_te}, test {start + index}").seed for index in range(count)]
        if method is None:
            rejections += _limit_rejections(task, sample, cell, seeds)
            continue
        results = run_tests(
            sample,
            method,
            seeds=seeds,
            alpha=cell.alpha,
            n_permutations=cell.n_permutations,
            preset=PRESETS[cell.preset],
            device=device,
            progress=part_of(progress, start / cell.tests, (start + count) / cell.tests),
        )
        rejections += sum(result.rejected for result in results)
    return CellResult(rejections, cell.tests, time.perf_counter() - began)


def draw_targets(task: Task, rows: int, count: int, streams: Streams, start: int = 0) -> TwoSample:
    """Sample pairs number ``start`` and following, of this many rows each: x and y (count, rows, d)."""
    task = task.to_be_tested()
    pairs = [task.sample(rows, seed=streams.child(f"target {start + index}").seed) for index in range(count)]
    return TwoSample(torch.stack([p.x for p in pairs]), torch.stack([p.y for p in pairs]), task.shape)


class _ByKey:
    """A cell with its learner, hashed by the cell's key: what the cache below goes by."""

    def __init__(self, cell: Cell, parts: LearnerParts | None, progress: Progress | None) -> None:
        self.cell, self.parts, self.key, self.progress = cell, parts, cell.key, progress

    def __hash__(self) -> int:
        return hash(self.key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ByKey) and other.key == self.key


def learned_method(cell: Cell, parts: LearnerParts | None, device: str, progress: Progress | None = None) -> Method:
    """The method, taught by its learner and by the repeat's training sample; cells that differ in m_te share it."""
    return _learned_by_key(_ByKey(replace(cell, m_te=2, tests=1), parts, progress), device)


@lru_cache(maxsize=32)
def _learned_by_key(item: _ByKey, device: str) -> Method:
    cell, parts, progress = item.cell, item.parts, item.progress
    item.progress = None
    method = METHODS[cell.method]
    if parts is not None:
        learner = learner_from_parts(*parts)
        method = replace(learner, method=cell.method).bound(torch.device(device))
    if cell.m_tr is None:
        return method
    streams = _streams(cell).child("null" if cell.null else "alternative").child(f"m_tr={cell.m_tr}")
    task = make_task(cell.task, null=cell.null, **cell.settings)
    train = task.to_learn_from().sample(cell.m_tr * _rows_per_size(cell), seed=streams.child("training sample").seed)
    seed = streams.child("learning").seed
    return learn_once(method, train.to(torch.device(device)), seed, PRESETS[cell.preset], progress)


def _limit_rejections(task: Task, sample: TwoSample, cell: Cell, seeds: list[int]) -> int:
    assert isinstance(task, HDGM)
    n, m = sample.sizes
    with one_thread_per_operation():
        scores = torch.from_numpy(task.log_likelihood_ratio(sample.pooled.numpy()))
        generators = [Streams(seed).numpy("permutations") for seed in seeds]
        members = random_memberships(n, m, cell.n_permutations, generators)
        statistics, rounding = permuted_mean_difference(scores, members, n, two_sided=False)
        p = permutation_p_value(statistics, rounding, "(1+b)/(1+B)")
    return int((p <= cell.alpha).sum())


def _streams(spec: Any) -> Streams:
    """A repeat's randomness: the same for all methods, sizes and closenesses."""
    return Streams(spec.seed).child(f"{spec.task}, repeat {spec.repeat}")


def _rows_per_size(spec: Any) -> int:
    return type(make_task(spec.task, **spec.settings)).rows_per_size
