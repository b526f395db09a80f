"""From raw features to ψ: the directions along which related tasks differ, judged by tasks that had no say in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from m2st_core.data.related import RelatedTasks
from m2st_core.learners.meta_features import MetaFeatures
from m2st_core.presets import FeatureLearning
from m2st_core.rng import Streams

FOLDS = 10
FEWEST_TASKS = 5  # with fewer, halves of the rows are left out in turn instead of tasks
PRICE = 4.0  # log-likelihood that a direction must gain on tasks left out to be more likely real than not
SHARED_PRICE = 2.0  # the same for the tasks' common direction, of which there is but one
FLAT = 1e-6  # variance within samples, of white features, below which a direction is none
LEAST = 1e-3  # of the noise: the prior of a direction for which nothing speaks


@dataclass(frozen=True)
class Differences:
    """d (R, T, Q) of T tasks, their noise τ (R, T), and the raw features' covariance within samples (R, Q, Q)."""

    means: Tensor
    noise: Tensor
    covariance: Tensor

    def whitened(self, ridge: Tensor | float) -> tuple[Differences, Tensor]:
        """The same in whitened features, and the transform (R, Q, Q) that whitens.

        The covariance gets ``ridge``, a number or (R, 1), times its mean diagonal: features that vary little are
        trusted little.
        """
        diagonal = self.covariance.diagonal(dim1=-2, dim2=-1)
        level = ridge * diagonal.mean(dim=-1, keepdim=True) + torch.finfo(torch.float32).tiny
        factor = torch.linalg.cholesky(self.covariance + torch.diag_embed(level.expand_as(diagonal)))
        whiten = torch.linalg.inv(factor).mT
        return Differences(self.means @ whiten, self.noise, whiten.mT @ self.covariance @ whiten), whiten

    def tasks(self, which: Tensor) -> Differences:
        """Some of the tasks: indices (R, ·)."""
        means = self.means.take_along_dim(which[..., None], dim=1)
        return Differences(means, self.noise.take_along_dim(which, dim=1), self.covariance)


def leading_directions(found: Differences, count: int, shared: bool) -> Tensor:
    """The directions along which the tasks differ most, of unit variance within samples: (R, Q, count).

    With ``shared`` the first is that of the tasks' mean difference, which is strong where every task's samples stand in
    the same order (reference first, changed second), and the others are orthogonal to it. Larger tasks weigh more.
    Directions that the tasks do not have, or that do not vary within samples, are 0.
    """
    weighted = found.means * found.noise.rsqrt()[..., None]  # R x T x Q
    energy = weighted.square().sum(dim=(1, 2))[:, None]
    chosen = []
    if shared:
        mean = (weighted * found.noise.rsqrt()[..., None]).sum(dim=1)
        mean = mean / mean.norm(dim=-1, keepdim=True).clamp(min=torch.finfo(mean.dtype).tiny)
        weighted = weighted - (weighted @ mean[..., None]) * mean[:, None]
        chosen.append(mean[..., None])
    more = count - len(chosen)
    if weighted.shape[1] <= weighted.shape[2]:
        values, vectors = torch.linalg.eigh(weighted @ weighted.mT)
        values, vectors = values[:, -more:].flip(-1), vectors[..., -more:].flip(-1)
        real = values > 1e-12 * energy
        length = values.where(real, 1.0).sqrt()
        axes = weighted.mT @ vectors * (real / length)[:, None]
    else:
        axes = torch.linalg.eigh(weighted.mT @ weighted).eigenvectors[..., -more:].flip(-1)
    axes = torch.cat([*chosen, axes], dim=-1)
    axes = torch.nn.functional.pad(axes, (0, count - axes.shape[-1]))
    variance = (axes * (found.covariance @ axes)).sum(dim=1, keepdim=True)
    return axes * (variance > FLAT) * variance.clamp(min=FLAT).rsqrt()


@dataclass(frozen=True)
class Verdict:
    """What tasks say about directions that others chose: the prior (R, count), and the evidence for them all (R,)."""

    prior: Tensor
    evidence: Tensor


def judge(folds: Sequence[tuple[Differences, Differences]], count: int, shared: bool) -> Verdict:
    """The size s of the differences along each leading direction, found on tasks left out, times P(it is real).

    t_i = u·d_i of a task left out is N(0, τ_i) if the direction u means nothing, N(0, s+τ_i) if tasks differ along it
    in either sense, and N(μ, τ_i), s = μ², if all do in the same sense, which is asked of the shared direction only.
    """
    views = [(fresh.means @ leading_directions(seen, count, shared), fresh.noise) for seen, fresh in folds]
    t = torch.cat([view for view, _ in views], dim=1)  # R x T x count
    precision = torch.cat([noise for _, noise in views], dim=1)[..., None].reciprocal()
    size, gain = _either_sense(t, precision)
    prior, evidence = size * (gain - PRICE).sigmoid(), gain - PRICE
    if shared:
        size, gain = _same_sense(t[..., :1], precision)
        prior[:, :1] = torch.maximum(prior[:, :1], size * (gain - SHARED_PRICE).sigmoid())
        evidence[:, :1] = torch.maximum(evidence[:, :1], gain - SHARED_PRICE)
    least = LEAST / precision.mean(dim=1)
    return Verdict(torch.maximum(prior, least), evidence.clamp(min=0).sum(dim=-1))


def _either_sense(t: Tensor, precision: Tensor) -> tuple[Tensor, Tensor]:
    """s and its log-likelihood ratio, for t (R, T, k) of precision 1/τ (R, T, 1): (R, k), (R, k)."""
    square = t.square() * precision  # t²/τ
    size = ((square - 1) * precision).sum(dim=1) / precision.square().sum(dim=1)
    size = size.clamp(min=0)
    ratio = size[:, None] * precision  # s/τ
    gain = 0.5 * (square * ratio / (1 + ratio) - ratio.log1p()).sum(dim=1)
    return size, gain.clamp(min=0)


def _same_sense(t: Tensor, precision: Tensor) -> tuple[Tensor, Tensor]:
    """μ² (without its noise) and the log-likelihood ratio of a common mean μ > 0: (R, k), (R, k)."""
    total = precision.sum(dim=1)
    mean = (t * precision).sum(dim=1) / total
    size = (mean.square() - 1 / total).clamp(min=0).where(mean > 0, 0.0)
    return size, (0.5 * mean.square() * total).where(mean > 0, 0.0)


def task_folds(found: Differences, streams: Sequence[Streams]) -> Iterator[tuple[Differences, Differences]]:
    """The tasks without a tenth of them, and that tenth, ten times."""
    tasks = found.means.shape[1]
    folds = min(FOLDS, tasks)
    orders = [torch.randperm(tasks, generator=stream.torch("tasks left out")) for stream in streams]
    order = torch.stack(orders).to(found.means.device)
    place = torch.arange(tasks, device=order.device) % folds
    for fold in range(folds):
        yield found.tasks(order[:, place != fold]), found.tasks(order[:, place == fold])


SHARED_FIRST = 3.0  # log-likelihood by which directions without a shared one must do better: they are easily confused
CHUNK_ELEMENTS = 2**23  # numbers of features held at once

RawFeatures = Callable[[Tensor], Tensor]
"""Of rows, before anything is aligned: (R, n, d) → (R, n, Q)."""


@torch.no_grad()
def align(
    raw: RawFeatures, meta: RelatedTasks, settings: FeatureLearning, streams: Sequence[Streams]
) -> dict[str, Tensor]:
    """The leading directions of raw features and their prior, with the tasks' common direction singled out or not."""
    tasks = meta.where.shape[1]
    by_rows = tasks < FEWEST_TASKS
    halves = meta.hold_out(0.5, [stream.torch("held-out rows") for stream in streams]) if by_rows else ()
    (found, *parts), middle = differences(raw, [meta, *halves])
    freedom = meta.sizes.sum(dim=1) - 2 * tasks
    white, whiten = found.whitened(settings.ridge * middle.shape[-1] / freedom.clamp(min=1)[:, None])
    if by_rows:
        one, other = (replace(white, means=part.means @ whiten, noise=part.noise) for part in parts)
        folds = [(one, other), (other, one)]
    else:
        folds = list(task_folds(white, streams))
    offers = []
    for shared in (True, False):
        verdict = judge(folds, settings.leading, shared)
        prior, order = verdict.prior.sort(dim=-1)
        axes = leading_directions(white, settings.leading, shared).take_along_dim(order[:, None], dim=-1)
        offers.append(
            {
                "whiten": whiten,
                "transform": whiten @ axes,
                "offset": middle @ whiten @ axes,
                "prior": prior,
                "shared": torch.full_like(verdict.evidence, float(shared)),
                "evidence": verdict.evidence,
            }
        )
    return better(offers[1], offers[0], SHARED_FIRST)


def better(new: dict[str, Tensor], old: dict[str, Tensor], margin: float) -> dict[str, Tensor]:
    """In each repeat the new offer, if there is more evidence for it, by a margin."""
    wins = new["evidence"] > old["evidence"] + margin
    return {name: value.where(wins.reshape(-1, *[1] * (value.ndim - 1)), old[name]) for name, value in new.items()}


def finish(
    features: MetaFeatures, offer: dict[str, Tensor], choices: dict[str, float]
) -> tuple[MetaFeatures, dict[str, float]]:
    """The features with this alignment, and what was decided on the way."""
    for name in ("transform", "offset", "prior"):
        features.register_buffer(name, offer[name])
    decided = {
        "a direction shared by all tasks leads": offer["shared"],
        "evidence for the directions, in nats": offer["evidence"],
    }
    return features, choices | {name: float(value.mean()) for name, value in decided.items()}


def differences(raw_features: RawFeatures, parts: Sequence[RelatedTasks]) -> tuple[list[Differences], Tensor]:
    """What each part (the same rows, other weights) shows in raw features, and their centre (R, 1, Q).

    The covariance is that within the samples of the first part. Rows are walked some tasks at a time.
    """
    meta = parts[0]
    repeats, tasks, longest = meta.where.shape
    size = raw_features(meta.rows[:, :1]).shape[-1]
    covariance = meta.x_weight.new_zeros(repeats, size, size)
    step = max(1, CHUNK_ELEMENTS // (repeats * longest * size))
    means: list[list[Tensor]] = [[] for _ in parts]
    centres = []
    for start in range(0, tasks, step):
        chunk = slice(start, start + step)
        raw = raw_features(meta.take(meta.where[:, chunk].flatten(1))).reshape(repeats, -1, longest, size)
        for found, part in zip(means, parts, strict=True):
            weight = part.x_weight[:, chunk] - part.y_weight[:, chunk]
            found.append((weight[..., None, :].to(raw) @ raw)[..., 0, :].double())
        weights = torch.stack([meta.x_weight[:, chunk], meta.y_weight[:, chunk]], dim=-2)  # R x T x 2 x L
        own = weights.to(raw) @ raw  # R x T x 2 x Q
        centres.append(own.double().mean(dim=-2))
        belongs = (weights > 0).to(raw)
        flat = (raw - belongs.mT @ own).mul_(belongs.sum(dim=-2)[..., None]).flatten(1, 2)
        covariance += (flat.mT @ flat).double()
    freedom = meta.sizes.sum(dim=1) - 2 * tasks
    covariance /= freedom.clamp(min=1)[:, None, None]
    noises = [(part.x_weight.square() + part.y_weight.square()).sum(dim=-1) for part in parts]
    shown = [Differences(torch.cat(m, dim=1), n, covariance) for m, n in zip(means, noises, strict=True)]
    return shown, torch.cat(centres, dim=1).mean(dim=1, keepdim=True)
