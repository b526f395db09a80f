"""Meta-KL (Algorithm 1) and AGT-KL: one kernel for all tasks, from which each task's own is a few steps away.

A kernel's parameters lead with the batch dimension of R repeats. A task of a repeat is a run of its own: parameters
are repeated for every task, and one inner step for R repeats × T tasks is a handful of batched operations.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad

from m2st_core.criterion import h_matrix, masked_terms
from m2st_core.device import map_threads
from m2st_core.kernels import CNN, Kernel
from m2st_core.kernels.base import map_tensors
from m2st_core.learners.ascent import Course, draw_rows
from m2st_core.presets import Adaptation, MetaAscent
from m2st_core.rng import Streams
from m2st_core.tasks.meta import MetaSample, PairedRows
from m2st_core.types import Progress, TwoSample

JUDGES = 50  # tasks that decide how far to adapt
State = dict[str, Tensor]
AnyKernel = TypeVar("AnyKernel", bound=Kernel)


class Paired(nn.Module):
    """H of a kernel as a module's forward, so that torch.func can call it with other parameters."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self.kernel = kernel

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """H_ij: (runs, n, n)."""
        return h_matrix(self.kernel, x, y)

    def state(self, runs: int) -> State:
        """All tensors, once for each of this many runs per repeat."""
        return {name: tensor.repeat_interleave(runs, dim=0) for name, tensor in self.state_dict(keep_vars=True).items()}


def terms(paired: Paired, state: State, rows: PairedRows) -> tuple[Tensor, Tensor]:
    """MMD² and σ̂² of each run: (runs,), (runs,)."""
    return masked_terms(functional_call(paired, state, (rows.x, rows.y)), rows.inside)


def criterion(paired: Paired, state: State, rows: PairedRows, regularisation: float) -> Tensor:
    """Ĵ_λ of each run: (runs,)."""
    mmd2, variance = terms(paired, state, rows)
    return mmd2 / (variance + regularisation).sqrt()


def adapt_state(paired: Paired, state: State, rows: PairedRows, settings: MetaAscent, steps: int) -> State:
    """Inner steps ω ← ω + η∇Ĵ(ω) (or θ + η∇Ĵ(ω), ``restart``) on each run's rows; ``state`` is left as it was.

    Gradients that are not finite count as 0. First order means that the steps themselves are not differentiated.
    """
    moving = [name for name in state if _moves(name, paired, settings)]
    start, current = state, state
    for _ in range(steps):
        rest = current

        def objective(changed: Mapping[str, Tensor], rest: State = rest) -> Tensor:
            return criterion(paired, rest | dict(changed), rows, settings.regularisation).sum()

        gradient = grad(objective)({name: current[name] for name in moving})
        base = start if settings.restart else current
        changed = {}
        for name, value in gradient.items():
            value = value if settings.second_order else value.detach()
            changed[name] = base[name] + settings.inner_rate * value.nan_to_num(0.0, 0.0, 0.0)
        current = current | changed
    return current


def _moves(name: str, paired: Paired, settings: MetaAscent) -> bool:
    """Whether inner steps change this tensor."""
    trainable = dict(paired.named_parameters())
    return name in trainable and (settings.adapts == "all" or ".network." in name or ".matrix" in name)


def fit_meta_kernel(
    kernel: Kernel,
    meta: MetaSample,
    query_meta: MetaSample | None,
    settings: MetaAscent,
    streams: Sequence[Streams],
    progress: Progress | None = None,
) -> Course:
    """Algorithm 1: change the kernel's parameters θ so that they do well after the inner steps.

    Query rows come from ``query_meta``, the same tasks with other rows, or else are split off ``meta``'s. With held-out
    tasks, the kernel is kept as it was when they did best.
    """
    repeats, tasks = meta.where.shape[:2]
    used = max(1, int(tasks * settings.task_share))
    held = int(used * settings.held_out_tasks) if used > 1 else 0
    orders = [torch.randperm(used, generator=stream.torch("held-out tasks")) for stream in streams]
    order = (torch.stack(orders) if held else torch.arange(used).expand(repeats, -1)).to(meta.rows.device)
    learning, aside = order[:, held:], order[:, :held]
    choice = [stream.torch("meta-batches") for stream in streams]
    paired = Paired(kernel)
    parameters = dict(paired.named_parameters())
    optimiser = torch.optim.Adam(parameters.values(), lr=settings.outer_rate)
    support_share = settings.support_share if settings.inner_steps else 0.0
    support_share = 1.0 if query_meta is not None else support_share
    together = settings.pooled_tasks
    count = min(settings.tasks_per_step, max(1, learning.shape[1] // together))

    def score(changed: State, which: Tensor, pooled: int, generators: Sequence[torch.Generator]) -> Tensor:
        """The objective of each repeat on these tasks (R, T·pooled), after adaptation: (R,)."""
        n_tasks = which.shape[1] // pooled
        state = {**paired.state_dict(keep_vars=True), **changed}
        state = {name: tensor.repeat_interleave(n_tasks, dim=0) for name, tensor in state.items()}
        support, query = meta.draw_pairs(which, support_share, generators, pooled)
        if query_meta is not None:
            _, query = query_meta.draw_pairs(which, 0.0, generators, pooled)
        if settings.inner_steps:
            state = adapt_state(paired, state, support, settings, settings.inner_steps)
        mmd2, variance = (part.reshape(repeats, n_tasks) for part in terms(paired, state, query))
        if settings.ratio_of_means:
            return mmd2.mean(dim=1) / (variance.mean(dim=1) + settings.regularisation).sqrt()
        return (mmd2 / (variance + settings.regularisation).sqrt()).mean(dim=1)

    run_by_run = any(isinstance(part, CNN) for part in kernel.modules())
    best = {name: parameter.detach().clone() for name, parameter in parameters.items()}
    highest = torch.full((repeats,), -torch.inf, dtype=torch.float64, device=meta.rows.device)
    curve: list[tuple[int, np.ndarray, np.ndarray]] = []
    trained = torch.zeros(repeats)
    for step in range(settings.outer_steps + 1):
        if held and step % settings.check_every == 0:
            checks = [stream.torch("rows of held-out tasks") for stream in streams]
            with torch.no_grad():
                found = score({}, aside, 1, checks)
                seen = score({}, learning[:, : aside.shape[1]], 1, checks)
            better = found > highest
            highest = highest.where(~better, found)
            for name, parameter in parameters.items():
                best[name][better] = parameter.detach()[better]
            curve.append((step, seen.cpu().numpy(), found.cpu().numpy()))
        elif step % settings.check_every == 0 and step:
            values = trained.detach().cpu().numpy()
            curve.append((step, values, np.full_like(values, np.nan)))
        if step == settings.outer_steps:
            break
        chosen = torch.stack([torch.randperm(learning.shape[1], generator=g)[: count * together] for g in choice])
        which = learning.take_along_dim(chosen.to(learning.device), dim=1)

        def loss(changed: State, which: Tensor = which) -> tuple[Tensor, Tensor]:
            values = score(changed, which, together, choice)
            return -values.sum(), values.detach()

        if run_by_run:
            support, query = meta.draw_pairs(which, support_share, choice, together)
            gradient, trained = _gradient_run_by_run(paired, support, query, repeats, settings)
        else:
            gradient, trained = grad(loss, has_aux=True)({name: p.detach() for name, p in parameters.items()})
        for name, parameter in parameters.items():
            parameter.grad = gradient[name].nan_to_num(0.0, 0.0, 0.0)
        optimiser.step()
        if progress is not None:
            progress(step + 1, settings.outer_steps, float(trained.mean()))
    if held:
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter.copy_(best[name])
    steps, train, held_out = zip(*curve, strict=True) if curve else ((), (), ())
    return Course(np.array(steps), np.array(train).reshape(-1, repeats), np.array(held_out).reshape(-1, repeats))


def _gradient_run_by_run(
    paired: Paired, support: PairedRows, query: PairedRows, repeats: int, settings: MetaAscent
) -> tuple[State, Tensor]:
    """The gradient of minus the mean of the tasks' ratios (R repeats, summed), and that mean (R,).

    Networks on images are so large that a run of its own keeps a core busy: runs are spread over threads, and memory is
    that of a few of them. Sums are in the order of the runs, whatever the number of threads.
    """
    runs = len(query.inside)
    tasks = runs // repeats
    trainable = {name for name, _ in paired.named_parameters()}

    def one(run: int) -> tuple[State, Tensor]:
        own = copy.deepcopy(paired)  # functional_call changes the module while it runs
        state = {name: tensor.detach()[run // tasks][None] for name, tensor in own.state_dict().items()}
        rows = [PairedRows(part.x[run][None], part.y[run][None], part.inside[run][None]) for part in (support, query)]

        def loss(changed: State) -> tuple[Tensor, Tensor]:
            start = {**state, **changed}
            adapted = (
                adapt_state(own, start, rows[0], settings, settings.inner_steps) if settings.inner_steps else start
            )
            value = criterion(own, adapted, rows[1], settings.regularisation).sum()
            return -value / tasks, value.detach()

        return grad(loss, has_aux=True)({name: state[name] for name in trainable})

    gradient: State = {}
    values = torch.zeros(runs)
    for run, (found, value) in enumerate(map_threads(one, range(runs))):
        values[run] = value
        for name, part in found.items():
            gradient.setdefault(name, part.new_zeros(repeats, *part.shape[1:]))[run // tasks] += part[0]
    return gradient, values.reshape(repeats, tasks).mean(dim=1)


@torch.no_grad()
def adaptation_scores(
    kernel: Kernel,
    support: MetaSample,
    query: MetaSample,
    settings: MetaAscent,
    steps: Sequence[int],
    streams: Sequence[Streams],
) -> dict[int, float]:
    """The criterion of at most 50 tasks' query rows, after each of these numbers of steps on their support rows."""
    generators = [stream.torch("choice of adaptation") for stream in streams]
    repeats, tasks = len(support.rows), min(len(support.names), JUDGES)
    orders = [torch.randperm(len(support.names), generator=generator)[:tasks] for generator in generators]
    which = torch.stack(orders).to(support.rows.device)
    learning, _ = support.draw_pairs(which, 1.0, generators)
    _, judging = query.draw_pairs(which, 0.0, generators)
    paired = Paired(kernel)
    scores = {}
    for count in steps:
        state = adapt_state(paired, paired.state(tasks), learning, settings, count)
        mmd2, variance = (part.reshape(repeats, tasks).mean(dim=1) for part in terms(paired, state, judging))
        scores[count] = float((mmd2 / (variance + settings.regularisation).sqrt()).mean())
    return scores


def copy_with(kernel: AnyKernel, change: Callable[[Tensor], Tensor]) -> AnyKernel:
    """A copy whose parameters and buffers are changed."""
    clone = copy.deepcopy(kernel)
    map_tensors(clone, change)
    return clone


def for_runs(kernel: Kernel, runs: int) -> Kernel:
    """A copy of each repeat's kernel for this many runs, to be changed independently."""
    return copy_with(kernel, lambda tensor: tensor.repeat_interleave(runs, dim=0))


def reshape_runs(kernel: Kernel, repeats: int, kernels: int) -> None:
    """Give R·K kernels the batch shape (R, K)."""
    map_tensors(kernel, lambda tensor: tensor.reshape(repeats, kernels, *tensor.shape[1:]))


def adapt_to_target(
    kernel: Kernel,
    train: TwoSample,
    settings: MetaAscent,
    adaptation: Adaptation,
    steps: int,
    streams: Sequence[Streams],
    progress: Progress | None = None,
) -> tuple[Kernel, Tensor]:
    """Line 2 of Algorithm 2: the kernel after its steps on the training rows, and how far it moved, ‖ω−θ‖/‖θ‖: (R,).

    Of unequal samples, or where only a share is used, rows are drawn anew each step.
    """
    runs = train.x.shape[0]
    adapted = for_runs(kernel, runs)
    if not steps:
        return adapted, torch.zeros(runs, dtype=torch.float64)
    paired = Paired(adapted)
    parameters = dict(paired.named_parameters())
    before = {name: parameter.detach().clone() for name, parameter in parameters.items()}
    count = max(2, int(min(train.sizes) * adaptation.row_share))
    generators = [stream.torch("adaptation rows") for stream in streams]
    adam = torch.optim.Adam(parameters.values(), lr=adaptation.learning_rate)
    inner = replace(settings, inner_rate=adaptation.learning_rate)
    for step in range(steps):
        x, y = (draw_rows(rows, count, generators) for rows in train)
        rows = PairedRows(x, y, torch.ones_like(x[..., 0]))
        state = paired.state_dict(keep_vars=True)
        if adaptation.optimiser == "gradient":
            changed = adapt_state(paired, {k: v.detach() for k, v in state.items()}, rows, inner, 1)
            with torch.no_grad():
                for name, parameter in parameters.items():
                    parameter.copy_(changed[name])
        else:
            adam.zero_grad()
            criterion(paired, state, rows, settings.regularisation).sum().neg().backward()
            adam.step()
        if progress is not None:
            progress(step + 1, steps, 0.0)

    def length(values: Mapping[str, Tensor]) -> Tensor:
        return sum((v.detach().reshape(runs, -1).square().sum(dim=1) for v in values.values()), torch.zeros(())).sqrt()

    moved = length({name: parameter - before[name] for name, parameter in parameters.items()}) / length(before)
    return adapted.requires_grad_(False), moved
