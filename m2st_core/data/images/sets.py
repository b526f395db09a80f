"""scikit-learn's bundled 8×8 digits: real images, no download."""

from __future__ import annotations

import copy
import hashlib
from dataclasses import dataclass, field
from functools import cache, cached_property

import numpy as np

from m2st_core.data.task import Parameter, Task
from m2st_core.rng import Streams
from m2st_core.types import Shape

TEACHING_SHARE = 1 / 3
SIDE, CHANNELS = 32, 3  # of a CIFAR image
PIXELS = SIDE * SIDE * CHANNELS


@dataclass(frozen=True)
class ImagePart:
    """Some images (n, h, w, c) as bytes with their labels (n,); names of the classes where the files have them."""

    images: np.ndarray
    labels: np.ndarray
    classes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class ImageSet:
    """All images of a data set: images (n, h, w, c) uint8, labels (n,), and which belong to its test part.

    Meta-tasks use the others; of the test part, a third of each class teaches tests about a target, and the rest is
    tested. ``origin`` says in words where the images were found and whether they are the official ones.
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
        """The same for the same images and labels in the same order."""
        sha = hashlib.sha256(np.ascontiguousarray(self.labels, dtype=np.int64).tobytes())
        sha.update(np.ascontiguousarray(self.images).data)
        return sha.hexdigest()[:16]

    @cached_property
    def _is_tested(self) -> np.ndarray:
        """Which images of the test part are tested, at random but always the same."""
        tested = self.is_test.copy()
        generator = Streams(0).numpy("images that teach")
        for label in range(len(self.classes)):
            own = generator.permutation(np.flatnonzero(self.is_test & (self.labels == label)))
            tested[own[: round(TEACHING_SHARE * len(own))]] = False
        return tested

    def to_meta(self, label: int) -> np.ndarray:
        """Where the images of a class are that meta-tasks may use."""
        return np.flatnonzero((self.labels == label) & ~self.is_test)

    def to_target(self, *, teaching: bool) -> np.ndarray:
        """Where a target's images are: those that teach, or those that are tested."""
        return np.flatnonzero(self.is_test & ~self._is_tested if teaching else self._is_tested)

    def deal(self, pool: np.ndarray, count: int, generator: np.random.Generator, what: str = "") -> np.ndarray:
        """``count`` different images of a pool, in random order."""
        if count > len(pool):
            whose = f"{self.title}, {what}" if what else self.title
            raise ValueError(f"{whose}: {len(pool):,} images are there for this purpose, and {count:,} were asked for.")
        return generator.choice(pool, size=count, replace=False)

    def rows(self, where: np.ndarray) -> np.ndarray:
        """Images as rows of pixels in [0, 1], channel by channel: (n, c·h·w)."""
        return self.images[where].transpose(0, 3, 1, 2).reshape(len(where), -1) / float(self.white)

    def classes_of(self, where: np.ndarray) -> np.ndarray:
        """The names of their classes: (n,)."""
        return np.array(self.classes)[self.labels[where]]


def combine(
    title: str,
    classes: int,
    train: ImagePart | None,
    test: ImagePart | None,
    where: str,
    origin: str,
    names: tuple[str, ...] = (),
    only_test: bool = False,
) -> ImageSet:
    """One set of a training and a test part; each class must have images.

    Of a single part every other image of a class plays the test part, or all of them, if there is nothing but a test
    part by its nature.
    """
    parts = [part for part in (train, test) if part is not None]
    images, labels = np.concatenate([p.images for p in parts]), np.concatenate([p.labels for p in parts])
    counts = np.bincount(labels, minlength=classes)
    if (counts == 0).any():
        missing = ", ".join(map(str, np.flatnonzero(counts == 0)[:5]))
        raise ValueError(f"{where}: no image has the label {missing}. {title} has the labels 0 to {classes - 1}.")
    if train is not None and test is not None:
        is_test = np.arange(len(labels)) >= len(train.labels)
    else:
        is_test = np.full(len(labels), only_test)
        for label in range(classes):
            is_test[np.flatnonzero(labels == label)[1::2]] = True
    offers = [*(part.classes for part in parts), names, tuple(map(str, range(classes)))]
    return ImageSet(title, images, labels, next(o for o in offers if len(o) == classes), is_test, origin)


def check_part(images: np.ndarray, labels: object, classes: int, where: str, names: tuple[str, ...] = ()) -> ImagePart:
    """Images (n, 32, 32, 3), as bytes, with one label each; (n, 3, 32, 32) and (n, 3072) are turned round."""
    if images.dtype != np.uint8:
        raise ValueError(f"{where}: the images are {images.dtype}. Bring bytes (uint8) from 0 to 255.")
    if images.ndim == 2 and images.shape[1] == PIXELS:
        images = images.reshape(-1, CHANNELS, SIDE, SIDE)
    if images.shape[1:] == (CHANNELS, SIDE, SIDE):
        images = images.transpose(0, 2, 3, 1)
    if images.shape[1:] != (SIDE, SIDE, CHANNELS) or not len(images):
        raise ValueError(f"{where}: the images have the shape {images.shape}. Bring (n, {SIDE}, {SIDE}, {CHANNELS}).")
    found = np.asarray(labels)
    if found.ndim == 2 and found.shape[1] == 1:
        found = found[:, 0]
    if found.dtype.kind not in "iu" or found.ndim != 1:
        raise ValueError(f"{where}: the labels are no list of whole numbers. Bring one for each image.")
    if len(found) != len(images):
        raise ValueError(f"{where}: there are {len(images):,} images and {len(found):,} labels. Bring one for each.")
    if found.min() < 0 or found.max() >= classes:
        raise ValueError(f"{where}: the label {found.max()} is not one of 0 to {classes - 1}. Correct the labels.")
    return ImagePart(np.ascontiguousarray(images), found.astype(np.int64), names)


@cache
def digit_images() -> ImageSet:
    """The 1,797 images; the classes 0 to 5 are for meta-tasks, and 6 to 9 for targets."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    images = images.reshape(-1, 8, 8, 1).astype(np.uint8)
    classes = tuple(map(str, range(10)))
    return ImageSet("Digits", images, labels, classes, labels >= 6, "scikit-learn's digits (1,797 images)", white=16)


@cache
def load_digits_by_class() -> tuple[np.ndarray, ...]:
    """The images as rows of 64 pixels in [0, 1], one array per digit."""
    known = digit_images()
    return tuple(known.rows(np.flatnonzero(known.labels == digit)) for digit in range(10))


class Digits(Task):
    """P: images of one digit, Q: images of another, drawn without replacement (about 178 images each).

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
        """A third of the images."""
        return self._only(0)

    def to_be_tested(self) -> Digits:
        """The other two thirds."""
        return self._only(1, 2)

    def draw(self, n: int, m: int, streams: Streams) -> tuple[np.ndarray, np.ndarray]:
        """Rows of P (n, 64) and of Q (m, 64)."""
        first, second = int(self.settings["first"]), int(self.settings["second"])
        if self.null or first == second:
            rows = self._deal(first, n + m, streams.numpy("task P"))
            return rows[:n], rows[n:]
        return self._deal(first, n, streams.numpy("task P")), self._deal(second, m, streams.numpy("task Q"))

    def _only(self, *thirds: int) -> Digits:
        other = copy.copy(self)
        other.thirds = thirds
        return other

    def _deal(self, digit: int, count: int, generator: np.random.Generator) -> np.ndarray:
        images = load_digits_by_class()[digit]
        images = images[np.isin(np.arange(len(images)) % 3, self.thirds)]
        if count > len(images):
            raise ValueError(f"There are {len(images)} images of the digit {digit}, and {count} were asked for.")
        return images[generator.choice(len(images), size=count, replace=False)]
