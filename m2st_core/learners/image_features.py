"""Learned features of images: a convolutional network that classifies the samples of many related tasks.

All tasks share the network, and each has a linear head, trained by cross-entropy. Directions and their prior are then
learned on fresh images only: on its training images the network is overfitted.
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
from m2st_core.kernels.networks import CNN, make_cnn
from m2st_core.learners.raw_features import ROWS_AT_ONCE, ImageFeatures
from m2st_core.learners.spaces import (
    LearnedSpaces,
    best_candidates,
    candidates,
    describe_candidates,
    smooth_space,
    task_senses,
)
from m2st_core.presets import FeatureSettings
from m2st_core.rng import Streams
from m2st_core.types import Progress

CHUNK = 64  # images that one thread normalises together in training
FREEZING_IMAGES = 2000  # images whose statistics the finished network keeps
FEWEST_STEPS = 6  # steps of an epoch, reached by several passes over few images
FEWEST_FRESH = 4  # fresh images of each sample of a task


class ImageHalves(NamedTuple):
    """The same tasks with the network's training images, and with the fresh images."""

    training: RelatedTasks
    fresh: RelatedTasks


def part_images(related: RelatedTasks, settings: FeatureSettings, streams: Sequence[Streams]) -> ImageHalves:
    """Split images into training and fresh ones, in the same way in all tasks. Rows of tables are all fresh."""
    if settings.convolutions is None:
        return ImageHalves(related, related)
    share = settings.training.fresh
    smallest = min(int((weight > 0).sum(dim=-1).min()) for weight in (related.x_weight, related.y_weight))
    if int(smallest * share) < FEWEST_FRESH:
        needed = math.ceil(FEWEST_FRESH / share)
        raise ValueError(
            f"A sample of a related task has {smallest} images. Bring at least {needed} in each, or omit small samples."
        )
    return ImageHalves(*related.hold_out(share, [s.torch("fresh images") for s in streams], together=True))


def fit_image_features(
    related: RelatedTasks, settings: FeatureSettings, streams: Sequence[Streams], progress: Progress | None = None
) -> LearnedSpaces:
    """ψ of tasks of images, and the choices made on fresh images."""
    halves = part_images(related, settings, streams)
    networks: list[CNN] = []
    choices: dict[str, float] = {}
    for repeat, stream in enumerate(streams):
        network, choices = _train(halves, repeat, settings, stream, progress)
        networks.append(network)
    features = ImageFeatures(_stack(networks), 0)
    fresh = halves.fresh.with_rows(features.raw(related.rows))
    importance = fresh.rows.new_ones(fresh.rows.shape[-1], dtype=torch.float64)
    space = smooth_space(nn.Identity(), fresh, streams, importance)
    offers = candidates(space, 2 * settings.leading, settings, 0.0)
    best, (tensors,) = best_candidates(offers, 1)
    aligned = ImageFeatures(features.network, 0).aligned(tensors)
    aligned.whiten = space.whiten
    return LearnedSpaces([aligned], choices | describe_candidates(offers, best[:, 0]), task_senses(offers))


def _stack(networks: Sequence[CNN]) -> CNN:
    """One batch of independent networks."""
    together = copy.deepcopy(networks[0])
    states = [network.state_dict() for network in networks]
    for name, tensor in [*together.named_parameters(), *together.named_buffers()]:
        tensor.data = torch.cat([state[name] for state in states])
    return together.requires_grad_(False)


class LabelledImages(NamedTuple):
    """Distinct images (U, d), and labels (U, T): 1 if a task has the image in x, 0 if in y, −1 if in neither."""

    images: Tensor
    labels: Tensor

    def units(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of all pixels together: (1, 1, 1) each."""
        chunks, count = self.images.split(ROWS_AT_ONCE), self.images.numel()
        mean = torch.stack([images.sum(dtype=torch.float64) for images in chunks]).sum() / count
        squares = torch.stack([(images.double() - mean).square().sum() for images in chunks]).sum()
        return mean.reshape(1, 1, 1), (squares / (count - 1)).sqrt().clamp(min=1e-6).reshape(1, 1, 1)

    def normalise(self, network: CNN) -> None:
        """Convert the images, in place, into the network's units."""
        for images in self.images.split(ROWS_AT_ONCE):
            images.copy_(network.normalise(images)[0])


def _labelled(related: RelatedTasks, repeat: int) -> LabelledImages:
    """The distinct images of one repeat."""
    inside = related.inside[repeat]
    distinct, index = related.where[repeat][inside].unique(return_inverse=True)
    labels = torch.full((len(distinct), len(inside)), -1, dtype=torch.int8, device=index.device)
    task = torch.arange(len(inside), device=index.device)[:, None].expand_as(inside)[inside]
    labels[index, task] = (related.x_weight > 0)[repeat][inside].to(torch.int8)
    return LabelledImages(related.rows[repeat][distinct].float(), labels)


def _train(
    halves: ImageHalves, repeat: int, settings: FeatureSettings, stream: Streams, progress: Progress | None
) -> tuple[CNN, dict[str, float]]:
    """The network after the epoch with the lowest loss on fresh images, with fixed normalisation; and the choices."""
    training, convolutions = settings.training, settings.convolutions
    if convolutions is None:
        raise ValueError("Features of images need the settings of a convolutional network.")
    training_images, fresh = (_labelled(half, repeat) for half in halves)
    network = make_cnn(convolutions, [stream.torch("first weights")]).to(training_images.images.device)
    network.measure_in(*training_images.units())
    heads = nn.Parameter(network.weight.new_zeros(network.features + 1, training_images.labels.shape[1]))
    learned = [*network.parameters(), heads]
    rounded, rounded_heads = copy.deepcopy(network).float(), nn.Parameter(heads.detach().float())
    training_images.normalise(network)
    fresh.normalise(network)
    count = len(training_images.images)
    batches = -(-count // training.batch)
    passes = -(-FEWEST_STEPS // batches)
    optimiser = torch.optim.AdamW(learned, lr=training.learning_rate, weight_decay=training.weight_decay)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, training.epochs * passes * batches)
    draw = stream.torch("order of images")
    best, lowest, best_epoch = network, math.inf, 0
    for epoch in range(1, training.epochs + 1):
        orders = [torch.randperm(count, generator=draw) for _ in range(passes)]
        for batch in chain(*(order.to(training_images.images.device).split(training.batch) for order in orders)):
            gradients = batch_gradients(rounded, rounded_heads, training_images, batch, training.shift, draw)
            for parameter, value in zip(learned, gradients, strict=True):
                parameter.grad = value
            optimiser.step()
            schedule.step()
            for single, parameter in zip([*rounded.parameters(), rounded_heads], learned, strict=True):
                single.data.copy_(parameter.data)
        if epoch % training.check_every == 0 or epoch == training.epochs:
            candidate = copy.deepcopy(network)
            candidate.freeze(training_images.images[:FREEZING_IMAGES])
            loss = _mean_loss(candidate, heads, fresh)
            if loss < lowest or not best_epoch:
                best, lowest, best_epoch = candidate, loss, epoch
            elif epoch > best_epoch + training.patience:
                break
        if progress is not None:
            progress(epoch, training.epochs, lowest)
    return best, {"network_epochs": float(best_epoch), "fresh_cross_entropy": lowest}


def _loss(network: CNN, heads: Tensor, images: Tensor, labels: Tensor) -> Tensor:
    """The mean cross-entropy of all heads (features + 1, T) on the images of their tasks."""
    features = functional.leaky_relu(network(images[None])[0])
    logits = features @ heads[:-1].float() + heads[-1].float()
    inside = labels >= 0
    return functional.binary_cross_entropy_with_logits(logits[inside], labels[inside].float())


@torch.no_grad()
def _mean_loss(network: CNN, heads: Tensor, labelled: LabelledImages) -> float:
    """The mean cross-entropy of a network with fixed normalisation on all images, computed in chunks."""
    total, count = 0.0, 0
    for images, labels in zip(*(tensor.split(ROWS_AT_ONCE) for tensor in labelled), strict=True):
        inside = int((labels >= 0).sum())
        total += inside * float(_loss(network, heads, images, labels))
        count += inside
    return total / count


def batch_gradients(
    network: CNN, heads: nn.Parameter, labelled: LabelledImages, batch: Tensor, shift: int, draw: torch.Generator
) -> list[Tensor]:
    """The gradient of a batch's loss by all parameters.

    Threads share the chunks, whose sum has a fixed order. Networks and heads are in float32, the sum in float64.
    """
    shape = network.shape
    shift = min(shift, min(shape[1:]) // 4)
    chunks = batch.split(CHUNK)
    moves = torch.randint(-shift, shift + 1, (len(chunks), 2), generator=draw).tolist()

    def gradient(index: int) -> list[Tensor]:
        chunk = chunks[index]
        with torch.enable_grad():
            value = _loss(network, heads, _moved(labelled.images[chunk], shape, moves[index]), labelled.labels[chunk])
            return list(torch.autograd.grad(value * (len(chunk) / len(batch)), [*network.parameters(), heads]))

    gradients = map_threads(gradient, range(len(chunks)))
    return [torch.stack(chunk).sum(dim=0, dtype=torch.float64) for chunk in zip(*gradients, strict=True)]


def _moved(images: Tensor, shape: tuple[int, int, int], move: Sequence[int]) -> Tensor:
    """Images shifted by some pixels, with mirrored borders."""
    most = max(abs(step) for step in move)
    if not most:
        return images
    padded = functional.pad(images.unflatten(-1, shape), (most,) * 4, mode="reflect")
    top, left = most + move[0], most + move[1]
    return padded[..., top : top + shape[1], left : left + shape[2]].flatten(1)
