"""Learned features: those in which the rows of P and Q differ, learned from many related tasks at once.

Ĵ from a hundred rows is mostly noise. A linear discriminant's direction is not: in random Fourier features of the rows,
which are smooth functions of them, each task has a discriminant in closed form, its head. Their common directions are
the coordinates of ψ, and how much tasks left out differ along them is the prior of differences like those seen before.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from m2st_core.data.related import RelatedTasks
from m2st_core.kernels.features import Units
from m2st_core.kernels.gaussian import median_squared_distance
from m2st_core.learners.image_features import fit_image_features
from m2st_core.learners.meta_features import FourierFeatures, MetaFeatures
from m2st_core.learners.prior import align, better, finish
from m2st_core.presets import FeatureLearning
from m2st_core.rng import Streams
from m2st_core.types import Progress

MEDIAN_ROWS = 500


@torch.no_grad()
def fit_features(
    meta: RelatedTasks, settings: FeatureLearning, streams: Sequence[Streams], progress: Progress | None = None
) -> tuple[MetaFeatures, dict[str, float]]:
    """ψ of the meta-tasks, and what tasks left out decided.

    Frequencies are those of a Gaussian kernel of one width after another; each must gain its margin of log-likelihood
    on tasks left out over the best before it. For each, the tasks' common direction is or is not singled out.
    """
    if settings.convolutions is not None:
        return fit_image_features(meta, settings, streams, progress)
    columns = meta.rows.shape[-1]
    units, median = _units(meta), _median(meta, streams)
    count = min(max(settings.fewest_fourier, settings.fourier_per_column * columns), settings.most_fourier)
    shape = (columns, count // 2)
    drawn = torch.stack([torch.randn(shape, generator=s.torch("frequencies"), dtype=torch.float64) for s in streams])
    best = None
    for step, (width, margin) in enumerate(zip(settings.widths, settings.margins, strict=True)):
        candidate = FourierFeatures(units, drawn.to(meta.rows) * (2 / (width * median)).sqrt()[:, None, None], 0)
        offer = align(candidate.raw, meta, settings, streams)
        offer["frequencies"] = candidate.frequencies
        offer["width"] = torch.full_like(offer["evidence"], width)
        best = offer if best is None else better(offer, best, margin)
        if progress is not None:
            progress(step + 1, len(settings.widths), float(best["evidence"].mean()))
    assert best is not None
    choices = {"width of the features, times the median": float(best["width"].mean())}
    return finish(FourierFeatures(units, best["frequencies"], settings.leading), best, choices)


def _units(meta: RelatedTasks) -> Units:
    """Mean and standard deviation of all meta-rows, per repeat and column: (R, 1, d) each."""
    inside, rows = meta.inside.to(meta.rows)[..., None], meta.take(meta.where)
    count = inside.sum(dim=(1, 2), keepdim=True)
    centre = (rows * inside).sum(dim=(1, 2), keepdim=True) / count
    variance = ((rows - centre).square() * inside).sum(dim=(1, 2), keepdim=True) / count
    scale = torch.where(variance > 0, variance.sqrt(), torch.ones_like(variance))
    return Units(centre[:, 0], scale[:, 0])


def _median(meta: RelatedTasks, streams: Sequence[Streams]) -> Tensor:
    """The median squared distance of at most 500 meta-rows, in the units above: (R,)."""
    units, medians = _units(meta), []
    for repeat, stream in enumerate(streams):
        rows = meta.take_inside(repeat)
        chosen = torch.randperm(len(rows), generator=stream.torch("median heuristic"))[:MEDIAN_ROWS]
        some = rows[chosen.to(rows.device)]
        medians.append(median_squared_distance(((some - units.centre[repeat]) / units.scale[repeat])[None]))
    return torch.cat(medians)
