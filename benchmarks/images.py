"""What a meta-step over 10 tasks of 100 + 100 images costs, against the same convolutions on one plain batch of 2,000.

``recommended`` learns features in steps: one network, one head per task, all images forward and backward once, in
the batches of its training. ``paper`` takes steps of Algorithm 1; a first-order one adapts ten networks on half of the
images and scores them on the other half: 2,000 images forward and backward, through ten different networks.

``--only features`` times the pretrained features instead: 1,000 images at 64 pixels on one core, 10,000 from the
store, and two folders of 60 JPEGs from the files to the answer with pictures.
"""

from __future__ import annotations

import argparse
import copy
import os
import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from benchmarks.common import seconds_in_turn
from m2st_core.analysis.compare_images import compare_images
from m2st_core.data.images.features import extractor, image_features
from m2st_core.data.related import RelatedTasks, stack_repeats
from m2st_core.device import one_thread_per_operation
from m2st_core.kernels.deep import DeepKernel
from m2st_core.kernels.networks import CNN, make_cnn
from m2st_core.learners.algorithm1 import fit_meta_kernel, hold_out_tasks
from m2st_core.learners.image_features import LabelledImages, batch_gradients
from m2st_core.presets import PRESETS, ImageTraining
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


def feature_step(cnn: CNN, images: Tensor, training: ImageTraining) -> Callable[[], None]:
    """All images once, each in a batch of the training and with the head of its own task."""
    count = len(images)
    labels = torch.full((count, TASKS), -1, dtype=torch.int8)
    place = torch.arange(count)
    labels[place, place // (2 * ROWS)] = (place % (2 * ROWS) < ROWS).to(torch.int8)
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
    settings = replace(PRESETS["paper"].meta_kl, outer_steps=1, inner_steps=1, second_order=False, inner_rate=0.01)

    def step() -> None:
        with one_thread_per_operation():
            streams = [Streams(0)]
            fit_meta_kernel(kernel, meta, settings, hold_out_tasks(meta, settings, streams), streams, streams)

    return step


def feature_times(threads: int) -> None:
    """Print how long pretrained features and a comparison of JPEGs take, in a store of its own."""
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (10_000, 32, 32, 3), dtype=np.uint8)
    print("| what | seconds | limit |\n|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["M2ST_HOME"] = folder
        by = extractor(side=64)
        image_features(images[:50], by, keep=False)
        torch.set_num_threads(1)
        spent = [_timed(lambda: image_features(images[:1000], by, keep=False), time.process_time) for _ in range(3)]
        print(f"| features of 1,000 images at 64 pixels, one core (processor time) | {min(spent):.1f} | 4 |")
        torch.set_num_threads(threads)
        spent = [_timed(lambda: image_features(images, by)) for _ in range(3)]
        print(f"| features of 10,000 images at 64 pixels, {threads} threads | {spent[0]:.1f} | none |")
        print(f"| the same from the store | {min(spent[1:]):.2f} | 1 |")
        sides = [Path(folder) / name for name in ("first", "second")]
        for side, shift in zip(sides, (0, 60), strict=True):
            side.mkdir()
            for number in range(60):
                tile = Image.fromarray(images[number + shift]).resize((1600, 1200), Image.Resampling.BICUBIC)
                tile.save(side / f"{number}.jpg", quality=90)
        related = {f"task {k}": (images[k : k + 20], images[k + 20 : k + 40]) for k in range(200, 400, 40)}
        for words, tasks in (("without related tasks", None), (f"with {len(related)} related tasks", related)):
            began = time.process_time()
            spent = [_timed(lambda given=tasks: compare_images(*sides, related_tasks=given, keep=False).html())]
            what = f"two folders of 60 JPEGs of 1600×1200 to the report, {words}"
            print(f"| {what} | {spent[0]:.1f}, processor time {time.process_time() - began:.1f} | 30 |")


def _timed(function: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> float:
    began = clock()
    function()
    return clock() - began


def main(arguments: Sequence[str] = ()) -> None:
    """Print the ratios."""
    parser = argparse.ArgumentParser(prog="m2st_core bench images", description=__doc__)
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", choices=("features",))
    options = parser.parse_args(arguments)
    if options.only == "features":
        return feature_times(options.threads)
    torch.set_num_threads(options.threads)
    generator = torch.Generator().manual_seed(0)
    samples = [TwoSample(*torch.rand(2, ROWS, 3 * 32 * 32, generator=generator), SHAPE) for _ in range(TASKS)]
    meta = stack_repeats([samples], tuple(f"task {index}" for index in range(TASKS)))
    images = meta.rows.reshape(-1, *SHAPE)
    print(f"{TASKS} tasks × {2 * ROWS} images of 32×32×3; threads: {options.threads}; best of {options.repeats}\n")
    print("| meta-step | network of | plain batch of 2,000 | meta-step | ratio | limit |\n|---|---|---|---|---|---|")
    for name in ("recommended", "paper"):
        preset = PRESETS[name].on(SHAPE)
        convolutions, features = preset.network.convolutions, preset.features
        assert convolutions is not None
        cnn = make_cnn(convolutions, [generator])
        steps = [("Algorithm 1", outer_step(cnn, meta))]
        if features:
            steps.insert(0, ("learned features", feature_step(cnn, images, features.training)))
        plain, *ours = seconds_in_turn([plain_step(cnn, images), *(step for _, step in steps)], options.repeats)
        for (what, _), found in zip(steps, ours, strict=True):
            print(f"| {what} | {name} | {1e3 * plain:.0f} ms | {1e3 * found:.0f} ms | {found / plain:.2f} | 1.5 |")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"\npeak memory {peak:.2f} GiB; limit 4 GiB")


if __name__ == "__main__":
    main()
