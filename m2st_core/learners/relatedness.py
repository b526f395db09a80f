"""γ̂: how differently one kernel can do on the target and on a related task, the paper's Definition 2 and appendix."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.optimize import brentq
from scipy.stats import norm
from torch import Tensor

from m2st_core.criterion import h_matrix, masked_terms, mmd2_paired, variance
from m2st_core.data.arrays import as_related_tasks, as_two_sample
from m2st_core.data.related import RelatedTasks, stack_repeats
from m2st_core.device import map_threads, one_thread_per_operation, resolve_device, short_memory_in_words
from m2st_core.kernels.base import take
from m2st_core.kernels.deep import DeepKernel
from m2st_core.learners.ascent import ascend, part_of
from m2st_core.learners.meta_kl import copy_with
from m2st_core.learners.target_kernels import start_deep
from m2st_core.presets import PRESETS
from m2st_core.rng import Streams
from m2st_core.types import Progress, TwoSample

FLOOR_LEVEL = 0.95


@dataclass(frozen=True)
class Relatedness:
    """γ̂_it = |Ĵ(target) − Ĵ(task i)| at the kernel of restart t, on both halves of the rows: (tasks, restarts).

    The kernels were chosen on the training halves; the test halves are fresh. The paper used the training halves.
    ``same_task`` has the same numbers on test halves for pairs of samples of one task: (pairs, restarts).
    ``target_share`` is the target's part of the variance of a difference, which is 1/2 for equally many rows.
    """

    task_names: tuple[str, ...]
    on_training_rows: np.ndarray
    on_test_rows: np.ndarray
    same_task: np.ndarray
    target_share: float = 0.5

    def gamma(self, on_training_rows: bool = False) -> float:
        """γ̂ = min_i max_t γ̂_it: the most related task, and the kernel that sets it apart most."""
        return float((self.on_training_rows if on_training_rows else self.on_test_rows).max(axis=1).min())

    @property
    def floor(self) -> float:
        """The noise floor: what γ̂ on test halves exceeds in about 1 of 20 cases if all tasks are equal to the target.

        Then γ̂_i = |e₀ − e_i| with the errors e of Ĵ on target and task i, taken as normal. The root mean square of
        ``same_task``'s largest numbers is their scale. All tasks share e₀, which keeps min_i from falling far.
        """
        scale = float(np.sqrt((self.same_task.max(axis=1) ** 2).mean()))
        return scale * smallest_distance(len(self.on_test_rows), self.target_share, FLOOR_LEVEL)

    @property
    def stands_out(self) -> bool:
        """Whether γ̂ on test halves exceeds the noise floor."""
        return self.gamma() > self.floor

    @property
    def sentence(self) -> str:
        """Whether γ̂ says more than noise, in plain words."""
        if self.stands_out:
            return (
                f"γ̂ = {self.gamma():.3f} stands out from its noise floor {self.floor:.3f}: even the most related task "
                "differs from the target."
            )
        return (
            f"γ̂ = {self.gamma():.3f} does not stand out from its noise floor {self.floor:.3f}: two samples of one task "
            "with as many rows give as much, so it does not tell how related the tasks are."
        )


def smallest_distance(count: int, share: float, level: float) -> float:
    """The quantile of min_i |√s·z₀ − √(1−s)·z_i| for standard normal z₀, …, z_count and the share s of z₀.

    >>> round(smallest_distance(1, 0.5, 0.95), 2)
    1.96
    """
    z = np.linspace(-6, 6, 601)
    weight = norm.pdf(z) / norm.pdf(z).sum()
    own, other = math.sqrt(share), math.sqrt(1 - share)

    def exceeded(distance: float) -> float:
        near = norm.cdf((own * z + distance) / other) - norm.cdf((own * z - distance) / other)
        return float((weight * (1 - near) ** count).sum()) - (1 - level)

    return float(brentq(exceeded, 0, 6))


REGULARISATION = 1e-8
BATCH_ROWS = 128  # of each sample in a step, drawn anew
BLOCK_ROWS = 512
SAME_TASK_PAIRS = 9  # at least so many pairs of samples of one task tell how large γ̂ is by chance

Halves = tuple[RelatedTasks, RelatedTasks]
"""The rows that choose kernels, and fresh ones."""


def relatedness(
    target: Any,
    related_tasks: Any,
    *,
    restarts: int = 10,
    max_tasks: int = 10,
    steps: int = 100,
    seed: int = 0,
    device: str | torch.device = "auto",
    progress: Progress | None = None,
) -> Relatedness:
    """How related the tasks are to the target, a pair (x, y): γ̂, beside what noise alone gives.

    For each of at most ``max_tasks`` tasks, drawn at random, and each restart, a deep kernel climbs the squared
    difference of Ĵ between target and task on half of their rows. All tasks and restarts are one batch. The noise floor
    comes from the same procedure on pairs of samples of one task, with the same numbers of rows: the rows of target and
    task are pooled, P's with P's and Q's with Q's, and dealt out again at random.

    >>> import m2st_core as m2st
    >>> tasks = m2st.hdgm_related_tasks(n_tasks=2, rows=40)
    >>> m2st.relatedness(tasks["Δ=0.400"], tasks, restarts=2, steps=2).on_test_rows.shape
    (2, 2)
    """
    for name, value in (("restarts", restarts), ("max_tasks", max_tasks), ("steps", steps)):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
            raise ValueError(f"{name} must be a whole number ≥ 1. Got {value!r}.")
    streams = Streams(seed).child("relatedness")
    place = resolve_device(device)
    own, tasks = as_two_sample(*target), as_related_tasks(related_tasks)
    if own.x.shape[-1] != tasks.rows.shape[-1]:
        raise ValueError(f"The meta-tasks have {tasks.rows.shape[-1]} columns and the target has {own.x.shape[-1]}.")
    chosen = torch.randperm(len(tasks.names), generator=streams.torch("tasks"))[:max_tasks].sort().values
    tasks = tasks.select(chosen.numpy())
    goal = _halves(stack_repeats([[own]], ("target",)), streams.child("target"), place)
    others = _halves(tasks, streams, place)
    again = -(-SAME_TASK_PAIRS // len(tasks.names))
    share = 1 / (1 + again)
    with one_thread_per_operation(), short_memory_in_words():
        chosen_on, fresh = _measure(goal, others, restarts, steps, streams, part_of(progress, 0, share))
        chance = streams.child("same task")
        deal = chance.torch("deal")
        pairs = [_dealt_again(own, tasks, task, deal) for _ in range(again) for task in range(len(tasks.names))]
        goal, others = (
            _halves(stack_repeats([side], tasks.names * again), chance.child(name), place)
            for name, side in zip(("target", "task"), zip(*pairs, strict=True), strict=True)
        )
        (same_task,) = _measure(goal, others, restarts, steps, chance, part_of(progress, share, 1), halves=(1,))
    sizes = [min(tasks.task(task).sizes) for task in range(len(tasks.names))]
    target_share = float(np.mean(sizes)) / (min(own.sizes) + float(np.mean(sizes)))
    return Relatedness(tasks.names, chosen_on, fresh, same_task, target_share)


def _dealt_again(
    own: TwoSample, tasks: RelatedTasks, task: int, generator: torch.Generator
) -> tuple[TwoSample, TwoSample]:
    """Two samples of one task, of the sizes of the target and of a task: their rows, pooled and dealt out at random."""
    sides = []
    for rows, other in zip(own, tasks.task(task), strict=True):
        pooled = torch.cat([rows, other.to(rows)])
        order = torch.randperm(len(pooled), generator=generator)
        sides.append(pooled[order].split([len(rows), len(other)]))
    (x, x_other), (y, y_other) = sides
    return TwoSample(x, y, own.shape), TwoSample(x_other, y_other, own.shape)


def _measure(
    goal: Halves,
    others: Halves,
    restarts: int,
    steps: int,
    streams: Streams,
    progress: Progress | None,
    halves: Sequence[int] = (0, 1),
) -> list[np.ndarray]:
    """γ̂_it on these halves, each (tasks, restarts). ``goal`` is one target for all tasks, or one for each."""
    kernel = _climb(goal[0], others[0], restarts, steps, streams, part_of(progress, 0, 0.7))
    stages = np.linspace(0.7, 1, len(halves) + 1)
    return [
        _differences(kernel, goal[half], others[half], restarts, part_of(progress, stages[index], stages[index + 1]))
        for index, half in enumerate(halves)
    ]


def _halves(meta: RelatedTasks, streams: Streams, device: torch.device) -> Halves:
    kept, aside = meta.hold_out(0.5, [streams.torch("halves")])
    return kept.to(device), aside.to(device)


def _climb(
    goal: RelatedTasks, others: RelatedTasks, restarts: int, steps: int, streams: Streams, progress: Progress | None
) -> DeepKernel:
    """A kernel for every task and restart, batch (tasks·restarts), that maximises the squared difference of Ĵ."""
    count = len(others.names) * restarts
    children = [streams.child(f"kernel {index}") for index in range(count)]
    everything = torch.cat([*goal.task(0)])
    kernel = start_deep(everything.expand(count, -1, -1), PRESETS["recommended"].on(goal.shape), children)
    generator = [streams.torch("batches")]
    which = torch.arange(len(others.names), device=others.rows.device).repeat_interleave(restarts)[None]

    def difference() -> Tensor:
        values = []
        for meta, tasks in ((goal, which if len(goal.names) > 1 else torch.zeros_like(which[:, :1])), (others, which)):
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
    kernel: DeepKernel, goal: RelatedTasks, others: RelatedTasks, restarts: int, progress: Progress | None
) -> np.ndarray:
    """|Ĵ(target) − Ĵ(task)| of every kernel on all rows: (tasks, restarts)."""
    tasks = len(others.names)
    pairs = [_pair(others, task) for task in range(tasks)]
    goals = [_pair(goal, task) for task in range(len(goal.names))]

    def one(index: int) -> float:
        alone = copy_with(kernel, lambda tensor: tensor[index : index + 1])
        task = index // restarts
        return abs(full_criterion(alone, goals[task % len(goals)]) - full_criterion(alone, pairs[task]))

    found = []
    for index, value in enumerate(map_threads(one, range(tasks * restarts))):
        found.append(value)
        if progress is not None:
            progress(index + 1, tasks * restarts, value)
    return np.array(found).reshape(tasks, restarts)


def _pair(meta: RelatedTasks, task: int) -> TwoSample:
    """A task's rows, as many of x as of y."""
    x, y = meta.task(task)
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
