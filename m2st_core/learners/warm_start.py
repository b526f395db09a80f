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
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from m2st_core.kernels.features import MLP, Units
from m2st_core.kernels.gaussian import median_squared_distance
from m2st_core.learners.ascent import Course, draw_rows
from m2st_core.presets import WarmStart
from m2st_core.rng import Streams
from m2st_core.tasks.meta import MetaSample
from m2st_core.types import Progress

RIDGE = 2.0  # of the features' covariance, times features per row: the same for all, so smooth features count more
WIDTHS = (4.0, 0.25, 0.02)  # of the Fourier features, times the median squared distance
SMOOTHED = 3  # checks whose mean decides when to stop: a single one is noisy


class MetaFeatures(nn.Module):
    """ψ(x): whitened, prior-aligned features, for R repeats: (R, …, n, d) → (R, …, n, Q).

    They come from K trained networks, and from the columns themselves with random Fourier features sin(xᵀω), cos(xᵀω);
    each of these K+1 starts gives its L leading directions, and Q = (K+1)·L. Within a sample each coordinate has
    variance about 1; between the samples of a related task its means differ by about √``prior`` (R, Q).
    """

    frequencies: Tensor
    network_lead: Tensor
    fourier_lead: Tensor
    centre: Tensor
    transform: Tensor
    prior: Tensor

    def __init__(self, network: MLP, frequencies: Tensor, leading: int) -> None:
        super().__init__()
        repeats, columns, half = frequencies.shape  # R x d x D/2
        networks, features = network.biases[-1].shape[0], network.biases[-1].shape[-1]
        outputs = (networks // repeats + 1) * leading
        self.network = network
        self.register_buffer("frequencies", frequencies)
        self.register_buffer("network_lead", frequencies.new_zeros(networks, features, leading))
        self.register_buffer("fourier_lead", frequencies.new_zeros(repeats, columns + 2 * half, leading))
        self.register_buffer("centre", frequencies.new_zeros(repeats, 1, outputs))
        self.register_buffer("transform", torch.eye(outputs).to(frequencies).repeat(repeats, 1, 1))
        self.register_buffer("prior", frequencies.new_zeros(repeats, outputs))

    def starts(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Outputs of the networks (R·K, n, F), and columns with Fourier features (R, n, d+D), of rows (R, n, d)."""
        networks = self.network.centre.shape[0] // x.shape[0]
        inputs = self.network.normalise(x.repeat_interleave(networks, dim=0).to(self.network.centre))
        return self.network(inputs), fourier_features(inputs[::networks], self.frequencies)

    def raw(self, x: Tensor) -> Tensor:
        """The starts' leading directions side by side: (R, n, d) → (R, n, Q)."""
        repeats, n, _ = x.shape
        outputs, fourier = self.starts(x)
        leading = (outputs @ self.network_lead).reshape(repeats, -1, n, self.network_lead.shape[-1])
        return torch.cat([leading.transpose(1, 2).flatten(2), fourier @ self.fourier_lead], dim=-1)

    @torch.no_grad()
    def view(self, meta: MetaSample, settings: WarmStart, streams: Sequence[Streams]) -> tuple[MetaSample, MetaSample]:
        """The meta-tasks as ψ sees them: the rows that ψ was trained on, and those held out."""
        kept, aside = meta.hold_out(settings.held_out, [stream.torch("held-out rows") for stream in streams])
        psi = self(meta.rows)
        return kept.with_rows(psi), aside.with_rows(psi)

    def forward(self, x: Tensor) -> Tensor:
        """ψ of each row; a single repeat's features serve any number of leading dimensions."""
        flat = x.reshape(self.centre.shape[0], -1, x.shape[-1])
        features = (self.raw(flat).to(self.centre) - self.centre) @ self.transform
        return features.reshape(*x.shape[:-1], -1)


def fit_features(
    meta: MetaSample, settings: WarmStart, streams: Sequence[Streams], progress: Progress | None = None
) -> tuple[MetaFeatures, Course]:
    """Train φ on the meta-tasks, keep each network as it was when held-out rows differed most, and align it.

    The course shows the training rows' cross-entropy and the gain on held-out rows.
    """
    repeats, tasks, longest, dimension = meta.rows.shape
    networks = repeats * settings.starts
    train, held_out = meta.hold_out(settings.held_out, [stream.torch("held-out rows") for stream in streams])
    network_streams = [stream.child(f"start {k}") for stream in streams for k in range(settings.starts)]
    sizes = (dimension, settings.hidden, settings.hidden, settings.hidden, settings.features)
    network = MLP(sizes, [stream.torch("first weights") for stream in network_streams], functional.silu).to(meta.rows)
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
    recent: list[Tensor] = []
    curves: tuple[list[Tensor], list[Tensor]] = ([], [])
    for step in range(settings.steps + 1):
        if step % settings.check_every == 0:
            with torch.no_grad():
                trained = loss(everything, *weights[0])
                raw = network(rows.flatten(1, 2)).double().reshape(networks, tasks, longest, -1)
                found = prior_alignment(raw, *weights).gain
            recent = [*recent, found][-SMOOTHED:]
            smooth = torch.stack(recent).mean(dim=0)
            better = smooth > highest
            highest = highest.where(~better, smooth)
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
    count = min(settings.fourier, 5 * tasks)
    frequencies = _frequencies(rows[:: settings.starts].double(), train, held_out, count, streams)
    features = MetaFeatures(network.double(), frequencies, settings.leading)
    align(features, train, held_out)
    return features, Course(np.array(checked), *(torch.stack(curve).cpu().numpy() for curve in curves))


def _frequencies(
    rows: Tensor, train: MetaSample, held_out: MetaSample, count: int, streams: Sequence[Streams]
) -> Tensor:
    """Frequencies ω of a Gaussian kernel, for normalised rows (R, T, L, d) → (R, d, count/2).

    Its width is the widest of WIDTHS times the median, unless held-out rows gain more with a narrower one, by more than
    two standard errors of that gain.
    """
    generators = [stream.torch("median heuristic") for stream in streams]
    median = median_squared_distance(draw_rows(rows.flatten(1, 2), min(rows.shape[1] * rows.shape[2], 500), generators))
    shape = (rows.shape[-1], count // 2)
    drawn = torch.stack([torch.randn(shape, generator=s.torch("frequencies"), dtype=torch.float64) for s in streams])
    seen, fresh = ((part.x_weight, part.y_weight) for part in (train, held_out))
    error = _gain_error(fresh)
    best = highest = None
    for width in WIDTHS:
        frequencies = drawn.to(rows) * (2 / (width * median)).sqrt()[:, None, None]
        block = fourier_features(rows, frequencies[:, None])
        gain = _gain(block @ _directions(block, seen).transform[:, None], seen, fresh)
        if best is None or highest is None:
            best, highest = frequencies, gain
        else:
            better = gain > highest + 2 * error
            best = frequencies.where(better[:, None, None], best)
            highest = gain.where(better, highest)
    assert best is not None
    return best


def fourier_features(rows: Tensor, frequencies: Tensor) -> Tensor:
    """The columns themselves, sin(xᵀω) and cos(xᵀω): (…, n, d) → (…, n, d+D)."""
    angles = rows @ frequencies
    return torch.cat([rows, angles.sin(), angles.cos()], dim=-1)


def _per_network(meta: MetaSample, starts: int) -> tuple[Tensor, Tensor]:
    """The weights of each repeat, once for each of its networks."""
    x_weight, y_weight = (w.repeat_interleave(starts, dim=0) for w in (meta.x_weight, meta.y_weight))
    return x_weight, y_weight


@torch.no_grad()
def align(features: MetaFeatures, train: MetaSample, held_out: MetaSample) -> None:
    """Reduce each start to its leading directions, whiten all together, rotate to the prior's axes, store the prior.

    Held-out rows say which networks are any good: one that does not gain more than the Fourier features, which nobody
    trained, by more than a standard error, is left out. So the networks' leading directions come from training rows
    alone.
    """
    repeats, tasks, longest = train.rows.shape[:3]
    outputs, fourier = (
        part.double().unflatten(1, (tasks, longest)) for part in features.starts(train.rows.flatten(1, 2))
    )
    leading = features.network_lead.shape[-1]
    starts = outputs.shape[0] // repeats
    seen, fresh = ((part.x_weight, part.y_weight) for part in (train, held_out))
    networks = _per_network(train, starts)
    network_axes, fourier_axes = _directions(outputs, networks).transform, _directions(fourier, seen).transform
    found = _gain(outputs @ network_axes[:, None], networks, _per_network(held_out, starts))
    least = _gain(fourier @ fourier_axes[:, None], seen, fresh).repeat_interleave(starts)
    margin = _gain_error(fresh).repeat_interleave(starts)
    features.network_lead = network_axes[..., -leading:] * (found >= least + margin)[:, None, None]
    everything = (seen[0] + fresh[0], seen[1] + fresh[1])
    features.fourier_lead = _directions(fourier, everything).transform[..., -leading:]
    raw = features.raw(train.rows.flatten(1, 2)).double().unflatten(1, (tasks, longest))
    features.centre, features.transform, features.prior, _ = prior_alignment(raw, seen, fresh)


class Directions(NamedTuple):
    """Centre (R, 1, Q) of raw features, and the transform (R, Q, Q) that whitens them and sorts by difference."""

    centre: Tensor
    transform: Tensor


def _directions(raw: Tensor, weights: tuple[Tensor, Tensor]) -> Directions:
    """Whiten raw features (R, T, L, Q) within samples, and rotate them to the eigenvectors of mean d_i d_iᵀ, rising."""
    tasks = raw.shape[1]
    covariance = raw.new_zeros(raw.shape[0], raw.shape[-1], raw.shape[-1])
    freedom, means = raw.new_zeros(raw.shape[0]), []
    for weight in weights:  # the rows of x, then those of y
        inside = (weight > 0).to(raw)
        mean = torch.einsum("rtl,rtlq->rtq", inside, raw) / inside.sum(dim=-1, keepdim=True).clamp(min=1)
        centred = ((raw - mean[:, :, None]) * inside[..., None]).flatten(1, 2)
        covariance += centred.mT @ centred
        freedom += inside.sum(dim=(1, 2)) - tasks
        means.append(mean)
    covariance /= freedom.clamp(min=1)[:, None, None]
    diagonal = covariance.diagonal(dim1=-2, dim2=-1)
    strength = RIDGE * raw.shape[-1] / freedom.clamp(min=1)[:, None] + torch.finfo(torch.float32).eps
    ridge = strength * (diagonal.mean(dim=-1, keepdim=True) + torch.finfo(torch.float32).eps)
    factor = torch.linalg.cholesky(covariance + torch.diag_embed(ridge.expand_as(diagonal)))
    whiten = torch.linalg.inv(factor).mT  # φ @ whiten has covariance I within samples
    difference = (means[0] - means[1]) @ whiten
    rotation = torch.linalg.eigh(difference.mT @ difference).eigenvectors
    return Directions(0.5 * (means[0] + means[1]).mean(dim=1, keepdim=True), whiten @ rotation)


class Alignment(NamedTuple):
    """Centre (R, 1, Q), transform (R, Q, Q) and prior (R, Q), rising, of raw features; and how good they are.

    ``gain`` (R,) is explained at ``_gain``.
    """

    centre: Tensor
    transform: Tensor
    prior: Tensor
    gain: Tensor


def prior_alignment(raw: Tensor, train: tuple[Tensor, Tensor], held_out: tuple[Tensor, Tensor]) -> Alignment:
    """How to whiten and rotate raw features (R, T, L, Q), with the rows' weights for x and y.

    The directions are the eigenvectors of the mean of d_i d_iᵀ over all rows. But φ was made to see differences between
    the training rows, so their d_i exaggerate; held-out rows' d'_i do not. The prior along a direction u is therefore
    the mean of (u·d_i)(u·d'_i), d_i from the one and d'_i from the other, which has no noise term; what bias is left
    comes from directions in which held-out rows had a say.
    """
    centre, transform = _directions(raw, (train[0] + held_out[0], train[1] + held_out[1]))
    d, d_held = (torch.einsum("rtl,rtlq->rtq", x - y, raw) @ transform for x, y in (train, held_out))
    complete = ((held_out[0] > 0).any(dim=-1) & (held_out[1] > 0).any(dim=-1)).to(raw)[..., None]  # R x T x 1
    noise, noise_held = (  # R x T x 1: 1/n + 1/m
        (x.square() + y.square()).sum(dim=-1)[..., None] for x, y in (train, held_out)
    )
    prior, order = _shrunk(d * d_held, (noise * noise_held).sqrt(), complete).sort(dim=-1)
    gain = _gain(raw @ transform[:, None], train, held_out)
    return Alignment(centre, transform.take_along_dim(order[:, None], dim=-1), prior, gain)


def _gain(psi: Tensor, train: tuple[Tensor, Tensor], held_out: tuple[Tensor, Tensor]) -> Tensor:
    """How much held-out rows differ along each task's witness, learned on its training rows: (R,).

    ψ (R, T, L, Q) is white within samples; the unit is its standard deviation.
    """
    d, d_held = (torch.einsum("rtl,rtlq->rtq", x - y, psi) for x, y in (train, held_out))
    complete = ((held_out[0] > 0).any(dim=-1) & (held_out[1] > 0).any(dim=-1)).to(psi)[..., None]  # R x T x 1
    noise = (train[0].square() + train[1].square()).sum(dim=-1)[..., None]
    expected = (d.square() - noise).mean(dim=1, keepdim=True).clamp(min=0)
    witness = complete * d * expected / (expected + noise)
    length = witness.square().sum(dim=(1, 2)).sqrt().clamp(min=torch.finfo(psi.dtype).tiny)
    return (witness * d_held).sum(dim=(1, 2)) / (length * complete.sum(dim=1)[:, 0].clamp(min=1).sqrt())


def _gain_error(held_out: tuple[Tensor, Tensor]) -> Tensor:
    """The standard error of a gain: (R,)."""
    noise = (held_out[0].square() + held_out[1].square()).sum(dim=-1)  # R x T
    return noise.mean(dim=-1).sqrt() / noise.shape[-1] ** 0.5


def _shrunk(products: Tensor, noise: Tensor, complete: Tensor) -> Tensor:
    """The mean over tasks of products (R, T, Q) whose noise has deviation ``noise`` (R, T, 1), shrunk: (R, Q).

    mean·(1 − (2·error/mean)²), and 0 where the mean does not exceed two standard errors: directions in which the tasks
    may not differ at all cost power. If that leaves none, all positive means are kept as they are.
    """
    count = complete.sum(dim=1).clamp(min=1)  # R x 1
    mean = (products * complete).sum(dim=1) / count
    spread = ((products - mean[:, None]) * complete).square().sum(dim=1) / (count - 1).clamp(min=1)
    least = (noise * complete).square().sum(dim=1) / count
    error = (torch.maximum(spread, least) / count).sqrt()
    positive = mean.clamp(min=torch.finfo(mean.dtype).tiny)
    shrunk = (positive - (2 * error).square() / positive).clamp(min=0).where(mean > 0, 0.0)
    return shrunk.where((shrunk > 0).any(dim=-1, keepdim=True), mean.clamp(min=0))


def prior_weights(features: MetaFeatures, rows: int) -> Tensor:
    """s_q/(s_q + τ), τ = 4/rows: (R, Q).

    For a difference of means d ~ N(0, s + τ) against N(0, τ), with τ the noise of two halves of that many pooled
    rows, the likelihood ratio weighs d_q² by this (up to a constant).
    """
    noise = 4 / rows
    return features.prior / (features.prior + noise)


@torch.no_grad()
def shrunk_heads(features: MetaFeatures, meta: MetaSample) -> Tensor:
    """E[δ_i | d_i] = s/(s+τ_i)·d_i of every task, from all its rows: (R, T, Q)."""
    psi = features(meta.rows)
    d = torch.einsum("rtl,rtlq->rtq", meta.x_weight - meta.y_weight, psi)
    noise = (meta.x_weight.square() + meta.y_weight.square()).sum(dim=-1)[..., None]
    prior = features.prior[:, None]
    return prior / (prior + noise) * d


def _units(meta: MetaSample, starts: int) -> Units:
    """Mean and standard deviation of all meta-rows, per repeat and column, once for each start."""
    inside = (meta.x_weight + meta.y_weight > 0).to(meta.rows)[..., None]
    count = inside.sum(dim=(1, 2), keepdim=True)
    centre = (meta.rows * inside).sum(dim=(1, 2), keepdim=True) / count
    variance = ((meta.rows - centre).square() * inside).sum(dim=(1, 2), keepdim=True) / count
    scale = torch.where(variance > 0, variance.sqrt(), torch.ones_like(variance))
    return Units(*(part[:, 0].repeat_interleave(starts, dim=0) for part in (centre, scale)))
