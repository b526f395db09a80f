"""CIFAR-10, CIFAR-100 and CIFAR-10.1, where the user has them: ``M2ST_DATA`` is searched, nothing is downloaded."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from m2st_core.data.images.files import Layout, decode_binary, decode_pickle, read_arrays, read_class_folders
from m2st_core.data.images.sets import ImagePart, ImageSet, combine
from m2st_core.registry import Registry

TORONTO = "https://www.cs.toronto.edu/~kriz/cifar.html"
CIFAR_10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


class MissingData(ValueError):
    """A data set that is not on this machine; the message says what to download and where to put it."""


@dataclass(frozen=True)
class Source:
    """A data set that can be found: by its official layouts, as arrays, or as folders of PNGs."""

    title: str
    classes: int
    layouts: tuple[Layout, ...]
    arrays: tuple[str, ...]  # patterns of .npz files, or of .npy files of images
    folder: str  # of PNGs by class, or of train/ and test/ with them
    download: str
    sizes: tuple[int, ...]  # images in all, of the official versions
    names: tuple[str, ...] = ()  # of the classes, where the files have none
    only_test: bool = False


SOURCES: Registry[Source] = Registry(
    "data set",
    {
        "cifar10": Source(
            "CIFAR-10",
            10,
            (
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
            ),
            ("cifar10.npz", "cifar10_*.npz", "cifar10_data.npy"),
            "cifar10",
            f"cifar-10-python.tar.gz from {TORONTO}",
            (60_000,),
            CIFAR_10_CLASSES,
        ),
        "cifar100": Source(
            "CIFAR-100",
            100,
            (
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
            ),
            ("cifar100.npz", "cifar100_*.npz", "cifar100_data.npy"),
            "cifar100",
            f"cifar-100-python.tar.gz from {TORONTO}",
            (60_000,),
        ),
        "cifar10.1": Source(
            "CIFAR-10.1",
            10,
            (),
            ("cifar10.1_v4_data.npy", "cifar10.1_v6_data.npy", "cifar10.1.npz", "cifar10.1_*.npz"),
            "cifar10.1",
            "cifar10.1_v4_data.npy and cifar10.1_v4_labels.npy from https://github.com/modestyachts/CIFAR-10.1",
            (2_021, 2_000),
            CIFAR_10_CLASSES,
            only_test=True,
        ),
    },
)


def data_folder() -> Path:
    """``M2ST_DATA``, or the folder ``data`` where results are kept."""
    home = Path(os.environ.get("M2ST_HOME") or Path.home() / ".m2st")
    return Path(os.environ.get("M2ST_DATA") or home / "data")


def load_images(name: str) -> ImageSet:
    """A data set from the user's folder; a MissingData says what to do if it is not there.

    What was read once is kept as long as the file that it came from does not change.
    """
    found = find_images(name)
    if found is None:
        raise MissingData(missing_images(name))
    return _load(name, found, found.stat().st_mtime)


def find_images(name: str) -> Path | None:
    """Where a data set is: the first file or folder that may hold it, in the data folder or one below."""
    return next(_candidates(SOURCES.find(name)), None)


def missing_images(name: str) -> str:
    """What to download and where to put it; empty if there is something to read."""
    source = SOURCES.find(name)
    if find_images(name) is not None:
        return ""
    return (
        f"{source.title} is not in {data_folder()}: put {source.download} there, packed or unpacked, "
        "or set M2ST_DATA to the folder that has it."
    )


def _candidates(source: Source) -> Iterator[Path]:
    root = data_folder()
    try:
        places = [root, *sorted(path for path in root.iterdir() if path.is_dir())]
    except OSError:
        return
    places += [place / "datasets" for place in places]  # as in the repository of CIFAR-10.1
    for place in places:
        official = [place / name for layout in source.layouts for name in (layout.folder, layout.archive)]
        arrays = [path for pattern in source.arrays for path in sorted(place.glob(pattern))]
        yield from (path for path in [*official, *arrays] if path.exists())
    yield from (place / source.folder for place in places if _has_pictures(place / source.folder))


def _has_pictures(folder: Path) -> bool:
    return any(next(folder.glob(pattern), None) for pattern in ("*/*.png", "*/*/*.png"))


@lru_cache(maxsize=3)
def _load(name: str, path: Path, changed: float) -> ImageSet:
    source = SOURCES[name]
    layout = next((one for one in source.layouts if path.name in (one.folder, one.archive)), None)
    train: ImagePart | None
    test: ImagePart | None
    official: bool | None = None
    if layout is not None:
        train, test, official = layout.read(path, source.classes)
    elif path.is_file():
        labels = path.with_name(path.name.replace("_data.npy", "_labels.npy")) if path.suffix == ".npy" else None
        if labels is not None and not labels.is_file():
            raise ValueError(f"{path} has no labels: {labels.name} is missing. Put it beside it.")
        train, test = None, read_arrays(path, labels, source.classes)
    else:
        inner = [path / part for part in ("train", "test")]
        if all(part.is_dir() for part in inner):
            train, test = (read_class_folders(part, source.classes) for part in inner)
        else:
            train, test = None, read_class_folders(path, source.classes)
    count = sum(len(part.labels) for part in (train, test) if part is not None)
    origin = _origin(path, count, source, official)
    return combine(source.title, source.classes, train, test, str(path), origin, source.names, source.only_test)


def _origin(path: Path, count: int, source: Source, official: bool | None) -> str:
    if official:
        how = "the official files, by their checksums"
    elif official is None and count in source.sizes:
        how = "as many as in the official files"
    else:
        how = f"not the official {' or '.join(f'{size:,}' for size in source.sizes)} images"
    return f"{path.name} ({count:,} images: {how})"
