"""The deep kernel of the paper, eq. (8), in two parametrisations."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from m2st_core.kernels.base import Kernel, Rows
from m2st_core.kernels.distance import SMALLEST_EXPONENT, negative_squared_distances
from m2st_core.kernels.networks import FeatureNetwork

Curves = tuple[Tensor, Tensor, Tensor]
"""1/σ_φ, 1/σ_q and ε as functions of their parameters, with first and second derivatives: (R, 3) each."""


class DeepKernel(Kernel):
    """k(x, y) = [(1−ε)·exp(−‖φ(x)−φ(y)‖²/σ_φ²) + ε]·exp(−‖x−y‖²/σ_q²).

    ``feature_width`` is σ_φ², ``input_width`` σ_q² and ``mixing`` ε in (0, 1), each of shape (R,). x is measured in the
    network's units. The parameters are unconstrained: log σ_φ², log σ_q², logit ε, and φ's weights.

    >>> from m2st_core.kernels.networks import MLP
    >>> kernel = DeepKernel(MLP((2, 3, 4), [torch.Generator()]), torch.ones(1), torch.ones(1), torch.full((1,), 0.5))
    >>> kernel(torch.zeros(1, 5, 2), torch.zeros(1, 7, 2)).shape
    torch.Size([1, 5, 7])
    """

    parts = 2
    curve_names = ("log_feature_width", "log_input_width", "logit_mixing")

    def __init__(self, network: FeatureNetwork, feature_width: Tensor, input_width: Tensor, mixing: Tensor) -> None:
        super().__init__()
        self.network = network
        self.start_at(feature_width, input_width, mixing)

    def start_at(self, feature_width: Tensor, input_width: Tensor, mixing: Tensor) -> None:
        """Create the parameters with these values."""
        self.log_feature_width = nn.Parameter(feature_width.log())
        self.log_input_width = nn.Parameter(input_width.log())
        self.logit_mixing = nn.Parameter(mixing.logit())

    def values(self) -> tuple[Tensor, Tensor, Tensor]:
        """σ_φ², σ_q² and ε: (R,) each."""
        return self.log_feature_width.exp(), self.log_input_width.exp(), self.logit_mixing.sigmoid()

    @staticmethod
    def curves(parameters: Tensor) -> Curves:
        """1/σ_φ, 1/σ_q and ε as functions of log σ_φ², log σ_q² and logit ε, (R, 3)."""
        scales, mixing = (-0.5 * parameters[:, :2]).exp(), parameters[:, 2:].sigmoid()
        slope = mixing * (1 - mixing)
        return (
            torch.cat([scales, mixing], dim=1),
            torch.cat([-0.5 * scales, slope], dim=1),
            torch.cat([0.25 * scales, slope * (1 - 2 * mixing)], dim=1),
        )

    def embed(self, x: Tensor) -> Rows:
        """(φ(x)/σ_φ, x/σ_q) side by side, and x/σ_q alone; for wide rows, φ(x)/σ_φ and x."""
        x = self.network.normalise(x)
        feature_width, input_width, _ = self.values()
        features = self.network(x) * feature_width.rsqrt()[..., None, None]
        if self.network.wide:
            return features, x
        inputs = x * input_width.rsqrt()[..., None, None]
        return torch.cat([features, inputs], dim=-1), inputs

    def gram(self, first: Rows, second: Rows, dtype: torch.dtype | None = None) -> Tensor:
        """(1−ε)·exp(−D_φ−D_q) + ε·exp(−D_q), the definition multiplied out."""
        _, input_width, mixing = self.values()
        if self.network.wide:  # distances between inputs are computed once, and σ_q divides them afterwards
            exponent = negative_squared_distances(first[1], second[1], dtype) / input_width[..., None, None]
            exponents = exponent + negative_squared_distances(first[0], second[0], dtype), exponent
            both, inputs = (e.clamp(min=SMALLEST_EXPONENT).to(dtype or e.dtype).exp() for e in exponents)
        else:
            both, inputs = (
                negative_squared_distances(left, right, dtype, SMALLEST_EXPONENT).exp_()
                for left, right in zip(first, second, strict=True)
            )
        return torch.lerp(both, inputs, mixing[..., None, None].to(both.dtype))


class RootDeepKernel(DeepKernel):
    """The same kernel parametrised by σ_φ, σ_q and √ε, as in the published code; optimisers take other steps."""

    curve_names = ("root_feature_width", "root_input_width", "root_mixing")

    @staticmethod
    def curves(parameters: Tensor) -> Curves:
        """1/σ_φ, 1/σ_q and ε as functions of σ_φ, σ_q and √ε, (R, 3)."""
        scales, root = parameters[:, :2].reciprocal(), parameters[:, 2:]
        return (
            torch.cat([scales, root.square()], dim=1),
            torch.cat([-scales.square(), 2 * root], dim=1),
            torch.cat([2 * scales**3, torch.full_like(root, 2.0)], dim=1),
        )

    def start_at(self, feature_width: Tensor, input_width: Tensor, mixing: Tensor) -> None:
        """Create the parameters with these values."""
        self.root_feature_width = nn.Parameter(feature_width.sqrt())
        self.root_input_width = nn.Parameter(input_width.sqrt())
        self.root_mixing = nn.Parameter(mixing.sqrt())

    def values(self) -> tuple[Tensor, Tensor, Tensor]:
        """σ_φ², σ_q² and ε: (R,) each."""
        return self.root_feature_width.square(), self.root_input_width.square(), self.root_mixing.square()
