"""What the course computes, each answer in well under a second: plain values in, arrays out, kept by their settings.

Sizes are per mode: an HDGM sample of size m has 2m rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch

from m2st_core.criterion import h_matrix, mmd2_unbiased, power_criterion, witness
from m2st_core.data.synthetic import HDGM
from m2st_core.device import one_thread_per_operation
from m2st_core.kernels.base import copy_with
from m2st_core.kernels.gaussian import GaussianKernel
from m2st_core.learners.target_kernels import maximise_criterion, start_deep
from m2st_core.permutation.fitted import KernelTest
from m2st_core.presets import PRESETS
from m2st_core.rng import Streams
from m2st_core.sweeps.summary import wilson_interval
from m2st_core.sweeps.trial import draw_targets
from m2st_core.testing.method import Method
from m2st_core.testing.methods import METHODS
from m2st_core.testing.run import run_tests
from m2st_core.testing.two_sample import two_sample_test
from m2st_core.types import TestResult, TwoSample

KEPT = 64
AXIS = np.linspace(-3.0, 3.5, 45)
PLACES = torch.from_numpy(np.stack(np.meshgrid(AXIS, AXIS), axis=-1).reshape(-1, 2))
DELTA = 0.7
PERMUTATIONS = 99
RECOMMENDED = PRESETS["recommended"]
TRAINING_SAMPLES, TRAINING_STEPS, CHECK_EVERY = 3, 60, 10
FRESH_ROWS = 200


def on_plane(values: torch.Tensor) -> np.ndarray:
    """Values at PLACES as a square, rows by the second column: (…, g²) → (…, g, g)."""
    return values.reshape(*values.shape[:-1], len(AXIS), len(AXIS)).numpy()


def hdgm_pair(delta: float, size: int, seed: int) -> TwoSample:
    """One pair of samples, as tensors."""
    return HDGM(delta=delta).sample(2 * size, seed=seed)


@lru_cache(KEPT)
def two_samples(delta: float, size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """One pair of HDGM samples."""
    x, y = hdgm_pair(delta, size, seed)
    return x.numpy(), y.numpy()


@lru_cache(KEPT)
def truth(delta: float) -> np.ndarray:
    """log p/q on the plane: what no test knows."""
    return HDGM(delta=delta).log_likelihood_ratio(PLACES.numpy()).reshape(len(AXIS), len(AXIS))


@dataclass(frozen=True)
class KernelView:
    """What one kernel sees of two samples: its witness on the plane, MMD² and Ĵ."""

    witness: np.ndarray
    mmd2: float
    criterion: float


@lru_cache(KEPT)
@one_thread_per_operation()
def gaussian_view(delta: float, size: int, width: float, seed: int) -> KernelView:
    """The Gaussian kernel of width σ²."""
    x, y = hdgm_pair(delta, size, seed)
    kernel = GaussianKernel(torch.tensor(width, dtype=torch.float64))
    with torch.no_grad():
        seen = witness(kernel, x, y, PLACES)
        mmd2 = mmd2_unbiased(kernel(x, x), kernel(y, y), kernel(x, y))
        criterion = power_criterion(h_matrix(kernel, x, y), 1e-8)
    return KernelView(on_plane(seen), float(mmd2), float(criterion))


@lru_cache(KEPT)
def median_test(delta: float, size: int, seed: int) -> TestResult:
    """MMD-M with 999 permutations."""
    x, y = hdgm_pair(delta, size, seed)
    return two_sample_test(x, y, "MMD-M", seed=seed)


def p_values_so_far(result: TestResult) -> np.ndarray:
    """p = (1+b)/(1+B) after B = 1, 2, … of the result's permutations."""
    reached = np.cumsum(result.null >= result.statistic)
    return (1 + reached) / (2 + np.arange(len(reached)))


@dataclass(frozen=True)
class Rate:
    """The p-values of many tests and the share that rejects, with Wilson's 95 % interval."""

    p_values: np.ndarray
    alpha: float

    @property
    def share(self) -> float:
        """Rejected of all."""
        return float((self.p_values <= self.alpha).mean())

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's."""
        return wilson_interval(int((self.p_values <= self.alpha).sum()), len(self.p_values))


def many_tests(method: Method, delta: float, null: bool, size: int, tests: int, seed: int) -> np.ndarray:
    """The p-values of a method that learns nothing more, on fresh samples: on the CPU, where the lessons learn."""
    streams = Streams(seed).child("null" if null else "alternative")
    sample = draw_targets(HDGM(null=null, delta=delta), 2 * size, tests, streams)
    seeds = [streams.child(f"test {index}").seed for index in range(tests)]
    results = run_tests(sample, method, seeds=seeds, n_permutations=PERMUTATIONS, device="cpu")
    return np.array([result.p_value for result in results])


@lru_cache(KEPT)
def repeated_tests(delta: float, size: int, tests: int, seed: int, null: bool) -> np.ndarray:
    """MMD-M's p-values on this many fresh pairs."""
    return many_tests(METHODS["MMD-M"], delta, null, size, tests, seed)


@dataclass(frozen=True)
class Learning:
    """A deep kernel's climb: Ĵ on the rows that teach and on fresh ones, by step; then p-values on fresh samples."""

    step: list[float]
    train: list[float]
    fresh: list[float]
    p_values: np.ndarray


@lru_cache(KEPT)
@one_thread_per_operation()
def learn_deep(delta: float, size: int, test_size: int, tests: int, seed: int) -> Learning:
    """A deep kernel learned by Ĵ from ``size`` rows per mode, three times; means over the three."""
    streams = Streams(seed).child("deep kernel")
    train = draw_targets(HDGM(delta=delta), 2 * size, TRAINING_SAMPLES, streams.child("training"))
    fresh = draw_targets(HDGM(delta=delta), FRESH_ROWS, TRAINING_SAMPLES, streams.child("fresh rows"))
    children = [streams.child(f"learning {index}") for index in range(TRAINING_SAMPLES)]
    kernel = start_deep(train.pooled, RECOMMENDED, children)
    ascent = replace(RECOMMENDED.mmd_d, steps=TRAINING_STEPS, learning_rate=0.03, largest_batch=50)
    course: list[tuple[float, float, float]] = []

    def judge(sample: TwoSample) -> float:
        with torch.no_grad():
            x, y = (rows[:, :FRESH_ROWS] for rows in sample)
            return float(power_criterion(h_matrix(kernel, x, y), ascent.regularisation).mean())

    def check(step: int, total: int, value: float) -> None:
        if step == 1 or step % CHECK_EVERY == 0:
            course.append((step, judge(train), judge(fresh)))

    maximise_criterion(kernel, train, ascent, children, check)
    kernel.requires_grad_(False)
    found = []
    for index in range(TRAINING_SAMPLES):
        alone = copy_with(kernel, lambda tensor, index=index: tensor[index : index + 1])  # type: ignore[misc]
        method = METHODS["MMD-D"].with_fit(KernelTest(alone))
        found.append(many_tests(method, delta, False, test_size, tests // TRAINING_SAMPLES, children[index].seed))
    step, climbed, judged = (list(values) for values in zip(*course, strict=True))
    return Learning(step, climbed, judged, np.concatenate(found))
