"""γ̂, the paper's Definition 2: how much Ĵ of one kernel can differ between the target and a related task."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from scipy.optimize import brentq
from torch import Tensor

from m2st_core.criterion import criterion_ratio, full_criterion, h_matrix, masked_terms
from m2st_core.data.arrays import as_related_tasks, as_two_sample, in_order_of
from m2st_core.data.related import RelatedTasks, stack_related_tasks
from m2st_core.device import map_threads, one_thread_per_operation, resolve_device, short_memory_in_words
from m2st_core.kernels.base import copy_with
from m2st_core.kernels.deep import DeepKernel
from m2st_core.learners.ascent import ascend
from m2st_core.learners.target_kernels import start_deep
from m2st_core.presets import TUNED
from m2st_core.progress import part_of
from m2st_core.rng import Streams
from m2st_core.types import Progress, TwoSample

REGULARISATION = 1e-8
BATCH_ROWS = 128  # rows of each sample in a step, drawn anew
SAME_TASK_PAIRS = 9  # fewest pairs of samples of one task for the noise floor
FLOOR_LEVEL = 0.95

Halves = tuple[RelatedTasks, RelatedTasks]
"""Training rows, which choose the kernels, and test rows."""


@dataclass(frozen=True)
class Relatedness:
    """γ̂_it = |Ĵ(target) − Ĵ(task i)| at the kernel of restart t, on both halves of the rows: (tasks, restarts).

    The training halves chose the kernels. The paper reports γ̂ on them; the test halves are fresh. ``same_task`` has the
    same values, on test halves, for pairs of samples of one task: (pairs, restarts). ``target_share`` is the target's
    share of the variance of a difference, 1/2 for equally many rows.
    """

    task_names: tuple[str, ...]
    on_training_rows: np.ndarray
    on_test_rows: np.ndarray
    same_task: np.ndarray
    target_share: float = 0.5

    def gamma(self, on_training_rows: bool = False) -> float:
        """γ̂ = min_i max_t γ̂_it."""
        return float((self.on_training_rows if on_training_rows else self.on_test_rows).max(axis=1).min())

    @property
    def floor(self) -> float:
        """The noise floor: γ̂ on test halves exceeds it in about 1 of 20 cases if all tasks equal the target.

        Then γ̂_i = |e₀ − e_i| with errors e of Ĵ on the target and on task i, taken as normal. Their scale is the root
        mean square of the maxima of ``same_task``. All tasks share e₀, so min_i does not shrink much with more tasks.
        """
        scale = float(np.sqrt((self.same_task.max(axis=1) ** 2).mean()))
        return scale * smallest_distance(len(self.on_test_rows), self.target_share, FLOOR_LEVEL)

    @property
    def stands_out(self) -> bool:
        """Whether γ̂ on test halves exceeds the noise floor."""
        return self.gamma() > self.floor

    @property
    def sentence(self) -> str:
        """One sentence: γ̂, its noise floor, and the conclusion."""
        verdict, meaning = "stands out", "even the most related task differs from the target."
        if not self.stands_out:
            verdict = "does not stand out"
            meaning = (
                "two samples of one task of this size differ as much, so γ̂ does not show how related the tasks are."
            )
        return f"γ̂ = {self.gamma():.3f} {verdict} from its noise floor {self.floor:.3f}: {meaning}"


def smallest_distance(count: int, share: float, level: float) -> float:
    """The quantile at ``level`` of min_i |√s·z₀ − √(1−s)·z_i|, z₀, …, z_count standard normal, s = ``share``.

    >>> round(smallest_distance(1, 0.5, 0.95), 2)
    1.96
    """
    from scipy import stats  # slow to import

    z = np.linspace(-6, 6, 601)
    weight = stats.norm.pdf(z) / stats.norm.pdf(z).sum()
    of_target, of_task = math.sqrt(share), math.sqrt(1 - share)

    def exceeded(distance: float) -> float:
        above, below = ((of_target * z + sign * distance) / of_task for sign in (1, -1))
        near = stats.norm.cdf(above) - stats.norm.cdf(below)
        return float((weight * (1 - near) ** count).sum()) - (1 - level)

    return float(brentq(exceeded, 0, 6))


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
    """Estimate γ̂ of related tasks and a target (x, y), with its noise floor.

    For each of at most ``max_tasks`` tasks, drawn at random, and each restart, a deep kernel maximises the squared
    difference of Ĵ between target and task on half of their rows. The noise floor repeats this for pairs of samples of
    one task: rows of target and task are pooled, P's with P's and Q's with Q's, and dealt out again at random.

    >>> import m2st_core as m2st
    >>> tasks = m2st.hdgm_related_tasks(n_tasks=2, rows=40)
    >>> m2st.relatedness(tasks["Δ=0.400"], tasks, restarts=2, steps=2).on_test_rows.shape
    (2, 2)
    """
    for name, value in (("restarts", restarts), ("max_tasks", max_tasks), ("steps", steps)):
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
            raise ValueError(f"{name} must be a whole number ≥ 1. Got {value!r}.")
    streams = Streams(seed).child("relatedness")
    processor = resolve_device(device)
    sample, tasks = as_two_sample(*target), as_related_tasks(related_tasks)
    sample = replace(sample, columns=target.columns) if isinstance(target, TwoSample) else sample
    sample = in_order_of(sample, tasks.columns, tasks.rows.shape[-1])
    drawn = torch.randperm(len(tasks.names), generator=streams.torch("tasks"))[:max_tasks].sort().values
    tasks = tasks.select(drawn.numpy())
    goal = _halves(stack_related_tasks([[sample]], ("target",)), streams.child("target"), processor)
    others = _halves(tasks, streams, processor)
    samples = [tasks.task(index) for index in range(len(tasks.names))]
    deals = -(-SAME_TASK_PAIRS // len(samples))
    share = 1 / (1 + deals)
    with one_thread_per_operation(), short_memory_in_words():
        training, fresh = _measure(goal, others, restarts, steps, streams, part_of(progress, 0, share))
        chance = streams.child("same task")
        deal = chance.torch("deal")
        pairs = [_dealt_again(sample, task, deal) for _ in range(deals) for task in samples]
        goal, others = (
            _halves(stack_related_tasks([side], tasks.names * deals), chance.child(name), processor)
            for name, side in zip(("target", "task"), zip(*pairs, strict=True), strict=True)
        )
        (same_task,) = _measure(goal, others, restarts, steps, chance, part_of(progress, share, 1), halves=(1,))
    size = float(np.mean([min(task.sizes) for task in samples]))
    return Relatedness(tasks.names, training, fresh, same_task, size / (min(sample.sizes) + size))


def _dealt_again(target: TwoSample, task: TwoSample, generator: torch.Generator) -> tuple[TwoSample, TwoSample]:
    """Two samples of one task, of the sizes of target and task: their rows, pooled and dealt out at random."""
    sides = []
    for of_target, of_task in zip(target, task, strict=True):
        pooled = torch.cat([of_target, of_task.to(of_target)])
        order = torch.randperm(len(pooled), generator=generator)
        sides.append(pooled[order].split([len(of_target), len(of_task)]))
    (x, x_task), (y, y_task) = sides
    return TwoSample(x, y, target.shape), TwoSample(x_task, y_task, target.shape)


def _measure(
    goal: Halves,
    others: Halves,
    restarts: int,
    steps: int,
    streams: Streams,
    progress: Progress | None,
    halves: Sequence[int] = (0, 1),
) -> list[np.ndarray]:
    """γ̂_it on all rows of these halves, (tasks, restarts) each. ``goal`` has one target for all tasks, or one each."""
    kernel = _climb(goal[0], others[0], restarts, steps, streams, part_of(progress, 0, 0.7))
    total, stages, measured = len(others[0].names) * restarts, np.linspace(0.7, 1, len(halves) + 1), []
    for half, start, end in zip(halves, stages, stages[1:], strict=False):
        report, values = part_of(progress, start, end), []
        goals, pairs = ([side[half].task(i) for i in range(len(side[half].names))] for side in (goal, others))

        def gap(index: int, goals: list[TwoSample] = goals, pairs: list[TwoSample] = pairs) -> float:
            single = copy_with(kernel, lambda tensor: tensor[index : index + 1])
            task = index // restarts
            both = goals[task % len(goals)], pairs[task]
            of_target, of_task = (full_criterion(single, pair.x, pair.y, REGULARISATION) for pair in both)
            return abs(of_target - of_task)

        for value in map_threads(gap, range(total)):
            values.append(value)
            if report is not None:
                report(len(values), total, value)
        measured.append(np.array(values).reshape(-1, restarts))
    return measured


def _halves(related: RelatedTasks, streams: Streams, device: torch.device) -> Halves:
    training, test = related.hold_out(0.5, [streams.torch("halves")])
    return training.to(device), test.to(device)


def _climb(
    goal: RelatedTasks, others: RelatedTasks, restarts: int, steps: int, streams: Streams, progress: Progress | None
) -> DeepKernel:
    """The kernels that maximise the squared difference of Ĵ, for every task and restart: batch (tasks·restarts,)."""
    count = len(others.names) * restarts
    children = [streams.child(f"kernel {index}") for index in range(count)]
    everything = torch.cat([*goal.task(0)])
    kernel = start_deep(everything.expand(count, -1, -1), TUNED.on(goal.shape), children)
    generator = [streams.torch("batches")]
    which = torch.arange(len(others.names), device=others.rows.device).repeat_interleave(restarts)[None]
    targets = which if len(goal.names) > 1 else torch.zeros_like(which[:, :1])

    def difference() -> Tensor:
        values = []
        for side, indices in ((goal, targets), (others, which)):
            _, rows = side.draw_pairs(indices, 0.0, generator, largest=BATCH_ROWS)
            h = h_matrix(kernel, rows.x.expand(count, -1, -1), rows.y.expand(count, -1, -1))
            values.append(criterion_ratio(*masked_terms(h, rows.inside), REGULARISATION))
        return (values[0] - values[1]).square()

    ascend(kernel.parameters(), difference, steps=steps, learning_rate=5e-3, progress=progress)
    return kernel.requires_grad_(False)
