"""Labelled sets of images, corruptions of images, and scikit-learn's digits with their task."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from itertools import combinations

import numpy as np

from m2st_core.rng import Streams
from m2st_core.tasks import Parameter, Task
from m2st_core.types import Shape, TwoSample

TRAINING_SHARE = 1 / 3
LARGEST_DEVIATION = 0.5  # standard deviation of noise, in the range from black to white
LARGEST_BLUR = 1 / 12  # width of the blur as a share of an image's side
LARGEST_BRIGHTNESS = 0.6


@dataclass(frozen=True, eq=False)
class ImageSet:
    """All images of a data set: images (n, h, w, c) uint8, labels (n,), and which belong to its test part.

    Related tasks use the training part. A third of each class in the test part gives training rows for tests of a
    target, and the rest is tested. ``origin`` says in words where the images come from and whether they are official.
    """

    title: str
    images: np.ndarray = field(repr=False)
    labels: np.ndarray = field(repr=False)
    classes: tuple[str, ...] = field(repr=False)
    is_test: np.ndarray = field(repr=False)
    origin: str
    white: int = 255  # the largest value of a pixel

    @property
    def shape(self) -> Shape:
        """Channels, height and width."""
        _, height, width, channels = self.images.shape
        return channels, height, width

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the images and labels in their order."""
        sha = hashlib.sha256(np.ascontiguousarray(self.labels, dtype=np.int64).tobytes())
        sha.update(np.ascontiguousarray(self.images).data)
        return sha.hexdigest()[:16]

    @cached_property
    def _is_tested(self) -> np.ndarray:
        """Mark the tested images of the test part, chosen at random with a fixed seed."""
        tested = self.is_test.copy()
        generator = Streams(0).numpy("images that teach")
        for label in range(len(self.classes)):
            of_class = generator.permutation(np.flatnonzero(self.is_test & (self.labels == label)))
            tested[of_class[: round(TRAINING_SHARE * len(of_class))]] = False
        return tested

    def for_related_tasks(self, label: int) -> np.ndarray:
        """Positions of the images of a class that related tasks may use."""
        return np.flatnonzero((self.labels == label) & ~self.is_test)

    def for_target(self, *, training: bool) -> np.ndarray:
        """Positions of a target's images: those for training rows, or those that are tested."""
        return np.flatnonzero(self.is_test & ~self._is_tested if training else self._is_tested)

    def deal(self, pool: np.ndarray, count: int, generator: np.random.Generator, label: str = "") -> np.ndarray:
        """Draw ``count`` different images of a pool, in random order."""
        if count > len(pool):
            name = f"{self.title}, {label}" if label else self.title
            raise ValueError(f"{name}: {len(pool):,} images are available here, and {count:,} were requested.")
        return generator.choice(pool, size=count, replace=False)

    def rows(self, positions: np.ndarray) -> np.ndarray:
        """Images as rows of pixels in [0, 1], channel by channel: (n, c·h·w)."""
        return self.images[positions].transpose(0, 3, 1, 2).reshape(len(positions), -1) / float(self.white)

    def classes_of(self, positions: np.ndarray) -> np.ndarray:
        """Class names of these images: (n,)."""
        return np.array(self.classes)[self.labels[positions]]


@cache
def digit_images() -> ImageSet:
    """Load the 1,797 digits. Related tasks use the classes 0 to 5, and targets 6 to 9."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    images = images.reshape(-1, 8, 8, 1).astype(np.uint8)
    classes = tuple(map(str, range(10)))
    return ImageSet("Digits", images, labels, classes, labels >= 6, "scikit-learn's digits (1,797 images)", white=16)


class Digits(Task):
    """P: images of one digit. Q: images of another. They are drawn without replacement from about 178 images each.

    The null version deals disjoint images of the first digit to both samples.
    """

    name = "digits"
    title = "Digits"
    description = "Real data: 8×8 images of two handwritten digits, 64 columns, each image at most once."
    parameters = (
        Parameter("first", "digit of P", 3, "Which digit the first sample shows.", 0, 9),
        Parameter("second", "digit of Q", 8, "Which digit the second sample shows.", 0, 9),
    )
    thirds: tuple[int, ...] = (0, 1, 2)  # of each digit's images, dealt in turn

    def to_learn_from(self) -> Digits:
        """Return the task with a third of the images."""
        return self._only(0)

    def to_be_tested(self) -> Digits:
        """Return the task with the other two thirds."""
        return self._only(1, 2)

    def _only(self, *thirds: int) -> Digits:
        task = copy.copy(self)
        task.thirds = thirds
        return task

    def draw(self, n: int, m: int, streams: Streams) -> tuple[np.ndarray, np.ndarray]:
        """Rows of P (n, 64) and of Q (m, 64)."""
        first, second = int(self.settings["first"]), int(self.settings["second"])
        if self.null or first == second:
            rows = self._deal(first, n + m, streams.numpy("task P"))
            return rows[:n], rows[n:]
        return self._deal(first, n, streams.numpy("task P")), self._deal(second, m, streams.numpy("task Q"))

    def _deal(self, digit: int, count: int, generator: np.random.Generator) -> np.ndarray:
        digits = digit_images()
        pool = np.flatnonzero(digits.labels == digit)
        pool = pool[np.isin(np.arange(len(pool)) % 3, self.thirds)]
        return digits.rows(digits.deal(pool, count, generator, str(digit)))

    def draw_related_tasks(
        self, *, closeness: float = 0.3, n_tasks: int = 100, rows: int = 100, seed: int = 0
    ) -> dict[str, TwoSample]:
        """Draw pairs of the digits that the target does not show, in random order. They have no closeness."""
        streams = Streams(seed)
        pairs = list(combinations([digit for digit in range(10) if digit not in self.settings.values()], 2))
        order = streams.numpy("order of pairs").permutation(len(pairs))[:n_tasks]
        return {
            f"{a} or {b}": Digits(first=a, second=b).sample(rows, seed=streams.child(f"pair {a} {b}").seed)
            for a, b in (pairs[index] for index in order)
        }


Corruption = Callable[[np.ndarray, float, np.random.Generator], np.ndarray]
"""(images (n, c, h, w) in [0, 1], severity from 0 to 1, generator) → images in [0, 1]. Severity 0 changes nothing."""


def _add_noise(images: np.ndarray, severity: float, generator: np.random.Generator) -> np.ndarray:
    """Add independent Gaussian noise to every pixel."""
    noise = generator.standard_normal(images.shape)
    return np.clip(images + LARGEST_DEVIATION * severity * noise, 0, 1)


def _blur(images: np.ndarray, severity: float, generator: np.random.Generator) -> np.ndarray:
    """Blur by a Gaussian whose width is relative to the size of the images."""
    from scipy.ndimage import gaussian_filter  # slow to import

    height, width = (LARGEST_BLUR * severity * side for side in images.shape[-2:])
    return np.clip(gaussian_filter(images, sigma=(0, 0, height, width), mode="nearest"), 0, 1)


def _brighten(images: np.ndarray, severity: float, generator: np.random.Generator) -> np.ndarray:
    """Lighten every pixel by the same amount."""
    return np.clip(images + LARGEST_BRIGHTNESS * severity, 0, 1)


CORRUPTIONS: dict[str, Corruption] = {"noise": _add_noise, "blur": _blur, "brightness": _brighten}


def corrupt_some(
    images: np.ndarray, shares: Mapping[str, float], severity: float, generator: np.random.Generator
) -> np.ndarray:
    """Corrupt each image in each way with the probability of its share, independently of all others."""
    images = images.copy()
    for name, corrupt in CORRUPTIONS.items():
        corrupted = generator.random(len(images)) < shares.get(name, 0.0)
        if corrupted.any():
            images[corrupted] = corrupt(images[corrupted], severity, generator)
    return images


def relight(images: np.ndarray, strength: float, generator: np.random.Generator) -> np.ndarray:
    """Draw each image's contrast, from 1−strength to 1, and its brightness within the range that this leaves."""
    contrast, brightness = (generator.random((len(images), 1, 1, 1)) for _ in range(2))
    contrast = 1 - strength * contrast
    return contrast * images + (1 - contrast) * brightness
