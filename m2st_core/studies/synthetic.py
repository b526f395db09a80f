"""Tests of samples from known distributions: one test of any task, many tests of HDGM, and what a kernel sees.

Sizes of HDGM samples are per mode: size m gives 2m rows. Results are kept by their settings.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch

from m2st_core.criterion import h_matrix, mmd2_unbiased, power_criterion, witness
from m2st_core.data import TASKS, make_task
from m2st_core.data.synthetic import HDGM
from m2st_core.data.task import Setting
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
from m2st_core.types import Progress, TestResult, TwoSample

KEPT = 64
AXIS = np.linspace(-3.0, 3.5, 45)
PLACES = torch.from_numpy(np.stack(np.meshgrid(AXIS, AXIS), axis=-1).reshape(-1, 2))
DELTA = 0.7
PERMUTATIONS = 99
RECOMMENDED = PRESETS["recommended"]
TRAINING_SAMPLES, TRAINING_STEPS, CHECK_EVERY = 3, 60, 10
FRESH_ROWS = 200


@dataclass(frozen=True)
class SingleTest:
    """The settings of one test on one pair of samples. They are hashable, so they also identify the job."""

    task: str
    parameters: tuple[tuple[str, Setting], ...]
    null: bool
    n: int
    m: int
    method: str
    alpha: float
    n_permutations: int
    train_fraction: float
    preset: str
    seed: int

    def sample(self) -> TwoSample:
        """Draw the two samples."""
        return make_task(self.task, null=self.null, **dict(self.parameters)).sample(self.n, self.m, seed=self.seed)

    def run(self, progress: Progress) -> TestResult:
        """Test them."""
        sample = self.sample()
        x, y = sample.images() if sample.shape else sample
        names = ("alpha", "n_permutations", "train_fraction", "preset", "seed")
        chosen = {name: getattr(self, name) for name in names}
        return two_sample_test(x, y, self.method, **chosen, progress=progress)

    def as_python(self) -> str:
        """A script that gives the same result."""
        settings = "".join(f", {name}={value!r}" for name, value in self.parameters)
        null = ", null=True" if self.null else ""
        images = ".images()" if TASKS[self.task].shape else ""
        return f"""import m2st_core as m2st

task = m2st.make_task({self.task!r}{settings}{null})
x, y = task.sample({self.n}, {self.m}, seed={self.seed}){images}
result = m2st.two_sample_test(
    x, y, method={self.method!r}, alpha={self.alpha!r}, n_permutations={self.n_permutations},
    train_fraction={self.train_fraction!r}, preset={self.preset!r}, seed={self.seed},
)
print(result.p_value, result.sentence)
"""


def on_plane(values: torch.Tensor) -> np.ndarray:
    """Values at PLACES as a square whose rows follow the second column: (…, g²) → (…, g, g)."""
    return values.reshape(*values.shape[:-1], len(AXIS), len(AXIS)).numpy()


@lru_cache(KEPT)
def two_samples(delta: float, size: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """One pair of HDGM samples."""
    x, y = HDGM(delta=delta).sample(2 * size, seed=seed)
    return x.numpy(), y.numpy()


@lru_cache(KEPT)
def truth(delta: float) -> np.ndarray:
    """log p/q on the plane, which no test has access to."""
    return on_plane(torch.from_numpy(HDGM(delta=delta).log_likelihood_ratio(PLACES.numpy())))


@dataclass(frozen=True)
class KernelView:
    """The witness function of one kernel on the plane, its MMD² and its Ĵ."""

    witness: np.ndarray
    mmd2: float
    criterion: float


@lru_cache(KEPT)
@one_thread_per_operation()
def gaussian_view(delta: float, size: int, width: float, seed: int) -> KernelView:
    """The view of a Gaussian kernel of width σ²."""
    x, y = map(torch.from_numpy, two_samples(delta, size, seed))
    kernel = GaussianKernel(torch.tensor(width, dtype=torch.float64))
    with torch.no_grad():
        mmd2 = mmd2_unbiased(kernel(x, x), kernel(y, y), kernel(x, y))
        criterion = power_criterion(h_matrix(kernel, x, y), 1e-8)
        return KernelView(on_plane(witness(kernel, x, y, PLACES)), float(mmd2), float(criterion))


@lru_cache(KEPT)
def median_test(delta: float, size: int, seed: int) -> TestResult:
    """The result of MMD-M with 999 permutations."""
    x, y = two_samples(delta, size, seed)
    return two_sample_test(x, y, "MMD-M", seed=seed)


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


@lru_cache(KEPT)
def repeated_tests(delta: float, size: int, tests: int, seed: int, null: bool) -> np.ndarray:
    """P-values of MMD-M on this many fresh pairs."""
    return many_tests(METHODS["MMD-M"], delta, null, size, tests, seed)


@dataclass(frozen=True)
class DeepTraining:
    """Ĵ of a deep kernel on training rows and on fresh rows, step by step, and its p-values on fresh samples."""

    step: list[float]
    train: list[float]
    fresh: list[float]
    p_values: np.ndarray


@lru_cache(KEPT)
@one_thread_per_operation()
def train_deep(delta: float, size: int, test_size: int, tests: int, seed: int) -> DeepTraining:
    """Train a deep kernel on ``size`` rows per mode, three times, and average over the three."""
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
    p_values = []
    for index in range(TRAINING_SAMPLES):
        alone = copy_with(kernel, lambda tensor, index=index: tensor[index : index + 1])  # type: ignore[misc]
        method = METHODS["MMD-D"].with_fit(KernelTest(alone))
        p_values.append(many_tests(method, delta, False, test_size, tests // TRAINING_SAMPLES, children[index].seed))
    steps, on_train, on_fresh = (list(values) for values in zip(*course, strict=True))
    return DeepTraining(steps, on_train, on_fresh, np.concatenate(p_values))
