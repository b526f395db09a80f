"""The paper's learners: a deep kernel for all tasks by Algorithm 1 (or AGT-KL), and one for each of a few tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from m2st_core.data.related import RelatedTasks
from m2st_core.kernels.deep import DeepKernel, RootDeepKernel
from m2st_core.kernels.features import MLP
from m2st_core.learners.ascent import Course, part_of
from m2st_core.learners.classifier import pretrained_kernel
from m2st_core.learners.knowledge import Knowledge
from m2st_core.learners.meta_kl import (
    CLEARLY,
    adaptation_scores,
    copy_with,
    fit_meta_kernel,
    hold_out_tasks,
    reshape_runs,
)
from m2st_core.learners.target_kernels import make_network, maximise_criterion, published_widths
from m2st_core.presets import MetaAscent, Preset
from m2st_core.rng import Streams
from m2st_core.types import Progress, TwoSample


def learn_rows(
    meta: RelatedTasks, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> Knowledge:
    """MMD-D w/ AC: all rows of all tasks, without labels."""
    if meta.rows.shape[0] != 1:
        raise ValueError("MMD-D w/ AC learns from one repeat at a time.")
    return Knowledge(rows=meta.take_inside()[None])


def learn_meta_kl(
    meta: RelatedTasks, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> Knowledge:
    """Meta-KL's θ by Algorithm 1, and Meta-MKL's base kernels by the first line of Algorithm 3."""
    return _learn(meta, preset.meta_kl, preset.meta_kl.starts, preset, streams, progress)


def learn_agt_kl(
    meta: RelatedTasks, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> Knowledge:
    """AGT-KL: the kernel that maximises the tasks' mean criterion, without inner steps."""
    settings = replace(preset.meta_kl, inner_steps=0)
    return _learn(meta, settings, settings.starts, preset, streams, progress)


def learn_agt_mkl(
    meta: RelatedTasks, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None
) -> Knowledge:
    """AGT-MKL: the same from independent starts, one for each base kernel where the preset follows the paper."""
    settings = replace(preset.meta_kl, inner_steps=0)
    starts = min(preset.base_kernels.agt_starts, len(meta.names))
    return _learn(meta, settings, starts, preset, streams, progress)


def _learn(
    meta: RelatedTasks,
    settings: MetaAscent,
    starts: int,
    preset: Preset,
    streams: Sequence[Streams],
    progress: Progress | None,
) -> Knowledge:
    """θ from several starts, of which held-out tasks choose one for Meta-KL; base kernels come from all of them."""
    repeats = len(streams)
    many = streams if starts == 1 else [stream.child(f"start {k}") for stream in streams for k in range(starts)]
    rows = meta.with_rows(meta.rows.float()) if meta.shape is None else meta
    learning, aside = hold_out_tasks(rows, settings, streams)
    tasks = learning.repeat_interleave(starts, dim=0), aside.repeat_interleave(starts, dim=0)
    kernel = _deep_start(rows.repeated(starts), tasks[0], preset, many)
    judging = [stream for stream in streams for _ in range(starts)]
    course = fit_meta_kernel(kernel, rows.repeated(starts), settings, tasks, many, judging, part_of(progress, 0, 0.9))
    kernel = kernel.to(meta.rows.dtype)
    best, course = _best_start(course, repeats, starts)
    at = torch.arange(repeats) * starts + best
    known = Knowledge(kernel=copy_with(kernel, lambda tensor: tensor[at.to(tensor.device)]), course=course)
    known.choices = _adaptation(known, meta, aside, settings, preset, streams)
    base, names = _base_kernels(kernel, starts, meta, preset, streams, part_of(progress, 0.9, 1))
    known.base, known.base_names = base, names
    return known


def _best_start(course: Course, repeats: int, starts: int) -> tuple[Tensor, Course]:
    """The start that held-out tasks prefer (the first, if there are none), and its training curve."""
    best = torch.zeros(repeats, dtype=torch.long)
    if starts > 1 and len(course.step) and not bool(torch.from_numpy(course.held_out).isnan().all()):
        best = torch.from_numpy(course.held_out).amax(dim=0).reshape(repeats, starts).argmax(dim=1)
    at = (torch.arange(repeats) * starts + best).numpy()
    return best, Course(course.step, course.train[:, at], course.held_out[:, at])


def _adaptation(
    known: Knowledge,
    meta: RelatedTasks,
    aside: Tensor,
    settings: MetaAscent,
    preset: Preset,
    streams: Sequence[Streams],
) -> dict[str, float]:
    """How many steps to take on the target's training rows: fixed, or as many as pay on held-out tasks."""
    steps = preset.adaptation.steps
    if len(steps) == 1 or not aside.shape[1]:
        return {"adaptation steps": float(steps[0])}
    assert known.kernel is not None
    scores = adaptation_scores(known.kernel, meta, aside, settings, preset.adaptation, streams)
    clear = [count for count, (_, gain) in scores.items() if gain > CLEARLY]
    best = max(clear, key=lambda count: scores[count][0], default=steps[0])
    return {"adaptation steps": float(best)} | {f"held-out criterion, {n} steps": v for n, (v, _) in scores.items()}


def _deep_start(meta: RelatedTasks, tasks: Tensor, preset: Preset, streams: Sequence[Streams]) -> DeepKernel:
    """A fresh deep kernel, one per repeat; where the preset pretrains, it has learned from these tasks (R, T)."""
    rows = meta.rows
    network = make_network(rows, preset.meta_network, streams)
    if isinstance(network, MLP) and preset.meta_network.pretraining is not None:
        return pretrained_kernel(network, meta, tasks, preset.meta_network.pretraining, streams)
    if preset.meta_network.as_published:
        u = torch.stack([torch.rand(3, generator=s.torch("first widths"), dtype=torch.float64) for s in streams]).T
        input_width, feature_width, root = u.to(rows) * torch.tensor([[0.3], [0.02], [1e-8]]).to(rows)
        return RootDeepKernel(network, feature_width, input_width, root.square())
    return DeepKernel(network, *published_widths(rows, preset.meta_network))


def _base_kernels(
    kernel: DeepKernel,
    starts: int,
    meta: RelatedTasks,
    preset: Preset,
    streams: Sequence[Streams],
    progress: Progress | None,
) -> tuple[DeepKernel, tuple[str, ...]]:
    """One kernel for each of a few random tasks, which climbs that task's criterion from θ of one start after another.

    ``kernel`` has batch (R·starts,), what is returned (R, K).
    """
    settings, repeats = preset.base_kernels, len(streams)
    count = min(settings.tasks, len(meta.names))
    orders = [torch.randperm(len(meta.names), generator=stream.torch("base tasks"))[:count] for stream in streams]
    which = torch.stack(orders).to(meta.rows.device)  # R x K
    names = tuple(meta.names[int(task)] for task in which[0])
    at = (torch.arange(repeats)[:, None] * starts + torch.arange(count) % starts).flatten()
    base = copy_with(kernel, lambda tensor: tensor[at.to(tensor.device)])
    _, rows = meta.draw_pairs(which, 0.0, [stream.torch("base rows") for stream in streams])
    smallest = int(rows.inside.sum(dim=-1).min())
    sample = TwoSample(rows.x[:, :smallest], rows.y[:, :smallest])
    children = [stream.child(f"base {k}") for stream in streams for k in range(count)]
    if settings.ascent.steps:
        maximise_criterion(base, sample, settings.ascent, children, progress)
    reshape_runs(base, repeats, count)
    return base.requires_grad_(False), names
