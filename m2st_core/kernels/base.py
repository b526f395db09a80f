"""The contract of a kernel, kernels that are inner products, and kernels on features."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor, nn

Rows = tuple[Tensor, ...]
"""Embedded rows: tensors (…, n, ·) that share their leading dimensions."""


def take(rows: Rows, start: int, stop: int | None = None) -> Rows:
    """Rows start…stop of an embedding."""
    return tuple(tensor[..., start:stop, :] for tensor in rows)


class Kernel(nn.Module, ABC):
    """k(x, y), batched by leading dimensions: (…, n, d), (…, m, d) → (…, n, m).

    A kernel is two methods. ``embed`` does the O(n) work once per row and ``gram`` the O(nm) work, so a large Gram
    matrix can be computed block by block. Parameters with batch shape S act on inputs (S…, n, d).
    """

    parts: int = 1  # number of tensors in an embedding
    inner_product: bool = False  # whether gram is linear in either embedding

    @abstractmethod
    def embed(self, x: Tensor) -> Rows:
        """The embedding of each row that ``gram`` needs: x is (…, n, d)."""

    @abstractmethod
    def gram(self, first: Rows, second: Rows, dtype: torch.dtype | None = None) -> Tensor:
        """Kernel values (…, n, m). Distances are computed in the rows' dtype, then rounded to ``dtype``."""

    def some(self, which: Tensor) -> Kernel:
        """The kernels that a boolean mask (k,) selects from a family with batch shape (R, k)."""
        return copy_with(self, lambda tensor: tensor[:, which])

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """The Gram matrix k(x_i, y_j): (…, n, m)."""
        return self.gram(self.embed(x), self.embed(y))


AnyModule = TypeVar("AnyModule", bound=nn.Module)


def map_tensors(module: AnyModule, change: Callable[[Tensor], Tensor]) -> AnyModule:
    """Replace every parameter and buffer by its change, and return the module."""
    for submodule in module.modules():
        for name, parameter in list(submodule.named_parameters(recurse=False)):
            setattr(submodule, name, nn.Parameter(change(parameter.detach())))
        for name, buffer in list(submodule.named_buffers(recurse=False)):
            setattr(submodule, name, change(buffer))
    return module


def copy_with(module: AnyModule, change: Callable[[Tensor], Tensor]) -> AnyModule:
    """A copy with changed parameters and buffers."""
    return map_tensors(copy.deepcopy(module), change)


class InnerProductKernel(Kernel):
    """k(x, y) = f(x)·f(y), where the embedding is f itself: (…, n, q)."""

    inner_product = True

    def gram(self, first: Rows, second: Rows, dtype: torch.dtype | None = None) -> Tensor:
        """Inner products."""
        return (first[0] @ second[0].mT).to(dtype or first[0].dtype)


class LinearKernel(InnerProductKernel):
    """k(x, y) = xᵀMMᵀy/‖M‖²_F; ``matrix`` M is (…, d, r), a parameter. M=0 gives k=0.

    For rows of unit variance, k(x, x) is 1 on average.

    >>> LinearKernel(torch.tensor([[1.0], [0.0]]))(torch.tensor([[2.0, 5.0]]), torch.tensor([[3.0, 4.0]])).item()
    6.0
    """

    def __init__(self, matrix: Tensor) -> None:
        super().__init__()
        self.matrix = nn.Parameter(matrix)

    def embed(self, x: Tensor) -> Rows:
        """xᵀM/‖M‖."""
        length = self.matrix.square().sum(dim=(-2, -1), keepdim=True).sqrt()
        return (x @ (self.matrix / length.where(length > 0, 1.0)),)


class ComposedKernel(Kernel):
    """k(ψ(x), ψ(y)) for a kernel k and a feature map ψ: (…, n, d) → (…, n, Q).

    >>> kernel = ComposedKernel(nn.ReLU(), LinearKernel(torch.eye(1)))
    >>> kernel(torch.tensor([[2.0]]), torch.tensor([[-3.0], [3.0]])).tolist()
    [[0.0, 6.0]]
    """

    def __init__(self, features: nn.Module, kernel: Kernel) -> None:
        super().__init__()
        self.features = features
        self.kernel = kernel
        self.parts = kernel.parts
        self.inner_product = kernel.inner_product

    def embed(self, x: Tensor) -> Rows:
        """The kernel's embedding of ψ(x)."""
        return self.kernel.embed(self.features(x))

    def gram(self, first: Rows, second: Rows, dtype: torch.dtype | None = None) -> Tensor:
        """The kernel's Gram matrix."""
        return self.kernel.gram(first, second, dtype)

    def some(self, which: Tensor) -> Kernel:
        """The selected kernels, on the same features."""
        return ComposedKernel(self.features, self.kernel.some(which))


def innermost_kernel(kernel: Kernel) -> Kernel:
    """k of k(ψ(x), ψ(y)), which has its Gram matrix; any other kernel is itself."""
    while isinstance(kernel, ComposedKernel):
        kernel = kernel.kernel
    return kernel
