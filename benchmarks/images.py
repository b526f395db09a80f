"""What a meta-step on images costs, against the same convolutions on one plain batch.

A first-order step of Algorithm 1 over 10 tasks of 100 + 100 images adapts ten networks on half of the images and scores
them on the other half: 2,000 images forward and backward, through ten different networks. The plain batch takes 2,000
images through one network of the same layers.
"""

from __future__ import annotations

import argparse
import os
import resource
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor, nn

from benchmarks.common import seconds
from m2st_core.device import one_thread_per_operation
from m2st_core.kernels import CNN, DeepKernel
from m2st_core.learners.meta_kl import fit_meta_kernel
from m2st_core.learners.network import make_cnn
from m2st_core.presets import PRESETS
from m2st_core.rng import Streams
from m2st_core.tasks.meta import MetaSample, stack_repeats
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


def meta_step(cnn: CNN, meta: MetaSample) -> Callable[[], None]:
    """One outer step of Meta-KL with one inner step, first order."""
    one = torch.ones(1)
    kernel = DeepKernel(cnn, 0.1 * one, 500 * one, 0.1 * one).float()
    settings = replace(PRESETS["paper"].meta_kl, outer_steps=1, inner_steps=1, second_order=False, inner_rate=0.01)

    def step() -> None:
        with one_thread_per_operation():
            fit_meta_kernel(kernel, meta, None, settings, [Streams(0)])

    return step


def main(arguments: Sequence[str] = ()) -> None:
    """Print the ratios."""
    parser = argparse.ArgumentParser(prog="m2st_core bench images", description=__doc__)
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    generator = torch.Generator().manual_seed(0)
    samples = [TwoSample(*torch.rand(2, ROWS, 3 * 32 * 32, generator=generator), SHAPE) for _ in range(TASKS)]
    meta = stack_repeats([samples], tuple(f"task {index}" for index in range(TASKS)))
    images = meta.rows.reshape(-1, *SHAPE)
    print(f"{TASKS} tasks × {2 * ROWS} images of 32×32×3, {options.threads} threads; best of {options.repeats}\n")
    print("| preset | plain batch of 2,000 | meta-step | ratio | limit |\n|---|---|---|---|---|")
    for name in ("recommended", "paper"):
        convolutions = PRESETS[name].on(SHAPE).network.convolutions
        assert convolutions is not None
        cnn = make_cnn(convolutions, [generator]).float()
        plain, ours = seconds(plain_step(cnn, images), options.repeats), seconds(meta_step(cnn, meta), options.repeats)
        print(f"| {name} | {1000 * plain:.0f} ms | {1000 * ours:.0f} ms | {ours / plain:.2f} | 1.5 |")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"\npeak memory {peak:.2f} GiB; limit 4 GiB")


if __name__ == "__main__":
    main()
