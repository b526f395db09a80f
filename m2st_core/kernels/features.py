"""Feature maps φ of rows, and kernels that are inner products of finitely many features."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from m2st_core.kernels.base import Kernel, Rows

MOST_UNITS = 384  # of a layer of φ, which has 3d where that is less
FARTHEST = 1000.0  # robust standard deviations from the centre


@dataclass(frozen=True)
class Units:
    """Shift and scale of a network's inputs, (x − centre)/scale: (R, 1, d) each."""

    centre: Tensor
    scale: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        """Rows in these units: (R, n, d) → (R, n, d)."""
        return (x - self.centre) / self.scale


class InUnits(nn.Module):
    """Rows in units of their columns' spread, as a feature map: x/scale, at most ±1,000 units from the centre.

    ``centre`` and ``scale`` (…, 1, d) are buffers.
    """

    centre: Tensor
    scale: Tensor

    def __init__(self, centre: Tensor, scale: Tensor) -> None:
        super().__init__()
        self.register_buffer("centre", centre)
        self.register_buffer("scale", scale)

    def forward(self, x: Tensor) -> Tensor:
        """Rows in these units: (…, n, d) → (…, n, d)."""
        middle = self.centre / self.scale
        return (x / self.scale).clamp(middle - FARTHEST, middle + FARTHEST)


class FeatureNetwork(nn.Module, ABC):
    """φ, one independent network per run: (R, n, d) → (R, n, ``features``).

    The units of the inputs belong to the network but are not trained.
    """

    centre: Tensor
    scale: Tensor
    features: int
    wide = False  # whether distances between inputs cost more than distances between features

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on what a user of this network should know."""
        return ()

    def measure_in(self, units: Units) -> None:
        """Set the units into which raw inputs are converted."""
        self.centre, self.scale = units.centre.to(self.centre), units.scale.to(self.scale)

    def normalise(self, x: Tensor) -> Tensor:
        """Inputs in the network's own units."""
        return Units(self.centre, self.scale)(x)

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """φ of normalised rows."""


def uniform_weights(shape: Sequence[int], fan_in: int, generators: Sequence[torch.Generator]) -> Tensor:
    """Uniform in ±1/√fan_in, as torch's layers start: (R, *shape)."""
    drawn = torch.stack([torch.rand(*shape, generator=generator, dtype=torch.float64) for generator in generators])
    return (2 * drawn - 1) / math.sqrt(fan_in)


class MLP(FeatureNetwork):
    """Linear layers with softplus between, one independent network per generator.

    ``sizes`` = (d, H, H, H, 3d) is the paper's φ: (R, n, d) → (R, n, 3d). Weights start uniform in ±1/√fan_in, as in
    torch's Linear.
    """

    def __init__(self, sizes: Sequence[int], generators: Sequence[torch.Generator]) -> None:
        super().__init__()
        self.features = sizes[-1]
        self.weights = nn.ParameterList()
        self.biases = nn.ParameterList()
        for fan_in, fan_out in pairwise(sizes):
            drawn = uniform_weights((fan_in + 1, fan_out), fan_in, generators)
            self.weights.append(nn.Parameter(drawn[:, :-1].clone()))
            self.biases.append(nn.Parameter(drawn[:, -1:].clone()))
        self.register_buffer("centre", torch.zeros(len(generators), 1, sizes[0], dtype=torch.float64))
        self.register_buffer("scale", torch.ones(len(generators), 1, sizes[0], dtype=torch.float64))

    @property
    def notes(self) -> tuple[str, ...]:
        """A sentence if wide rows bound the width."""
        columns = self.weights[0].shape[-2]
        if not self.features == MOST_UNITS < 3 * columns:
            return ()
        return (
            f"With {columns:,} columns, the layers of the network have {MOST_UNITS} units instead of three per column, "
            "so that it fits into memory.",
        )

    @torch.no_grad()
    def start_as_kaiming(self, generators: Sequence[torch.Generator]) -> None:
        """Normal weights with variance 2/fan_in and no biases, as in the published Meta-KL."""
        for weight, bias in zip(self.weights, self.biases, strict=True):
            drawn = torch.stack([torch.randn(weight.shape[1:], generator=g, dtype=torch.float64) for g in generators])
            weight.copy_(drawn * math.sqrt(2 / weight.shape[1]))
            bias.zero_()

    def forward(self, x: Tensor) -> Tensor:
        """φ of normalised rows: (R, n, d) → (R, n, features)."""
        last = len(self.weights) - 1
        for layer, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            x = x @ weight + bias
            if layer < last:
                x = functional.softplus(x)
        return x


class InnerProductKernel(Kernel):
    """k(x, y) = f(x)·f(y), where the embedding is f itself: (…, n, q)."""

    inner_product = True

    def gram(self, first: Rows, second: Rows, dtype: torch.dtype | None = None) -> Tensor:
        """Inner products."""
        return (first[0] @ second[0].mT).to(dtype or first[0].dtype)

    def inner_features(self, rows: Rows) -> Tensor:
        """The embedding itself."""
        return rows[0]


class LinearKernel(InnerProductKernel):
    """k(x, y) = xᵀMMᵀy/‖M‖²_F; ``matrix`` M is (…, d, r), a parameter. M=0 gives k=0.

    For rows of unit variance, k(x, x) is 1 on average.
    """

    def __init__(self, matrix: Tensor) -> None:
        super().__init__()
        self.matrix = nn.Parameter(matrix)

    def embed(self, x: Tensor) -> Rows:
        """xᵀM/‖M‖."""
        length = self.matrix.square().sum(dim=(-2, -1), keepdim=True).sqrt()
        return (x @ (self.matrix / length.where(length > 0, 1.0)),)

    def weighted_gram(self, first: Rows, second: Rows, weights: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """One inner product of all kernels' features side by side, with weights on the first embedding."""
        left = (first[0] * weights[..., None, None].to(first[0])).movedim(-3, -2).flatten(-2)  # … x n x (k·r)
        return self.gram((left,), (second[0].movedim(-3, -2).flatten(-2),), dtype)


class ComposedKernel(Kernel):
    """k(ψ(x), ψ(y)) for a kernel k and a feature map ψ: (…, n, d) → (…, n, Q)."""

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

    def strips(self, rows: Rows, dtype: torch.dtype | None = None) -> Callable[[int, int], Tensor]:
        """The kernel's strips."""
        return self.kernel.strips(rows, dtype)

    def inner_features(self, rows: Rows) -> Tensor:
        """The kernel's features."""
        return self.kernel.inner_features(rows)

    def some(self, which: Tensor) -> Kernel:
        """The selected kernels, on the same features."""
        return ComposedKernel(self.features, self.kernel.some(which))

    def weighted_gram(self, first: Rows, second: Rows, weights: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """The kernels' weighted sum."""
        return self.kernel.weighted_gram(first, second, weights, dtype)
