"""The networks φ inside deep kernels and classifiers."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Units:
    """How rows are shifted and scaled before a network sees them: (x − centre)/scale, both (R, 1, d)."""

    centre: Tensor
    scale: Tensor

    def __call__(self, x: Tensor) -> Tensor:
        """Rows in these units: (R, n, d) → (R, n, d)."""
        return (x - self.centre) / self.scale


class FeatureNetwork(nn.Module, ABC):
    """φ, one independent network per run: (R, n, d) → (R, n, ``features``).

    The units of the inputs are part of the network but are not trained.
    """

    centre: Tensor
    scale: Tensor
    features: int
    wide = False  # whether inputs have so many columns that their distances cost more than φ's

    def measure_in(self, units: Units) -> None:
        """From now on inputs come raw and are brought into these units first."""
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
    """Linear layers with softplus (or another ``activation``) between, one independent network per generator.

    ``sizes`` = (d, H, H, H, 3d) is the paper's φ. The batch dimension is the number of generators:
    (R, n, d) → (R, n, 3d). Weights start uniform in ±1/√fan_in, as in torch's Linear.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        generators: Sequence[torch.Generator],
        activation: Callable[[Tensor], Tensor] = functional.softplus,
    ) -> None:
        super().__init__()
        self.activation = activation
        self.features = sizes[-1]
        self.weights = nn.ParameterList()
        self.biases = nn.ParameterList()
        for fan_in, fan_out in pairwise(sizes):
            drawn = uniform_weights((fan_in + 1, fan_out), fan_in, generators)
            self.weights.append(nn.Parameter(drawn[:, :-1].clone()))
            self.biases.append(nn.Parameter(drawn[:, -1:].clone()))
        self.register_buffer("centre", torch.zeros(len(generators), 1, sizes[0], dtype=torch.float64))
        self.register_buffer("scale", torch.ones(len(generators), 1, sizes[0], dtype=torch.float64))

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
                x = self.activation(x)
        return x
