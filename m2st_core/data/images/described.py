"""Tasks of images whose rows are pretrained features of the images instead of their pixels."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Self

import numpy as np
import torch

from m2st_core.data.images.efficientnet import FEATURES
from m2st_core.data.images.extractors import PRETRAINED, Extractor, extractor
from m2st_core.data.images.features import FeatureShelf, image_features
from m2st_core.data.images.sets import CORRUPTIONS
from m2st_core.data.images.tasks import ImageTask
from m2st_core.data.task import Setting, Task
from m2st_core.environment import home_folder
from m2st_core.rng import Streams
from m2st_core.types import Shape, TwoSample

PIXELS = "pixels"
WIDTHS = {PRETRAINED: FEATURES}  # numbers per image
SMALL_SIDE, SMALL_IMAGE, USUAL_SIDE = 64, 16, 128  # pixels: tiny images gain nothing from more
MOST_REMEMBERED = 60_000  # images whose features one process holds


class RememberingShelf(FeatureShelf):
    """A shelf that also holds what this process has used: studies draw the same images again and again.

    Images that a task changes at random are never seen by another study, so that they are not written.
    """

    def __init__(self, key: str, written: bool) -> None:
        super().__init__(key)
        self.written = written
        self.recent: dict[bytes, np.ndarray] = {}

    def look_up(self, wanted: np.ndarray) -> dict[bytes, np.ndarray]:
        """Features by key, from the files only where they are not in memory."""
        found = {key: self.recent[key] for key in (one.tobytes() for one in wanted) if key in self.recent}
        others = np.array([one for one in wanted if one.tobytes() not in found], dtype=wanted.dtype)
        if len(others) and self.written:
            found |= self._remember(super().look_up(others))
        return found

    def keep(self, keys: np.ndarray, features: np.ndarray) -> None:
        """Remember new features, and write them."""
        self._remember({key.tobytes(): row for key, row in zip(keys, features, strict=True)})
        if self.written:
            super().keep(keys, features)

    def _remember(self, found: dict[bytes, np.ndarray]) -> dict[bytes, np.ndarray]:
        if len(self.recent) + len(found) > MOST_REMEMBERED:
            self.recent.clear()
        self.recent |= found
        return found


@cache
def _shelf(key: str, written: bool, home: Path) -> RememberingShelf:
    """The shelf of an extractor in this folder."""
    return RememberingShelf(key, written)


def side_for(shape: Shape) -> int:
    """Pixels to which images of this shape are enlarged before they are described."""
    return SMALL_SIDE if max(shape[1:]) <= SMALL_IMAGE else USUAL_SIDE


def always_new(settings: Mapping[str, Setting]) -> bool:
    """Whether a task changes its images at random, so that none is ever seen twice."""
    return any(float(settings.get(name, 0)) > 0 for name in ("lighting", *CORRUPTIONS))


class DescribedTask(Task):
    """An image task that draws the same images and returns their features."""

    parameters = ()

    def __init__(self, images: ImageTask, features: str = PRETRAINED) -> None:
        super().__init__(images.null)
        self.images, self.settings = images, images.settings
        self.by: Extractor = extractor(features, side_for(images.shape))

    def describe(self, rows: np.ndarray) -> np.ndarray:
        """Features (n, d) of images as rows of pixels in [0, 1] (n, c·h·w)."""
        pixels = np.rint(255 * rows).astype(np.uint8).reshape(-1, *self.images.shape).transpose(0, 2, 3, 1)
        shelf = _shelf(self.by.key, not always_new(self.settings), home_folder())
        return image_features(pixels, self.by, keep=shelf).astype(np.float64)

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
        other = copy.copy(self)
        other.images = images
        return other

    def draw_related_tasks(
        self, *, closeness: float = 0.3, n_tasks: int = 100, rows: int = 100, seed: int = 0
    ) -> DescribedPairs:
        """The pairs of classes that the image task would draw, by their features."""
        return DescribedPairs(self, self.images.draw_related_tasks(n_tasks=n_tasks, rows=rows, seed=seed))


class DescribedPairs(Mapping[str, TwoSample]):
    """Related tasks by name. The features of a pair are computed when it is asked for."""

    def __init__(self, task: DescribedTask, pairs: Mapping[str, TwoSample]) -> None:
        self._task, self._pairs = task, pairs

    def __getitem__(self, name: str) -> TwoSample:
        pair = self._pairs[name]
        rows = torch.from_numpy(self._task.describe(pair.pooled.numpy()))
        return TwoSample(rows[: pair.sizes[0]], rows[pair.sizes[0] :])

    def __iter__(self) -> Iterator[str]:
        return iter(self._pairs)

    def __len__(self) -> int:
        return len(self._pairs)
