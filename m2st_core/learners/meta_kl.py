"""Meta-KL (Algorithm 1) and AGT-KL: one deep kernel for all related tasks, then one for each of a few of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from m2st_core.criterion import mean_criterion
from m2st_core.data.related import RelatedTasks
from m2st_core.kernels.base import copy_with, map_tensors
from m2st_core.kernels.deep import DeepKernel, RootDeepKernel
from m2st_core.kernels.features import MLP
from m2st_core.kernels.images import CNN
from m2st_core.learners.adaptation import choose_steps
from m2st_core.learners.ascent import Course
from m2st_core.learners.classifier import pretrained_kernel
from m2st_core.learners.climbers import RunByRun, WrittenOut
from m2st_core.learners.knowledge import Knowledge
from m2st_core.learners.target_kernels import make_network, maximise_criterion, published_widths
from m2st_core.presets import MetaAscent, Preset
from m2st_core.progress import part_of
from m2st_core.rng import Streams
from m2st_core.types import Progress, TwoSample


def learn_rows(
    related: RelatedTasks, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> Knowledge:
    """MMD-D w/ AC: all rows of all tasks, without their labels."""
    if related.rows.shape[0] != 1:
        raise ValueError("MMD-D w/ AC learns from one repeat at a time.")
    return Knowledge(rows=related.take_inside()[None])


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
    settings: MetaAscent,
    starts: int,
    preset: Preset,
    streams: Sequence[Streams],
    progress: Progress | None,
) -> Knowledge:
    """θ from several starts, of which held-out tasks choose one for Meta-KL; all of them lead to base kernels."""
    repeats = len(streams)
    many = streams if starts == 1 else [stream.child(f"start {k}") for stream in streams for k in range(starts)]
    rows = related.with_rows(related.rows.float()) if related.shape is None else related
    training, held_out = hold_out_tasks(rows, settings, streams)
    tasks = training.repeat_interleave(starts, dim=0), held_out.repeat_interleave(starts, dim=0)
    kernels = _deep_start(rows.repeated(starts), tasks[0], preset, many)
    judging = [stream for stream in streams for _ in range(starts)]
    course = fit_meta_kernel(kernels, rows.repeated(starts), settings, tasks, many, judging, part_of(progress, 0, 0.9))
    kernels = kernels.to(related.rows.dtype)
    best = torch.arange(repeats) * starts + _best_start(course, repeats, starts)
    kernel = copy_with(kernels, lambda tensor: tensor[best.to(tensor.device)])
    choices = choose_steps(kernel, related, held_out, settings, preset.adaptation, streams)
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
    """A new deep kernel for each repeat; if the preset pretrains, φ has learned to classify these tasks (R, T)."""
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
    orders = [torch.randperm(len(related.names), generator=stream.torch("base tasks"))[:count] for stream in streams]
    which = torch.stack(orders).to(related.rows.device)  # R x K
    names = tuple(related.names[int(task)] for task in which[0])
    at = (torch.arange(repeats)[:, None] * starts + torch.arange(count) % starts).flatten()
    base = copy_with(kernels, lambda tensor: tensor[at.to(tensor.device)])
    _, rows = related.draw_pairs(which, 0.0, [stream.torch("base rows") for stream in streams])
    smallest = int(rows.inside.sum(dim=-1).min())
    sample = TwoSample(rows.x[:, :smallest], rows.y[:, :smallest])
    children = [stream.child(f"base {k}") for stream in streams for k in range(count)]
    if settings.ascent.steps:
        maximise_criterion(base, sample, settings.ascent, children, progress)
    map_tensors(base, lambda tensor: tensor.reshape(repeats, count, *tensor.shape[1:]))
    return base.requires_grad_(False), names


def hold_out_tasks(related: RelatedTasks, settings: MetaAscent, streams: Sequence[Streams]) -> tuple[Tensor, Tensor]:
    """Indices of training tasks and of held-out tasks, drawn at random: (R, ·) each.

    If no task is held out, the training tasks stay in their order.
    """
    used = max(1, int(related.where.shape[1] * settings.task_share))
    held = int(used * settings.held_out_tasks) if used > 1 else 0
    orders = [torch.randperm(used, generator=stream.torch("held-out tasks")) for stream in streams]
    order = torch.stack(orders) if held else torch.arange(used).expand(len(streams), -1)
    order = order.to(related.rows.device)
    return order[:, held:], order[:, :held]


def fit_meta_kernel(
    kernel: DeepKernel,
    related: RelatedTasks,
    settings: MetaAscent,
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
    climber = (RunByRun if isinstance(kernel.network, CNN) else WrittenOut)(kernel, settings)
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
        chosen = torch.stack([torch.randperm(training.shape[1], generator=g)[: count * pooled] for g in draws])
        which = training.take_along_dim(chosen.to(training.device), dim=1)
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
