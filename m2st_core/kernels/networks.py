"""Networks φ inside deep kernels and classifiers: an MLP for rows, convolutions for images."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from m2st_core.presets import ConvolutionSettings
from m2st_core.types import Shape

MOST_UNITS = 384  # largest width of a layer of φ, which is 3d for narrow rows
SLOPE = 0.2  # of LeakyReLU
EPSILON = 0.8  # of the batch normalisation, as published
SMALLEST_SIDE = 2  # pixels


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
        """Sentences for users of this network."""
        return ()

    def measure_in(self, centre: Tensor, scale: Tensor) -> None:
        """Set the units into which raw inputs are converted, (x − centre)/scale: (R, 1, d) each."""
        self.centre, self.scale = centre.to(self.centre), scale.to(self.scale)

    def normalise(self, x: Tensor) -> Tensor:
        """Inputs in the network's units."""
        return (x - self.centre) / self.scale

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """φ of normalised rows."""


def _uniform_weights(shape: Sequence[int], fan_in: int, generators: Sequence[torch.Generator]) -> Tensor:
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
            drawn = _uniform_weights((fan_in + 1, fan_out), fan_in, generators)
            self.weights.append(nn.Parameter(drawn[:, :-1].clone()))
            self.biases.append(nn.Parameter(drawn[:, -1:].clone()))
        self.register_buffer("centre", torch.zeros(len(generators), 1, sizes[0], dtype=torch.float64))
        self.register_buffer("scale", torch.ones(len(generators), 1, sizes[0], dtype=torch.float64))

    @property
    def notes(self) -> tuple[str, ...]:
        """A sentence if the layers are narrower than in the paper."""
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


class CNN(FeatureNetwork):
    """3×3 convolutions of stride 2 with LeakyReLU, then a linear layer; one independent network per generator.

    Every convolution but the first is followed by batch normalisation over the given rows. On pooled rows its
    statistics do not depend on the labels, so relabelling changes no feature. Rows are flattened images:
    (R, n, C·H·W) → (R, n, features). Convolutions run in float32, one network after another, which is faster on CPUs
    than grouped convolutions.
    """

    wide = True

    def __init__(
        self,
        shape: Shape,
        channels: Sequence[int],
        features: int,
        generators: Sequence[torch.Generator],
        upsample: int = 1,
    ) -> None:
        super().__init__()
        self.shape, self.upsample, self.features = shape, upsample, features
        self.frozen = False
        sides = layer_sides(shape, upsample, len(channels))
        runs = len(generators)
        self.kernels, self.offsets = nn.ParameterList(), nn.ParameterList()
        self.gains, self.shifts = nn.ParameterList(), nn.ParameterList()
        used = [shape[0], *channels[: len(sides)]]
        for layer, (fan_in, fan_out) in enumerate(pairwise(used)):
            drawn = _uniform_weights((fan_out, 9 * fan_in + 1), 9 * fan_in, generators)
            self.kernels.append(nn.Parameter(drawn[..., :-1].reshape(runs, fan_out, fan_in, 3, 3)))
            self.offsets.append(nn.Parameter(drawn[..., -1].clone()))
            if layer:
                self.gains.append(nn.Parameter(torch.ones(runs, fan_out, dtype=torch.float64)))
                self.shifts.append(nn.Parameter(torch.zeros(runs, fan_out, dtype=torch.float64)))
        pixels = used[-1] * sides[-1][0] * sides[-1][1]
        drawn = _uniform_weights((pixels + 1, features), pixels, generators)
        self.weight, self.bias = nn.Parameter(drawn[:, :-1].clone()), nn.Parameter(drawn[:, -1:].clone())
        self.register_buffer("centre", torch.full((runs, 1, 1), 0.5, dtype=torch.float64))
        self.register_buffer("scale", torch.full((runs, 1, 1), 0.5, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        """φ of normalised rows, each run's with its own batch statistics: (R, n, C·H·W) → (R, n, features)."""
        lead = torch.broadcast_shapes(self.weight.shape[:-2], x.shape[:-2])
        rows = x.expand(*lead, *x.shape[-2:]).reshape(-1, *x.shape[-2:])
        layers = [*self.kernels, *self.offsets, *self.gains, *self.shifts, self.weight, self.bias]
        batch = len(self.weight.shape[:-2])
        expanded = [layer.expand(*lead, *layer.shape[batch:]).flatten(0, len(lead) - 1) for layer in layers]
        tensors = [layer.float().unbind() for layer in expanded]
        features = [self._features(images, run) for images, *run in zip(rows.float().unbind(), *tensors, strict=True)]
        return torch.stack(features).reshape(*lead, x.shape[-2], -1).to(x.dtype)

    def _features(self, rows: Tensor, tensors: list[Tensor]) -> Tensor:
        """φ of one network: (n, C·H·W) → (n, features)."""
        depth = len(self.kernels)
        kernels, offsets = tensors[:depth], tensors[depth : 2 * depth]
        gains, shifts = tensors[2 * depth : 3 * depth - 1], tensors[3 * depth - 1 : -2]
        x = self._enlarged(rows)
        for layer in range(depth):
            x = _convolved(x, kernels[layer], offsets[layer])
            if layer and self.frozen:
                x = _scaled(x, gains[layer - 1], shifts[layer - 1])
            elif layer:
                x = functional.batch_norm(
                    x, None, None, gains[layer - 1], shifts[layer - 1], training=True, eps=EPSILON
                )
        return x.flatten(1) @ tensors[-2] + tensors[-1]

    def _enlarged(self, rows: Tensor) -> Tensor:
        """Rows as images, enlarged for the first convolution."""
        x = rows.unflatten(-1, self.shape).contiguous(memory_format=torch.channels_last)
        return functional.interpolate(x, scale_factor=self.upsample, mode="bilinear") if self.upsample > 1 else x

    @torch.no_grad()
    def freeze(self, rows: Tensor) -> None:
        """Fix a single network's batch statistics at those of these normalised rows (n, C·H·W).

        The features of a row then depend on no other row.
        """
        self.frozen = True
        x = self._enlarged(rows.float())
        for layer, (kernel, offset) in enumerate(zip(self.kernels, self.offsets, strict=True)):
            x = _convolved(x, kernel[0].float(), offset[0].float())
            if layer:
                gain, shift = self.gains[layer - 1], self.shifts[layer - 1]
                variance, mean = torch.var_mean(x.double(), dim=(0, 2, 3), correction=0)
                gain *= (variance + EPSILON).rsqrt()
                shift -= mean * gain
                x = _scaled(x, gain[0].float(), shift[0].float())


def _convolved(x: Tensor, kernel: Tensor, offset: Tensor) -> Tensor:
    return functional.leaky_relu(functional.conv2d(x, kernel, offset, stride=2, padding=1), SLOPE)


def _scaled(x: Tensor, gain: Tensor, shift: Tensor) -> Tensor:
    return x * gain[:, None, None] + shift[:, None, None]


def make_cnn(settings: ConvolutionSettings, generators: Sequence[torch.Generator]) -> CNN:
    """Convolutions of these settings, one network per generator."""
    return CNN(settings.shape, settings.channels, settings.features, generators, settings.upsample)


def layer_sides(shape: Shape, upsample: int, most: int) -> list[tuple[int, int]]:
    """Height and width after each convolution: at least one and at most ``most``, while both are ≥ 2.

    >>> layer_sides((1, 8, 8), 1, 4)
    [(4, 4), (2, 2)]
    """
    sides = [(shape[1] * upsample, shape[2] * upsample)]
    while len(sides) <= most:
        height, width = (-(-side // 2) for side in sides[-1])
        if len(sides) > 1 and min(height, width) < SMALLEST_SIDE:
            break
        sides.append((height, width))
    return sides[1:]
