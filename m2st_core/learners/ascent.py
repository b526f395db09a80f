"""The one loop that learns: Adam up an objective, for a batch of independent runs at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from m2st_core.types import Progress


def ascend(
    parameters: Iterable[nn.Parameter],
    objective: Callable[[], Tensor],
    *,
    steps: int,
    learning_rate: float,
    weight_decay: float = 0.0,
    progress: Progress | None = None,
) -> Tensor:
    """Maximise ``objective() → (R,)``, one value per run, and return its course (steps, R).

    Runs share no parameter, and Adam acts on each number alone, so the sum over runs trains each as if by itself.
    """
    optimiser = torch.optim.Adam(parameters, lr=learning_rate, weight_decay=weight_decay)
    course = []
    for step in range(steps):
        optimiser.zero_grad()
        values = objective()
        values.sum().neg().backward()
        optimiser.step()
        course.append(values.detach())
        if progress is not None:
            progress(step + 1, steps, values.detach().mean().item())
    return torch.stack(course)


def draw_rows(rows: Tensor, count: int, generators: Sequence[torch.Generator]) -> Tensor:
    """``count`` rows of each run, drawn without replacement: (R, n, d) → (R, count, d)."""
    n = rows.shape[-2]
    if count == n:
        return rows
    chosen = torch.stack([torch.randperm(n, generator=generator)[:count] for generator in generators])
    return rows.take_along_dim(chosen[..., None].to(rows.device), dim=-2)


@dataclass(frozen=True)
class Course:
    """A training curve, (checks, R): what the training rows and what held-out rows say, at these steps."""

    step: np.ndarray
    train: np.ndarray
    held_out: np.ndarray

    @classmethod
    def empty(cls) -> Course:
        """Nothing was trained."""
        return cls(np.zeros(0), np.zeros((0, 1)), np.zeros((0, 1)))


def part_of(progress: Progress | None, start: float, end: float) -> Progress | None:
    """A progress for one stage of several, in thousandths of the whole."""
    if progress is None:
        return None
    return lambda step, total, value: progress(round(1000 * (start + (end - start) * step / total)), 1000, value)
