"""Learned features of images: a convolutional network that tells the samples of many related tasks apart.

One network for all tasks, one linear head per task, cross-entropy. What is learned from these features afterwards sees
only images that the network was not trained on: to those it learned from it looks better than it is.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from m2st_core.data.related import RelatedTasks
from m2st_core.device import map_threads
from m2st_core.kernels.features import Units
from m2st_core.kernels.images import CNN
from m2st_core.learners.meta_features import ROWS_AT_ONCE, ImageFeatures, MetaFeatures
from m2st_core.learners.prior import align, finish
from m2st_core.learners.target_kernels import make_cnn
from m2st_core.presets import FeatureLearning
from m2st_core.rng import Streams
from m2st_core.types import Progress

CHUNK = 64  # images normalised together in training, by one thread
FREEZING_IMAGES = 2000  # whose statistics the finished network keeps
FEWEST_STEPS = 6  # of an epoch: a few images are gone through several times
FEWEST_FRESH = 4  # images of each sample of a task, from which directions are learned and judged


class Parts(NamedTuple):
    """The same tasks with the images that teach the network, and with the others."""

    teaching: RelatedTasks
    fresh: RelatedTasks


def part_images(meta: RelatedTasks, settings: FeatureLearning, streams: Sequence[Streams]) -> Parts:
    """An image that several tasks share is on the same side in all of them; rows that are no images are all fresh."""
    if settings.convolutions is None:
        return Parts(meta, meta)
    share = settings.training.fresh
    smallest = min(int((weight > 0).sum(dim=-1).min()) for weight in (meta.x_weight, meta.y_weight))
    if int(smallest * share) < FEWEST_FRESH:
        needed = math.ceil(FEWEST_FRESH / share)
        raise ValueError(
            f"A sample of a meta-task has {smallest} images. Bring at least {needed} in each, or leave small ones out."
        )
    kept, fresh = meta.hold_out(share, [s.torch("fresh images") for s in streams], together=True)
    return Parts(kept, fresh)


def fit_image_features(
    meta: RelatedTasks, settings: FeatureLearning, streams: Sequence[Streams], progress: Progress | None = None
) -> tuple[MetaFeatures, dict[str, float]]:
    """ψ of tasks of images, and what held-out images decided."""
    assert settings.convolutions is not None
    parts = part_images(meta, settings, streams)
    networks: list[CNN] = []
    choices: dict[str, float] = {}
    for repeat, stream in enumerate(streams):
        network, choices = _train(parts, repeat, settings, stream, progress)
        networks.append(network)
    features = ImageFeatures(_stack(networks), 0)
    seen = parts.fresh.with_rows(features.raw(meta.rows))
    offer = align(nn.Identity(), seen, settings, streams)
    aligned = ImageFeatures(features.network, settings.leading)
    aligned.whiten = offer["whiten"]
    return finish(aligned, offer, choices)


def _stack(networks: Sequence[CNN]) -> CNN:
    """One batch of independent networks."""
    together = copy.deepcopy(networks[0])
    states = [network.state_dict() for network in networks]
    for name, tensor in [*together.named_parameters(), *together.named_buffers()]:
        tensor.data = torch.cat([state[name] for state in states])
    return together.requires_grad_(False)


class Lesson(NamedTuple):
    """Different images (U, d), and which tasks have them in x (1), in y (0) or not at all (−1): (U, T)."""

    images: Tensor
    labels: Tensor

    def units(self) -> Units:
        """Mean and standard deviation of all pixels together."""
        parts, count = self.images.split(ROWS_AT_ONCE), self.images.numel()
        mean = torch.stack([part.sum(dtype=torch.float64) for part in parts]).sum() / count
        squares = torch.stack([(part.double() - mean).square().sum() for part in parts]).sum()
        return Units(mean.reshape(1, 1, 1), (squares / (count - 1)).sqrt().clamp(min=1e-6).reshape(1, 1, 1))

    def normalise(self, network: CNN) -> None:
        """From now on the images are in the network's units."""
        for part in self.images.split(ROWS_AT_ONCE):
            part.copy_(network.normalise(part)[0])


def _lesson(part: RelatedTasks, repeat: int) -> Lesson:
    inside = part.inside[repeat]
    numbers, index = part.where[repeat][inside].unique(return_inverse=True)
    labels = torch.full((len(numbers), len(inside)), -1, dtype=torch.int8, device=index.device)
    task = torch.arange(len(inside), device=index.device)[:, None].expand_as(inside)[inside]
    labels[index, task] = (part.x_weight > 0)[repeat][inside].to(torch.int8)
    return Lesson(part.rows[repeat][numbers].float(), labels)


def _train(
    parts: Parts, repeat: int, settings: FeatureLearning, stream: Streams, progress: Progress | None
) -> tuple[CNN, dict[str, float]]:
    """The network after the epoch at which held-out images were told apart best; its normalisation is fixed then."""
    training, convolutions = settings.training, settings.convolutions
    assert convolutions is not None
    lesson, held_out = (_lesson(part, repeat) for part in parts)
    network = make_cnn(convolutions, [stream.torch("first weights")]).to(lesson.images.device)
    network.measure_in(lesson.units())
    heads = nn.Parameter(network.weight.new_zeros(network.features + 1, lesson.labels.shape[1]))
    learned = [*network.parameters(), heads]
    rounded, rounded_heads = copy.deepcopy(network).float(), nn.Parameter(heads.detach().float())
    lesson.normalise(network)
    held_out.normalise(network)
    count = len(lesson.images)
    batches = -(-count // training.batch)
    passes = -(-FEWEST_STEPS // batches)
    optimiser = torch.optim.AdamW(learned, lr=training.learning_rate, weight_decay=training.weight_decay)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, training.epochs * passes * batches)
    draw = stream.torch("order of images")
    best, lowest, chosen = network, math.inf, 0
    for epoch in range(1, training.epochs + 1):
        orders = [torch.randperm(count, generator=draw) for _ in range(passes)]
        for batch in chain(*(order.to(lesson.images.device).split(training.batch) for order in orders)):
            gradients = batch_gradients(rounded, rounded_heads, lesson, batch, training.shift, draw)
            for parameter, value in zip(learned, gradients, strict=True):
                parameter.grad = value
            optimiser.step()
            schedule.step()
            for single, parameter in zip([*rounded.parameters(), rounded_heads], learned, strict=True):
                single.data.copy_(parameter.data)
        if epoch % training.check_every == 0 or epoch == training.epochs:
            candidate = copy.deepcopy(network)
            candidate.freeze(lesson.images[:FREEZING_IMAGES])
            found = _mean_loss(candidate, heads, held_out)
            if found < lowest or not chosen:
                best, lowest, chosen = candidate, found, epoch
            elif epoch > chosen + training.patience:
                break
        if progress is not None:
            progress(epoch, training.epochs, lowest)
    return best, {"epochs of the network": float(chosen), "cross-entropy of fresh images": lowest}


def _loss(network: CNN, heads: Tensor, images: Tensor, labels: Tensor) -> Tensor:
    """The mean cross-entropy of all heads (features + 1, T) on those images that their tasks have."""
    features = functional.leaky_relu(network(images[None])[0])
    logits = features @ heads[:-1].float() + heads[-1].float()
    inside = labels >= 0
    return functional.binary_cross_entropy_with_logits(logits[inside], labels[inside].float())


@torch.no_grad()
def _mean_loss(network: CNN, heads: Tensor, lesson: Lesson) -> float:
    """The same of all images, some at a time; the network's normalisation is fixed."""
    total, count = 0.0, 0
    for images, labels in zip(*(part.split(ROWS_AT_ONCE) for part in lesson), strict=True):
        inside = int((labels >= 0).sum())
        total += inside * float(_loss(network, heads, images, labels))
        count += inside
    return total / count


def batch_gradients(
    network: CNN, heads: nn.Parameter, lesson: Lesson, batch: Tensor, shift: int, draw: torch.Generator
) -> list[Tensor]:
    """The gradient of a batch's loss by all parameters, in chunks that threads share and whose sum has one order.

    The network and the heads are in float32, in which convolutions are done; the sum is in float64.
    """
    shape = network.shape
    shift = min(shift, min(shape[1:]) // 4)
    chunks = batch.split(CHUNK)
    moves = torch.randint(-shift, shift + 1, (len(chunks), 2), generator=draw).tolist()

    def gradient(index: int) -> list[Tensor]:
        chunk = chunks[index]
        with torch.enable_grad():
            value = _loss(network, heads, _moved(lesson.images[chunk], shape, moves[index]), lesson.labels[chunk])
            return list(torch.autograd.grad(value * (len(chunk) / len(batch)), [*network.parameters(), heads]))

    found = map_threads(gradient, range(len(chunks)))
    return [torch.stack(parts).sum(dim=0, dtype=torch.float64) for parts in zip(*found, strict=True)]


def _moved(images: Tensor, shape: tuple[int, int, int], move: Sequence[int]) -> Tensor:
    """Images shifted by some pixels; what leaves on one side comes back on the other, mirrored."""
    most = max(abs(step) for step in move)
    if not most:
        return images
    padded = functional.pad(images.unflatten(-1, shape), (most,) * 4, mode="reflect")
    top, left = most + move[0], most + move[1]
    return padded[..., top : top + shape[1], left : left + shape[2]].flatten(1)
