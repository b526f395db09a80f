"""What a kernel is: an embedding of each row, then a function of pairs of embedded rows."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor, nn

Rows = tuple[Tensor, ...]
"""Embedded rows: tensors (…, n, ·) that share their leading dimensions."""


SMALLEST_EXPONENT = -80.0  # exp of anything below is a denormal float32, which is 0 for us and slow for processors
CENTRE_ROWS = 64


def take(rows: Rows, start: int, stop: int | None = None) -> Rows:
    """Rows start…stop of an embedding."""
    return tuple(part[..., start:stop, :] for part in rows)


class Kernel(nn.Module, ABC):
    """k(x, y), batched by leading dimensions: (…, n, d), (…, m, d) → (…, n, m).

    ``embed`` does what costs O(n) once per row, ``gram`` what costs O(nm), so that a large Gram matrix can be walked
    block by block. Parameters with batch shape S act on inputs (S…, n, d).
    """

    parts: int = 1  # how many tensors an embedding has
    inner_product: bool = False  # whether gram is linear in either embedding

    @abstractmethod
    def embed(self, x: Tensor) -> Rows:
        """What ``gram`` needs of each row: x is (…, n, d)."""

    @abstractmethod
    def gram(self, first: Rows, second: Rows, dtype: torch.dtype | None = None) -> Tensor:
        """Kernel values (…, n, m); distances are taken in the rows' dtype, then rounded to ``dtype``."""

    def weighted_gram(self, first: Rows, second: Rows, weights: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """Σ_i w_i·k_i over the last batch dimension: rows (…, k, n, ·), weights (…, k) → (…, n, m)."""
        gram = self.gram(first, second, dtype)
        scale = weights[..., None, None].to(gram.dtype)
        scaled = gram * scale if torch.is_grad_enabled() else gram.mul_(scale)
        return scaled.squeeze(-3) if scaled.shape[-3] == 1 else scaled.sum(dim=-3)

    def inner_features(self, rows: Rows) -> Tensor:
        """f with k(x, y) = f(x)·f(y), of embedded rows, where k is an inner product: (…, n, q)."""
        raise ValueError(f"{type(self).__name__} is not an inner product of finitely many features.")

    def summands(self) -> list[tuple[Tensor | float, Kernel]]:
        """k as a weighted sum: at most one inner product, at most one other kernel; weights are numbers or (…)."""
        return [(1.0, self)]

    def some(self, which: Tensor) -> Kernel:
        """Only these kernels of a family with batch shape (R, k): a boolean mask (k,)."""
        chosen = copy.deepcopy(self)
        map_tensors(chosen, lambda tensor: tensor[:, which])
        return chosen

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """The Gram matrix k(x_i, y_j): (…, n, m)."""
        return self.gram(self.embed(x), self.embed(y))


def map_tensors(module: nn.Module, change: Callable[[Tensor], Tensor]) -> None:
    """Replace every parameter and buffer."""
    for part in module.modules():
        for name, parameter in list(part.named_parameters(recurse=False)):
            setattr(part, name, nn.Parameter(change(parameter.detach())))
        for name, buffer in list(part.named_buffers(recurse=False)):
            setattr(part, name, change(buffer))


def negative_squared_distances(
    a: Tensor, b: Tensor, dtype: torch.dtype | None = None, smallest: float | None = None
) -> Tensor:
    """−‖a_i−b_j‖², (…, n, m), as one matrix product of the rows extended by their squared lengths.

    Both are first shifted by the median of some of b, which leaves distances alone and keeps a large common offset, or
    one huge row, from eating the digits. Rounding can not make a distance negative; values below ``smallest`` become
    that.
    """
    every = math.ceil(b.shape[-2] / CENTRE_ROWS)
    centre = b.detach()[..., ::every, :].median(dim=-2, keepdim=True).values
    a, b = a - centre, b - centre
    a_length, b_length = (rows.square().sum(dim=-1, keepdim=True) for rows in (a, b))
    left = torch.cat([a, a_length, torch.ones_like(a_length)], dim=-1)  # (…, n, d+2)
    right = torch.cat([2 * b, -torch.ones_like(b_length), -b_length], dim=-1)  # (…, m, d+2)
    return (left @ right.mT).to(dtype or a.dtype).clamp_(min=smallest, max=0)
