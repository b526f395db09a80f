"""Targets and meta-tasks made of real images: two data sets, or one whose images change; class pairs to learn from.

An image is dealt at most once in a pair of samples. Three groups of images never meet: those of meta-tasks, those that
teach a test about its target, and those that are tested.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar, Self

import numpy as np
import torch

from m2st_core.data.images.cifar import SOURCES, load_images, missing_images
from m2st_core.data.images.corruptions import CORRUPTIONS, corrupt_some, relight
from m2st_core.data.images.sets import ImageSet, digit_images
from m2st_core.data.task import Parameter, Task
from m2st_core.rng import Streams
from m2st_core.types import Shape, TwoSample


def image_set(name: str) -> ImageSet:
    """Digits, which are always there, or a data set of the user's."""
    return load_images(name) if name in SOURCES else digit_images()


@dataclass(frozen=True)
class ShownImages:
    """Rows of P (n, c·h·w) and of Q (m, c·h·w), with the names of their classes, (n,) and (m,)."""

    x: np.ndarray
    y: np.ndarray
    x_classes: np.ndarray
    y_classes: np.ndarray


class ImageTask(Task):
    """A target of images, and the class pairs that tests of it may learn from."""

    first: ClassVar[str]  # the data set of P
    second: ClassVar[str]  # the data set of Q
    learned_from: ClassVar[str]  # the data set whose class pairs are meta-tasks
    shape: ClassVar[Shape]
    teaching = False

    @property
    def _files(self) -> list[str]:
        """The data sets that have to be in the user's folder."""
        return [name for name in dict.fromkeys((self.first, self.second, self.learned_from)) if name in SOURCES]

    def missing(self) -> str:
        """What has to be downloaded before this can be drawn, in words; empty if nothing."""
        return next((words for name in self._files if (words := missing_images(name))), "")

    def fingerprint(self) -> str:
        """Of the images on this machine, on which results depend; empty if they are always the same."""
        return "" if self.missing() else "-".join(image_set(name).fingerprint for name in self._files)

    def to_learn_from(self) -> Self:
        """The same target, drawn from images that are never tested."""
        other = copy.copy(self)
        other.teaching = True
        return other

    def draw(self, n: int, m: int, streams: Streams) -> tuple[np.ndarray, np.ndarray]:
        """Rows of P (n, c·h·w) and of Q (m, c·h·w) in [0, 1]."""
        shown = self.show(n, m, streams)
        return shown.x, shown.y

    def rows(self, images: ImageSet, where: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """Images as every sample has them, those of meta-tasks too: (n, c·h·w)."""
        return images.rows(where)

    @abstractmethod
    def show(self, n: int, m: int, streams: Streams) -> ShownImages:
        """What ``draw`` draws, with the classes of the images, which no test sees."""

    def pairs(self) -> list[tuple[str, str]]:
        """The classes that can be paired, by name."""
        images = image_set(self.learned_from)
        known = [images.classes[label] for label in np.unique(images.labels[~images.is_test])]
        return list(combinations(known, 2))

    def related_tasks(self, n_tasks: int, rows: int, streams: Streams) -> ClassPairs:
        """Random pairs of classes, at most as many as there are, with this many images of each class."""
        pairs = self.pairs()
        order = streams.numpy("order of pairs").permutation(len(pairs))[:n_tasks]
        return ClassPairs(self, [pairs[index] for index in order], rows, streams)


class ClassPairs(Mapping[str, TwoSample]):
    """Meta-tasks by name, ``"cat or dog"``. A pair's images are dealt when it is asked for, always the same."""

    def __init__(self, task: ImageTask, pairs: Sequence[tuple[str, str]], rows: int, streams: Streams) -> None:
        self._task, self._rows, self._streams = task, rows, streams
        self._pairs = {f"{a} or {b}": (a, b) for a, b in pairs}
        self._images = image_set(task.learned_from)
        known = dict.fromkeys(name for pair in pairs for name in pair)
        self._pools = {name: self._images.to_meta(self._images.classes.index(name)) for name in known}
        for name, pool in self._pools.items():
            self._images.deal(pool, rows, streams.numpy("enough images"), name)

    def __getitem__(self, name: str) -> TwoSample:
        a, b = self._pairs[name]
        generator = self._streams.numpy(f"pair {a} {b}")
        dealt = [self._images.deal(self._pools[label], self._rows, generator, label) for label in (a, b)]
        x, y = (torch.from_numpy(self._task.rows(self._images, where, generator)) for where in dealt)
        return TwoSample(x, y, self._task.shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self._pairs)

    def __len__(self) -> int:
        return len(self._pairs)


class TwoDataSets(ImageTask):
    """P: any image of one data set; Q: any image of another. The null version deals images of P to both samples."""

    parameters = ()

    def show(self, n: int, m: int, streams: Streams) -> ShownImages:
        """Images without regard to their classes."""
        sets = [image_set(self.first), image_set(self.first if self.null else self.second)]
        pools = [images.to_target(teaching=self.teaching) for images in sets]
        if self.null:
            dealt = sets[0].deal(pools[0], n + m, streams.numpy("task P"))
            chosen = [dealt[:n], dealt[n:]]
        else:
            chosen = [
                images.deal(pool, count, streams.numpy(f"task {side}"))
                for images, pool, count, side in zip(sets, pools, (n, m), "PQ", strict=True)
            ]
        rows = [images.rows(where) for images, where in zip(sets, chosen, strict=True)]
        classes = [images.classes_of(where) for images, where in zip(sets, chosen, strict=True)]
        return ShownImages(*rows, *classes)


def _share(name: str, label: str) -> Parameter:
    return Parameter(name, label, 0.0, f"Share of Q's images that are changed by {name}.", 0.0, 1.0, 0.05)


def shift_parameters(lighting: float) -> tuple[Parameter, ...]:
    """The parameters of a shift, where this much of the light changes from image to image unless one says otherwise."""
    return (
        Parameter(
            "mix",
            "change of the mix",
            0.5,
            "Q shows every other class more often by this share, and the rest less. 1: half of the classes are gone.",
            0.0,
            1.0,
            0.05,
        ),
        *(_share(name, f"share with {name}") for name in CORRUPTIONS),
        Parameter("severity", "severity", 0.5, "How strongly a corrupted image is changed.", 0.0, 1.0, 0.05),
        Parameter(
            "lighting",
            "varying light",
            lighting,
            "How much the light varies from image to image, in P, Q and the meta-tasks alike; it hides the difference.",
            0.0,
            0.9,
            0.05,
        ),
    )


class Shift(ImageTask):
    """P: all classes of one data set alike; Q: another mix of them, with a share of the images corrupted."""

    parameters = shift_parameters(lighting=0.0)

    def rows(self, images: ImageSet, where: np.ndarray, generator: np.random.Generator) -> np.ndarray:
        """Each image in a light of its own."""
        rows, strength = images.rows(where), float(self.settings["lighting"])
        if strength == 0:
            return rows
        return relight(rows.reshape(-1, *images.shape), strength, generator).reshape(len(rows), -1)

    def show(self, n: int, m: int, streams: Streams) -> ShownImages:
        """Classes at random, then images of the classes, then corruptions."""
        images = image_set(self.first)
        pool = images.to_target(teaching=self.teaching)
        known = np.unique(images.labels[pool])
        tilt = 0.0 if self.null else float(self.settings["mix"])
        shares = 1 + tilt * np.where(np.arange(len(known)) % 2, -1.0, 1.0)
        generator = streams.numpy("images")
        labels = np.concatenate([generator.choice(known, n), generator.choice(known, m, p=shares / shares.sum())])
        where = np.zeros(n + m, dtype=np.int64)
        for label in known:
            wanted = np.flatnonzero(labels == label)
            own = pool[images.labels[pool] == label]
            where[wanted] = images.deal(own, len(wanted), generator, images.classes[label])
        rows, classes = self.rows(images, where, streams.numpy("light")), images.classes_of(where)
        x, y = rows[:n], rows[n:]
        if not self.null:
            corrupted = {name: float(self.settings[name]) for name in CORRUPTIONS}
            severity = float(self.settings["severity"])
            y = corrupt_some(y.reshape(m, *images.shape), corrupted, severity, streams.numpy("corruptions"))
            y = y.reshape(m, -1)
        return ShownImages(x, y, classes[:n], classes[n:])
