"""Spaces of learned features ψ, whose means differ between the samples of related tasks.

In random Fourier features of the rows, white and smooth coordinates are chosen, and in them the directions along which
the tasks differ, with a prior of the differences. Tasks left out in turn determine the prior and weigh the candidates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from m2st_core.data.related import RelatedTasks
from m2st_core.kernels.distance import median_squared_distance
from m2st_core.kernels.networks import Units
from m2st_core.learners.ascent import leading_eigenvectors, squares_of
from m2st_core.learners.raw_features import FourierFeatures, MetaFeatures
from m2st_core.learners.target_kernels import MEDIAN_ROWS
from m2st_core.learners.units import robust_units
from m2st_core.presets import FeatureLearning
from m2st_core.rng import Streams
from m2st_core.types import Progress

PRICE = 4.0  # log-likelihood on left-out tasks at which a direction after the first is as likely real as not
FLAT = 1e-7  # smallest variance of a coordinate, relative to the largest
ENERGIES = (0.1, 0.3, 1.0, 3.0, 10.0)  # candidates for a task's squared difference outside the leading directions, in τ
SIGN_STEPS = 15
FOLDS = 10
COPY = 1e-5  # relative distance of two tasks that are the same; means in float32 have errors of about 1e-7
CHUNK_ELEMENTS = 2**23  # numbers of features held at once
RawFeatures = Callable[[Tensor], Tensor]
"""Features before alignment: (R, n, d) → (R, n, Q)."""
COLUMN = 0.3  # importance of a column beside the Fourier features, which have 1 together
FEWEST_COORDINATES = 14  # those of polynomials of degree 4 in two columns
FEWEST_TASKS = 5  # with fewer tasks, halves of the rows are left out in turn instead
ORDER_PRICES = {"none": 0.0, "one": 2.0, "any": 3.0}  # of directions, by the order in which tasks name their samples
SIZE_PRICE = 2.0  # of twice as many coordinates
LEAST_WEIGHT = 0.01  # of a space, relative to the likeliest; others are dropped
EVEN_COLUMNS = 20  # up to so many, points are evenly spread rather than random


@dataclass(frozen=True)
class Differences:
    """Mean differences of T tasks (…, T, K), and their precision 1/τ (…, T), which is 0 for tasks that do not count."""

    means: Tensor
    precision: Tensor

    @property
    def noise(self) -> Tensor:
        """The mean noise τ of the tasks in use: (…)."""
        used = self.precision > 0
        return (used / self.precision.where(used, 1.0)).sum(dim=-1) / used.sum(dim=-1).clamp(min=1)


def smooth_coordinates(covariance: Tensor, importance: Tensor) -> Tensor:
    """Transform (R, Q, K) to coordinates that are white within samples, the smoothest functions first.

    They are principal components of the features times their importance (Q,).
    """
    weighted = importance[:, None] * covariance * importance
    values, vectors = leading_eigenvectors(weighted)
    real = values > FLAT * values[:, :1]
    lengths = values.where(real, 1.0).rsqrt() * real
    return importance[:, None] * vectors * lengths[:, None]


def oriented_signs(tasks: Differences, first: Tensor) -> Tensor:
    """E[sign_i] of each task's sense relative to the others': (…, T), from a first guess (…, K) of the direction.

    The model is z_i = sign_i·μ + noise, μ ~ N(0, 4τ/K). A task's log odds are those given μ's posterior from the other
    tasks, N(c, V), and their order: 2c·z_i/(τ_i + V) + log odds of the mean sign of the other tasks.
    """
    z, precision = tasks.means, tasks.precision
    spread = 4 * tasks.noise / z.shape[-1]
    total = 1 / spread.clamp(min=torch.finfo(z.dtype).tiny) + precision.sum(dim=-1)  # precision of μ
    used, strength = precision > 0, precision / total[..., None]
    gram = z @ z.mT
    gram = gram - torch.diag_embed(gram.diagonal(dim1=-2, dim2=-1))  # no task judges itself
    count = used.sum(dim=-1, keepdim=True) + 1
    signs = 0.5 * (z @ first[..., None])[..., 0].sign()
    for _ in range(SIGN_STEPS):
        pull = _rows_times(signs * precision, gram)
        order = ((signs * used).sum(dim=-1, keepdim=True) - signs) / count
        signs = 0.5 * (signs + (pull * strength + order.atanh()).tanh())
    return signs


def _rows_times(rows: Tensor, matrix: Tensor) -> Tensor:
    """Each row times its matrix, (…, T) and (…, T, S) → (…, S). If all folds share a matrix, it is one product."""
    shared = rows.ndim > 2 and matrix.shape[-3] == 1
    return rows @ matrix[..., 0, :, :] if shared else (rows[..., None, :] @ matrix)[..., 0, :]


def leading_directions(tasks: Differences, count: int, order: str) -> Tensor:
    """Orthonormal directions along which the tasks differ most: (…, K, count).

    The first is the mean difference: of tasks that name their samples in one order, or of tasks turned by their likely
    sense. The others are eigenvectors of Σ_i z_i z_iᵀ/τ_i, orthogonal to it.
    """
    weighted = tasks.means * tasks.precision.sqrt()[..., None]
    signs = torch.ones_like(tasks.precision)
    if order == "any":
        signs = oriented_signs(tasks, _axes(weighted, 1)[..., 0])
    mean = ((signs * tasks.precision)[..., None, :] @ tasks.means)[..., 0, :]
    mean = mean / mean.norm(dim=-1, keepdim=True).clamp(min=torch.finfo(mean.dtype).tiny)
    rest = weighted - (weighted @ mean[..., None]) * mean[..., None, :]
    return torch.cat([mean[..., None], _axes(rest, count - 1)], dim=-1)


def _axes(weighted: Tensor, count: int) -> Tensor:
    """The leading right singular vectors of (…, T, K): (…, K, count), 0 where there are fewer."""
    if weighted.shape[-2] >= weighted.shape[-1]:
        values, vectors = torch.linalg.eigh(weighted.mT @ weighted)
        real = (values > 1e-12 * values[..., -1:])[..., -count:].flip(-1)
        axes = vectors[..., -count:].flip(-1) * real[..., None, :]
    else:
        values, vectors = torch.linalg.eigh(weighted @ weighted.mT)
        real = (values > 1e-12 * values[..., -1:])[..., -count:].flip(-1)
        length = values[..., -count:].flip(-1).where(real, 1.0).sqrt()
        axes = weighted.mT @ vectors[..., -count:].flip(-1) * (real / length)[..., None, :]
    return torch.nn.functional.pad(axes, (0, count - axes.shape[-1]))


def judge(seen: Differences, fresh: Differences, count: int, order: str) -> tuple[Tensor, Tensor, Tensor]:
    """The prior of each leading direction (R, count), that of the other coordinates (R,), and the evidence (R,).

    Both arguments are (R, folds, T, …). The prior of a direction is the size s of the left-out tasks' differences along
    it. For a left-out task, t_i = u·z_i is N(0, τ_i) if the direction u means nothing and N(0, s+τ_i) if tasks differ
    along it in either sense. In one order, all may differ in the same sense: then the first is N(μ, τ_i) with s = μ².
    The first is taken as real, the others with their probability. Outside the leading directions, differences have the
    same size in each coordinate. The evidence is the log-likelihood ratio to no difference.
    """
    axes = fresh.means.new_zeros(*fresh.precision.shape[:2], fresh.means.shape[-1], 0)
    axes = leading_directions(seen, count, order) if count else axes
    t = fresh.means @ axes  # R x folds x T x count
    residual = (fresh.means.square().sum(dim=-1) - t.square().sum(dim=-1)).flatten(1)
    t, precision = t.flatten(1, 2), fresh.precision.flatten(1, 2)[..., None]
    prior, gain = _either_sense(t, precision)
    if order == "one":
        size, same = _same_sense(t[..., :1], precision)
        prior[:, :1] = prior[:, :1].where(gain[:, :1] > same, size)
        gain[:, :1] = torch.maximum(gain[:, :1], same)
    prior[:, 1:] *= (gain[:, 1:] - PRICE).sigmoid()
    evidence = gain[:, :1].sum(dim=-1) + (gain[:, 1:] - PRICE).clamp(min=0).sum(dim=-1)
    others = max(fresh.means.shape[-1] - count, 1)
    noise = Differences(t, precision[..., 0]).noise
    sizes = torch.stack([energy * noise / others for energy in ENERGIES], dim=-1)  # R x grid
    ratio = sizes[:, None] * precision
    fit = 0.5 * ((residual[..., None] * precision) * ratio / (1 + ratio) - others * ratio.log1p()).sum(dim=1)
    floor = (fit.softmax(dim=-1) * sizes.log()).sum(dim=-1).exp()
    return torch.maximum(prior, floor[:, None]), floor, evidence + fit.logsumexp(dim=-1) - math.log(len(ENERGIES))


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


def first_copies(means: Tensor) -> Tensor:
    """The number of the first task that has the same difference, up to its sign, as each task: (R, T, K) → (R, T)."""
    square = means.square().sum(dim=-1, keepdim=True)
    gap = square + square.mT - 2 * (means @ means.mT).abs()
    same = gap <= COPY**2 * square
    same |= torch.eye(means.shape[1], dtype=torch.bool, device=means.device)
    return same.to(torch.uint8).argmax(dim=-1)


def task_folds(tasks: Differences, streams: Sequence[Streams]) -> tuple[Differences, Differences]:
    """The tasks without a tenth of them, ten times, and each tenth: (R, folds, T, …).

    Tasks that count are dealt evenly.
    """
    count = tasks.precision.shape[1]
    folds = min(FOLDS, count)
    orders = [torch.randperm(count, generator=stream.torch("tasks left out")) for stream in streams]
    place = torch.stack(orders).argsort(dim=-1).to(tasks.precision.device).where(tasks.precision > 0, count)
    fold = place.argsort(dim=-1).argsort(dim=-1) % folds
    left_out = fold[:, None] == torch.arange(folds, device=fold.device)[:, None]
    means, precision = tasks.means[:, None], tasks.precision[:, None]
    return Differences(means, precision * ~left_out), Differences(means, precision * left_out)


def precision_of(related: RelatedTasks) -> Tensor:
    """1/τ of each task, τ = 1/n + 1/m: (R, T)."""
    return (related.x_weight.square() + related.y_weight.square()).sum(dim=-1).reciprocal()


def differences(raw_features: RawFeatures, parts: Sequence[RelatedTasks]) -> tuple[list[Tensor], Tensor, Tensor]:
    """The tasks' differences of means in each part (R, T, Q), their covariance (R, Q, Q) and centre (R, 1, Q).

    Parts have the same rows with other weights. The covariance is that within the samples of the first part. Some tasks
    are processed at a time.
    """
    whole = parts[0]
    repeats, tasks, longest = whole.where.shape
    size = raw_features(whole.rows[:, :1]).shape[-1]
    covariance = whole.x_weight.new_zeros(repeats, size, size)
    step = max(1, CHUNK_ELEMENTS // (repeats * longest * size))
    padded = bool((whole.sizes < longest).any())
    means: list[list[Tensor]] = [[] for _ in parts]
    centres, shift = [], None
    for start in range(0, tasks, step):
        chunk = slice(start, start + step)
        raw = raw_features(whole.take(whole.where[:, chunk].flatten(1))).reshape(repeats, -1, longest, size)
        weights = torch.stack([whole.x_weight[:, chunk], whole.y_weight[:, chunk]], dim=-2)  # R x T x 2 x L
        shift = (weights[:, :1].to(raw) @ raw[:, :1]).mean(dim=-2, keepdim=True) if shift is None else shift
        raw -= shift  # a constant near the mean, so that sums of squares in float32 stay accurate
        for own_means, part in zip(means, parts, strict=True):
            weight = part.x_weight[:, chunk] - part.y_weight[:, chunk]
            own_means.append((weight[..., None, :].to(raw) @ raw)[..., 0, :].double())
        sides = (weights.to(raw) @ raw).double()  # R x T x 2 x Q
        centres.append((sides + shift).mean(dim=-2))
        flat = (raw.mul_((weights > 0).any(dim=-2)[..., None]) if padded else raw).flatten(1, 2)
        scaled = sides * (weights > 0).sum(dim=-1).double().sqrt()[..., None]  # R x T x 2 x Q
        covariance += squares_of(flat).double() - scaled.flatten(1, 2).mT @ scaled.flatten(1, 2)
    covariance /= (whole.sizes.sum(dim=1) - 2 * tasks).clamp(min=1)[:, None, None]
    return [torch.cat(part, dim=1) for part in means], covariance, torch.cat(centres, dim=1).mean(dim=1, keepdim=True)


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


def median_of_tasks(related: RelatedTasks, units: Units, streams: Sequence[Streams]) -> Tensor:
    """The median squared distance, in these units, of at most 500 of the tasks' rows: (R,)."""
    medians = []
    for repeat, stream in enumerate(streams):
        rows = related.take_inside(repeat)
        chosen = torch.randperm(len(rows), generator=stream.torch("median heuristic"))[:MEDIAN_ROWS]
        some = rows[chosen.to(rows.device)]
        medians.append(median_squared_distance(((some - units.centre[repeat]) / units.scale[repeat])[None]))
    return torch.cat(medians)


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


def normal_points(columns: int, count: int, generator: torch.Generator) -> Tensor:
    """Points of N(0, I), (columns, count): in few columns more even than random ones."""
    if columns > EVEN_COLUMNS:
        return torch.randn(columns, count, generator=generator, dtype=torch.float64)
    sobol = torch.quasirandom.SobolEngine(columns, scramble=True, seed=generator.initial_seed() % 2**31)
    return torch.special.ndtri(sobol.draw(count, dtype=torch.float64).clamp(2**-31, 1 - 2**-31)).mT
