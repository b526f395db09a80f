"""Features ψ(x), linear in random Fourier features of rows or in a network's features of images; a target in ψ."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple, Self

import torch
from torch import Tensor, nn

from m2st_core.data.related import RelatedTasks
from m2st_core.kernels.networks import CNN
from m2st_core.learners.units import Units
from m2st_core.presets import FeatureSettings
from m2st_core.rng import Streams
from m2st_core.types import TwoSample

LIMIT = 3.0  # robust standard deviations
ROWS_AT_ONCE = 2000  # images in one pass of a network, rows in one pass of sines


class MetaFeatures(nn.Module, ABC):
    """ψ(x): white features, linear in ``raw`` ones, for R repeats: (R, …, n, d) → (R, …, n, Q).

    Each has variance about 1 within a sample. Its means differ by about √``prior`` (R, Q) between the samples of a
    related task; the prior rises with q. ``log_weight`` (R,) is the log-probability of these features among others.
    """

    transform: Tensor
    offset: Tensor
    prior: Tensor
    log_weight: Tensor

    def __init__(self, like: Tensor, raw: int, coordinates: int) -> None:
        super().__init__()
        self.register_buffer("transform", like.new_zeros(len(like), raw, coordinates))
        self.register_buffer("offset", like.new_zeros(len(like), 1, coordinates))
        self.register_buffer("prior", like.new_zeros(len(like), coordinates))
        self.register_buffer("log_weight", like.new_zeros(len(like)))

    def aligned(self, tensors: dict[str, Tensor]) -> Self:
        """The same raw features with this transform, offset, prior and log weight."""
        for name in ("transform", "offset", "prior", "log_weight"):
            self.register_buffer(name, tensors[name].contiguous())
        return self

    @abstractmethod
    def raw(self, x: Tensor) -> Tensor:
        """Features before alignment, in float32: (R, n, d) → (R, n, ·)."""

    def same_raw(self, other: MetaFeatures) -> bool:
        """Whether ``raw`` equals that of other features learned from the same tasks, as far as can be seen cheaply."""
        return self is other

    def forward(self, x: Tensor) -> Tensor:
        """ψ of each row; with one repeat, inputs may have any leading dimensions."""
        return in_spaces([self], x)[0].to(self.offset)

    @torch.no_grad()
    def view(
        self, related: RelatedTasks, settings: FeatureSettings, streams: Sequence[Streams]
    ) -> tuple[RelatedTasks, RelatedTasks]:
        """The related tasks in ψ, with their training rows and with their held-out rows."""
        training, held_out = related.hold_out(settings.held_out, [s.torch("held-out rows") for s in streams])
        psi = self(related.rows)
        return training.with_rows(psi), held_out.with_rows(psi)


class FourierFeatures(MetaFeatures):
    """Raw features are the columns and sin(xᵀω), cos(xᵀω) at random frequencies ω (R, d, D/2).

    Columns are in robust units and clipped at ±``limit``, so that no single row outweighs the others.
    """

    centre: Tensor
    scale: Tensor
    frequencies: Tensor
    limit: Tensor

    def __init__(self, units: Units, frequencies: Tensor, coordinates: int) -> None:
        columns, half = frequencies.shape[1:]
        super().__init__(frequencies, columns + 2 * half, coordinates)
        self.register_buffer("centre", units.centre)
        self.register_buffer("scale", units.scale)
        self.register_buffer("frequencies", frequencies)
        self.register_buffer("limit", torch.full_like(units.scale[..., :1], LIMIT))

    def same_raw(self, other: MetaFeatures) -> bool:
        """Spaces of one width have the same frequencies."""
        return isinstance(other, FourierFeatures) and torch.equal(self.frequencies, other.frequencies)

    def raw(self, x: Tensor) -> Tensor:
        """Columns, then sine and cosine of one frequency after another, in float32: (R, n, d) → (R, n, d+D)."""
        rows = ((x.to(self.centre) - self.centre) / self.scale).clamp(-self.limit, self.limit).float()
        columns, half = self.frequencies.shape[-2:]
        waves = self.frequencies.float().repeat_interleave(2, dim=-1)
        identity = torch.eye(columns, device=rows.device).expand(len(waves), -1, -1)
        phase = rows.new_zeros(columns + 2 * half)
        phase[columns + 1 :: 2] = math.pi / 2  # cos is sin, a quarter of a turn ahead
        raw = torch.baddbmm(phase, rows, torch.cat([identity, waves], dim=-1))
        raw[..., columns:].sin_()
        return raw


class ImageFeatures(MetaFeatures):
    """Raw features are those of a network φ with fixed normalisation, so that they depend on no other image.

    ``whiten`` (R, features, features) makes φ white within the samples of the related tasks.
    """

    whiten: Tensor

    def __init__(self, network: CNN, coordinates: int) -> None:
        super().__init__(network.centre, network.features, coordinates)
        self.network = network
        self.register_buffer("whiten", torch.zeros_like(self.transform[..., :1]).repeat(1, 1, network.features))

    @torch.no_grad()
    def raw(self, x: Tensor) -> Tensor:
        """φ: (R, n, C·H·W) → (R, n, features)."""
        chunks = x.split(ROWS_AT_ONCE, dim=-2)
        return torch.cat([self.network(self.network.normalise(rows).float()) for rows in chunks], dim=-2)


class NetworkView(nn.Module):
    """φ or white φ of each image, as a feature map for kernels: (R, …, n, C·H·W) → (R, …, n, features)."""

    def __init__(self, features: ImageFeatures, white: bool) -> None:
        super().__init__()
        self.features, self.white = features, white

    def forward(self, x: Tensor) -> Tensor:
        """Features in the rows' dtype."""
        phi = self.features.raw(x.reshape(len(self.features.whiten), -1, x.shape[-1])).to(x.dtype)
        phi = phi @ self.features.whiten.to(x.dtype) if self.white else phi
        return phi.reshape(*x.shape[:-1], -1)


def in_spaces(spaces: Sequence[MetaFeatures], x: Tensor) -> list[Tensor]:
    """ψ of each row in every space, in float32. Raw features that several spaces share are computed once."""
    flat = x.reshape(len(spaces[0].offset), -1, x.shape[-1])
    first = [next(j for j, other in enumerate(spaces) if space.same_raw(other)) for space in spaces]
    maps = [(-space.offset.float(), space.transform.float()) for space in spaces]
    chunks: list[list[Tensor]] = [[] for _ in spaces]
    for rows in flat.split(ROWS_AT_ONCE, dim=1):  # so that raw features stay in the cache
        raw = {index: spaces[index].raw(rows) for index in set(first)}
        for psi, index, (offset, transform) in zip(chunks, first, maps, strict=True):
            psi.append(torch.baddbmm(offset, raw[index], transform))
    return [torch.cat(psi, dim=1).reshape(*x.shape[:-1], -1) for psi in chunks]


class TargetView(NamedTuple):
    """A target's training rows in ψ: mean difference d, variance within samples, and d's noise, (R, Q) each."""

    difference: Tensor
    variance: Tensor
    noise: Tensor


@torch.no_grad()
def view_target(features: MetaFeatures, train: TwoSample) -> TargetView:
    """A target's training rows in ψ. Their variance may differ from 1, which is that of the related tasks."""
    (x, y), (n, m) = (features(rows) for rows in train), train.sizes
    variance = ((n - 1) * x.var(dim=-2) + (m - 1) * y.var(dim=-2)) / (n + m - 2)
    variance = variance.clamp(min=torch.finfo(torch.float32).eps)
    return TargetView(x.mean(dim=-2) - y.mean(dim=-2), variance, variance * (1 / n + 1 / m))
