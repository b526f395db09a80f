"""From raw features to ψ: directions along which related tasks differ, with a prior that left-out tasks determine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from m2st_core.data.related import RelatedTasks
from m2st_core.learners.meta_features import MetaFeatures
from m2st_core.preset import FeatureLearning
from m2st_core.rng import Streams

FOLDS = 10
FEWEST_TASKS = 5  # with fewer tasks, halves of the rows are left out in turn instead
PRICE = 4.0  # log-likelihood on left-out tasks at which a direction is as likely real as not
SHARED_PRICE = 2.0  # the same for the tasks' common direction, which is a single candidate
SHARED_FIRST = 3.0  # log-likelihood by which directions without a common one must win: the two are easily confused
FLAT = 1e-6  # smallest variance of a direction within samples, in white features
LEAST = 1e-3  # prior of a direction without evidence, in units of the noise
CHUNK_ELEMENTS = 2**23  # numbers of features held at once

RawFeatures = Callable[[Tensor], Tensor]
"""Features before alignment: (R, n, d) → (R, n, Q)."""


@dataclass(frozen=True)
class Differences:
    """Mean differences d (R, T, Q) of T tasks, their noise τ (R, T), and the covariance within samples (R, Q, Q)."""

    means: Tensor
    noise: Tensor
    covariance: Tensor

    def whitened(self, ridge: Tensor | float) -> tuple[Differences, Tensor]:
        """The differences in whitened features, and the whitening transform (R, Q, Q).

        ``ridge``, a number or (R, 1), times the mean of the covariance's diagonal is added to that diagonal. It shrinks
        features that vary little.
        """
        diagonal = self.covariance.diagonal(dim1=-2, dim2=-1)
        level = ridge * diagonal.mean(dim=-1, keepdim=True) + torch.finfo(torch.float32).tiny
        factor = torch.linalg.cholesky(self.covariance + torch.diag_embed(level.expand_as(diagonal)))
        whiten = torch.linalg.inv(factor).mT
        return Differences(self.means @ whiten, self.noise, whiten.mT @ self.covariance @ whiten), whiten

    def tasks(self, which: Tensor) -> Differences:
        """The tasks at these indices (R, ·)."""
        means = self.means.take_along_dim(which[..., None], dim=1)
        return Differences(means, self.noise.take_along_dim(which, dim=1), self.covariance)


def leading_directions(tasks: Differences, count: int, shared: bool) -> Tensor:
    """The directions along which the tasks differ most, of unit variance within samples: (R, Q, count).

    They are eigenvectors of Σ_i d_i d_iᵀ/τ_i. With ``shared``, the first is the weighted mean difference, which is
    strong if all tasks name their samples in the same order, and the others are orthogonal to it. Directions that the
    tasks lack, or that do not vary within samples, are 0.
    """
    weighted = tasks.means * tasks.noise.rsqrt()[..., None]  # R x T x Q
    energy = weighted.square().sum(dim=(1, 2))[:, None]
    chosen = []
    if shared:
        mean = (weighted * tasks.noise.rsqrt()[..., None]).sum(dim=1)
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
    variance = (axes * (tasks.covariance @ axes)).sum(dim=1, keepdim=True)
    return axes * (variance > FLAT) * variance.clamp(min=FLAT).rsqrt()


def judge(folds: Sequence[tuple[Differences, Differences]], count: int, shared: bool) -> tuple[Tensor, Tensor]:
    """The prior of each leading direction (R, count), and the total evidence for them (R,).

    The prior is the size s of the differences of left-out tasks, times P(the direction is real). For a left-out task,
    t_i = u·d_i is N(0, τ_i) if the direction u means nothing and N(0, s+τ_i) if tasks differ along it in either sense.
    For the shared direction, all may differ in the same sense: then it is N(μ, τ_i) with s = μ².
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
    return torch.maximum(prior, least), evidence.clamp(min=0).sum(dim=-1)


def _either_sense(t: Tensor, precision: Tensor) -> tuple[Tensor, Tensor]:
    """s and its log-likelihood ratio, for t (R, T, k) with precision 1/τ (R, T, 1): (R, k), (R, k)."""
    square = t.square() * precision  # t²/τ
    size = ((square - 1) * precision).sum(dim=1) / precision.square().sum(dim=1)
    size = size.clamp(min=0)
    ratio = size[:, None] * precision  # s/τ
    gain = 0.5 * (square * ratio / (1 + ratio) - ratio.log1p()).sum(dim=1)
    return size, gain.clamp(min=0)


def _same_sense(t: Tensor, precision: Tensor) -> tuple[Tensor, Tensor]:
    """μ², corrected for noise, and the log-likelihood ratio of a common mean μ > 0: (R, k), (R, k)."""
    total = precision.sum(dim=1)
    mean = (t * precision).sum(dim=1) / total
    size = (mean.square() - 1 / total).clamp(min=0).where(mean > 0, 0.0)
    return size, (0.5 * mean.square() * total).where(mean > 0, 0.0)


def task_folds(tasks: Differences, streams: Sequence[Streams]) -> Iterator[tuple[Differences, Differences]]:
    """Yield ten folds: the tasks without a tenth of them, and that tenth."""
    count = tasks.means.shape[1]
    folds = min(FOLDS, count)
    orders = [torch.randperm(count, generator=stream.torch("tasks left out")) for stream in streams]
    order = torch.stack(orders).to(tasks.means.device)
    place = torch.arange(count, device=order.device) % folds
    for fold in range(folds):
        yield tasks.tasks(order[:, place != fold]), tasks.tasks(order[:, place == fold])


@torch.no_grad()
def align(
    raw: RawFeatures, related: RelatedTasks, settings: FeatureLearning, streams: Sequence[Streams]
) -> dict[str, Tensor]:
    """The leading directions of raw features and their prior, with or without the tasks' common direction first."""
    tasks = related.where.shape[1]
    by_rows = tasks < FEWEST_TASKS
    halves = related.hold_out(0.5, [stream.torch("held-out rows") for stream in streams]) if by_rows else ()
    (whole, *parts), middle = differences(raw, [related, *halves])
    freedom = related.sizes.sum(dim=1) - 2 * tasks
    white, whiten = whole.whitened(settings.ridge * middle.shape[-1] / freedom.clamp(min=1)[:, None])
    if by_rows:
        one, other = (replace(white, means=part.means @ whiten, noise=part.noise) for part in parts)
        folds = [(one, other), (other, one)]
    else:
        folds = list(task_folds(white, streams))
    offers = []
    for shared in (True, False):
        prior, evidence = judge(folds, settings.leading, shared)
        prior, order = prior.sort(dim=-1)
        axes = leading_directions(white, settings.leading, shared).take_along_dim(order[:, None], dim=-1)
        directions = {"transform": whiten @ axes, "offset": middle @ whiten @ axes, "prior": prior, "whiten": whiten}
        offers.append(directions | {"shared": torch.full_like(evidence, float(shared)), "evidence": evidence})
    return better(offers[1], offers[0], SHARED_FIRST)


def better(new: dict[str, Tensor], old: dict[str, Tensor], margin: float) -> dict[str, Tensor]:
    """The new offer in repeats where its evidence exceeds the old one's by the margin, and the old one elsewhere."""
    wins = new["evidence"] > old["evidence"] + margin
    return {name: value.where(wins.reshape(-1, *[1] * (value.ndim - 1)), old[name]) for name, value in new.items()}


def finish(
    features: MetaFeatures, offer: dict[str, Tensor], choices: dict[str, float]
) -> tuple[MetaFeatures, dict[str, float]]:
    """The features with this alignment, and the choices with those of the alignment."""
    for name in ("transform", "offset", "prior"):
        features.register_buffer(name, offer[name])
    decided = {
        "shared_direction_leads": offer["shared"],
        "direction_evidence": offer["evidence"],
    }
    return features, choices | {name: float(value.mean()) for name, value in decided.items()}


def differences(raw_features: RawFeatures, parts: Sequence[RelatedTasks]) -> tuple[list[Differences], Tensor]:
    """The differences of each part, which has the same rows with other weights, and the features' centre (R, 1, Q).

    The covariance is that within the samples of the first part. Some tasks are processed at a time.
    """
    whole = parts[0]
    repeats, tasks, longest = whole.where.shape
    size = raw_features(whole.rows[:, :1]).shape[-1]
    covariance = whole.x_weight.new_zeros(repeats, size, size)
    step = max(1, CHUNK_ELEMENTS // (repeats * longest * size))
    means: list[list[Tensor]] = [[] for _ in parts]
    centres = []
    for start in range(0, tasks, step):
        chunk = slice(start, start + step)
        raw = raw_features(whole.take(whole.where[:, chunk].flatten(1))).reshape(repeats, -1, longest, size)
        for own_means, part in zip(means, parts, strict=True):
            weight = part.x_weight[:, chunk] - part.y_weight[:, chunk]
            own_means.append((weight[..., None, :].to(raw) @ raw)[..., 0, :].double())
        weights = torch.stack([whole.x_weight[:, chunk], whole.y_weight[:, chunk]], dim=-2)  # R x T x 2 x L
        sides = weights.to(raw) @ raw  # R x T x 2 x Q
        centres.append(sides.double().mean(dim=-2))
        belongs = (weights > 0).to(raw)
        flat = (raw - belongs.mT @ sides).mul_(belongs.sum(dim=-2)[..., None]).flatten(1, 2)
        covariance += (flat.mT @ flat).double()
    freedom = whole.sizes.sum(dim=1) - 2 * tasks
    covariance /= freedom.clamp(min=1)[:, None, None]
    noises = [(part.x_weight.square() + part.y_weight.square()).sum(dim=-1) for part in parts]
    shown = [Differences(torch.cat(m, dim=1), n, covariance) for m, n in zip(means, noises, strict=True)]
    return shown, torch.cat(centres, dim=1).mean(dim=1, keepdim=True)
