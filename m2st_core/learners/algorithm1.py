"""Meta-KL (Algorithms 1 and 2 of the paper) and AGT-KL: one deep kernel for all tasks, then one for the target.

The inner loop adapts θ to the support rows of a task; the outer loop improves Ĵ_λ on its query rows. A kernel's
parameters lead with the batch dimension of R repeats. Each task of a repeat is an independent run: parameters are
repeated for every task, and one step for R repeats × T tasks is a handful of batched operations.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad

from m2st_core.criterion import TaskObjective, criterion_ratio, h_matrix, masked_terms, mean_criterion
from m2st_core.data.related import PairedRows, RelatedTasks
from m2st_core.device import map_threads
from m2st_core.kernels.base import Kernel, copy_with, map_tensors
from m2st_core.kernels.deep import DeepKernel, RootDeepKernel
from m2st_core.kernels.networks import CNN, MLP
from m2st_core.learners.algorithm1_fast import FastClimber, State
from m2st_core.learners.ascent import Course
from m2st_core.learners.classifier import pretrained_kernel
from m2st_core.learners.knowledge import Knowledge, needed_knowledge
from m2st_core.learners.target_kernels import make_network, maximise_criterion, published_widths
from m2st_core.permutation.fitted import KernelTest
from m2st_core.presets import AdaptationSettings, MetaAscentSettings, Preset
from m2st_core.progress import part_of
from m2st_core.rng import Streams, draw_rows, random_orders
from m2st_core.types import Progress, TwoSample

MOST_TASKS = 50  # held-out tasks that choose the number of steps
CLEAR_GAIN = 2.0  # standard errors by which more steps must improve the score


class Paired(nn.Module):
    """H of a kernel as a module's forward, which torch.func calls with other parameters."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self.kernel = kernel

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """H_ij: (runs, n, n)."""
        return h_matrix(self.kernel, x, y)


def terms(paired: Paired, state: State, rows: PairedRows) -> tuple[Tensor, Tensor]:
    """MMD² and σ̂² of each run: (runs,), (runs,)."""
    return masked_terms(functional_call(paired, state, (rows.x, rows.y)), rows.inside)


def criterion(paired: Paired, state: State, rows: PairedRows, regularisation: float) -> Tensor:
    """Ĵ_λ of each run: (runs,)."""
    return criterion_ratio(*terms(paired, state, rows), regularisation)


def adapt_state(paired: Paired, state: State, rows: PairedRows, settings: MetaAscentSettings, steps: int) -> State:
    """Inner steps ω ← ω + η∇Ĵ(ω) (or θ + η∇Ĵ(ω), ``restart``) on each run's rows; ``state`` is not changed.

    Non-finite gradients count as 0. Unless ``second_order``, the steps themselves are not differentiated.
    """
    names = [n for n, _ in paired.named_parameters() if settings.adapts == "all" or ".network." in n]
    current = state
    for _ in range(steps):

        def objective(changed: Mapping[str, Tensor], rest: State = current) -> Tensor:
            return criterion(paired, rest | dict(changed), rows, settings.regularisation).sum()

        gradient = grad(objective)({name: current[name] for name in names})
        base = state if settings.restart else current
        changed = {}
        for name, value in gradient.items():
            value = value if settings.second_order else value.detach()
            changed[name] = base[name] + settings.inner_rate * value.nan_to_num(0.0, 0.0, 0.0)
        current = current | changed
    return current


class AutogradClimber:
    """Terms and gradients of Algorithm 1 by autograd, run by run on several threads: for deep kernels of images.

    Networks for images are so large that one run keeps a core busy, and memory holds a few of them. Sums follow the
    order of the runs, whatever the number of threads.
    """

    def __init__(self, kernel: DeepKernel, settings: MetaAscentSettings) -> None:
        if settings.ratio_of_means:
            raise ValueError("Deep kernels of images learn task by task, but ratio_of_means needs all tasks at once.")
        self.kernel, self.settings = kernel, settings
        self.repeats = len(kernel.network.centre)

    def _run(self, run: int, runs: int) -> tuple[Paired, State]:
        """A copy of the kernel for one run, since functional_call changes a module while it runs, and its state."""
        paired = Paired(copy.deepcopy(self.kernel))
        repeat = run // (runs // self.repeats)
        return paired, {name: tensor.detach()[repeat][None] for name, tensor in paired.state_dict().items()}

    def _terms(self, paired: Paired, state: State, run: int, *rows: PairedRows) -> tuple[Tensor, Tensor]:
        """MMD² and σ̂² of one run's query rows after its inner steps on the support rows: (1,), (1,)."""
        support, query = (PairedRows(r.x[run][None], r.y[run][None], r.inside[run][None]) for r in rows)
        adapted = adapt_state(paired, state, support, self.settings, self.settings.inner_steps)
        return terms(paired, adapted, query)

    def terms(self, support: PairedRows, query: PairedRows) -> tuple[Tensor, Tensor]:
        """MMD² and σ̂² of each run's query rows after the inner steps: (runs,), (runs,)."""
        runs = len(query.x)

        def run_terms(run: int) -> tuple[Tensor, Tensor]:
            with torch.no_grad():
                return self._terms(*self._run(run, runs), run, support, query)

        mmd2, variance = zip(*map_threads(run_terms, range(runs)), strict=True)
        return torch.cat(mmd2), torch.cat(variance)

    def gradient(self, support: PairedRows, query: PairedRows, objective: TaskObjective) -> tuple[State, Tensor]:
        """The sum of the runs' gradients by θ, by name, and the objective's values (R,)."""
        runs = len(query.x)
        tasks = runs // self.repeats

        def run_gradient(run: int) -> tuple[State, tuple[Tensor, Tensor]]:
            paired, state = self._run(run, runs)

            def loss(changed: State) -> tuple[Tensor, tuple[Tensor, Tensor]]:
                mmd2, variance = self._terms(paired, state | changed, run, support, query)
                value = criterion_ratio(mmd2, variance, self.settings.regularisation)
                return value.sum() / tasks, (mmd2.detach(), variance.detach())

            return grad(loss, has_aux=True)({name: state[name] for name, _ in paired.named_parameters()})

        total: State = {}
        mmd2, variance = [], []
        for run, (gradient, (run_mmd2, run_variance)) in enumerate(map_threads(run_gradient, range(runs))):
            mmd2.append(run_mmd2)
            variance.append(run_variance)
            for name, value in gradient.items():
                name = name.removeprefix("kernel.")
                total.setdefault(name, value.new_zeros(self.repeats, *value.shape[1:]))[run // tasks] += value[0]
        return total, objective(torch.cat(mmd2), torch.cat(variance))[0]


def fit_meta_kernel(
    kernel: DeepKernel,
    related: RelatedTasks,
    settings: MetaAscentSettings,
    tasks: tuple[Tensor, Tensor],
    streams: Sequence[Streams],
    judging: Sequence[Streams],
    progress: Progress | None = None,
) -> Course:
    """Algorithm 1: maximise over θ the tasks' mean Ĵ_λ on query rows after the inner steps on support rows.

    ``tasks`` are the indices of training tasks and of held-out tasks. The kernel ends at the parameters that scored
    best on the latter. Their rows come from the streams ``judging``, which several starts of a repeat may share.
    """
    repeats, (training, held_out) = len(related.rows), tasks
    held = held_out.shape[1]
    draws = [stream.torch("meta-batches") for stream in streams]
    parameters = dict(kernel.named_parameters())
    optimiser = torch.optim.Adam(parameters.values(), lr=settings.outer_rate)
    support_share = settings.support_share if settings.inner_steps else 0.0
    pooled = settings.pooled_tasks
    count = min(settings.tasks_per_step, max(1, training.shape[1] // pooled))
    climber = (AutogradClimber if isinstance(kernel.network, CNN) else FastClimber)(kernel, settings)
    objective = mean_criterion(repeats, settings.regularisation, settings.ratio_of_means)

    def score(which: Tensor, generators: Sequence[torch.Generator]) -> Tensor:
        """The objective of each repeat on these tasks (R, T): (R,)."""
        return objective(*climber.terms(*related.draw_pairs(which, support_share, generators)))[0]

    best = {name: parameter.detach().clone() for name, parameter in parameters.items()}
    highest = torch.full((repeats,), -torch.inf, dtype=torch.float64, device=related.rows.device)
    curve: list[tuple[int, np.ndarray, np.ndarray]] = []
    values = torch.zeros(repeats)
    for step in range(settings.outer_steps + 1):
        check = step % settings.check_every == 0
        if check and held:
            same_rows = [stream.torch("rows of held-out tasks") for stream in judging]  # at every check
            fresh, seen = score(held_out, same_rows), score(training[:, :held], same_rows)
            better = fresh > highest
            highest = highest.where(~better, fresh)
            for name, parameter in parameters.items():
                best[name][better] = parameter.detach()[better]
            curve.append((step, seen.cpu().numpy(), fresh.cpu().numpy()))
        elif check and step:
            train = values.cpu().numpy()
            curve.append((step, train, np.full_like(train, np.nan)))
        if step == settings.outer_steps:
            break
        batch = random_orders(training.shape[1], draws)[:, : count * pooled]
        which = training.take_along_dim(batch.to(training.device), dim=1)
        gradient, values = climber.gradient(*related.draw_pairs(which, support_share, draws, pooled), objective)
        for name, parameter in parameters.items():
            parameter.grad = -gradient[name].nan_to_num(0.0, 0.0, 0.0)
        optimiser.step()
        if progress is not None:
            progress(step + 1, settings.outer_steps, float(values.mean()))
    if held:
        with torch.no_grad():
            for name, parameter in parameters.items():
                parameter.copy_(best[name])
    steps, *curves = zip(*curve, strict=True) if curve else ((), (), ())
    return Course(np.array(steps), *(np.array(values).reshape(-1, repeats) for values in curves))


def hold_out_tasks(
    related: RelatedTasks, settings: MetaAscentSettings, streams: Sequence[Streams]
) -> tuple[Tensor, Tensor]:
    """Indices of training tasks and of held-out tasks, drawn at random: (R, ·) each.

    If no task is held out, the training tasks stay in their order.
    """
    used = max(1, int(related.where.shape[1] * settings.task_share))
    held = int(used * settings.held_out_tasks) if used > 1 else 0
    order = torch.arange(used).expand(len(streams), -1)
    if held:
        order = random_orders(used, [stream.torch("held-out tasks") for stream in streams])
    order = order.to(related.rows.device)
    return order[:, held:], order[:, :held]


def learn_meta_kl(
    related: RelatedTasks, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> Knowledge:
    """Meta-KL's θ by Algorithm 1, and Meta-MKL's base kernels by the first line of Algorithm 3."""
    return _learn(related, preset.meta_kl, preset.meta_kl.starts, preset, streams, progress)


def learn_agt_kl(
    related: RelatedTasks, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> Knowledge:
    """AGT-KL: the kernel that maximises the tasks' mean criterion, without inner steps."""
    return _learn(related, replace(preset.meta_kl, inner_steps=0), preset.meta_kl.starts, preset, streams, progress)


def learn_agt_mkl(
    related: RelatedTasks, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> Knowledge:
    """AGT-MKL: AGT-KL from independent starts; in the paper's presets, one for each base kernel."""
    starts = min(preset.base_kernels.agt_starts, len(related.names))
    return _learn(related, replace(preset.meta_kl, inner_steps=0), starts, preset, streams, progress)


def _learn(
    related: RelatedTasks,
    settings: MetaAscentSettings,
    starts: int,
    preset: Preset,
    streams: Sequence[Streams],
    progress: Progress | None,
) -> Knowledge:
    """θ from several starts. Held-out tasks choose one for Meta-KL; all of them lead to base kernels."""
    repeats = len(streams)
    of_starts = streams if starts == 1 else [stream.child(f"start {k}") for stream in streams for k in range(starts)]
    rows = related.with_rows(related.rows.float()) if related.shape is None else related
    training, held_out = hold_out_tasks(rows, settings, streams)
    tasks = training.repeat_interleave(starts, dim=0), held_out.repeat_interleave(starts, dim=0)
    kernels = _deep_start(rows.repeated(starts), tasks[0], preset, of_starts)
    judging = [stream for stream in streams for _ in range(starts)]
    course = fit_meta_kernel(
        kernels, rows.repeated(starts), settings, tasks, of_starts, judging, part_of(progress, 0, 0.9)
    )
    kernels = kernels.to(related.rows.dtype)
    best = torch.arange(repeats) * starts + _best_start(course, repeats, starts)
    kernel = copy_with(kernels, lambda tensor: tensor[best.to(tensor.device)])
    choices = _choose_steps(kernel, related, held_out, settings, preset.adaptation, streams)
    base, names = _base_kernels(kernels, starts, related, preset, streams, part_of(progress, 0.9, 1))
    course = Course(course.step, course.train[:, best.numpy()], course.held_out[:, best.numpy()])
    return Knowledge(kernel=kernel, base=base, base_names=names, choices=choices, course=course)


def _best_start(course: Course, repeats: int, starts: int) -> Tensor:
    """The start with the highest score on held-out tasks, or the first if none are held out: (R,)."""
    scores = torch.from_numpy(course.held_out)
    if starts == 1 or not len(course.step) or bool(scores.isnan().all()):
        return torch.zeros(repeats, dtype=torch.long)
    return scores.amax(dim=0).reshape(repeats, starts).argmax(dim=1)


def _deep_start(related: RelatedTasks, tasks: Tensor, preset: Preset, streams: Sequence[Streams]) -> DeepKernel:
    """A new deep kernel for each repeat. If the preset pretrains, φ has learned to classify these tasks (R, T)."""
    rows = related.rows
    network = make_network(rows, preset.meta_network, streams)
    if isinstance(network, MLP) and preset.meta_network.pretraining is not None:
        return pretrained_kernel(network, related, tasks, preset.meta_network.pretraining, streams)
    if preset.meta_network.as_published:
        u = torch.stack([torch.rand(3, generator=s.torch("first widths"), dtype=torch.float64) for s in streams]).T
        input_width, feature_width, root = u.to(rows) * torch.tensor([[0.3], [0.02], [1e-8]]).to(rows)
        return RootDeepKernel(network, feature_width, input_width, root.square())
    return DeepKernel(network, *published_widths(rows, preset.meta_network))


def _base_kernels(
    kernels: DeepKernel,
    starts: int,
    related: RelatedTasks,
    preset: Preset,
    streams: Sequence[Streams],
    progress: Progress | None,
) -> tuple[DeepKernel, tuple[str, ...]]:
    """A kernel for each of a few random tasks, with their names: θ of one of the starts, then ascent of the task's Ĵ.

    ``kernels`` has batch shape (R·starts,), and the base kernels have (R, K).
    """
    settings, repeats = preset.base_kernels, len(streams)
    count = min(settings.tasks, len(related.names))
    orders = random_orders(len(related.names), [stream.torch("base tasks") for stream in streams])
    which = orders[:, :count].to(related.rows.device)  # R x K
    names = tuple(related.names[int(task)] for task in which[0])
    index = (torch.arange(repeats)[:, None] * starts + torch.arange(count) % starts).flatten()
    base = copy_with(kernels, lambda tensor: tensor[index.to(tensor.device)])
    _, rows = related.draw_pairs(which, 0.0, [stream.torch("base rows") for stream in streams])
    smallest = int(rows.inside.sum(dim=-1).min())
    sample = TwoSample(rows.x[:, :smallest], rows.y[:, :smallest])
    children = [stream.child(f"base {k}") for stream in streams for k in range(count)]
    if settings.ascent.steps:
        maximise_criterion(base, sample, settings.ascent, children, progress)
    map_tensors(base, lambda tensor: tensor.reshape(repeats, count, *tensor.shape[1:]))
    return base.requires_grad_(False), names


def for_runs(kernel: Kernel, runs: int) -> Kernel:
    """A copy with each repeat's kernel repeated for this many independent runs."""
    return copy_with(kernel, lambda tensor: tensor.repeat_interleave(runs, dim=0))


def adapt_to_target(
    kernel: Kernel,
    train: TwoSample,
    settings: MetaAscentSettings,
    adaptation: AdaptationSettings,
    steps: int,
    streams: Sequence[Streams],
    progress: Progress | None = None,
) -> tuple[Kernel, Tensor]:
    """The kernel after its steps on the training rows, and how far it moved, ‖ω−θ‖/‖θ‖: (R,).

    Every step draws rows anew if the samples have unequal sizes, or if only a share of the rows is used.
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


def _choose_steps(
    kernel: Kernel,
    related: RelatedTasks,
    held_out: Tensor,
    settings: MetaAscentSettings,
    adaptation: AdaptationSettings,
    streams: Sequence[Streams],
) -> dict[str, float]:
    """The number of adaptation steps that held-out tasks (R, T) choose, and the score of each candidate.

    The score is mean MMD²/√(mean σ̂²+λ) on the tasks' query rows. A candidate replaces the first one only if it gains
    CLEAR_GAIN standard errors, by a jackknife over tasks. A single candidate, or no task, leaves no choice.
    """
    first = adaptation.steps[0]
    if len(adaptation.steps) == 1 or not held_out.shape[1]:
        return {"adaptation_steps": float(first)}
    generators = [stream.torch("choice of adaptation") for stream in streams]
    support, query = related.draw_pairs(held_out[:, :MOST_TASKS], 0.5, generators)
    smallest = int(support.inside.sum(dim=-1).min())
    train = TwoSample(support.x[:, :smallest], support.y[:, :smallest])
    count = len(support.x) // len(related.rows)
    children = [stream.child(f"adaptation {k}") for stream in streams for k in range(count)]
    runs = for_runs(kernel, count)
    ratios: dict[int, Tensor] = {}
    for steps in adaptation.steps:
        paired = Paired(adapt_to_target(runs, train, settings, adaptation, steps, children)[0])
        with torch.no_grad():
            mmd2, variance = (term.double() for term in terms(paired, dict(paired.state_dict()), query))
        all_but = (1 - torch.eye(len(mmd2), dtype=torch.float64, device=mmd2.device)) / max(1, len(mmd2) - 1)
        weights = torch.cat([torch.full_like(all_but[:1], 1 / len(mmd2)), all_but])  # all tasks, then all but each
        ratios[steps] = criterion_ratio(weights @ mmd2, weights @ variance, settings.regularisation)

    def gain(steps: int) -> float:
        """Standard errors by which the score exceeds that of the first candidate."""
        difference = ratios[steps] - ratios[first]
        error = ((len(difference) - 2) * difference[1:].var(correction=0)).sqrt()
        return float(difference[0] / error) if error > 0 else 0.0

    clear = [steps for steps in ratios if gain(steps) > CLEAR_GAIN]
    best = max(clear, key=lambda steps: float(ratios[steps][0]), default=first)
    scores = {f"held_out_criterion_{steps}_steps": float(ratio[0]) for steps, ratio in ratios.items()}
    return {"adaptation_steps": float(best)} | scores


def fit_adapted(
    knowledge: Knowledge, train: TwoSample, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> KernelTest:
    """Meta-KL, AGT-KL: the kernel after its steps on the training rows; ‖ω−θ‖/‖θ‖ is in the diagnostics."""
    steps = int(knowledge.choices["adaptation_steps"])
    kernel, moved = adapt_to_target(
        needed_knowledge(knowledge.kernel, "kernel"), train, preset.meta_kl, preset.adaptation, steps, streams, progress
    )
    runs = [dict(knowledge.choices) | {"moved": float(distance)} for distance in moved]
    return KernelTest(kernel, diagnostics=runs)
