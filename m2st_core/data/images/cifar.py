"""Image sets by name: the digits, and CIFAR-10, CIFAR-100 and CIFAR-10.1 if they are in ``M2ST_DATA``.

Nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from m2st_core.data.images.files import (
    ImagePart,
    Layout,
    decode_binary,
    decode_pickle,
    read_arrays,
    read_class_folders,
)
from m2st_core.data.images.sets import ImageSet, digit_images
from m2st_core.environment import data_folder
from m2st_core.types import Registry

TORONTO = "https://www.cs.toronto.edu/~kriz/cifar.html"
CIFAR_10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


class MissingData(ValueError):
    """A data set is not on this machine. The message says what to download and where to put it."""


@dataclass(frozen=True)
class Source:
    """A data set in the user's folder: in an official layout, as NumPy arrays, or as folders of PNGs."""

    title: str
    classes: int
    download: str
    sizes: tuple[int, ...]  # total images of the official versions
    layouts: tuple[Layout, ...] = ()
    names: tuple[str, ...] = ()  # class names, where the files have none
    only_test: bool = False


CIFAR_10_LAYOUTS = (
    Layout(
        "cifar-10-batches-py",
        "cifar-10-python.tar.gz",
        "c58f30108f718f92721af3b95e74349a",
        {
            "data_batch_1": "c99cafc152244af753f735de768cd75f",
            "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
            "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
            "data_batch_4": "634d18415352ddfa80567beed471001a",
            "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        },
        {"test_batch": "40351d587109b95175f43aff81a1287e"},
        "batches.meta",
        decode_pickle,
    ),
    Layout(
        "cifar-10-batches-bin",
        "cifar-10-binary.tar.gz",
        "c32a1d4ab5d03f1284b67883e8d87530",
        {f"data_batch_{index}.bin": "" for index in range(1, 6)},
        {"test_batch.bin": ""},
        "batches.meta.txt",
        decode_binary,
    ),
)
CIFAR_100_LAYOUTS = (
    Layout(
        "cifar-100-python",
        "cifar-100-python.tar.gz",
        "eb9058c3a382ffc7106e4002c42a8d85",
        {"train": "16019d7e3df5f24257cddd939b257f8d"},
        {"test": "f0ef6b0ae62326f3e7ffdfab6717acfc"},
        "meta",
        decode_pickle,
    ),
    Layout(
        "cifar-100-binary",
        "cifar-100-binary.tar.gz",
        "03b5dce01913d631647c71ecec9e9cb8",
        {"train.bin": ""},
        {"test.bin": ""},
        "fine_label_names.txt",
        decode_binary,
    ),
)
SOURCES: Registry[Source] = Registry(
    "data set",
    {
        "cifar10": Source(
            "CIFAR-10",
            10,
            f"cifar-10-python.tar.gz from {TORONTO}",
            (60_000,),
            CIFAR_10_LAYOUTS,
            CIFAR_10_CLASSES,
        ),
        "cifar100": Source("CIFAR-100", 100, f"cifar-100-python.tar.gz from {TORONTO}", (60_000,), CIFAR_100_LAYOUTS),
        "cifar10.1": Source(
            "CIFAR-10.1",
            10,
            "cifar10.1_v4_data.npy and cifar10.1_v4_labels.npy from https://github.com/modestyachts/CIFAR-10.1",
            (2_021, 2_000),
            names=CIFAR_10_CLASSES,
            only_test=True,
        ),
    },
)


def load_images(name: str) -> ImageSet:
    """Load the digits, or a data set from the user's folder; MissingData says what to do if it is not there.

    A data set stays in memory until the file that it came from changes.
    """
    if name == "digits":
        return digit_images()
    path = next(_candidates(name), None)
    if path is None:
        raise MissingData(missing_images(name))
    return _load(name, path, path.stat().st_mtime)


def missing_images(name: str) -> str:
    """Say what to download and where to put it; empty if there is something to read."""
    source = SOURCES.find(name)
    if next(_candidates(name), None) is not None:
        return ""
    return (
        f"{source.title} is not in {data_folder()}: put {source.download} there, packed or unpacked, "
        "or set M2ST_DATA to the folder that has it."
    )


def _candidates(name: str) -> Iterator[Path]:
    """Files and folders that may hold a data set, in the data folder and one level below, the likeliest first."""
    root = data_folder()
    try:
        places = [root, *sorted(path for path in root.iterdir() if path.is_dir())]
    except OSError:
        return
    places += [place / "datasets" for place in places]  # as in the repository of CIFAR-10.1
    for place in places:
        for layout in SOURCES.find(name).layouts:
            yield from (path for path in (place / layout.folder, place / layout.archive) if path.exists())
        for pattern in (f"{name}.npz", f"{name}_*.npz", f"{name}_*data.npy"):
            yield from sorted(place.glob(pattern))
    for folder in (place / name for place in places):
        if any(next(folder.glob(pattern), None) for pattern in ("*/*.png", "*/*/*.png")):
            yield folder


@lru_cache(maxsize=3)
def _load(name: str, path: Path, changed: float) -> ImageSet:
    source = SOURCES[name]
    layout = next((one for one in source.layouts if path.name in (one.folder, one.archive)), None)
    official: bool | None = None
    if layout is not None:
        train, test, official = layout.read(path, source.classes)
        parts = [train, test]
    elif path.is_file():
        labels = path.with_name(path.name.replace("_data.npy", "_labels.npy")) if path.suffix == ".npy" else None
        if labels is not None and not labels.is_file():
            raise ValueError(f"{path} has no labels: {labels.name} is missing. Put it in the same folder.")
        parts = [read_arrays(path, labels, source.classes)]
    else:
        halves = [path / "train", path / "test"]
        folders = halves if all(half.is_dir() for half in halves) else [path]
        parts = [read_class_folders(folder, source.classes) for folder in folders]
    return _combined(source, parts, path, official)


def _combined(source: Source, parts: list[ImagePart], path: Path, official: bool | None) -> ImageSet:
    """Make one set of a training and a test part, or of a single part.

    In a single part every other image of a class plays the test part. All of them do if there is only a test part.
    """
    images, labels = np.concatenate([p.images for p in parts]), np.concatenate([p.labels for p in parts])
    counts = np.bincount(labels, minlength=source.classes)
    if (counts == 0).any():
        labels_missing = ", ".join(map(str, np.flatnonzero(counts == 0)[:5]))
        last = source.classes - 1
        raise ValueError(f"{path}: no image has the label {labels_missing}. {source.title} has the labels 0 to {last}.")
    if len(parts) == 2:
        is_test = np.arange(len(labels)) >= len(parts[0].labels)
    else:
        is_test = np.full(len(labels), source.only_test)
        for label in range(source.classes):
            is_test[np.flatnonzero(labels == label)[1::2]] = True
    offers = [*(part.classes for part in parts), source.names, tuple(map(str, range(source.classes)))]
    classes = next(names for names in offers if len(names) == source.classes)
    if official:
        how = "the official files, by their checksums"
    elif official is None and len(labels) in source.sizes:
        how = "as many as in the official files"
    else:
        how = f"not the official {' or '.join(f'{size:,}' for size in source.sizes)} images"
    return ImageSet(source.title, images, labels, classes, is_test, f"{path.name} ({len(labels):,} images: {how})")
