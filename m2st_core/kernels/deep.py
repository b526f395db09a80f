"""The deep kernel of the paper, eq. (8)."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from m2st_core.kernels.base import SMALLEST_EXPONENT, Kernel, Rows, negative_squared_distances
from m2st_core.kernels.features import FeatureNetwork


class Curves(NamedTuple):
    """1/σ_φ, 1/σ_q and ε as functions of the parameters that stand for them, with two derivatives: (R, 3) each."""

    value: Tensor
    first: Tensor
    second: Tensor


class DeepKernel(Kernel):
    """k(x, y) = [(1−ε)·exp(−‖φ(x)−φ(y)‖²/σ_φ²) + ε]·exp(−‖x−y‖²/σ_q²).

    ``feature_width`` is σ_φ², ``input_width`` σ_q², ``mixing`` ε in (0, 1), each of shape (R,); x is measured in the
    network's own units. All are parameters, kept unconstrained (log σ², logit ε).
    """

    parts = 2
    curve_names = ("log_feature_width", "log_input_width", "logit_mixing")

    def __init__(self, network: FeatureNetwork, feature_width: Tensor, input_width: Tensor, mixing: Tensor) -> None:
        super().__init__()
        self.network = network
        self.start_at(feature_width, input_width, mixing)

    def start_at(self, feature_width: Tensor, input_width: Tensor, mixing: Tensor) -> None:
        """Make the parameters that have these values."""
        self.log_feature_width = nn.Parameter(feature_width.log())
        self.log_input_width = nn.Parameter(input_width.log())
        self.logit_mixing = nn.Parameter(mixing.logit())

    @property
    def feature_width(self) -> Tensor:
        """σ_φ²."""
        return self.log_feature_width.exp()

    @property
    def input_width(self) -> Tensor:
        """σ_q²."""
        return self.log_input_width.exp()

    @property
    def mixing(self) -> Tensor:
        """ε."""
        return self.logit_mixing.sigmoid()

    @staticmethod
    def curves(parameters: Tensor) -> Curves:
        """Of log σ_φ², log σ_q² and logit ε: (R, 3)."""
        scales, mixing = (-0.5 * parameters[:, :2]).exp(), parameters[:, 2:].sigmoid()
        slope = mixing * (1 - mixing)
        return Curves(
            torch.cat([scales, mixing], dim=1),
            torch.cat([-0.5 * scales, slope], dim=1),
            torch.cat([0.25 * scales, slope * (1 - 2 * mixing)], dim=1),
        )

    def embed(self, x: Tensor) -> Rows:
        """(φ(x)/σ_φ, x/σ_q) side by side, and x/σ_q alone; of wide rows, φ(x)/σ_φ and x."""
        x = self.network.normalise(x)
        features = self.network(x) * self.feature_width.rsqrt()[..., None, None]
        if self.network.wide:
            return features, x
        inputs = x * self.input_width.rsqrt()[..., None, None]
        return torch.cat([features, inputs], dim=-1), inputs

    def gram(self, first: Rows, second: Rows, dtype: torch.dtype | None = None) -> Tensor:
        """(1−ε)·exp(−D_φ−D_q) + ε·exp(−D_q): the product of the definition, multiplied out."""
        if self.network.wide:  # distances of the inputs, once, and no gradient through them but σ_q's
            inputs = negative_squared_distances(first[1], second[1], dtype) / self.input_width[..., None, None]
            both = inputs + negative_squared_distances(first[0], second[0], dtype)
            both, inputs = (part.clamp(min=SMALLEST_EXPONENT).to(dtype or part.dtype).exp() for part in (both, inputs))
            return torch.lerp(both, inputs, self.mixing[..., None, None].to(both.dtype))
        both = negative_squared_distances(first[0], second[0], dtype, SMALLEST_EXPONENT).exp_()
        inputs = negative_squared_distances(first[1], second[1], dtype, SMALLEST_EXPONENT).exp_()
        mixing = self.mixing[..., None, None].to(both.dtype)
        return torch.lerp(both, inputs, mixing)


class RootDeepKernel(DeepKernel):
    """The same kernel with σ_φ, σ_q and √ε as its parameters, as published: optimisers take other steps."""

    curve_names = ("root_feature_width", "root_input_width", "root_mixing")

    @staticmethod
    def curves(parameters: Tensor) -> Curves:
        """Of σ_φ, σ_q and √ε: (R, 3)."""
        scales, root = parameters[:, :2].reciprocal(), parameters[:, 2:]
        return Curves(
            torch.cat([scales, root.square()], dim=1),
            torch.cat([-scales.square(), 2 * root], dim=1),
            torch.cat([2 * scales**3, torch.full_like(root, 2.0)], dim=1),
        )

    def start_at(self, feature_width: Tensor, input_width: Tensor, mixing: Tensor) -> None:
        """Make the parameters that have these values."""
        self.root_feature_width = nn.Parameter(feature_width.sqrt())
        self.root_input_width = nn.Parameter(input_width.sqrt())
        self.root_mixing = nn.Parameter(mixing.sqrt())

    @property
    def feature_width(self) -> Tensor:
        """σ_φ²."""
        return self.root_feature_width.square()

    @property
    def input_width(self) -> Tensor:
        """σ_q²."""
        return self.root_input_width.square()

    @property
    def mixing(self) -> Tensor:
        """ε."""
        return self.root_mixing.square()
