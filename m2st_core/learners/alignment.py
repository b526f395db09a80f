"""From raw features to ψ: the directions along which related tasks differ, judged by tasks that had no say in them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from m2st_core.learners.meta_features import MetaFeatures
from m2st_core.learners.prior import FEWEST_TASKS, Differences, judge, leading_directions, task_folds
from m2st_core.presets import FeatureLearning
from m2st_core.rng import Streams
from m2st_core.tasks.meta import MetaSample

SHARED_FIRST = 3.0  # log-likelihood by which directions without a shared one must do better: they are easily confused
CHUNK_ELEMENTS = 2**23  # numbers of features held at once

RawFeatures = Callable[[Tensor], Tensor]
"""Of rows, before anything is aligned: (R, n, d) → (R, n, Q)."""


@torch.no_grad()
def align(
    raw: RawFeatures, meta: MetaSample, settings: FeatureLearning, streams: Sequence[Streams]
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


def differences(raw_features: RawFeatures, parts: Sequence[MetaSample]) -> tuple[list[Differences], Tensor]:
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
