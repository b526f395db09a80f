"""The warm start: features learned by telling P's rows from Q's in many related tasks at once.

Ĵ from a hundred rows is mostly noise, and so is its gradient; the cross-entropy's is not. So φ is learned as a
multi-task classifier with one linear head per task. In the learned features, whitened by their covariance within
samples, each task's difference of means d_i is a vector δ_i plus noise of variance (1/n_i + 1/m_i)·I. The second
moment of the d_i, less that noise, estimates the prior E[δδᵀ] of differences like those seen before; its
eigenvectors are the features' coordinates, its eigenvalues say how much difference to expect along each.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

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


def fit_features(
    meta: MetaSample, settings: WarmStart, streams: Sequence[Streams], progress: Progress | None = None
) -> tuple[MetaFeatures, Tensor]:
    """Train φ on the meta-tasks, then whiten and align it; also the course of the cross-entropy, (steps, R)."""
    repeats, tasks, longest, dimension = meta.rows.shape
    starts, outputs = settings.starts, settings.features
    streams_by_network = [stream.child(f"start {k}") for stream in streams for k in range(starts)]
    sizes = (dimension, settings.hidden, settings.hidden, settings.hidden, outputs)
    network = MLP(sizes, [stream.torch("first weights") for stream in streams_by_network]).to(meta.rows)
    network.measure_in(_units(meta, starts))
    batches = [stream.torch("meta-batches") for stream in streams_by_network]
    rows = network.normalise(meta.rows.repeat_interleave(starts, dim=0).flatten(1, 2)).float()
    rows = rows.reshape(repeats * starts, tasks, longest, dimension)
    network = network.float()
    x_weight, y_weight = (w.repeat_interleave(starts, dim=0).float() for w in (meta.x_weight, meta.y_weight))
    heads = torch.zeros(repeats * starts, tasks, outputs + 1, device=rows.device, requires_grad=True)
    optimiser = torch.optim.Adam([*network.parameters(), heads], lr=settings.learning_rate)
    which = torch.arange(repeats * starts, device=rows.device)[:, None]
    count = min(settings.tasks_per_step, tasks)
    course = []
    for step in range(settings.steps):
        for group in optimiser.param_groups:
            group["lr"] = settings.learning_rate * 0.5 * (1 + math.cos(math.pi * step / settings.steps))
        chosen = torch.stack([torch.randperm(tasks, generator=g)[:count] for g in batches]).to(rows.device)
        features = network(rows[which, chosen].flatten(1, 2)).reshape(repeats * starts, count, longest, outputs)
        head = heads[which, chosen]
        logits = (features @ head[..., :-1, None])[..., 0] + head[..., -1:]
        terms = x_weight[which, chosen] * functional.softplus(-logits) + y_weight[which, chosen] * functional.softplus(
            logits
        )
        loss = 0.5 * terms.sum(dim=-1).mean(dim=-1)  # R·K
        optimiser.zero_grad()
        loss.sum().backward()
        optimiser.step()
        course.append(loss.detach().reshape(repeats, starts).mean(dim=-1))
        if progress is not None:
            progress(step + 1, settings.steps, float(course[-1].mean()))
    features_module = MetaFeatures(network.double(), repeats, starts * outputs).to(rows.device)
    align(features_module, meta)
    return features_module, torch.stack(course)


@torch.no_grad()
def align(features: MetaFeatures, meta: MetaSample) -> None:
    """Whiten φ by its covariance within samples, rotate it to the prior's eigenvectors, and store the eigenvalues."""
    repeats, tasks = meta.rows.shape[:2]
    raw = features.raw(meta.rows.flatten(1, 2)).double().reshape(repeats, tasks, meta.rows.shape[2], -1)
    means = [torch.einsum("rtl,rtlq->rtq", weight, raw) for weight in (meta.x_weight, meta.y_weight)]
    covariance = torch.zeros_like(features.transform)
    freedom = raw.new_zeros(repeats)
    for weight, mean in zip((meta.x_weight, meta.y_weight), means, strict=True):
        inside = (weight > 0).to(raw)
        centred = (raw - mean[:, :, None]) * inside[..., None]
        covariance += torch.einsum("rtlp,rtlq->rpq", centred, centred)
        freedom += inside.sum(dim=(1, 2)) - tasks
    covariance /= freedom[:, None, None]
    diagonal = covariance.diagonal(dim1=-2, dim2=-1)
    ridge = RIDGE * diagonal + torch.finfo(torch.float32).eps * diagonal.mean(dim=-1, keepdim=True)
    factor = torch.linalg.cholesky(covariance + torch.diag_embed(ridge))
    whiten = torch.linalg.inv(factor).mT  # φ @ whiten has covariance I within samples
    differences = (means[0] - means[1]) @ whiten  # R x T x Q
    noise = meta.noise.mean(dim=-1)[:, None]
    moments, directions = torch.linalg.eigh(differences.mT @ differences / tasks)
    features.centre = 0.5 * (means[0] + means[1]).mean(dim=1, keepdim=True)
    features.transform = whiten @ directions
    features.prior = (moments - noise).clamp(min=0)


def _units(meta: MetaSample, starts: int) -> Units:
    """Mean and standard deviation of all meta-rows, per repeat and column, once for each start."""
    inside = (meta.x_weight + meta.y_weight > 0).to(meta.rows)[..., None]
    count = inside.sum(dim=(1, 2), keepdim=True)
    centre = (meta.rows * inside).sum(dim=(1, 2), keepdim=True) / count
    variance = ((meta.rows - centre).square() * inside).sum(dim=(1, 2), keepdim=True) / count
    scale = torch.where(variance > 0, variance.sqrt(), torch.ones_like(variance))
    return Units(*(part[:, 0].repeat_interleave(starts, dim=0) for part in (centre, scale)))
