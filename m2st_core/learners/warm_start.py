"""The warm start: features in which the rows of P and Q differ, learned from many related tasks at once.

Ĵ from a hundred rows is mostly noise. A linear discriminant's direction is not: in random Fourier features of the rows,
which are smooth functions of them, each task has a discriminant in closed form, its head. Their common directions are
the coordinates of ψ, and how much tasks left out differ along them is the prior of differences like those seen before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor, nn

from m2st_core.kernels.features import Units
from m2st_core.kernels.gaussian import median_squared_distance
from m2st_core.learners.prior import FEWEST_TASKS, Differences, judge, leading_directions, task_folds
from m2st_core.presets import WarmStart
from m2st_core.rng import Streams
from m2st_core.tasks.meta import MetaSample
from m2st_core.types import Progress, TwoSample

MEDIAN_ROWS = 500
SHARED_FIRST = 3.0  # log-likelihood by which directions without a shared one must do better: they are easily confused
CHUNK_ELEMENTS = 2**23  # numbers of features held at once


class MetaFeatures(nn.Module):
    """ψ(x): white, prior-aligned features, for R repeats: (R, …, n, d) → (R, …, n, Q).

    They are linear in the columns and in sin(xᵀω), cos(xᵀω) at random frequencies ω. Within a sample each has variance
    about 1; between the samples of a related task its means differ by about √``prior`` (R, Q), which rises with q.
    """

    centre: Tensor
    scale: Tensor
    frequencies: Tensor
    transform: Tensor
    offset: Tensor
    prior: Tensor

    def __init__(self, units: Units, frequencies: Tensor, leading: int) -> None:
        super().__init__()
        repeats, columns, half = frequencies.shape  # R x d x D/2
        self.register_buffer("centre", units.centre)
        self.register_buffer("scale", units.scale)
        self.register_buffer("frequencies", frequencies)
        self.register_buffer("transform", frequencies.new_zeros(repeats, columns + 2 * half, leading))
        self.register_buffer("offset", frequencies.new_zeros(repeats, 1, leading))
        self.register_buffer("prior", frequencies.new_zeros(repeats, leading))

    def raw(self, x: Tensor) -> Tensor:
        """Columns and Fourier features: (R, n, d) → (R, n, d+D). Sines in float32: six digits are plenty here."""
        rows = Units(self.centre, self.scale)(x.to(self.centre))
        angles = (rows @ self.frequencies).float()
        return torch.cat([rows.float(), angles.sin(), angles.cos()], dim=-1)

    def forward(self, x: Tensor) -> Tensor:
        """ψ of each row; a single repeat's features serve any number of leading dimensions."""
        flat = x.reshape(self.centre.shape[0], -1, x.shape[-1])
        features = (self.raw(flat) @ self.transform.float()).to(self.offset) - self.offset
        return features.reshape(*x.shape[:-1], -1)

    @torch.no_grad()
    def view(self, meta: MetaSample, settings: WarmStart, streams: Sequence[Streams]) -> tuple[MetaSample, MetaSample]:
        """The meta-tasks as ψ sees them, in two parts that share no row: most to learn from, some to judge by."""
        kept, aside = meta.hold_out(settings.held_out, [stream.torch("held-out rows") for stream in streams])
        psi = self(meta.rows)
        return kept.with_rows(psi), aside.with_rows(psi)


@torch.no_grad()
def fit_features(
    meta: MetaSample, settings: WarmStart, streams: Sequence[Streams], progress: Progress | None = None
) -> tuple[MetaFeatures, dict[str, float]]:
    """ψ of the meta-tasks, and what tasks left out decided.

    Frequencies are those of a Gaussian kernel of one width after another; each must gain its margin of log-likelihood
    on tasks left out over the best before it. For each, the tasks' common direction is or is not singled out.
    """
    columns = meta.rows.shape[-1]
    units, median = _units(meta), _median(meta, streams)
    count = min(max(settings.fewest_fourier, settings.fourier_per_column * columns), settings.most_fourier)
    shape = (columns, count // 2)
    drawn = torch.stack([torch.randn(shape, generator=s.torch("frequencies"), dtype=torch.float64) for s in streams])
    best = None
    for step, (width, margin) in enumerate(zip(settings.widths, settings.margins, strict=True)):
        candidate = MetaFeatures(units, drawn.to(meta.rows) * (2 / (width * median)).sqrt()[:, None, None], 0)
        offer = _aligned(candidate, meta, settings, streams)
        offer["width"] = torch.full_like(offer["evidence"], width)
        best = offer if best is None else _better(offer, best, margin)
        if progress is not None:
            progress(step + 1, len(settings.widths), float(best["evidence"].mean()))
    assert best is not None
    features = MetaFeatures(units, best["frequencies"], settings.leading)
    for name in ("transform", "offset", "prior"):
        features.register_buffer(name, best[name])
    choices = {
        "width of the features, times the median": best["width"],
        "a direction shared by all tasks leads": best["shared"],
        "evidence for the directions, in nats": best["evidence"],
    }
    return features, {name: float(value.mean()) for name, value in choices.items()}


def _aligned(
    candidate: MetaFeatures, meta: MetaSample, settings: WarmStart, streams: Sequence[Streams]
) -> dict[str, Tensor]:
    """The candidate's leading directions and their prior, with the tasks' common direction singled out or not."""
    by_rows = meta.rows.shape[1] < FEWEST_TASKS
    halves = meta.hold_out(0.5, [stream.torch("held-out rows") for stream in streams]) if by_rows else ()
    (found, *parts), middle = _differences(candidate, [meta, *halves])
    freedom = meta.sizes.sum(dim=1) - 2 * meta.rows.shape[1]
    white, whiten = found.whitened(settings.ridge * candidate.transform.shape[1] / freedom.clamp(min=1)[:, None])
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
                "frequencies": candidate.frequencies,
                "transform": whiten @ axes,
                "offset": middle @ whiten @ axes,
                "prior": prior,
                "shared": torch.full_like(verdict.evidence, float(shared)),
                "evidence": verdict.evidence,
            }
        )
    return _better(offers[1], offers[0], SHARED_FIRST)


def _better(new: dict[str, Tensor], old: dict[str, Tensor], margin: float) -> dict[str, Tensor]:
    """In each repeat the new offer, if there is more evidence for it, by a margin."""
    better = new["evidence"] > old["evidence"] + margin
    return {name: value.where(better.reshape(-1, *[1] * (value.ndim - 1)), old[name]) for name, value in new.items()}


def _differences(features: MetaFeatures, parts: Sequence[MetaSample]) -> tuple[list[Differences], Tensor]:
    """What each part (the same rows, other weights) shows in raw features, and their centre (R, 1, Q).

    The covariance is that within the samples of the first part. Rows are walked some tasks at a time.
    """
    meta = parts[0]
    repeats, tasks, longest, _ = meta.rows.shape
    size = features.transform.shape[1]
    covariance = meta.rows.new_zeros(repeats, size, size)
    step = max(1, CHUNK_ELEMENTS // (repeats * longest * size))
    means: list[list[Tensor]] = [[] for _ in parts]
    centres = []
    for start in range(0, tasks, step):
        chunk = slice(start, start + step)
        rows = meta.rows[:, chunk]
        raw = features.raw(rows.flatten(1, 2)).reshape(repeats, -1, longest, size)
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


def _units(meta: MetaSample) -> Units:
    """Mean and standard deviation of all meta-rows, per repeat and column: (R, 1, d) each."""
    inside = (meta.x_weight + meta.y_weight > 0).to(meta.rows)[..., None]
    count = inside.sum(dim=(1, 2), keepdim=True)
    centre = (meta.rows * inside).sum(dim=(1, 2), keepdim=True) / count
    variance = ((meta.rows - centre).square() * inside).sum(dim=(1, 2), keepdim=True) / count
    scale = torch.where(variance > 0, variance.sqrt(), torch.ones_like(variance))
    return Units(centre[:, 0], scale[:, 0])


def _median(meta: MetaSample, streams: Sequence[Streams]) -> Tensor:
    """The median squared distance of at most 500 meta-rows, in the units above: (R,)."""
    units, medians = _units(meta), []
    for repeat, stream in enumerate(streams):
        rows = meta.rows[repeat][(meta.x_weight + meta.y_weight > 0)[repeat]]
        chosen = torch.randperm(len(rows), generator=stream.torch("median heuristic"))[:MEDIAN_ROWS]
        some = rows[chosen.to(rows.device)]
        medians.append(median_squared_distance(((some - units.centre[repeat]) / units.scale[repeat])[None]))
    return torch.cat(medians)


def prior_weights(features: MetaFeatures, rows: int) -> Tensor:
    """s_q/(s_q + τ), τ = 4/rows: (R, Q).

    For a difference of means d ~ N(0, s + τ) against N(0, τ), with τ the noise of two halves of that many pooled
    rows, the likelihood ratio weighs d_q² by this (up to a constant).
    """
    noise = 4 / rows
    return features.prior / (features.prior + noise)


class TargetView(NamedTuple):
    """A target's training rows in ψ: d (R, Q), the variance within its samples (R, Q), and d's noise (R, Q)."""

    difference: Tensor
    variance: Tensor
    noise: Tensor


@torch.no_grad()
def view_target(features: MetaFeatures, train: TwoSample) -> TargetView:
    """ψ has variance 1 within the meta-tasks' samples; a target of another kind may have more or less."""
    seen = [features(rows) for rows in train]
    (x, y), (n, m) = seen, train.sizes
    variance = ((n - 1) * x.var(dim=-2) + (m - 1) * y.var(dim=-2)) / (n + m - 2)
    variance = variance.clamp(min=torch.finfo(torch.float32).eps)
    return TargetView(x.mean(dim=-2) - y.mean(dim=-2), variance, variance * (1 / n + 1 / m))


def evidence_related(features: MetaFeatures, target: TargetView) -> Tensor:
    """The log-likelihood ratio of a target that differs as the meta-tasks do to one that does not: (R,).

    d_q ~ N(0, s_q + τ_q) against N(0, τ_q).
    """
    ratio = features.prior / target.noise
    return 0.5 * (target.difference.square() / target.noise * ratio / (1 + ratio) - ratio.log1p()).sum(dim=-1)


@torch.no_grad()
def shrunk_heads(features: MetaFeatures, meta: MetaSample) -> Tensor:
    """E[δ_i | d_i] = s/(s+τ_i)·d_i of every task, from all its rows: (R, T, Q)."""
    psi = features(meta.rows)
    d = torch.einsum("rtl,rtlq->rtq", meta.x_weight - meta.y_weight, psi)
    noise = (meta.x_weight.square() + meta.y_weight.square()).sum(dim=-1)[..., None]
    prior = features.prior[:, None]
    return prior / (prior + noise) * d
