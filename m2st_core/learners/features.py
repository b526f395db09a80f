"""Learned features of rows: functions whose means differ between the samples of related tasks.

Ĵ from a hundred rows is mostly noise, but the direction of a linear discriminant is not. In random Fourier features of
the rows, each task has a discriminant in closed form, its head. The heads' common directions are the coordinates of ψ.
The prior of each direction is how much left-out tasks differ along it.
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
from m2st_core.preset import FeatureLearning
from m2st_core.rng import Streams
from m2st_core.types import Progress

MEDIAN_ROWS = 500


@torch.no_grad()
def fit_features(
    related: RelatedTasks, settings: FeatureLearning, streams: Sequence[Streams], progress: Progress | None = None
) -> tuple[MetaFeatures, dict[str, float]]:
    """ψ of the related tasks, and the choices that left-out tasks made.

    Frequencies are those of a Gaussian kernel, of one width after another. A width must gain its margin of
    log-likelihood on left-out tasks over the best one before it. For each, the tasks' common direction comes first or
    not.
    """
    if settings.convolutions is not None:
        return fit_image_features(related, settings, streams, progress)
    columns, units = related.rows.shape[-1], _units(related)
    median = _median(related, units, streams)
    count = min(max(settings.fewest_fourier, settings.fourier_per_column * columns), settings.most_fourier)
    shape = (columns, count // 2)
    drawn = torch.stack([torch.randn(shape, generator=s.torch("frequencies"), dtype=torch.float64) for s in streams])
    best: dict[str, Tensor] = {}
    for step, (width, margin) in enumerate(zip(settings.widths, settings.margins, strict=True)):
        candidate = FourierFeatures(units, drawn.to(related.rows) * (2 / (width * median)).sqrt()[:, None, None], 0)
        offer = align(candidate.raw, related, settings, streams)
        offer |= {"frequencies": candidate.frequencies, "width": torch.full_like(offer["evidence"], width)}
        best = better(offer, best, margin) if best else offer
        if progress is not None:
            progress(step + 1, len(settings.widths), float(best["evidence"].mean()))
    choices = {"feature_width": float(best["width"].mean())}
    return finish(FourierFeatures(units, best["frequencies"], settings.leading), best, choices)


def _units(related: RelatedTasks) -> Units:
    """Mean and standard deviation of all tasks' rows, per repeat and column: (R, 1, d) each."""
    inside, rows = related.inside.to(related.rows)[..., None], related.take(related.where)
    count = inside.sum(dim=(1, 2), keepdim=True)
    centre = (rows * inside).sum(dim=(1, 2), keepdim=True) / count
    variance = ((rows - centre).square() * inside).sum(dim=(1, 2), keepdim=True) / count
    scale = torch.where(variance > 0, variance.sqrt(), torch.ones_like(variance))
    return Units(centre[:, 0], scale[:, 0])


def _median(related: RelatedTasks, units: Units, streams: Sequence[Streams]) -> Tensor:
    """The median squared distance, in these units, of at most 500 of the tasks' rows: (R,)."""
    medians = []
    for repeat, stream in enumerate(streams):
        rows = related.take_inside(repeat)
        chosen = torch.randperm(len(rows), generator=stream.torch("median heuristic"))[:MEDIAN_ROWS]
        some = rows[chosen.to(rows.device)]
        medians.append(median_squared_distance(((some - units.centre[repeat]) / units.scale[repeat])[None]))
    return torch.cat(medians)
