"""Meta-KL (Algorithm 1) and AGT-KL: one deep kernel for all related tasks, a few steps away from each task's own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from m2st_core.criterion import mean_criterion
from m2st_core.data.related import RelatedTasks
from m2st_core.kernels.deep import DeepKernel
from m2st_core.kernels.images import CNN
from m2st_core.learners.ascent import Course
from m2st_core.learners.climbers import RunByRun, WrittenOut
from m2st_core.presets import MetaAscent
from m2st_core.rng import Streams
from m2st_core.types import Progress


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
