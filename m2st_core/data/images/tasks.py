"""Tasks of real images: two data sets, or one whose images change. Their related tasks are pairs of classes.

An image is dealt at most once in a pair of samples. Three groups of images are disjoint: those of related tasks, those
of a target's training rows, and those that are tested. Rows are pixels, or the images' pretrained features.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar, Self

import numpy as np
import torch

from m2st_core.data.images.features import (
    PRETRAINED,
    Extractor,
    extractor,
    feature_side,
    image_features,
    process_cache,
)
from m2st_core.data.images.sources import SOURCES, ImageSet, digit_images, load_images, missing_images
from m2st_core.environment import home_folder
from m2st_core.rng import Streams
from m2st_core.tasks import Parameter, Setting, Task
from m2st_core.types import Shape, TwoSample

LARGEST_DEVIATION = 0.5  # standard deviation of noise, in the range from black to white
LARGEST_BLUR = 1 / 12  # width of the blur as a share of an image's side
LARGEST_BRIGHTNESS = 0.6


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


@dataclass(frozen=True)
class ShownImages:
    """Rows of P (n, c·h·w) and of Q (m, c·h·w), with the names of their classes, (n,) and (m,)."""

    x: np.ndarray
    y: np.ndarray
    x_classes: np.ndarray
    y_classes: np.ndarray


class ImageTask(Task):
    """A target of images, and the class pairs that its tests may learn from."""

    first: ClassVar[str]  # the data set of P
    second: ClassVar[str]  # the data set of Q
    learned_from: ClassVar[str]  # the data set whose class pairs are related tasks
    shape: ClassVar[Shape]
    training = False  # whether rows are drawn to learn from

    @property
    def _sources(self) -> list[str]:
        """The data sets that have to be in the user's folder."""
        return [name for name in dict.fromkeys((self.first, self.second, self.learned_from)) if name in SOURCES]

    def missing(self) -> str:
        """A sentence on the files to download before rows can be drawn; empty if none are missing."""
        return next((sentence for name in self._sources if (sentence := missing_images(name))), "")

    def fingerprint(self) -> str:
        """A hash of the images on this machine, on which results depend; empty if they are always the same."""
        return "" if self.missing() else "-".join(load_images(name).fingerprint for name in self._sources)

    def to_learn_from(self) -> Self:
        """Return the same target, drawn from images that are never tested."""
        task = copy.copy(self)
        task.training = True
        return task

    def draw(self, n: int, m: int, streams: Streams) -> tuple[np.ndarray, np.ndarray]:
        """Rows of P (n, c·h·w) and of Q (m, c·h·w) in [0, 1]."""
        shown = self.show(n, m, streams)
        return shown.x, shown.y

    def rows(self, images: ImageSet, positions: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """Images as they appear in every sample, also of related tasks: (n, c·h·w)."""
        return images.rows(positions)

    @abstractmethod
    def show(self, n: int, m: int, streams: Streams) -> ShownImages:
        """Draw the images of ``draw`` with their classes, which no test uses."""

    def pairs(self) -> list[tuple[str, str]]:
        """All pairs of classes, by name."""
        images = load_images(self.learned_from)
        return list(combinations([images.classes[label] for label in np.unique(images.labels[~images.is_test])], 2))

    def draw_related_tasks(
        self, *, closeness: float = 0.3, n_tasks: int = 100, rows: int = 100, seed: int = 0
    ) -> LazyTasks:
        """Draw pairs of classes in random order, at most as many as there are. They have no closeness."""
        pairs, streams, images = self.pairs(), Streams(seed), load_images(self.learned_from)
        order = streams.numpy("order of pairs").permutation(len(pairs))[:n_tasks]
        classes_of = {f"{a} or {b}": (a, b) for a, b in (pairs[index] for index in order)}
        classes = dict.fromkeys(label for pair in classes_of.values() for label in pair)
        pools = {label: images.for_related_tasks(images.classes.index(label)) for label in classes}
        for label, pool in pools.items():
            images.deal(pool, rows, streams.numpy("enough images"), label)

        def draw(name: str) -> TwoSample:
            a, b = classes_of[name]
            generator = streams.numpy(f"pair {a} {b}")
            dealt = [images.deal(pools[label], rows, generator, label) for label in (a, b)]
            x, y = (torch.from_numpy(self.rows(images, positions, generator)) for positions in dealt)
            return TwoSample(x, y, self.shape)

        return LazyTasks(classes_of, draw)


class LazyTasks(Mapping[str, TwoSample]):
    """Related tasks by name, such as "cat or dog". Each is drawn when it is read, always the same."""

    def __init__(self, names: Iterable[str], draw: Callable[[str], TwoSample]) -> None:
        self._names, self._draw = tuple(names), draw

    def __getitem__(self, name: str) -> TwoSample:
        return self._draw(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class TwoDataSets(ImageTask):
    """P: any image of one data set. Q: any image of another. The null version deals images of P to both samples."""

    parameters = ()

    def show(self, n: int, m: int, streams: Streams) -> ShownImages:
        """Draw images whatever their classes."""
        p, q = load_images(self.first), load_images(self.first if self.null else self.second)
        pool = p.for_target(training=self.training)
        dealt = p.deal(pool, n + m if self.null else n, streams.numpy("task P"))
        x, y = dealt[:n], dealt[n:]
        if not self.null:
            y = q.deal(q.for_target(training=self.training), m, streams.numpy("task Q"))
        return ShownImages(p.rows(x), q.rows(y), p.classes_of(x), q.classes_of(y))


def _shift_parameters(lighting: float) -> tuple[Parameter, ...]:
    """The parameters of a shift, with this default for the varying light."""
    mix_help = "Q shows every other class more often by this share, and the rest less. 1: half of the classes are gone."
    light_help = "How much the light varies between images in P, Q and the related tasks alike. It hides differences."
    shares = {name: f"Share of Q's images that are changed by {name}." for name in CORRUPTIONS}
    return (
        Parameter("mix", "change of the mix", 0.5, mix_help, 0.0, 1.0, 0.05),
        *(Parameter(name, f"share with {name}", 0.0, text, 0.0, 1.0, 0.05) for name, text in shares.items()),
        Parameter("severity", "severity", 0.5, "How strongly a corrupted image is changed.", 0.0, 1.0, 0.05),
        Parameter("lighting", "varying light", lighting, light_help, 0.0, 0.9, 0.05),
    )


class Shift(ImageTask):
    """P: all classes of one data set alike. Q: another mix of them, with a share of the images corrupted."""

    parameters = _shift_parameters(lighting=0.0)

    def rows(self, images: ImageSet, positions: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """Images, each with a contrast from 1−strength to 1, and a brightness within the range that this leaves."""
        rows, strength = images.rows(positions), float(self.settings["lighting"])
        if strength == 0:
            return rows
        reduction, brightness = (generator.random((len(rows), 1)) for _ in range(2))
        contrast = 1 - strength * reduction
        return contrast * rows + (1 - contrast) * brightness

    def show(self, n: int, m: int, streams: Streams) -> ShownImages:
        """Draw classes, then images of these classes, then corruptions."""
        images = load_images(self.first)
        pool = images.for_target(training=self.training)
        labels = np.unique(images.labels[pool])
        tilt = 0.0 if self.null else float(self.settings["mix"])
        shares = 1 + tilt * np.where(np.arange(len(labels)) % 2, -1.0, 1.0)
        generator = streams.numpy("images")
        drawn = np.concatenate([generator.choice(labels, n), generator.choice(labels, m, p=shares / shares.sum())])
        positions = np.zeros(n + m, dtype=np.int64)
        for label in labels:
            index, of_class = np.flatnonzero(drawn == label), pool[images.labels[pool] == label]
            positions[index] = images.deal(of_class, len(index), generator, images.classes[label])
        rows, classes = self.rows(images, positions, streams.numpy("light")), images.classes_of(positions)
        x, y = rows[:n], rows[n:]
        if not self.null:
            changed = {name: float(self.settings[name]) for name in CORRUPTIONS}
            severity, generator = float(self.settings["severity"]), streams.numpy("corruptions")
            y = corrupt_some(y.reshape(m, *images.shape), changed, severity, generator).reshape(m, -1)
        return ShownImages(x, y, classes[:n], classes[n:])


class DigitsShift(Shift):
    """Digits that need no download: 0 to 5 for related tasks, 6 to 9 for the target."""

    name = "digits-shift"
    title = "Digit images, another mix"
    description = "8×8 images of 6 to 9, remixed or corrupted in Q. Related tasks: pairs of 0 to 5."
    first = second = learned_from = "digits"
    shape = (1, 8, 8)
    parameters = _shift_parameters(lighting=0.8)


CIFAR_TASKS = {  # name: data sets of P, of Q and of the related tasks
    "cifar10-shift": ("cifar10", "cifar10", "cifar10"),
    "cifar100-shift": ("cifar100", "cifar100", "cifar100"),
    "cifar10-cifar10.1": ("cifar10", "cifar10.1", "cifar10"),  # the paper's Table 1
    "cifar100-cifar10.1": ("cifar100", "cifar10.1", "cifar10"),  # Table 2
    "cifar10-cifar100": ("cifar10", "cifar100", "cifar10"),  # not in the paper; needs no third data set
    "cifar10-cifar10.1-via-cifar100": ("cifar10", "cifar10.1", "cifar100"),  # Table 7
    "cifar100-cifar10.1-via-cifar100": ("cifar100", "cifar10.1", "cifar100"),  # Table 8
}


def _cifar_task(name: str, first: str, second: str, learned_from: str) -> type[ImageTask]:
    """Make the class of a task in the table."""
    p, q, source = (SOURCES[key].title for key in (first, second, learned_from))
    attributes = {"name": name, "first": first, "second": second, "learned_from": learned_from, "shape": (3, 32, 32)}
    related = f"Related tasks: pairs of {source}'s classes."
    if first == second:
        words = {"title": f"{p}, another mix", "description": f"Images of {p}, remixed or corrupted in Q. {related}"}
        return type(name, (Shift,), attributes | words)
    via = f", via {source}" if "-via-" in name else ""
    words = {"title": f"{p} against {q}{via}", "description": f"Test images of {p} and {q}. {related}"}
    return type(name, (TwoDataSets,), attributes | words)


IMAGE_TASKS: tuple[type[ImageTask], ...] = (
    DigitsShift,
    *(_cifar_task(name, *data_sets) for name, data_sets in CIFAR_TASKS.items()),
)


def always_new(settings: Mapping[str, Setting]) -> bool:
    """Whether a task changes its images at random, so that none is drawn twice."""
    return any(float(settings.get(name, 0)) > 0 for name in ("lighting", *CORRUPTIONS))


class DescribedTask(Task):
    """An image task that draws the same images and returns their features."""

    parameters = ()

    def __init__(self, images: ImageTask, features: str = PRETRAINED) -> None:
        super().__init__(images.null)
        self.images, self.settings = images, images.settings
        self.by: Extractor = extractor(features, feature_side(images.shape))

    def describe(self, rows: np.ndarray) -> np.ndarray:
        """Features (n, d) of images as rows of pixels in [0, 1] (n, c·h·w)."""
        pixels = np.rint(255 * rows).astype(np.uint8).reshape(-1, *self.images.shape).transpose(0, 2, 3, 1)
        cached = process_cache(self.by.key, not always_new(self.settings), home_folder())
        return image_features(pixels, self.by, keep=cached).astype(np.float64)

    def draw(self, n: int, m: int, streams: Streams) -> tuple[np.ndarray, np.ndarray]:
        """Features of P (n, d) and of Q (m, d)."""
        both = self.describe(np.concatenate(self.images.draw(n, m, streams)))
        return both[:n], both[n:]

    def to_learn_from(self) -> Self:
        """Return the same target, drawn from images that are never tested."""
        return self._with(self.images.to_learn_from())

    def to_be_tested(self) -> Self:
        """Return the same target, drawn from images that nothing learns from."""
        return self._with(self.images.to_be_tested())

    def _with(self, images: ImageTask) -> Self:
        task = copy.copy(self)
        task.images = images
        return task

    def draw_related_tasks(
        self, *, closeness: float = 0.3, n_tasks: int = 100, rows: int = 100, seed: int = 0
    ) -> LazyTasks:
        """The pairs of classes that the image task would draw, by their features."""
        pairs = self.images.draw_related_tasks(n_tasks=n_tasks, rows=rows, seed=seed)

        def describe(name: str) -> TwoSample:
            pair = pairs[name]
            return TwoSample(*torch.from_numpy(self.describe(pair.pooled.numpy())).split(pair.sizes))

        return LazyTasks(pairs, describe)
