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
from m2st_core.learners.ascent import leading_eigenvectors, squares_of
from m2st_core.learners.raw_features import FourierFeatures, MetaFeatures
from m2st_core.learners.units import median_distance, robust_units
from m2st_core.presets import FeatureSettings
from m2st_core.rng import Streams, random_orders
from m2st_core.types import Progress

PRICE = 4.0  # log-likelihood on left-out tasks at which a direction after the first is real with probability 1/2
FLAT = 1e-7  # smallest variance of a coordinate, relative to the largest
ENERGIES = (0.1, 0.3, 1.0, 3.0, 10.0)  # candidates for a task's squared difference outside the directions, in τ
SIGN_STEPS = 15
FOLDS = 10
COPY = 1e-5  # relative distance below which tasks are copies; means in float32 have errors of about 1e-7
CHUNK_ELEMENTS = 2**23  # numbers of features held at once
RawFeatures = Callable[[Tensor], Tensor]
"""Features before alignment: (R, n, d) → (R, n, Q)."""
COLUMN = 0.3  # importance of a column; that of all Fourier features together is 1
FEWEST_COORDINATES = 14  # those of polynomials of degree 4 in two columns
FEWEST_TASKS = 5  # with fewer tasks, halves of the rows are left out instead of tasks
ORDER_PRICES = {"none": 0.0, "one": 2.0, "any": 3.0}  # price of directions, by how tasks order their samples
SIZE_PRICE = 2.0  # price of twice as many coordinates
LEAST_WEIGHT = 0.01  # relative to the likeliest space; spaces with less are dropped
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

    Coordinates are principal components of the features times their importance (Q,).
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
    shared = z.ndim > 3 and gram.shape[-3] == 1  # all folds have the same tasks, so it is one product
    count = used.sum(dim=-1, keepdim=True) + 1
    signs = 0.5 * (z @ first[..., None])[..., 0].sign()
    for _ in range(SIGN_STEPS):
        weights = signs * precision
        pull = weights @ gram[..., 0, :, :] if shared else (weights[..., None, :] @ gram)[..., 0, :]
        order = ((signs * used).sum(dim=-1, keepdim=True) - signs) / count
        signs = 0.5 * (signs + (pull * strength + order.atanh()).tanh())
    return signs


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


def judge_directions(seen: Differences, fresh: Differences, count: int, order: str) -> tuple[Tensor, Tensor, Tensor]:
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
    """Ten folds: the tasks without a tenth of them, and this tenth, (R, folds, T, …) each.

    Tasks that count are dealt evenly.
    """
    count = tasks.precision.shape[1]
    folds = min(FOLDS, count)
    orders = random_orders(count, [stream.torch("tasks left out") for stream in streams])
    position = orders.argsort(dim=-1).to(tasks.precision.device).where(tasks.precision > 0, count)
    fold = position.argsort(dim=-1).argsort(dim=-1) % folds
    left_out = fold[:, None] == torch.arange(folds, device=fold.device)[:, None]
    means, precision = tasks.means[:, None], tasks.precision[:, None]
    return Differences(means, precision * ~left_out), Differences(means, precision * left_out)


def _precision_of(related: RelatedTasks) -> Tensor:
    """1/τ of each task, τ = 1/n + 1/m: (R, T)."""
    return (related.x_weight.square() + related.y_weight.square()).sum(dim=-1).reciprocal()


def task_differences(raw_features: RawFeatures, subsets: Sequence[RelatedTasks]) -> tuple[list[Tensor], Tensor, Tensor]:
    """The tasks' differences of means in each subset (R, T, Q), their covariance (R, Q, Q) and centre (R, 1, Q).

    Subsets have the same rows with other weights; the first is the whole. The covariance is that within its samples.
    Tasks are processed in chunks.
    """
    whole = subsets[0]
    repeats, tasks, longest = whole.where.shape
    size = raw_features(whole.rows[:, :1]).shape[-1]
    covariance = whole.x_weight.new_zeros(repeats, size, size)
    step = max(1, CHUNK_ELEMENTS // (repeats * longest * size))
    padded = bool((whole.sizes < longest).any())
    means: list[list[Tensor]] = [[] for _ in subsets]
    centres, shift = [], None
    for start in range(0, tasks, step):
        chunk = slice(start, start + step)
        raw = raw_features(whole.take(whole.where[:, chunk].flatten(1))).reshape(repeats, -1, longest, size)
        weights = torch.stack([whole.x_weight[:, chunk], whole.y_weight[:, chunk]], dim=-2)  # R x T x 2 x L
        shift = (weights[:, :1].to(raw) @ raw[:, :1]).mean(dim=-2, keepdim=True) if shift is None else shift
        raw -= shift  # a constant near the mean, so that sums of squares in float32 stay accurate
        for subset_means, subset in zip(means, subsets, strict=True):
            weight = subset.x_weight[:, chunk] - subset.y_weight[:, chunk]
            subset_means.append((weight[..., None, :].to(raw) @ raw)[..., 0, :].double())
        sides = (weights.to(raw) @ raw).double()  # R x T x 2 x Q
        centres.append((sides + shift).mean(dim=-2))
        flat = (raw.mul_((weights > 0).any(dim=-2)[..., None]) if padded else raw).flatten(1, 2)
        scaled = sides * (weights > 0).sum(dim=-1).double().sqrt()[..., None]  # R x T x 2 x Q
        covariance += squares_of(flat).double() - scaled.flatten(1, 2).mT @ scaled.flatten(1, 2)
    covariance /= (whole.sizes.sum(dim=1) - 2 * tasks).clamp(min=1)[:, None, None]
    centre = torch.cat(centres, dim=1).mean(dim=1, keepdim=True)
    return [torch.cat(chunks, dim=1) for chunks in means], covariance, centre


class LearnedSpaces(NamedTuple):
    """Spaces ψ, the likeliest first, the choices made on left-out tasks, and the tasks' senses (R, T)."""

    spaces: list[MetaFeatures]
    choices: dict[str, float]
    senses: Tensor


@dataclass(frozen=True)
class SmoothSpace:
    """Related tasks in smooth coordinates: all of them, and those seen and left out in each fold.

    ``whiten`` and ``centre`` map raw features to the coordinates. ``freedom`` is the number of degrees of freedom of
    the whitening, ``copies`` the first task that each task repeats.
    """

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
        scaled = ((self.whole, share), (self.seen, share[..., None]), (self.fresh, share[..., None]))
        whole, seen, fresh = (Differences(tasks.means[..., :size], tasks.precision * s) for tasks, s in scaled)
        return whole, seen, fresh


@dataclass(frozen=True)
class Candidate:
    """The first ``size`` coordinates of a space with directions for an order; its score (R,) on left-out tasks."""

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
        tensors = {"transform": transform, "offset": offset, "prior": prior}
        return {name: functional.pad(tensor, (width - self.size, 0)) for name, tensor in tensors.items()}


@torch.no_grad()
def smooth_space(
    raw: RawFeatures, related: RelatedTasks, streams: Sequence[Streams], importance: Tensor
) -> SmoothSpace:
    """The related tasks in the smooth coordinates of raw features."""
    by_rows = related.where.shape[1] < FEWEST_TASKS
    halves = related.hold_out(0.5, [stream.torch("held-out rows") for stream in streams]) if by_rows else ()
    (means, *means_of_halves), covariance, centre = task_differences(raw, [related, *halves])
    whiten = smooth_coordinates(covariance, importance)
    copies = first_copies(means)
    once = copies == torch.arange(copies.shape[1], device=copies.device)  # copies do not count
    whole = Differences(means @ whiten, _precision_of(related) * once)
    if by_rows:
        precision = torch.stack([_precision_of(half) * once for half in halves], dim=1)
        seen = Differences(torch.stack(means_of_halves, dim=1) @ whiten[:, None], precision)
        fresh = Differences(seen.means.flip(1), precision.flip(1))
    else:
        seen, fresh = task_folds(whole, streams)
    freedom = ((related.sizes - 2) * once).sum(dim=1).double()
    return SmoothSpace(whiten, centre, whole, seen, fresh, freedom, copies)


@torch.no_grad()
def candidates(space: SmoothSpace, first: int, settings: FeatureSettings, price: float) -> list[Candidate]:
    """All orders and numbers of coordinates, ``first`` and its doubles, with the evidence less its prices as score."""
    most, offers = min(space.whiten.shape[-1], settings.most_coordinates), []
    first = min(first, most)
    for doubling in range((most // first).bit_length()):
        size = first * 2**doubling
        _, seen, fresh = space.cut(size)
        for order, order_price in ORDER_PRICES.items():
            count = min(settings.leading, size) if order != "none" else 0
            prior, floor, evidence = judge_directions(seen, fresh, count, order)
            cost = price + order_price + SIZE_PRICE * doubling
            offers.append(Candidate(space, size, order, torch.cat([prior, floor[:, None]], dim=-1), evidence - cost))
    return offers


@torch.no_grad()
def best_candidates(offers: Sequence[Candidate], count: int) -> tuple[Tensor, list[dict[str, Tensor]]]:
    """The indices (R, M) of each repeat's best candidates, and for each of the M ranks ψ's tensors and log weight."""
    scores = torch.stack([offer.score for offer in offers], dim=-1)
    top = scores.topk(min(count, len(offers)), dim=-1)
    likely = top.values - top.values[:, :1] > math.log(LEAST_WEIGHT)
    weights = top.values.where(likely, -math.inf).log_softmax(dim=-1)
    ranks = []
    for rank, indices in enumerate(top.indices[:, : int(likely.sum(dim=-1).max())].unbind(dim=-1)):
        width = max(offers[int(index)].size for index in indices)
        raw = max(offers[int(index)].space.whiten.shape[1] for index in indices)
        tensors: dict[str, Tensor] = {"log_weight": weights[:, rank]}
        for index in indices.unique().tolist():
            for name, tensor in offers[index].build(width, raw).items():
                of_repeat = (indices == index).reshape(-1, *[1] * (tensor.ndim - 1))
                tensors[name] = tensor.where(of_repeat, tensors.get(name, torch.zeros_like(tensor)))
        ranks.append(tensors)
    return top.indices[:, : len(ranks)], ranks


def task_senses(offers: Sequence[Candidate]) -> Tensor:
    """E[sign] of each task's difference along the common direction of the best candidate that has one: (R, T)."""
    directed = [offer for offer in offers if offer.order != "none"]
    best = torch.stack([offer.score for offer in directed], dim=-1).argmax(dim=-1)
    senses = torch.zeros_like(directed[0].space.whole.precision)
    for index in best.unique().tolist():
        offer = directed[index]
        whole, copies = offer.space.cut(offer.size)[0], offer.space.copies
        signs = oriented_signs(whole, leading_directions(whole, 1, offer.order)[..., 0])
        alike = (whole.means * whole.means.take_along_dim(copies[..., None], dim=1)).sum(dim=-1).sign()
        senses = (alike * signs.take_along_dim(copies, dim=-1)).where((best == index)[:, None], senses)
    return senses


def describe_candidates(offers: Sequence[Candidate], best: Tensor) -> dict[str, float]:
    """Size, order and evidence of the candidates with these indices (R,), each as a mean over repeats."""
    winners = [offers[index] for index in best.tolist()]
    values = {
        "smooth_coordinates": [offer.size for offer in winners],
        "one_order": [offer.order == "one" for offer in winners],
        "any_order": [offer.order == "any" for offer in winners],
        "direction_evidence": [float(offer.score[repeat]) for repeat, offer in enumerate(winners)],
    }
    return {name: sum(repeats) / len(repeats) for name, repeats in values.items()}


@torch.no_grad()
def fit_row_features(
    related: RelatedTasks, settings: FeatureSettings, streams: Sequence[Streams], progress: Progress | None = None
) -> LearnedSpaces:
    """The spaces ψ that suit the related tasks best, and the choices made on left-out tasks.

    Frequencies are those of Gaussian kernels of several widths. Each width has its price of log-likelihood on left-out
    tasks.
    """
    columns, units = related.rows.shape[-1], robust_units(related)
    median = median_distance(related, units, streams)
    most = min(max(settings.fewest_fourier, settings.fourier_per_column * columns), settings.most_fourier) // 2
    drawn = torch.stack([normal_points(columns, most, stream.torch("frequencies")) for stream in streams])
    frequencies, offers = [], []
    for step, (width, price) in enumerate(zip(settings.widths, settings.prices, strict=True)):
        count = 0 if math.isinf(width) else most
        importance = median.new_tensor([COLUMN] * columns + [max(count, 1) ** -0.5] * 2 * count)
        scaled = drawn[..., :count].to(related.rows) * (2 / (width * median)).sqrt()[:, None, None]
        space = smooth_space(FourierFeatures(units, scaled, 0).raw, related, streams, importance)
        of_width = candidates(space, max(FEWEST_COORDINATES, columns), settings, price)
        offers += of_width
        frequencies += [scaled] * len(of_width)
        if progress is not None:
            progress(step + 1, len(settings.widths), float(max(offer.score.mean() for offer in offers)))
    best, ranks = best_candidates(offers, settings.spaces)
    spaces: list[MetaFeatures] = []
    for indices, tensors in zip(best.unbind(dim=-1), ranks, strict=True):
        waves = [frequencies[int(index)][repeat].mT for repeat, index in enumerate(indices)]
        spaces.append(FourierFeatures(units, pad_sequence(waves, batch_first=True).mT.contiguous(), 0).aligned(tensors))
    return LearnedSpaces(spaces, describe_candidates(offers, best[:, 0]), task_senses(offers))


def normal_points(columns: int, count: int, generator: torch.Generator) -> Tensor:
    """Points of N(0, I), (columns, count): in few columns more even than random ones."""
    if columns > EVEN_COLUMNS:
        return torch.randn(columns, count, generator=generator, dtype=torch.float64)
    sobol = torch.quasirandom.SobolEngine(columns, scramble=True, seed=generator.initial_seed() % 2**31)
    return torch.special.ndtri(sobol.draw(count, dtype=torch.float64).clamp(2**-31, 1 - 2**-31)).mT
