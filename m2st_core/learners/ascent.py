"""Tools of all learners: Adam ascent of a batch of independent runs, eigenvectors, training curves."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from m2st_core.types import Progress

ALL_EIGENVECTORS = 1200  # largest size of a matrix whose eigenvectors are all computed
SOME_EIGENVECTORS = 256  # number of eigenvectors of a larger matrix
ITERATIONS = 4  # of subspace iteration
SQUARE_BLOCKS = 3


def ascend(
    parameters: Iterable[nn.Parameter],
    objective: Callable[[], Tensor],
    *,
    steps: int,
    learning_rate: float,
    weight_decay: float = 0.0,
    progress: Progress | None = None,
) -> Tensor:
    """Maximise ``objective() → (R,)``, one value per run, with Adam. Return its values at all steps: (steps, R).

    Runs share no parameter and Adam acts on each number alone, so ascent of the sum trains each run as if alone.
    """
    optimiser = torch.optim.Adam(parameters, lr=learning_rate, weight_decay=weight_decay)
    curve = []
    for step in range(steps):
        optimiser.zero_grad()
        values = objective()
        values.sum().neg().backward()
        optimiser.step()
        curve.append(values.detach())
        if progress is not None:
            progress(step + 1, steps, values.detach().mean().item())
    return torch.stack(curve)


@torch.no_grad()
def leading_eigenvectors(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Eigenvalues (R, K) and eigenvectors (R, Q, K) of symmetric matrices (R, Q, Q), the largest first.

    Of matrices with more than 1,200 rows, the leading 256 are approximated by subspace iteration from a fixed start;
    their eigenvalues are the exact variances along these vectors.
    """
    size = matrix.shape[-1]
    if size <= ALL_EIGENVECTORS:
        values, vectors = torch.linalg.eigh(matrix)
        return values.flip(-1), vectors.flip(-1)
    start = torch.randn(size, SOME_EIGENVECTORS, generator=torch.Generator().manual_seed(0), dtype=matrix.dtype)
    basis = torch.linalg.qr(matrix @ start.to(matrix.device)).Q
    for _ in range(ITERATIONS):
        basis = torch.linalg.qr(matrix @ basis).Q
    values, vectors = torch.linalg.eigh(basis.mT @ (matrix @ basis))
    return values.flip(-1), basis @ vectors.flip(-1)


@torch.no_grad()
def squares_of(rows: Tensor) -> Tensor:
    """rowsᵀ·rows, (R, n, Q) → (R, Q, Q). It is symmetric, so blocks below the diagonal are copied."""
    size = rows.shape[-1]
    squares, step = rows.new_empty(len(rows), size, size), -(-size // SQUARE_BLOCKS)
    for start in range(0, size, step):
        columns, following = slice(start, start + step), slice(start, size)
        block = rows[..., columns].mT @ rows[..., following]
        squares[:, columns, following], squares[:, following, columns] = block, block.mT
    return squares


@dataclass(frozen=True)
class Course:
    """A training curve: the objective on training and on held-out tasks, (checks, R) each, at the steps ``step``."""

    step: np.ndarray
    train: np.ndarray
    held_out: np.ndarray

    @classmethod
    def empty(cls) -> Course:
        """The curve of a learner without training steps."""
        return cls(np.zeros(0), np.zeros((0, 1)), np.zeros((0, 1)))
