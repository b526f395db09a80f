"""scikit-learn's bundled 8×8 digits: real images, no download."""

from __future__ import annotations

import copy
from functools import cache

import numpy as np

from m2st_core.rng import Streams
from m2st_core.tasks.base import Parameter, Task
from m2st_core.tasks.image_sets import ImageSet


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
