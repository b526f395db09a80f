"""Cost of a training step over 10 tasks of 100 + 100 images, against the same convolutions on a batch of 2,000.

Our tests learn features in steps: one network, one head per task, all images forward and backward once, in
the batches of its training. ``paper`` takes steps of Algorithm 1; a first-order one adapts ten networks on half of the
images and scores them on the other half: 2,000 images forward and backward, through ten different networks.

``--only features`` times pretrained features instead: 1,000 images at 64 pixels on one core, and 10,000 from the
store.
"""

from __future__ import annotations

import copy
import os
import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.common import Page, parse, seconds, seconds_in_turn
from m2st_core.data.images.features import extractor, image_features
from m2st_core.data.related import RelatedTasks, stack_related_tasks
from m2st_core.device import one_thread_per_operation
from m2st_core.kernels.deep import DeepKernel
from m2st_core.kernels.networks import CNN, make_cnn
from m2st_core.learners.algorithm1 import fit_meta_kernel, hold_out_tasks
from m2st_core.learners.image_features import LabelledImages, batch_gradients
from m2st_core.presets import PAPER, TUNED, ImageTrainingSettings
from m2st_core.rng import Streams
from m2st_core.types import TwoSample

SHAPE = (3, 32, 32)
TASKS, ROWS = 10, 100


def plain_step(cnn: CNN, images: Tensor) -> Callable[[], None]:
    """Forward and backward through torch's own layers, channels last."""
    channels = [SHAPE[0], *(kernel.shape[1] for kernel in cnn.kernels)]
    layers: list[nn.Module] = [nn.Upsample(scale_factor=cnn.upsample, mode="bilinear")] if cnn.upsample > 1 else []
    for index, (fan_in, fan_out) in enumerate(pairwise(channels)):
        layers += [nn.Conv2d(fan_in, fan_out, 3, 2, 1), nn.LeakyReLU(0.2)]
        layers += [nn.BatchNorm2d(fan_out, eps=0.8)] * (index > 0)
    network = nn.Sequential(*layers, nn.Flatten(), nn.Linear(cnn.weight.shape[1], cnn.features))
    network.to(memory_format=torch.channels_last)
    images = images.contiguous(memory_format=torch.channels_last)

    def step() -> None:
        network.zero_grad()
        network(images).square().mean().backward()

    return step


def feature_step(cnn: CNN, images: Tensor, training: ImageTrainingSettings) -> Callable[[], None]:
    """All images once, each in a batch of the training and with the head of its own task."""
    count = len(images)
    labels = torch.full((count, TASKS), -1, dtype=torch.int8)
    row = torch.arange(count)
    labels[row, row // (2 * ROWS)] = (row % (2 * ROWS) < ROWS).to(torch.int8)
    lesson = LabelledImages(images.flatten(1), labels)
    network, heads = copy.deepcopy(cnn).float(), nn.Parameter(torch.zeros(cnn.features + 1, TASKS))
    draw = torch.Generator().manual_seed(0)

    def step() -> None:
        with one_thread_per_operation():
            for batch in torch.randperm(count, generator=draw).split(training.batch):
                batch_gradients(network, heads, lesson, batch, training.shift, draw)

    return step


def outer_step(cnn: CNN, meta: RelatedTasks) -> Callable[[], None]:
    """One outer step of Meta-KL with one inner step, first order."""
    one = torch.ones(1)
    kernel = DeepKernel(copy.deepcopy(cnn), 0.1 * one, 500 * one, 0.1 * one).float()
    settings = replace(PAPER.meta_kl, outer_steps=1, inner_steps=1, second_order=False, inner_rate=0.01)

    def step() -> None:
        with one_thread_per_operation():
            streams = [Streams(0)]
            fit_meta_kernel(kernel, meta, settings, hold_out_tasks(meta, settings, streams), streams, streams)

    return step


def feature_times(page: Page, threads: int) -> None:
    """Print how long pretrained features take, in a store of their own."""
    images = np.random.default_rng(0).integers(0, 256, (10_000, 32, 32, 3), dtype=np.uint8)
    page.head("what", "seconds", "limit")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["M2ST_HOME"] = folder
        by = extractor(side=64)
        spent = seconds(lambda: image_features(images[:1000], by, keep=False), 3, time.process_time)
        page.row("features of 1,000 images at 64 pixels, one core (processor time)", f"{spent:.1f}", 4)
        torch.set_num_threads(threads)
        began = time.perf_counter()
        image_features(images, by)
        page.row(
            f"features of 10,000 images at 64 pixels, {threads} threads", f"{time.perf_counter() - began:.1f}", "none"
        )
        page.row("the same from the store", f"{seconds(lambda: image_features(images, by), 2):.2f}", 1)


def main(arguments: Sequence[str] = ()) -> None:
    """Print the ratios, then the times of pretrained features."""
    options = parse(arguments, __doc__, threads=min(2, os.cpu_count() or 1), repeats=5, only="")
    page = Page()
    if options.only == "features":
        return feature_times(page, options.threads)
    torch.set_num_threads(options.threads)
    generator = torch.Generator().manual_seed(0)
    samples = [TwoSample(*torch.rand(2, ROWS, 3 * 32 * 32, generator=generator), SHAPE) for _ in range(TASKS)]
    meta = stack_related_tasks([samples], tuple(f"task {index}" for index in range(TASKS)))
    images = meta.rows.reshape(-1, *SHAPE)
    page.say(f"{TASKS} tasks × {2 * ROWS} images of 32×32×3; threads: {options.threads}; best of {options.repeats}", "")
    page.head("training step", "network of", "plain batch of 2,000", "training step", "ratio", "limit")
    for preset in (TUNED.on(SHAPE), PAPER.on(SHAPE)):
        convolutions, features = preset.network.convolutions, preset.features
        assert convolutions is not None
        cnn = make_cnn(convolutions, [generator])
        steps = {"learned features": feature_step(cnn, images, features.training)} if preset.name == "tuned" else {}
        steps["Algorithm 1"] = outer_step(cnn, meta)
        plain, *ours = map(min, seconds_in_turn([plain_step(cnn, images), *steps.values()], options.repeats))
        for what, spent in zip(steps, ours, strict=True):
            page.row(what, preset.name, f"{1e3 * plain:.0f} ms", f"{1e3 * spent:.0f} ms", f"{spent / plain:.2f}", 1.5)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    page.say("", f"peak memory {peak:.2f} GiB; limit 4 GiB")
