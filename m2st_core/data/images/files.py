"""Image files as people have them: official folders and archives, arrays, folders of PNGs. Nothing is unpacked."""

from __future__ import annotations

import hashlib
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from m2st_core.data.images.pickles import read_pickle
from m2st_core.data.images.sets import PIXELS, SIDE, ImagePart, check_part

MOST_BYTES = 2**30  # of one file
IMAGE_KEYS, LABEL_KEYS = ("images", "x", "data"), ("labels", "y", "fine_labels", "targets")
NAME_KEYS = ("label_names", "classes", "class_names")

Decode = Callable[[bytes, int, str], ImagePart]
"""(a file, number of classes, its name) → images and labels."""


@dataclass(frozen=True)
class Layout:
    """How an official archive is laid out; ``train`` and ``test`` map file names to their MD5, where it is known."""

    folder: str
    archive: str
    archive_md5: str
    train: Mapping[str, str]
    test: Mapping[str, str]
    names: str
    decode: Decode

    def read(self, source: Path, classes: int) -> tuple[ImagePart, ImagePart, bool | None]:
        """Training part, test part, and whether the checksums match (None: they are not known)."""
        wanted = {*self.train, *self.test, self.names}
        files = files_of_archive(source, wanted) if source.is_file() else files_of_folder(source, wanted)
        sums = {**self.train, **self.test}
        for name in sums:
            if name not in files:
                raise ValueError(f"{source}: {name} is missing. Unpack {self.archive} again.")
        names = class_names(files.get(self.names), f"{source}: {self.names}")
        train, test = (
            joined([self.decode(files[name], classes, f"{source}: {name}") for name in part], names)
            for part in (self.train, self.test)
        )
        if source.is_file():
            return train, test, md5(source.read_bytes()) == self.archive_md5
        return train, test, all(md5(files[n]) == s for n, s in sums.items()) if all(sums.values()) else None


def md5(data: bytes) -> str:
    """The checksum that the publishers of the images state."""
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def joined(parts: list[ImagePart], names: tuple[str, ...]) -> ImagePart:
    """The images of several files, in their order."""
    return ImagePart(np.concatenate([p.images for p in parts]), np.concatenate([p.labels for p in parts]), names)


def files_of_folder(folder: Path, wanted: Iterable[str]) -> dict[str, bytes]:
    """The wanted files that are there."""
    found = {}
    for name in wanted:
        path = folder / name
        if path.is_file():
            if path.stat().st_size > MOST_BYTES:
                raise ValueError(f"{path} has {path.stat().st_size:,} bytes, too many for images of this kind.")
            found[name] = path.read_bytes()
    return found


def files_of_archive(path: Path, wanted: set[str]) -> dict[str, bytes]:
    """The wanted regular files of a .tar.gz, by their last name, in memory."""
    found = {}
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                name = PurePosixPath(member.name).name
                if name in wanted and member.isreg() and member.size <= MOST_BYTES:
                    opened = archive.extractfile(member)
                    assert opened is not None
                    found[name] = opened.read()
    except (tarfile.TarError, EOFError, OSError, ValueError):
        raise ValueError(f"{path} is damaged or cut off. Download it again.") from None
    return found


def class_names(data: bytes | None, where: str) -> tuple[str, ...]:
    """Names of the classes from ``batches.meta``, ``meta`` or a text file; none if there is no such file."""
    if data is None:
        return ()
    if where.endswith(".txt"):
        return tuple(line.strip() for line in data.decode("utf-8", "replace").splitlines() if line.strip())
    meta = _by_word(read_pickle(data, where))
    names = meta.get("label_names") or meta.get("fine_label_names") or []
    return tuple(_word(name) for name in names)


def decode_pickle(data: bytes, classes: int, where: str) -> ImagePart:
    """A batch of the Python version: ``data`` (n, 3072), and ``labels`` or ``fine_labels``."""
    batch = _by_word(read_pickle(data, where))
    images = batch.get("data")
    labels = batch.get("labels" if "labels" in batch else "fine_labels")
    if not isinstance(images, np.ndarray):
        raise ValueError(f"{where} has no images: the array 'data' is missing.")
    if labels is None:
        raise ValueError(f"{where} has no labels: the list 'labels' is missing.")
    return check_part(images, labels, classes, where)


def decode_binary(data: bytes, classes: int, where: str) -> ImagePart:
    """Records of the binary version: one label (of CIFAR-100 two, the fine one last), then 3,072 pixels."""
    labels = 1 if classes == 10 else 2
    if not data or len(data) % (labels + PIXELS):
        raise ValueError(
            f"{where} is cut off: {len(data):,} bytes are no whole number of {labels + PIXELS}-byte images."
        )
    records = np.frombuffer(data, np.uint8).reshape(-1, labels + PIXELS)
    return check_part(records[:, labels:], records[:, labels - 1], classes, where)


def read_arrays(images: Path, labels: Path | None, classes: int) -> ImagePart:
    """An .npz that has images and labels, or an .npy of images beside one of labels; never with pickled objects."""
    arrays = _load(images)
    if labels is not None:
        arrays |= {"labels": _load(labels).get("", np.zeros(0))}
    found, given, named = (
        next((arrays[key] for key in keys if key in arrays), None)
        for keys in (("", *IMAGE_KEYS), LABEL_KEYS, NAME_KEYS)
    )
    if found is None:
        raise ValueError(f"{images} has no images: none of its arrays is called {', '.join(IMAGE_KEYS)}.")
    if given is None:
        what = (
            f"none of its arrays is called {', '.join(LABEL_KEYS)}" if images.suffix == ".npz" else "add a second file"
        )
        raise ValueError(f"{images} has no labels: {what}.")
    names = () if named is None or named.dtype.kind != "U" else tuple(map(str, named.ravel()))
    return check_part(found, given, classes, str(images), names)


def _load(path: Path) -> dict[str, np.ndarray]:
    """The arrays of an .npz by name; the one of an .npy has no name."""
    try:
        loaded = np.load(path, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            return {"": loaded}
        with loaded:
            if sum(member.file_size for member in loaded.zip.infolist()) > MOST_BYTES:
                raise ValueError
            return {name: loaded[name] for name in loaded.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error, MemoryError):
        raise ValueError(f"{path} is no readable NumPy file of plain numbers. Save it again with numpy.save.") from None


def read_class_folders(folder: Path, classes: int) -> ImagePart:
    """A folder of PNGs for each class; classes are numbered in the order of their names."""
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
                raise ValueError(f"{path} is no readable PNG image. Remove it or save it again.") from None
            labels.append(label)
    if not images:
        raise ValueError(f"{folder} has no PNG images in the folders of its classes.")
    return check_part(np.stack(images), labels, classes, str(folder), tuple(path.name for path in folders))


def _by_word(values: dict[Any, Any]) -> dict[str, Any]:
    return {_word(key): value for key, value in values.items()}


def _word(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
