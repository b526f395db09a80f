"""The warm start: features learned by telling P's rows from Q's in many related tasks at once.

Ĵ from a hundred rows is mostly noise, and so is its gradient; the cross-entropy's is not. So φ is learned as a
multi-task classifier with one linear head per task. In the learned features, whitened by their covariance within
samples, each task's difference of means is a vector δ_i plus noise. The second moment E[δδᵀ] is the prior of
differences like those seen before; its eigenvectors become the features' coordinates, its eigenvalues say how much
difference to expect along each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from m2st_core.kernels.features import MLP, Units
from m2st_core.presets import WarmStart
from m2st_core.rng import Streams
from m2st_core.tasks.meta import MetaSample
from m2st_core.types import Progress

RIDGE = 1e-3  # of the features' covariance, relative to its diagonal


class MetaFeatures(nn.Module):
    """ψ(x): whitened, prior-aligned features of K networks, for R repeats: (R, …, n, d) → (R, …, n, Q), Q = K·F.

    Within a sample each coordinate has variance about 1; between the samples of a related task its means differ by
    about √``prior`` (R, Q).
    """

    centre: Tensor
    transform: Tensor
    prior: Tensor

    def __init__(self, network: MLP, repeats: int, outputs: int) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("centre", torch.zeros(repeats, 1, outputs, dtype=torch.float64))
        self.register_buffer("transform", torch.eye(outputs, dtype=torch.float64).repeat(repeats, 1, 1))
        self.register_buffer("prior", torch.zeros(repeats, outputs, dtype=torch.float64))

    def raw(self, x: Tensor) -> Tensor:
        """φ of all K networks side by side: (R, n, d) → (R, n, Q)."""
        repeats, n, _ = x.shape
        starts = self.network.weights[0].shape[0] // repeats
        inputs = x.repeat_interleave(starts, dim=0)  # (R·K) x n x d
        outputs = self.network(self.network.normalise(inputs.to(self.network.centre)))
        return outputs.reshape(repeats, starts, n, -1).transpose(1, 2).reshape(repeats, n, -1)

    def forward(self, x: Tensor) -> Tensor:
        """ψ of each row; a single repeat's features serve any number of leading dimensions."""
        flat = x.reshape(self.centre.shape[0], -1, x.shape[-1])
        features = (self.raw(flat).to(self.centre) - self.centre) @ self.transform
        return features.reshape(*x.shape[:-1], -1)


@dataclass(frozen=True)
class Course:
    """The training curve, (checks, R): the training rows' cross-entropy, and the gain on held-out rows."""

    step: np.ndarray
    train: np.ndarray
    held_out: np.ndarray


def fit_features(
    meta: MetaSample, settings: WarmStart, streams: Sequence[Streams], progress: Progress | None = None
) -> tuple[MetaFeatures, Course]:
    """Train φ on the meta-tasks, keep each network as it was when held-out rows differed most, and align it."""
    repeats, tasks, longest, dimension = meta.rows.shape
    networks = repeats * settings.starts
    train, held_out = meta.hold_out(settings.held_out, [stream.torch("held-out rows") for stream in streams])
    network_streams = [stream.child(f"start {k}") for stream in streams for k in range(settings.starts)]
    sizes = (dimension, settings.hidden, settings.hidden, settings.hidden, settings.features)
    network = MLP(sizes, [stream.torch("first weights") for stream in network_streams]).to(meta.rows)
    network.measure_in(_units(meta, settings.starts))
    rows = network.normalise(meta.rows.repeat_interleave(settings.starts, dim=0).flatten(1, 2)).float()
    rows = rows.reshape(networks, tasks, longest, dimension)
    network = network.float()
    heads = nn.Parameter(torch.zeros(networks, tasks, settings.features + 1, device=rows.device))
    weights = [_per_network(part, settings.starts) for part in (train, held_out)]
    everything = torch.arange(tasks, device=rows.device).expand(networks, -1)

    def loss(chosen: Tensor, x_weight: Tensor, y_weight: Tensor) -> Tensor:
        """Cross-entropy of the chosen tasks (networks, ·), both samples of a task weighing the same: (networks,)."""
        which = torch.arange(networks, device=rows.device)[:, None]
        features = network(rows[which, chosen].flatten(1, 2)).reshape(networks, -1, longest, settings.features)
        head = heads[which, chosen]
        logits = (features @ head[..., :-1, None])[..., 0] + head[..., -1:]
        as_x = (x_weight[which, chosen] * functional.softplus(-logits)).sum(dim=-1)
        as_y = (y_weight[which, chosen] * functional.softplus(logits)).sum(dim=-1)
        return 0.5 * (as_x + as_y).mean(dim=-1)

    parameters = [*network.parameters(), heads]
    best = [parameter.detach().clone() for parameter in parameters]
    highest = torch.full((networks,), -torch.inf, dtype=torch.float64, device=rows.device)
    optimiser = torch.optim.Adam(parameters, lr=settings.learning_rate)
    batches = [stream.torch("meta-batches") for stream in network_streams]
    count = min(settings.tasks_per_step, tasks)
    checked: list[int] = []
    curves: tuple[list[Tensor], list[Tensor]] = ([], [])
    for step in range(settings.steps + 1):
        if step % settings.check_every == 0:
            with torch.no_grad():
                trained = loss(everything, *weights[0])
                raw = network(rows.flatten(1, 2)).double().reshape(networks, tasks, longest, -1)
                found = prior_alignment(raw, *weights).gain
            better = found > highest
            highest = highest.where(~better, found)
            for kept, parameter in zip(best, parameters, strict=True):
                kept[better] = parameter.detach()[better]
            checked.append(step)
            for curve, value in zip(curves, (trained, found), strict=True):
                curve.append(value.reshape(repeats, -1).mean(dim=-1))
        if step == settings.steps:
            break
        for group in optimiser.param_groups:
            group["lr"] = settings.learning_rate * 0.5 * (1 + math.cos(math.pi * step / settings.steps))
        chosen = torch.stack([torch.randperm(tasks, generator=g)[:count] for g in batches]).to(rows.device)
        optimiser.zero_grad()
        loss(chosen, *weights[0]).sum().backward()
        optimiser.step()
        if progress is not None:
            progress(step + 1, settings.steps, float(curves[1][-1].mean()))
    with torch.no_grad():
        for kept, parameter in zip(best, parameters, strict=True):
            parameter.copy_(kept)
    features = MetaFeatures(network.double(), repeats, settings.starts * settings.features).to(rows.device)
    align(features, train, held_out)
    return features, Course(np.array(checked), *(torch.stack(curve).cpu().numpy() for curve in curves))


def _per_network(meta: MetaSample, starts: int) -> tuple[Tensor, Tensor]:
    """The weights of each repeat, once for each of its networks."""
    x_weight, y_weight = (w.repeat_interleave(starts, dim=0) for w in (meta.x_weight, meta.y_weight))
    return x_weight, y_weight


@torch.no_grad()
def align(features: MetaFeatures, train: MetaSample, held_out: MetaSample) -> None:
    """Whiten φ by its covariance within samples, rotate it to the prior's eigenvectors, and store the eigenvalues."""
    repeats, tasks, longest = train.rows.shape[:3]
    raw = features.raw(train.rows.flatten(1, 2)).double().reshape(repeats, tasks, longest, -1)
    weights = [(part.x_weight, part.y_weight) for part in (train, held_out)]
    features.centre, features.transform, features.prior, _ = prior_alignment(raw, weights[0], weights[1])


class Alignment(NamedTuple):
    """Centre (R, 1, Q), transform (R, Q, Q) and prior (R, Q), rising, of raw features; and how good they are.

    ``gain`` (R,) is the difference of held-out rows along each task's witness, learned on its training rows, in
    within-sample standard deviations.
    """

    centre: Tensor
    transform: Tensor
    prior: Tensor
    gain: Tensor


def prior_alignment(raw: Tensor, train: tuple[Tensor, Tensor], held_out: tuple[Tensor, Tensor]) -> Alignment:
    """How to whiten and rotate raw features (R, T, L, Q), with the rows' weights for x and y.

    The directions are the eigenvectors of the mean of d_i d_iᵀ over all rows. But φ was made to see differences between
    the training rows, so their d_i exaggerate; held-out rows' d'_i do not. The prior along a direction u is therefore
    the mean of (u·d_i)(u·d'_i), d_i from the one and d'_i from the other, which has neither noise term nor bias.
    """
    tasks = raw.shape[1]
    covariance = raw.new_zeros(raw.shape[0], raw.shape[-1], raw.shape[-1])
    freedom, means = raw.new_zeros(raw.shape[0]), []
    for first, second in zip(train, held_out, strict=True):  # the rows of x, then those of y
        inside = ((first > 0) | (second > 0)).to(raw)
        mean = torch.einsum("rtl,rtlq->rtq", inside, raw) / inside.sum(dim=-1, keepdim=True)
        centred = ((raw - mean[:, :, None]) * inside[..., None]).flatten(1, 2)
        covariance += centred.mT @ centred
        freedom += inside.sum(dim=(1, 2)) - tasks
        means.append(mean)
    covariance /= freedom.clamp(min=1)[:, None, None]
    diagonal = covariance.diagonal(dim1=-2, dim2=-1)
    ridge = RIDGE * diagonal + torch.finfo(torch.float32).eps * (diagonal.mean(dim=-1, keepdim=True) + 1)
    factor = torch.linalg.cholesky(covariance + torch.diag_embed(ridge))
    whiten = torch.linalg.inv(factor).mT  # φ @ whiten has covariance I within samples
    overall = (means[0] - means[1]) @ whiten
    transform = whiten @ torch.linalg.eigh(overall.mT @ overall).eigenvectors
    d, d_held = (torch.einsum("rtl,rtlq->rtq", x - y, raw) @ transform for x, y in (train, held_out))
    complete = ((held_out[0] > 0).any(dim=-1) & (held_out[1] > 0).any(dim=-1)).to(raw)[..., None]  # R x T x 1
    count = complete.sum(dim=1).clamp(min=1)
    prior, order = ((d * d_held * complete).sum(dim=1) / count).clamp(min=0).sort(dim=-1)
    noise = (train[0].square() + train[1].square()).sum(dim=-1)[..., None]  # R x T x 1: 1/n + 1/m
    expected = (d.square() - noise).mean(dim=1, keepdim=True).clamp(min=0)
    witness = complete * d * expected / (expected + noise)
    length = witness.square().sum(dim=(1, 2)).sqrt().clamp(min=torch.finfo(raw.dtype).tiny)
    gain = (witness * d_held).sum(dim=(1, 2)) / (length * count[:, 0].sqrt())
    centre = 0.5 * (means[0] + means[1]).mean(dim=1, keepdim=True)
    return Alignment(centre, transform.take_along_dim(order[:, None], dim=-1), prior, gain)


def _units(meta: MetaSample, starts: int) -> Units:
    """Mean and standard deviation of all meta-rows, per repeat and column, once for each start."""
    inside = (meta.x_weight + meta.y_weight > 0).to(meta.rows)[..., None]
    count = inside.sum(dim=(1, 2), keepdim=True)
    centre = (meta.rows * inside).sum(dim=(1, 2), keepdim=True) / count
    variance = ((meta.rows - centre).square() * inside).sum(dim=(1, 2), keepdim=True) / count
    scale = torch.where(variance > 0, variance.sqrt(), torch.ones_like(variance))
    return Units(*(part[:, 0].repeat_interleave(starts, dim=0) for part in (centre, scale)))
