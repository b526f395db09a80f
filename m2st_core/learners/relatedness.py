"""γ̂: how differently one kernel can do on the target and on a related task, the paper's Definition 2 and appendix."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from m2st_core.criterion import h_matrix, masked_terms, mmd2_paired, variance
from m2st_core.device import map_threads, one_thread_per_operation, resolve_device
from m2st_core.kernels import DeepKernel
from m2st_core.kernels.base import take
from m2st_core.learners.ascent import ascend, part_of
from m2st_core.learners.kernels import start_deep
from m2st_core.learners.meta_kl import copy_with
from m2st_core.presets import PRESETS
from m2st_core.rng import Streams
from m2st_core.tasks.arrays import as_two_sample
from m2st_core.tasks.meta import MetaSample, as_meta_sample, stack_repeats
from m2st_core.types import Progress, TwoSample

REGULARISATION = 1e-8
BATCH_ROWS = 128  # of each sample in a step, drawn anew
BLOCK_ROWS = 512


@dataclass(frozen=True)
class Relatedness:
    """γ̂_it = |Ĵ(target) − Ĵ(task i)| at the kernel of restart t, on both halves of the rows: (tasks, restarts).

    The kernels were chosen on the training halves; the test halves are fresh. The paper used the training halves.
    """

    task_names: tuple[str, ...]
    on_training_rows: np.ndarray
    on_test_rows: np.ndarray

    def gamma(self, on_training_rows: bool = False) -> float:
        """γ̂ = min_i max_t γ̂_it: the most related task, and the kernel that sets it apart most."""
        return float((self.on_training_rows if on_training_rows else self.on_test_rows).max(axis=1).min())


def relatedness(
    target: Any,
    meta_tasks: Any,
    *,
    restarts: int = 10,
    max_tasks: int = 10,
    steps: int = 100,
    seed: int = 0,
    device: str | torch.device = "auto",
    progress: Progress | None = None,
) -> Relatedness:
    """How related the tasks are to the target, a pair (x, y): the smaller γ̂, the better their kernels fit it.

    For each of at most ``max_tasks`` tasks, drawn at random, and each restart, a deep kernel climbs the squared
    difference of Ĵ between target and task on half of their rows. All tasks and restarts are one batch.

    >>> import m2st_core as m2st
    >>> tasks = m2st.hdgm_meta_tasks(n_tasks=2, rows=40)
    >>> m2st.relatedness(tasks["Δ=0.400"], tasks, restarts=2, steps=2).on_test_rows.shape
    (2, 2)
    """
    for name, value in (("restarts", restarts), ("max_tasks", max_tasks), ("steps", steps)):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
            raise ValueError(f"{name} must be a whole number ≥ 1. Got {value!r}.")
    streams = Streams(seed).child("relatedness")
    place = resolve_device(device)
    own, tasks = as_two_sample(*target), as_meta_sample(meta_tasks)
    if own.x.shape[-1] != tasks.rows.shape[-1]:
        raise ValueError(f"The meta-tasks have {tasks.rows.shape[-1]} columns and the target has {own.x.shape[-1]}.")
    chosen = torch.randperm(len(tasks.names), generator=streams.torch("tasks"))[:max_tasks].sort().values
    names = tuple(tasks.names[int(index)] for index in chosen)
    goal = _halves(stack_repeats([[own]], ("target",)), streams.child("target"), place)
    some = {part: getattr(tasks, part)[:, chosen] for part in ("where", "x_weight", "y_weight")}
    others = _halves(replace(tasks, names=names, **some), streams, place)
    with one_thread_per_operation():
        kernel = _climb(goal[0], others[0], restarts, steps, streams, part_of(progress, 0, 0.7))
        found = [
            _differences(kernel, *pair, restarts, part_of(progress, 0.7 + 0.15 * half, 0.85 + 0.15 * half))
            for half, pair in enumerate(zip(goal, others, strict=True))
        ]
    return Relatedness(names, *found)


def _halves(meta: MetaSample, streams: Streams, device: torch.device) -> tuple[MetaSample, MetaSample]:
    kept, aside = meta.hold_out(0.5, [streams.torch("halves")])
    return kept.to(device), aside.to(device)


def _climb(
    goal: MetaSample, others: MetaSample, restarts: int, steps: int, streams: Streams, progress: Progress | None
) -> DeepKernel:
    """A kernel for every task and restart, batch (tasks·restarts), that maximises the squared difference of Ĵ."""
    count = len(others.names) * restarts
    children = [streams.child(f"kernel {index}") for index in range(count)]
    everything = goal.take_inside()
    kernel = start_deep(everything.expand(count, -1, -1), PRESETS["recommended"].on(goal.shape), children)
    generator = [streams.torch("batches")]
    which = torch.arange(len(others.names), device=others.rows.device).repeat_interleave(restarts)[None]

    def difference() -> Tensor:
        values = []
        for meta, tasks in ((goal, torch.zeros_like(which[:, :1])), (others, which)):
            _, rows = meta.draw_pairs(tasks, 0.0, generator, largest=BATCH_ROWS)
            mmd2, spread = masked_terms(
                h_matrix(kernel, rows.x.expand(count, -1, -1), rows.y.expand(count, -1, -1)), rows.inside
            )
            values.append(mmd2 / (spread + REGULARISATION).sqrt())
        return (values[0] - values[1]).square()

    ascend(kernel.parameters(), difference, steps=steps, learning_rate=5e-3, progress=progress)
    kernel.requires_grad_(False)
    return kernel


def _differences(
    kernel: DeepKernel, goal: MetaSample, others: MetaSample, restarts: int, progress: Progress | None
) -> np.ndarray:
    """|Ĵ(target) − Ĵ(task)| of every kernel on all rows: (tasks, restarts)."""
    tasks = len(others.names)
    pairs = [_pair(others, task) for task in range(tasks)]
    own = _pair(goal, 0)

    def one(index: int) -> float:
        alone = copy_with(kernel, lambda tensor: tensor[index : index + 1])
        return abs(full_criterion(alone, own) - full_criterion(alone, pairs[index // restarts]))

    found = []
    for index, value in enumerate(map_threads(one, range(tasks * restarts))):
        found.append(value)
        if progress is not None:
            progress(index + 1, tasks * restarts, value)
    return np.array(found).reshape(tasks, restarts)


def _pair(meta: MetaSample, task: int) -> TwoSample:
    """A task's rows, as many of x as of y."""
    x, y = (meta.rows[0, meta.where[0, task][weight[0, task] > 0]] for weight in (meta.x_weight, meta.y_weight))
    count = min(len(x), len(y))
    return TwoSample(x[:count], y[:count])


@torch.no_grad()
def full_criterion(kernel: DeepKernel, sample: TwoSample) -> float:
    """Ĵ on all rows (n, d), (n, d); H is walked in blocks of rows, of which only the means are kept."""
    n = sample.x.shape[0]
    if n <= BLOCK_ROWS:
        h = h_matrix(kernel, sample.x[None], sample.y[None])[0]
        return float(mmd2_paired(h) / (variance(h) + REGULARISATION).sqrt())
    both = kernel.embed(sample.pooled[None])  # together: a network may take batch statistics
    x, y = take(both, 0, n), take(both, n)
    sums, trace = [], 0.0
    for start in range(0, n, BLOCK_ROWS):
        x_part, y_part = take(x, start, start + BLOCK_ROWS), take(y, start, start + BLOCK_ROWS)
        h = kernel.gram(x_part, x, torch.float32) + kernel.gram(y_part, y, torch.float32)
        h -= kernel.gram(x_part, y, torch.float32) + kernel.gram(y_part, x, torch.float32)
        sums.append(h[0].sum(dim=-1, dtype=torch.float64))
        trace += float(h[0].diagonal(offset=start).sum())
    rows = torch.cat(sums)
    mmd2 = (float(rows.sum()) - trace) / (n * (n - 1))
    return mmd2 / float(4 * (rows / n).var(correction=0) + REGULARISATION) ** 0.5
