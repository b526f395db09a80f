"""Spaces of learned features: functions whose means differ between the samples of related tasks.

In random Fourier features of the rows, white and smooth coordinates are chosen, and in them the directions along which
the tasks differ, with a prior (``learners.prior``). Tasks left out in turn weigh the candidates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from m2st_core.data.related import RelatedTasks
from m2st_core.kernels.gaussian import normal_points
from m2st_core.learners.meta_features import FourierFeatures, MetaFeatures, robust_units
from m2st_core.learners.prior import (
    Differences,
    RawFeatures,
    differences,
    first_copies,
    judge,
    leading_directions,
    oriented_signs,
    precision_of,
    smooth_coordinates,
    task_folds,
)
from m2st_core.learners.target_kernels import median_of_tasks
from m2st_core.presets import FeatureLearning
from m2st_core.rng import Streams
from m2st_core.types import Progress

COLUMN = 0.3  # importance of a column beside the Fourier features, which have 1 together
FEWEST_COORDINATES = 14  # those of polynomials of degree 4 in two columns
FEWEST_TASKS = 5  # with fewer tasks, halves of the rows are left out in turn instead
ORDER_PRICES = {"none": 0.0, "one": 2.0, "any": 3.0}  # of directions, by the order in which tasks name their samples
SIZE_PRICE = 2.0  # of twice as many coordinates
LEAST_WEIGHT = 0.01  # of a space, relative to the likeliest; others are dropped


class LearnedSpaces(NamedTuple):
    """Spaces ψ, the likeliest first, the choices made on left-out tasks, and the tasks' senses (R, T)."""

    spaces: list[MetaFeatures]
    choices: dict[str, float]
    senses: Tensor


@dataclass(frozen=True)
class SmoothSpace:
    """Related tasks in smooth coordinates: all of them, and those seen and left out in each fold."""

    whiten: Tensor
    centre: Tensor
    whole: Differences
    seen: Differences
    fresh: Differences
    freedom: Tensor
    copies: Tensor

    def cut(self, size: int) -> tuple[Differences, Differences, Differences]:
        """The first coordinates only. Whitening by as many estimated variances makes differences noisier."""
        share = (1 - size / self.freedom.clamp(min=size + 1))[:, None]
        every = ((self.whole, share), (self.seen, share[..., None]), (self.fresh, share[..., None]))
        whole, seen, fresh = (Differences(tasks.means[..., :size], tasks.precision * part) for tasks, part in every)
        return whole, seen, fresh


@dataclass(frozen=True)
class Candidate:
    """So many coordinates of a space, with directions of tasks in this order; its score (R,) on left-out tasks."""

    space: SmoothSpace
    size: int
    order: str
    prior: Tensor
    score: Tensor

    def build(self, width: int, raw: int) -> dict[str, Tensor]:
        """Transform, offset and prior of ψ: ``width`` coordinates, zeros first, of ``raw`` features, zeros last."""
        leading = self.prior.shape[-1] - 1
        whole = self.space.cut(self.size)[0]
        axes = torch.eye(self.size).to(whole.means).expand(len(whole.means), -1, -1)
        if leading:
            axes = torch.linalg.qr(leading_directions(whole, leading, self.order), mode="complete").Q
        floor = self.prior[:, -1:].expand(-1, self.size - leading)
        prior, order = torch.cat([self.prior[:, :-1], floor], dim=-1).sort(dim=-1)
        transform = self.space.whiten[..., : self.size] @ axes.take_along_dim(order[:, None], dim=-1)
        offset = self.space.centre @ transform
        transform = functional.pad(transform, (0, 0, 0, raw - transform.shape[1]))
        parts = {"transform": transform, "offset": offset, "prior": prior}
        return {name: functional.pad(part, (width - self.size, 0)) for name, part in parts.items()}


@torch.no_grad()
def smooth_space(
    raw: RawFeatures, related: RelatedTasks, streams: Sequence[Streams], importance: Tensor
) -> SmoothSpace:
    """The related tasks in the smooth coordinates of raw features."""
    by_rows = related.where.shape[1] < FEWEST_TASKS
    halves = related.hold_out(0.5, [stream.torch("held-out rows") for stream in streams]) if by_rows else ()
    (means, *parts), covariance, centre = differences(raw, [related, *halves])
    whiten = smooth_coordinates(covariance, importance)
    copies = first_copies(means)
    once = copies == torch.arange(copies.shape[1], device=copies.device)  # copies do not count
    whole = Differences(means @ whiten, precision_of(related) * once)
    if by_rows:
        precision = torch.stack([precision_of(half) * once for half in halves], dim=1)
        seen = Differences(torch.stack(parts, dim=1) @ whiten[:, None], precision)
        fresh = Differences(seen.means.flip(1), precision.flip(1))
    else:
        seen, fresh = task_folds(whole, streams)
    freedom = ((related.sizes - 2) * once).sum(dim=1).double()
    return SmoothSpace(whiten, centre, whole, seen, fresh, freedom, copies)


@torch.no_grad()
def candidates(space: SmoothSpace, first: int, settings: FeatureLearning, price: float) -> list[Candidate]:
    """Every order and number of coordinates, ``first`` and its doubles, with the evidence less its prices as score."""
    most, found = min(space.whiten.shape[-1], settings.most_coordinates), []
    first = min(first, most)
    for doubling in range((most // first).bit_length()):
        size = first * 2**doubling
        _, seen, fresh = space.cut(size)
        for order, order_price in ORDER_PRICES.items():
            count = min(settings.leading, size) if order != "none" else 0
            prior, floor, evidence = judge(seen, fresh, count, order)
            cost = price + order_price + SIZE_PRICE * doubling
            found.append(Candidate(space, size, order, torch.cat([prior, floor[:, None]], dim=-1), evidence - cost))
    return found


@torch.no_grad()
def best_candidates(offers: Sequence[Candidate], count: int) -> tuple[Tensor, list[dict[str, Tensor]]]:
    """The best candidates of each repeat: their numbers (R, M), and for each of M places ψ's tensors and log weight."""
    scores = torch.stack([offer.score for offer in offers], dim=-1)
    top = scores.topk(min(count, len(offers)), dim=-1)
    likely = top.values - top.values[:, :1] > math.log(LEAST_WEIGHT)
    weights = top.values.where(likely, -math.inf).log_softmax(dim=-1)
    places = []
    for place, chosen in enumerate(top.indices[:, : int(likely.sum(dim=-1).max())].unbind(dim=-1)):
        width = max(offers[int(number)].size for number in chosen)
        raw = max(offers[int(number)].space.whiten.shape[1] for number in chosen)
        built: dict[str, Tensor] = {"log_weight": weights[:, place]}
        for number in chosen.unique().tolist():
            for name, part in offers[number].build(width, raw).items():
                mine = (chosen == number).reshape(-1, *[1] * (part.ndim - 1))
                built[name] = part.where(mine, built.get(name, torch.zeros_like(part)))
        places.append(built)
    return top.indices[:, : len(places)], places


def task_senses(offers: Sequence[Candidate]) -> Tensor:
    """E[sign] of each task's difference along the common direction of the best candidate that has one: (R, T)."""
    some = [offer for offer in offers if offer.order != "none"]
    best = torch.stack([offer.score for offer in some], dim=-1).argmax(dim=-1)
    senses = torch.zeros_like(some[0].space.whole.precision)
    for number in best.unique().tolist():
        whole, copies = some[number].space.cut(some[number].size)[0], some[number].space.copies
        signs = oriented_signs(whole, leading_directions(whole, 1, some[number].order)[..., 0])
        alike = (whole.means * whole.means.take_along_dim(copies[..., None], dim=1)).sum(dim=-1).sign()
        senses = (alike * signs.take_along_dim(copies, dim=-1)).where((best == number)[:, None], senses)
    return senses


def describe(offers: Sequence[Candidate], best: Tensor) -> dict[str, float]:
    """The candidates with these numbers (R,) in numbers, on average over repeats."""
    chosen = [offers[number] for number in best.tolist()]
    values = {
        "smooth_coordinates": [offer.size for offer in chosen],
        "one_order": [offer.order == "one" for offer in chosen],
        "any_order": [offer.order == "any" for offer in chosen],
        "direction_evidence": [float(offer.score[repeat]) for repeat, offer in enumerate(chosen)],
    }
    return {name: sum(parts) / len(parts) for name, parts in values.items()}


@torch.no_grad()
def fit_row_features(
    related: RelatedTasks, settings: FeatureLearning, streams: Sequence[Streams], progress: Progress | None = None
) -> LearnedSpaces:
    """The spaces ψ that suit the related tasks best, and the choices that left-out tasks made.

    Frequencies are those of a Gaussian kernel, of one width after another, and each width has its price of
    log-likelihood on left-out tasks.
    """
    columns, units = related.rows.shape[-1], robust_units(related)
    median = median_of_tasks(related, units, streams)
    most = min(max(settings.fewest_fourier, settings.fourier_per_column * columns), settings.most_fourier) // 2
    drawn = torch.stack([normal_points(columns, most, stream.torch("frequencies")) for stream in streams])
    frequencies, offers = [], []
    for step, (width, price) in enumerate(zip(settings.widths, settings.prices, strict=True)):
        count = 0 if math.isinf(width) else most
        importance = median.new_tensor([COLUMN] * columns + [max(count, 1) ** -0.5] * 2 * count)
        scaled = drawn[..., :count].to(related.rows) * (2 / (width * median)).sqrt()[:, None, None]
        space = smooth_space(FourierFeatures(units, scaled, 0).raw, related, streams, importance)
        found = candidates(space, max(FEWEST_COORDINATES, columns), settings, price)
        offers += found
        frequencies += [scaled] * len(found)
        if progress is not None:
            progress(step + 1, len(settings.widths), float(max(offer.score.mean() for offer in offers)))
    chosen, places = best_candidates(offers, settings.spaces)
    spaces: list[MetaFeatures] = []
    for numbers, place in zip(chosen.unbind(dim=-1), places, strict=True):
        own = [frequencies[int(number)][repeat].mT for repeat, number in enumerate(numbers)]
        spaces.append(FourierFeatures(units, pad_sequence(own, batch_first=True).mT.contiguous(), 0).aligned(place))
    return LearnedSpaces(spaces, describe(offers, chosen[:, 0]), task_senses(offers))
