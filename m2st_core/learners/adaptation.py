"""Gradient steps of a deep kernel on one task: Algorithm 1's inner loop and line 2 of Algorithm 2.

A kernel's parameters lead with the batch dimension of R repeats. Each task of a repeat is a run of its own: parameters
are repeated for every task, and one step for R repeats × T tasks is a handful of batched operations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad

from m2st_core.criterion import criterion_ratio, h_matrix, masked_terms
from m2st_core.data.related import PairedRows, RelatedTasks
from m2st_core.kernels.base import Kernel, copy_with
from m2st_core.learners.ascent import draw_rows
from m2st_core.presets import Adaptation, MetaAscent
from m2st_core.rng import Streams
from m2st_core.types import Progress, TwoSample

MOST_TASKS = 50  # held-out tasks that choose the number of steps
CLEAR_GAIN = 2.0  # standard errors by which more steps must improve the score
State = dict[str, Tensor]


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


def adapt_state(paired: Paired, state: State, rows: PairedRows, settings: MetaAscent, steps: int) -> State:
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


def for_runs(kernel: Kernel, runs: int) -> Kernel:
    """A copy with each repeat's kernel repeated for this many independent runs."""
    return copy_with(kernel, lambda tensor: tensor.repeat_interleave(runs, dim=0))


def adapt_to_target(
    kernel: Kernel,
    train: TwoSample,
    settings: MetaAscent,
    adaptation: Adaptation,
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


def choose_steps(
    kernel: Kernel,
    related: RelatedTasks,
    held_out: Tensor,
    settings: MetaAscent,
    adaptation: Adaptation,
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
            mmd2, variance = (part.double() for part in terms(paired, dict(paired.state_dict()), query))
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
