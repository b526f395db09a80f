"""Tests of samples from known distributions: many tests of HDGM, and what a kernel sees.

Sizes of HDGM samples are per mode: size m gives 2m rows. Results are kept by their settings.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch

from m2st_core.criterion import witness
from m2st_core.data.synthetic import HDGM
from m2st_core.device import one_thread_per_operation
from m2st_core.kernels.distance import GaussianKernel
from m2st_core.numbers import wilson_interval
from m2st_core.permutation.labellings import random_memberships
from m2st_core.rng import Streams
from m2st_core.sweeps.cells import draw_targets
from m2st_core.testing.method import Method
from m2st_core.testing.plan import TestSettings
from m2st_core.testing.run import run_tests
from m2st_core.testing.two_sample import examine
from m2st_core.types import GENERIC_TEST

CACHED = 64  # results by their settings
AXIS = np.linspace(-3.0, 3.5, 45)
PLACES = torch.from_numpy(np.stack(np.meshgrid(AXIS, AXIS), axis=-1).reshape(-1, 2))
DELTA = 0.7
PERMUTATIONS = 99
FRESH_ROWS = 500


def _on_plane(values: torch.Tensor) -> np.ndarray:
    """Values at PLACES as a square whose rows follow the second column: (…, g²) → (…, g, g)."""
    return values.reshape(*values.shape[:-1], len(AXIS), len(AXIS)).numpy()


@lru_cache(CACHED)
def two_samples(delta: float, size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """One pair of HDGM samples."""
    x, y = HDGM(delta=delta).sample(2 * size, seed=seed)
    return x.numpy(), y.numpy()


@lru_cache(CACHED)
def truth(delta: float) -> np.ndarray:
    """log p/q on the plane, which no test has access to."""
    return _on_plane(torch.from_numpy(HDGM(delta=delta).log_likelihood_ratio(PLACES.numpy())))


@dataclass(frozen=True)
class KernelView:
    """The witness function of one kernel on the plane, and its correlation with log p/q at fresh rows."""

    witness: np.ndarray
    agreement: float


@lru_cache(CACHED)
@one_thread_per_operation()
def gaussian_view(delta: float, size: int, width: float, seed: int) -> KernelView:
    """The view of a Gaussian kernel of width σ². If P = Q there is nothing to agree with: 0."""
    x, y = map(torch.from_numpy, two_samples(delta, size, seed))
    kernel = GaussianKernel(torch.tensor(width, dtype=torch.float64))
    task = HDGM(delta=delta)
    fresh = task.sample(FRESH_ROWS, seed=Streams(seed).child("fresh rows").seed).pooled
    ratio = task.log_likelihood_ratio(fresh.numpy())
    with torch.no_grad():
        agreement = float(np.corrcoef(witness(kernel, x, y, fresh).numpy(), ratio)[0, 1]) if delta else 0.0
        return KernelView(_on_plane(witness(kernel, x, y, PLACES)), agreement)


@dataclass(frozen=True)
class Shuffles:
    """A test by shuffled labels, in the order in which the labels were shuffled.

    ``rows`` (N, 2) are pooled. ``members`` (1+B, N) marks the rows called P, as observed and then shuffled.
    ``statistics`` (1+B,) are MMD² under each labelling.
    """

    rows: np.ndarray
    members: np.ndarray
    statistics: np.ndarray

    def reached(self, shown: int) -> int:
        """The number of the first shuffles that reach the observed MMD²."""
        return int((self.statistics[1 : shown + 1] >= self.statistics[0]).sum())

    def p_value(self, shown: int) -> float:
        """The p-value after the first shuffles, the observed labelling counted too."""
        return (1 + self.reached(shown)) / (1 + shown)


@lru_cache(CACHED)
def shuffle_labels(delta: float, size: int, seed: int) -> Shuffles:
    """MMD-M with 99 permutations, and the permutations."""
    x, y = two_samples(delta, size, seed)
    settings = TestSettings(n_permutations=PERMUTATIONS, seed=seed, device="cpu")
    finished, n = examine(x, y, GENERIC_TEST, settings), len(x)
    members = random_memberships(n, len(y), PERMUTATIONS, [Streams(seed).numpy("permutations")])[0].numpy()
    if finished.swapped:  # the test's first sample is y
        members = ~np.concatenate([members[:, n:], members[:, :n]], axis=1)
    statistics = np.concatenate([[finished.result.statistic], finished.result.null])
    return Shuffles(np.concatenate([x, y]), members, statistics)


@dataclass(frozen=True)
class Rate:
    """The share of p-values that reject at level α, with Wilson's 95 % interval."""

    p_values: np.ndarray
    alpha: float

    @property
    def share(self) -> float:
        """Rejections over tests."""
        return float((self.p_values <= self.alpha).mean())

    @property
    def interval(self) -> tuple[float, float]:
        """Wilson's interval."""
        return wilson_interval(int((self.p_values <= self.alpha).sum()), len(self.p_values))


def many_tests(method: Method, delta: float, null: bool, size: int, tests: int, seed: int) -> np.ndarray:
    """P-values of a method without further training, on fresh samples. Tests run on the CPU, as the training does."""
    streams = Streams(seed).child("null" if null else "alternative")
    sample = draw_targets(HDGM(null=null, delta=delta), 2 * size, tests, streams)
    seeds = [streams.child(f"test {index}").seed for index in range(tests)]
    results = run_tests(sample, method, seeds=seeds, n_permutations=PERMUTATIONS, device="cpu")
    return np.array([result.p_value for result in results])
