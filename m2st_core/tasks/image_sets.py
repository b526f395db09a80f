"""Labelled images in memory, checked: what every reader of image files hands over."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np

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
    """All images of a data set: images (n, h, w, c) uint8, labels (n,), and which belong to its official test part.

    ``origin`` says in words where they were found and whether they are the official ones.
    """

    title: str
    images: np.ndarray
    labels: np.ndarray
    classes: tuple[str, ...]
    is_test: np.ndarray
    origin: str

    @cached_property
    def fingerprint(self) -> str:
        """The same for the same images and labels in the same order."""
        sha = hashlib.sha256(np.ascontiguousarray(self.labels, dtype=np.int64).tobytes())
        sha.update(np.ascontiguousarray(self.images).data)
        return sha.hexdigest()[:16]

    def rows_of(self, label: int, *, test: bool) -> np.ndarray:
        """Where the images of a class are: those of the test part, or the others."""
        return np.flatnonzero((self.labels == label) & (self.is_test == test))


def combine(
    title: str,
    classes: int,
    train: ImagePart | None,
    test: ImagePart | None,
    where: str,
    origin: str,
    names: tuple[str, ...] = (),
) -> ImageSet:
    """One set of a training and a test part; each class must have images.

    Of a single part every other image of a class plays the test part, so that what is learned from is never tested.
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
        is_test = np.zeros(len(labels), dtype=bool)
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
