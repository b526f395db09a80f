"""Image sets by name: the digits, and CIFAR-10, CIFAR-100 and CIFAR-10.1 if they are in ``M2ST_DATA``.

A data set is read from its official folder or archive, from NumPy arrays, or from a folder of PNGs for each class.
Nothing is downloaded, and nothing is unpacked on disk.
"""

from __future__ import annotations

import hashlib
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property, lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from m2st_core.data.images.pickles import read_pickle
from m2st_core.environment import data_folder
from m2st_core.rng import Streams
from m2st_core.types import Registry, Shape

TRAINING_SHARE = 1 / 3
SIDE, CHANNELS = 32, 3  # of a CIFAR image
PIXELS = SIDE * SIDE * CHANNELS
MOST_BYTES = 2**30  # per file
IMAGE_KEYS, LABEL_KEYS = ("images", "x", "data"), ("labels", "y", "fine_labels", "targets")
NAME_KEYS = ("label_names", "classes", "class_names")
TORONTO = "https://www.cs.toronto.edu/~kriz/cifar.html"
CIFAR_10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


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


class MissingData(ValueError):
    """A data set is not on this machine. The message says what to download and where to put it."""


@dataclass(frozen=True)
class ImagePart:
    """Images (n, h, w, c) as bytes with their labels (n,), and the class names where the files have them."""

    images: np.ndarray
    labels: np.ndarray
    classes: tuple[str, ...] = ()


Decode = Callable[[bytes, int, str], ImagePart]
"""(content of a file, number of classes, its name) → images and labels."""


@dataclass(frozen=True)
class Layout:
    """The layout of an official archive. ``train`` and ``test`` map file names to their MD5, or to "" if unknown."""

    folder: str
    archive: str
    archive_md5: str
    train: Mapping[str, str]
    test: Mapping[str, str]
    names: str
    decode: Decode

    def read(self, source: Path, classes: int) -> tuple[ImagePart, ImagePart, bool | None]:
        """Return the training part, the test part, and whether the checksums match (None if they are unknown)."""
        checksums = {**self.train, **self.test}
        read = _files_of_archive if source.is_file() else _files_of_folder
        files = read(source, {*checksums, self.names})
        if lacking := [name for name in checksums if name not in files]:
            raise ValueError(f"{source}: {lacking[0]} is missing. Unpack {self.archive} again.")
        names = _class_names(files.get(self.names), f"{source}: {self.names}")

        def joined(wanted: Mapping[str, str]) -> ImagePart:
            batches = [self.decode(files[name], classes, f"{source}: {name}") for name in wanted]
            images, labels = [batch.images for batch in batches], [batch.labels for batch in batches]
            return ImagePart(np.concatenate(images), np.concatenate(labels), names)

        official: bool | None = None
        if source.is_file():
            official = md5(source.read_bytes()) == self.archive_md5
        elif all(checksums.values()):
            official = all(md5(files[name]) == checksum for name, checksum in checksums.items())
        return joined(self.train), joined(self.test), official


def md5(data: bytes) -> str:
    """The checksum that the publishers of the images give."""
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def _files_of_folder(folder: Path, wanted: set[str]) -> dict[str, bytes]:
    """Read the wanted files that exist."""
    paths = {name: folder / name for name in wanted if (folder / name).is_file()}
    for path in paths.values():
        if path.stat().st_size > MOST_BYTES:
            raise ValueError(f"{path} has {path.stat().st_size:,} bytes, too many for images of this kind.")
    return {name: path.read_bytes() for name, path in paths.items()}


def _files_of_archive(path: Path, wanted: set[str]) -> dict[str, bytes]:
    """Read the wanted regular files of a .tar.gz into memory, by their last name."""
    files = {}
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                name = PurePosixPath(member.name).name
                if name in wanted and member.isreg() and member.size <= MOST_BYTES:
                    if content := archive.extractfile(member):
                        files[name] = content.read()
    except (tarfile.TarError, EOFError, OSError, ValueError):
        raise ValueError(f"{path} is damaged or cut off. Download it again.") from None
    return files


def _class_names(data: bytes | None, where: str) -> tuple[str, ...]:
    """Class names from ``batches.meta``, ``meta`` or a text file; none if there is no such file."""
    if data is None:
        return ()
    if where.endswith(".txt"):
        return tuple(line.strip() for line in data.decode("utf-8", "replace").splitlines() if line.strip())
    meta = _read_batch(data, where)
    return tuple(_word(name) for name in meta.get("label_names") or meta.get("fine_label_names") or [])


def _decode_pickle(data: bytes, classes: int, where: str) -> ImagePart:
    """Read a batch of the Python version: ``data`` (n, 3072), and ``labels`` or ``fine_labels``."""
    batch = _read_batch(data, where)
    images = batch.get("data")
    labels = batch.get("labels" if "labels" in batch else "fine_labels")
    if not isinstance(images, np.ndarray):
        raise ValueError(f"{where} has no images: the array 'data' is missing.")
    if labels is None:
        raise ValueError(f"{where} has no labels: the list 'labels' is missing.")
    return _check_part(images, labels, classes, where)


def _read_batch(data: bytes, where: str) -> dict[str, Any]:
    """The values of a pickled dictionary by name."""
    return {_word(key): value for key, value in read_pickle(data, where).items()}


def _word(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _decode_binary(data: bytes, classes: int, where: str) -> ImagePart:
    """Read records of the binary version: one label (CIFAR-100: two, the fine one last), then 3,072 pixels."""
    labels = 1 if classes == 10 else 2
    size = labels + PIXELS
    if not data or len(data) % size:
        raise ValueError(f"{where} is cut off: {len(data):,} bytes are not a multiple of the {size} bytes of an image.")
    records = np.frombuffer(data, np.uint8).reshape(-1, size)
    return _check_part(records[:, labels:], records[:, labels - 1], classes, where)


def _read_arrays(images: Path, labels: Path | None, classes: int) -> ImagePart:
    """Read an .npz with images and labels, or an .npy of images beside one of labels; never pickled objects."""
    arrays = _load_arrays(images)
    if labels is not None:
        arrays |= {"labels": _load_arrays(labels).get("", np.zeros(0))}
    named = arrays.get(next((key for key in NAME_KEYS if key in arrays), ""))
    names = () if named is None or named.dtype.kind != "U" else tuple(map(str, named.ravel()))
    pixels = arrays[""] if "" in arrays else _pick(arrays, IMAGE_KEYS, f"{images} has no images")
    return _check_part(pixels, _pick(arrays, LABEL_KEYS, f"{images} has no labels"), classes, str(images), names)


def _pick(arrays: Mapping[str, np.ndarray], keys: tuple[str, ...], complaint: str) -> np.ndarray:
    """Return the array with the first of these names."""
    for key in keys:
        if key in arrays:
            return arrays[key]
    raise ValueError(f"{complaint}: none of its arrays is called {', '.join(keys)}.")


def _load_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an .npz by name; the one of an .npy has the name ""."""
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return {"": loaded}
        with loaded:
            if sum(member.file_size for member in loaded.zip.infolist()) > MOST_BYTES:
                raise ValueError
            return {name: loaded[name] for name in loaded.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error, MemoryError):
        raise ValueError(f"{path} is not a NumPy file of plain numbers. Save it again with numpy.save.") from None


def _read_class_folders(folder: Path, classes: int) -> ImagePart:
    """Read one folder of PNGs per class. Classes are numbered in the order of their names."""
    from PIL import Image, UnidentifiedImageError

    folders = [path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")]
    numbered = all(path.name.isdecimal() for path in folders)
    folders.sort(key=lambda path: (int(path.name) if numbered else 0, path.name))
    if len(folders) != classes:
        raise ValueError(f"{folder} has {len(folders)} folders. Bring one with PNGs for each of the {classes} classes.")
    files = [(label, path) for label, of_class in enumerate(folders) for path in sorted(of_class.glob("*.png"))]
    images = []
    for _, path in files:
        try:
            with Image.open(path, formats=["PNG"]) as opened:
                if opened.size != (SIDE, SIDE):
                    raise ValueError(f"{path} has {opened.width}×{opened.height} pixels. Bring {SIDE}×{SIDE}.")
                images.append(np.asarray(opened.convert("RGB")))
        except (UnidentifiedImageError, OSError, SyntaxError):
            raise ValueError(f"{path} is not a readable PNG image. Remove it or save it again.") from None
    if not images:
        raise ValueError(f"{folder} has no PNG images in its class folders.")
    labels = [label for label, _ in files]
    return _check_part(np.stack(images), labels, classes, str(folder), tuple(path.name for path in folders))


def _check_part(images: np.ndarray, labels: object, classes: int, where: str, names: tuple[str, ...] = ()) -> ImagePart:
    """Check images (n, 32, 32, 3), as bytes with one label each. (n, 3, 32, 32) and (n, 3072) are rearranged."""
    if images.dtype != np.uint8:
        raise ValueError(f"{where}: the images are {images.dtype}. Bring bytes (uint8) from 0 to 255.")
    if images.ndim == 2 and images.shape[1] == PIXELS:
        images = images.reshape(-1, CHANNELS, SIDE, SIDE)
    if images.shape[1:] == (CHANNELS, SIDE, SIDE):
        images = images.transpose(0, 2, 3, 1)
    if images.shape[1:] != (SIDE, SIDE, CHANNELS) or not len(images):
        raise ValueError(f"{where}: the images have the shape {images.shape}. Bring (n, {SIDE}, {SIDE}, {CHANNELS}).")
    numbers = np.asarray(labels)
    if numbers.ndim == 2 and numbers.shape[1] == 1:
        numbers = numbers[:, 0]
    if numbers.dtype.kind not in "iu" or numbers.ndim != 1:
        raise ValueError(f"{where}: the labels are not a list of whole numbers. Bring one for each image.")
    if len(numbers) != len(images):
        raise ValueError(f"{where}: there are {len(images):,} images and {len(numbers):,} labels. Bring one for each.")
    if numbers.min() < 0 or numbers.max() >= classes:
        raise ValueError(f"{where}: the label {numbers.max()} is not one of 0 to {classes - 1}. Correct the labels.")
    return ImagePart(np.ascontiguousarray(images), numbers.astype(np.int64), names)


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
        folder="cifar-10-batches-py", archive="cifar-10-python.tar.gz", archive_md5="c58f30108f718f92721af3b95e74349a",
        train={
            "data_batch_1": "c99cafc152244af753f735de768cd75f",
            "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
            "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
            "data_batch_4": "634d18415352ddfa80567beed471001a",
            "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
        },
        test={"test_batch": "40351d587109b95175f43aff81a1287e"}, names="batches.meta", decode=_decode_pickle,
    ),
    Layout(
        folder="cifar-10-batches-bin", archive="cifar-10-binary.tar.gz", archive_md5="c32a1d4ab5d03f1284b67883e8d87530",
        train={f"data_batch_{index}.bin": "" for index in range(1, 6)}, test={"test_batch.bin": ""},
        names="batches.meta.txt", decode=_decode_binary,
    ),
)  # fmt: skip
CIFAR_100_LAYOUTS = (
    Layout(
        folder="cifar-100-python", archive="cifar-100-python.tar.gz", archive_md5="eb9058c3a382ffc7106e4002c42a8d85",
        train={"train": "16019d7e3df5f24257cddd939b257f8d"}, test={"test": "f0ef6b0ae62326f3e7ffdfab6717acfc"},
        names="meta", decode=_decode_pickle,
    ),
    Layout(
        folder="cifar-100-binary", archive="cifar-100-binary.tar.gz", archive_md5="03b5dce01913d631647c71ecec9e9cb8",
        train={"train.bin": ""}, test={"test.bin": ""}, names="fine_label_names.txt", decode=_decode_binary,
    ),
)  # fmt: skip
CIFAR_10_1_FILES = "cifar10.1_v4_data.npy and cifar10.1_v4_labels.npy from https://github.com/modestyachts/CIFAR-10.1"
_SOURCES = {
    "cifar10": Source(
        "CIFAR-10", 10, f"cifar-10-python.tar.gz from {TORONTO}", (60_000,), CIFAR_10_LAYOUTS, CIFAR_10_CLASSES
    ),
    "cifar100": Source("CIFAR-100", 100, f"cifar-100-python.tar.gz from {TORONTO}", (60_000,), CIFAR_100_LAYOUTS),
    "cifar10.1": Source("CIFAR-10.1", 10, CIFAR_10_1_FILES, (2_021, 2_000), names=CIFAR_10_CLASSES, only_test=True),
}
SOURCES: Registry[Source] = Registry("data set", _SOURCES)


def load_images(name: str) -> ImageSet:
    """Load the digits, or a data set from the user's folder, else raise MissingData with a remedy.

    A data set is cached until its file changes.
    """
    if name == "digits":
        return digit_images()
    if sentence := missing_images(name):
        raise MissingData(sentence)
    path = next(_candidates(name))
    return _load(name, path, path.stat().st_mtime)


def missing_images(name: str) -> str:
    """Say what to download and where to put it; empty if there is something to read."""
    source = SOURCES[name]
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
        folders = [root, *sorted(path for path in root.iterdir() if path.is_dir())]
    except OSError:
        return
    folders += [folder / "datasets" for folder in folders]  # as in the repository of CIFAR-10.1
    for folder in folders:
        for layout in SOURCES[name].layouts:
            yield from (path for path in (folder / layout.folder, folder / layout.archive) if path.exists())
        for pattern in (f"{name}.npz", f"{name}_*.npz", f"{name}_*data.npy"):
            yield from sorted(folder.glob(pattern))
    for path in (folder / name for folder in folders):
        if any(next(path.glob(pattern), None) for pattern in ("*/*.png", "*/*/*.png")):
            yield path


@lru_cache(maxsize=3)
def _load(name: str, path: Path, changed: float) -> ImageSet:
    """Read a data set and make one set of its training and test part, or of its single part.

    Of a single part, every other image of a class counts as test image, or all if there is no training part.
    """
    source = SOURCES[name]
    layout = next((layout for layout in source.layouts if path.name in (layout.folder, layout.archive)), None)
    official: bool | None = None
    if layout is not None:
        *parts, official = layout.read(path, source.classes)
    elif path.is_file():
        labels_file = path.with_name(path.name.replace("_data.npy", "_labels.npy")) if path.suffix == ".npy" else None
        if labels_file is not None and not labels_file.is_file():
            raise ValueError(f"{path} has no labels: {labels_file.name} is missing. Put it in the same folder.")
        parts = [_read_arrays(path, labels_file, source.classes)]
    else:
        halves = [path / "train", path / "test"]
        folders = halves if all(half.is_dir() for half in halves) else [path]
        parts = [_read_class_folders(folder, source.classes) for folder in folders]
    images, labels = np.concatenate([p.images for p in parts]), np.concatenate([p.labels for p in parts])
    counts = np.bincount(labels, minlength=source.classes)
    if (counts == 0).any():
        without = ", ".join(map(str, np.flatnonzero(counts == 0)[:5]))
        last = source.classes - 1
        raise ValueError(f"{path}: no image has the label {without}. {source.title} has the labels 0 to {last}.")
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
