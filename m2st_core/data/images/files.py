"""Read image files as people have them: official folders and archives, arrays, folders of PNGs. Nothing is unpacked."""

from __future__ import annotations

import hashlib
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from m2st_core.data.images.pickles import read_pickle

SIDE, CHANNELS = 32, 3  # of a CIFAR image
PIXELS = SIDE * SIDE * CHANNELS
MOST_BYTES = 2**30  # per file
IMAGE_KEYS, LABEL_KEYS = ("images", "x", "data"), ("labels", "y", "fine_labels", "targets")
NAME_KEYS = ("label_names", "classes", "class_names")


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
        for name in checksums:
            if name not in files:
                raise ValueError(f"{source}: {name} is missing. Unpack {self.archive} again.")
        names = _class_names(files.get(self.names), f"{source}: {self.names}")

        def joined(wanted: Mapping[str, str]) -> ImagePart:
            parts = [self.decode(files[name], classes, f"{source}: {name}") for name in wanted]
            images, labels = [part.images for part in parts], [part.labels for part in parts]
            return ImagePart(np.concatenate(images), np.concatenate(labels), names)

        official: bool | None = None
        if source.is_file():
            official = md5(source.read_bytes()) == self.archive_md5
        elif all(checksums.values()):
            official = all(md5(files[name]) == checksum for name, checksum in checksums.items())
        return joined(self.train), joined(self.test), official


def md5(data: bytes) -> str:
    """The checksum that the publishers of the images state."""
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
    meta = _by_word(read_pickle(data, where))
    return tuple(_word(name) for name in meta.get("label_names") or meta.get("fine_label_names") or [])


def decode_pickle(data: bytes, classes: int, where: str) -> ImagePart:
    """Read a batch of the Python version: ``data`` (n, 3072), and ``labels`` or ``fine_labels``."""
    batch = _by_word(read_pickle(data, where))
    images = batch.get("data")
    labels = batch.get("labels" if "labels" in batch else "fine_labels")
    if not isinstance(images, np.ndarray):
        raise ValueError(f"{where} has no images: the array 'data' is missing.")
    if labels is None:
        raise ValueError(f"{where} has no labels: the list 'labels' is missing.")
    return check_part(images, labels, classes, where)


def decode_binary(data: bytes, classes: int, where: str) -> ImagePart:
    """Read records of the binary version: one label (CIFAR-100: two, the fine one last), then 3,072 pixels."""
    labels = 1 if classes == 10 else 2
    if not data or len(data) % (labels + PIXELS):
        size = labels + PIXELS
        raise ValueError(f"{where} is cut off: {len(data):,} bytes are not a multiple of the {size} bytes of an image.")
    records = np.frombuffer(data, np.uint8).reshape(-1, labels + PIXELS)
    return check_part(records[:, labels:], records[:, labels - 1], classes, where)


def read_arrays(images: Path, labels: Path | None, classes: int) -> ImagePart:
    """Read an .npz with images and labels, or an .npy of images beside one of labels; never pickled objects."""
    arrays = _load(images)
    if labels is not None:
        arrays |= {"labels": _load(labels).get("", np.zeros(0))}
    named = arrays.get(next((key for key in NAME_KEYS if key in arrays), ""))
    names = () if named is None or named.dtype.kind != "U" else tuple(map(str, named.ravel()))
    pixels = arrays[""] if "" in arrays else _pick(arrays, IMAGE_KEYS, f"{images} has no images")
    return check_part(pixels, _pick(arrays, LABEL_KEYS, f"{images} has no labels"), classes, str(images), names)


def _pick(arrays: Mapping[str, np.ndarray], keys: tuple[str, ...], complaint: str) -> np.ndarray:
    """Return the array that goes by the first of these names."""
    for key in keys:
        if key in arrays:
            return arrays[key]
    raise ValueError(f"{complaint}: none of its arrays is called {', '.join(keys)}.")


def _load(path: Path) -> dict[str, np.ndarray]:
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


def read_class_folders(folder: Path, classes: int) -> ImagePart:
    """Read one folder of PNGs per class. Classes are numbered in the order of their names."""
    from PIL import Image, UnidentifiedImageError

    folders = [path for path in folder.iterdir() if path.is_dir() and not path.name.startswith(".")]
    numbered = all(path.name.isdecimal() for path in folders)
    folders.sort(key=lambda path: (int(path.name) if numbered else 0, path.name))
    if len(folders) != classes:
        raise ValueError(f"{folder} has {len(folders)} folders. Bring one with PNGs for each of the {classes} classes.")
    images, labels = [], []
    for label, own in enumerate(folders):
        for path in sorted(own.glob("*.png")):
            try:
                with Image.open(path, formats=["PNG"]) as opened:
                    if opened.size != (SIDE, SIDE):
                        raise ValueError(f"{path} has {opened.width}×{opened.height} pixels. Bring {SIDE}×{SIDE}.")
                    images.append(np.asarray(opened.convert("RGB")))
            except (UnidentifiedImageError, OSError, SyntaxError):
                raise ValueError(f"{path} is not a readable PNG image. Remove it or save it again.") from None
            labels.append(label)
    if not images:
        raise ValueError(f"{folder} has no PNG images in its class folders.")
    return check_part(np.stack(images), labels, classes, str(folder), tuple(path.name for path in folders))


def check_part(images: np.ndarray, labels: object, classes: int, where: str, names: tuple[str, ...] = ()) -> ImagePart:
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


def _by_word(values: dict[Any, Any]) -> dict[str, Any]:
    return {_word(key): value for key, value in values.items()}


def _word(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
