"""Meta-KL (Algorithm 1) and AGT-KL: one kernel for all tasks, from which each task's own is a few steps away.

A kernel's parameters lead with the batch dimension of R repeats. A task of a repeat is a run of its own: parameters
are repeated for every task, and one inner step for R repeats × T tasks is a handful of batched operations.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad

from m2st_core.criterion import h_matrix, masked_terms
from m2st_core.data.related import PairedRows, RelatedTasks
from m2st_core.device import map_threads
from m2st_core.kernels.base import Kernel, map_tensors
from m2st_core.kernels.deep import DeepKernel
from m2st_core.kernels.images import CNN
from m2st_core.learners.ascent import Course, draw_rows
from m2st_core.learners.deep_terms import DeepTerms, Parameters, SignedRows
from m2st_core.presets import Adaptation, MetaAscent
from m2st_core.rng import Streams
from m2st_core.types import Progress, TwoSample

JUDGES = 50  # tasks that decide how far to adapt
CLEARLY = 2.0  # standard errors by which more steps must gain
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
    return name in trainable and (settings.adapts == "all" or ".network." in name)


Objective = Callable[[Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]
"""MMD² and σ̂² of R·T runs → the value of each repeat (R,), and the derivatives of their sum by both, (R·T,)."""


class Climber(Protocol):
    """How a kernel's gradient is found after the inner steps on support rows, with the query rows' objective."""

    def terms(self, support: PairedRows, query: PairedRows) -> tuple[Tensor, Tensor]:
        """MMD² and σ̂² of each run's query rows: (runs,), (runs,)."""

    def gradient(self, support: PairedRows, query: PairedRows, objective: Objective) -> tuple[State, Tensor]:
        """Of the objective by the kernel's parameters θ, by name, and its values (R,)."""


class WrittenOut:
    """A deep kernel of rows: derivatives are written out, all runs at once."""

    def __init__(self, kernel: DeepKernel, settings: MetaAscent) -> None:
        if settings.restart and settings.second_order:
            raise ValueError("Inner steps that restart from θ are first order, as in the published code.")
        self.kernel, self.settings, self.layout = kernel, settings, Parameters(kernel)
        start = self._start(1)
        self.moving = torch.ones_like(start[0]) if settings.adapts == "all" else self.layout.in_network(start)

    def _start(self, tasks: int) -> Tensor:
        own = {name: parameter.detach() for name, parameter in self.kernel.named_parameters()}
        return self.layout.join(own).repeat_interleave(tasks, dim=0)

    def _adapt(self, support: PairedRows, start: Tensor) -> tuple[Tensor, list[DeepTerms]]:
        """Where the inner steps end, (runs, P), and what their derivatives need."""
        vector, course, settings = start, [], self.settings
        rows = SignedRows.of(self.kernel, support) if settings.inner_steps else None
        for _ in range(settings.inner_steps):
            assert rows is not None
            terms = DeepTerms(self.kernel, self.layout, vector, rows)
            noise = terms.variance + settings.regularisation
            gradient = terms.gradient(noise.rsqrt(), -0.5 * terms.mmd2 * noise**-1.5)
            step = gradient.nan_to_num_(0.0, 0.0, 0.0).mul_(self.moving)
            vector = torch.add(start if settings.restart else vector, step, alpha=settings.inner_rate)
            if settings.second_order:
                course.append(terms)
        return vector, course

    def _after(self, support: PairedRows, query: PairedRows) -> tuple[DeepTerms, list[DeepTerms]]:
        tasks = len(query.x) // len(self.kernel.network.centre)
        vector, course = self._adapt(support, self._start(tasks))
        return DeepTerms(self.kernel, self.layout, vector, SignedRows.of(self.kernel, query)), course

    @torch.no_grad()
    def terms(self, support: PairedRows, query: PairedRows) -> tuple[Tensor, Tensor]:
        """MMD² and σ̂² of each run's query rows."""
        found, _ = self._after(support, query)
        return found.mmd2, found.variance

    @torch.no_grad()
    def gradient(self, support: PairedRows, query: PairedRows, objective: Objective) -> tuple[State, Tensor]:
        """Backwards through the inner steps: v ← v + η∇²Ĵ(ω)v."""
        found, course = self._after(support, query)
        values, by_mmd2, by_variance = objective(found.mmd2, found.variance)
        vector = found.gradient(by_mmd2, by_variance)
        for terms in reversed(course):
            bent = terms.curvature(vector * self.moving, self.settings.regularisation)
            vector = torch.add(vector, bent.nan_to_num_(0.0, 0.0, 0.0), alpha=self.settings.inner_rate)
        return self.layout.split(vector.unflatten(0, (len(values), -1)).sum(dim=1)), values


class RunByRun:
    """A deep kernel of images: derivatives by autograd, one run after another, spread over threads.

    Networks on images are so large that a run of its own keeps a core busy, and memory is that of a few of them. Sums
    are in the order of the runs, whatever the number of threads.
    """

    def __init__(self, kernel: DeepKernel, settings: MetaAscent) -> None:
        if settings.ratio_of_means:
            raise ValueError("Images are learned from task by task: ratio_of_means needs all tasks at once.")
        self.kernel, self.settings = kernel, settings

    def _of_run(self, run: int, tasks: int, parts: Sequence[PairedRows]) -> tuple[Paired, State, list[PairedRows]]:
        own = Paired(copy.deepcopy(self.kernel))  # functional_call changes the module while it runs
        state = {name: tensor.detach()[run // tasks][None] for name, tensor in own.state_dict().items()}
        return own, state, [PairedRows(p.x[run][None], p.y[run][None], p.inside[run][None]) for p in parts]

    def _adapted(self, own: Paired, state: State, support: PairedRows) -> State:
        steps = self.settings.inner_steps
        return adapt_state(own, state, support, self.settings, steps) if steps else state

    def terms(self, support: PairedRows, query: PairedRows) -> tuple[Tensor, Tensor]:
        """MMD² and σ̂² of each run's query rows."""
        tasks = len(query.x) // len(self.kernel.network.centre)

        def one(run: int) -> tuple[Tensor, Tensor]:
            own, state, (learning, judging) = self._of_run(run, tasks, (support, query))
            with torch.no_grad():
                return terms(own, self._adapted(own, state, learning), judging)

        mmd2, variance = zip(*map_threads(one, range(len(query.x))), strict=True)
        return torch.cat(mmd2), torch.cat(variance)

    def gradient(self, support: PairedRows, query: PairedRows, objective: Objective) -> tuple[State, Tensor]:
        """The sum of the runs' gradients, and the objective of their terms."""
        repeats, runs = len(self.kernel.network.centre), len(query.x)
        tasks = runs // repeats

        def one(run: int) -> tuple[State, tuple[Tensor, Tensor]]:
            own, state, (learning, judging) = self._of_run(run, tasks, (support, query))

            def loss(changed: State) -> tuple[Tensor, tuple[Tensor, Tensor]]:
                mmd2, variance = terms(own, self._adapted(own, {**state, **changed}, learning), judging)
                value = mmd2 / (variance + self.settings.regularisation).sqrt()
                return value.sum() / tasks, (mmd2.detach(), variance.detach())

            return grad(loss, has_aux=True)({name: state[name] for name, _ in own.named_parameters()})

        total: State = {}
        mmd2, variance = [], []
        for run, (found, (own_mmd2, own_variance)) in enumerate(map_threads(one, range(runs))):
            mmd2.append(own_mmd2)
            variance.append(own_variance)
            for name, part in found.items():
                name = name.removeprefix("kernel.")
                total.setdefault(name, part.new_zeros(repeats, *part.shape[1:]))[run // tasks] += part[0]
        return total, objective(torch.cat(mmd2), torch.cat(variance))[0]


def mean_criterion(repeats: int, settings: MetaAscent) -> Objective:
    """The mean of the tasks' Ĵ_λ, or the ratio of means mean MMD²/√(mean σ̂²+λ), of each repeat."""

    def objective(mmd2: Tensor, variance: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mmd2, noise = mmd2.unflatten(0, (repeats, -1)), variance.unflatten(0, (repeats, -1))
        if settings.ratio_of_means:
            mmd2, noise = (part.mean(dim=1, keepdim=True).expand_as(part) for part in (mmd2, noise))
        noise = noise + settings.regularisation
        ratios = mmd2 * noise.rsqrt()
        slopes = (noise.rsqrt(), -0.5 * ratios / noise)
        by_mmd2, by_variance = (part.flatten() / mmd2.shape[1] for part in slopes)
        return ratios.mean(dim=1), by_mmd2, by_variance

    return objective


def hold_out_tasks(meta: RelatedTasks, settings: MetaAscent, streams: Sequence[Streams]) -> tuple[Tensor, Tensor]:
    """Tasks to learn from and tasks that judge, at random: (R, ·) each; without judges, tasks stay in their order."""
    used = max(1, int(meta.where.shape[1] * settings.task_share))
    held = int(used * settings.held_out_tasks) if used > 1 else 0
    orders = [torch.randperm(used, generator=stream.torch("held-out tasks")) for stream in streams]
    order = torch.stack(orders) if held else torch.arange(used).expand(len(streams), -1)
    order = order.to(meta.rows.device)
    return order[:, held:], order[:, :held]


def fit_meta_kernel(
    kernel: DeepKernel,
    meta: RelatedTasks,
    settings: MetaAscent,
    tasks: tuple[Tensor, Tensor],
    streams: Sequence[Streams],
    judging: Sequence[Streams],
    progress: Progress | None = None,
) -> Course:
    """Algorithm 1: change the kernel's parameters θ so that they do well after the inner steps.

    ``tasks`` are those to learn from and those that judge. The kernel is kept as it was when the latter did best.
    Their rows come from the streams ``judging``, which several starts of a repeat may share.
    """
    repeats, (learning, aside) = len(meta.rows), tasks
    held = aside.shape[1]
    choice = [stream.torch("meta-batches") for stream in streams]
    parameters = dict(kernel.named_parameters())
    optimiser = torch.optim.Adam(parameters.values(), lr=settings.outer_rate)
    support_share = settings.support_share if settings.inner_steps else 0.0
    together = settings.pooled_tasks
    count = min(settings.tasks_per_step, max(1, learning.shape[1] // together))
    run_by_run = any(isinstance(part, CNN) for part in kernel.modules())
    climber: Climber = (RunByRun if run_by_run else WrittenOut)(kernel, settings)
    objective = mean_criterion(repeats, settings)

    def score(which: Tensor, generators: Sequence[torch.Generator]) -> Tensor:
        """The objective of each repeat on these tasks (R, T): (R,)."""
        return objective(*climber.terms(*meta.draw_pairs(which, support_share, generators)))[0]

    best = {name: parameter.detach().clone() for name, parameter in parameters.items()}
    highest = torch.full((repeats,), -torch.inf, dtype=torch.float64, device=meta.rows.device)
    curve: list[tuple[int, np.ndarray, np.ndarray]] = []
    trained = torch.zeros(repeats)
    for step in range(settings.outer_steps + 1):
        if held and step % settings.check_every == 0:
            checks = [stream.torch("rows of held-out tasks") for stream in judging]  # the same rows at every check
            found, seen = score(aside, checks), score(learning[:, :held], checks)
            better = found > highest
            highest = highest.where(~better, found)
            for name, parameter in parameters.items():
                best[name][better] = parameter.detach()[better]
            curve.append((step, seen.cpu().numpy(), found.cpu().numpy()))
        elif step % settings.check_every == 0 and step:
            values = trained.cpu().numpy()
            curve.append((step, values, np.full_like(values, np.nan)))
        if step == settings.outer_steps:
            break
        chosen = torch.stack([torch.randperm(learning.shape[1], generator=g)[: count * together] for g in choice])
        which = learning.take_along_dim(chosen.to(learning.device), dim=1)
        gradient, trained = climber.gradient(*meta.draw_pairs(which, support_share, choice, together), objective)
        for name, parameter in parameters.items():
            parameter.grad = -gradient[name].nan_to_num(0.0, 0.0, 0.0)
        optimiser.step()
        if progress is not None:
            progress(step + 1, settings.outer_steps, float(trained.mean()))
    if held:
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter.copy_(best[name])
    steps, train, held_out = zip(*curve, strict=True) if curve else ((), (), ())
    return Course(np.array(steps), np.array(train).reshape(-1, repeats), np.array(held_out).reshape(-1, repeats))


def adaptation_scores(
    kernel: Kernel,
    meta: RelatedTasks,
    tasks: Tensor,
    settings: MetaAscent,
    adaptation: Adaptation,
    streams: Sequence[Streams],
) -> dict[int, tuple[float, float]]:
    """What each number of steps on these tasks' support rows gives on their query rows: tasks is (R, T).

    The score is mean MMD²/√(mean σ̂²+λ). Beside it stands how far it is above that of the first number of steps, in
    standard errors of that difference (a jackknife over tasks).
    """
    generators = [stream.torch("choice of adaptation") for stream in streams]
    support, query = meta.draw_pairs(tasks[:, :JUDGES], 0.5, generators)
    smallest = int(support.inside.sum(dim=-1).min())
    learning = TwoSample(support.x[:, :smallest], support.y[:, :smallest])
    count = len(support.x) // len(meta.rows)
    children = [stream.child(f"adaptation {k}") for stream in streams for k in range(count)]
    runs = for_runs(kernel, count)
    ratios = []  # of all tasks, then of all but each
    for steps in adaptation.steps:
        paired = Paired(adapt_to_target(runs, learning, settings, adaptation, steps, children)[0])
        with torch.no_grad():
            mmd2, variance = (part.double() for part in terms(paired, dict(paired.state_dict()), query))
        all_but = (1 - torch.eye(len(mmd2), dtype=torch.float64, device=mmd2.device)) / max(1, len(mmd2) - 1)
        weights = torch.cat([torch.full_like(all_but[:1], 1 / len(mmd2)), all_but])
        ratios.append((weights @ mmd2) / (weights @ variance + settings.regularisation).sqrt())
    scores = {}
    for steps, ratio in zip(adaptation.steps, ratios, strict=True):
        gain = ratio - ratios[0]
        error = ((len(gain) - 2) * gain[1:].var(correction=0)).sqrt()
        scores[steps] = (float(ratio[0]), float(gain[0] / error) if error > 0 else 0.0)
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
    adapted = for_runs(kernel, runs // len(next(kernel.parameters())))
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
