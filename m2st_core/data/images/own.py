"""A user's own images: folders, ZIPs or uploaded files of PNGs and JPEGs, read one at a time and bounded."""

from __future__ import annotations

import io
import os
import zipfile
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO

import numpy as np

from m2st_core.data.images.decode import EXTENSIONS, MOST_BYTES, SIDE, ImageFileError, check_bytes, decode, suffix_of
from m2st_core.types import Progress, listed

MOST_IMAGES, MOST_HISTORY = 2_000, 2_000  # of one sample, of all earlier comparisons
MOST_UNPACKED = 1_000 * 2**20  # bytes of all files of one ZIP
STARTS = (b"\x89PNG\r\n", b"\xff\xd8\xff")  # of a PNG and of a JPEG, whatever they are called
OTHER_IMAGES = {".gif", ".svg", ".bmp", ".tif", ".tiff", ".webp", ".heic", ".heif", ".avif", ".ico", ".psd", ".eps"}

File = tuple[str, bytes]
"""The name and the content of an uploaded file."""
Source = str | Path | Sequence[File]
"""A folder or ZIP by its path; or uploaded files, images and ZIPs."""


@dataclass(frozen=True)
class ImageSample:
    """Images (n, S, S, 3) as bytes, the names of their files, and what was done to them in words."""

    images: np.ndarray = field(repr=False)
    names: tuple[str, ...] = field(repr=False)
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.images)


def _for_one(what: str) -> str:
    """What was done to images, said of one image."""
    verb, _, rest = what.partition(" ")
    return f"{ {'were': 'was', 'are': 'is', 'have': 'has'}.get(verb, verb) } {rest}"


class _Gathered:
    """The images of one sample so far."""

    def __init__(self) -> None:
        self.images: list[np.ndarray] = []
        self.names: list[str] = []
        self.changes: Counter[str] = Counter()

    def sample(self, passed: Sequence[str] = ()) -> ImageSample:
        notes = [
            f"{count} of {len(self.images)} images {_for_one(what) if count == 1 else what}."
            for what, count in sorted(self.changes.items())
        ]
        if passed:
            notes.append(f"Passed over, since they are not images: {listed(passed, 3)}.")
        return ImageSample(np.stack(self.images), tuple(self.names), tuple(notes))


def read_images(source: Source, side: int = SIDE, progress: Progress | None = None) -> ImageSample:
    """Read a folder or a ZIP by its path, or uploaded files by name and content."""
    found, passed = _gather(source, side, lambda name: ("", ""), MOST_IMAGES, progress)
    return found["", ""].sample(passed)


def read_image_history(
    source: Source, side: int = SIDE, progress: Progress | None = None
) -> dict[str, tuple[ImageSample, ImageSample]]:
    """Read earlier comparisons: a folder or ZIP with a folder for each, which has two folders of images."""
    found, _ = _gather(source, side, _folders, MOST_HISTORY, progress)
    tasks: dict[str, list[ImageSample]] = {}
    for (task, _), gathered in found.items():
        tasks.setdefault(task, []).append(gathered.sample())
    for task, groups in tasks.items():
        if not task or len(groups) != 2:
            raise ImageFileError(
                f"The history's folder {task!r} has {len(groups)} folders of images. Bring a folder for each earlier "
                "comparison, with two folders of images in it."
            )
    parts = [PurePosixPath(task).parts for task in tasks]
    common = len(os.path.commonprefix(parts)) if len(parts) > 1 else len(parts[0]) - 1
    names = ["/".join(own[common:]) or own[-1] for own in parts]
    return {name: (groups[0], groups[1]) for name, groups in zip(names, tasks.values(), strict=True)}


def _folders(name: str) -> tuple[str, str]:
    """The folder of the comparison that an image belongs to, and the folder of its group therein."""
    folders = PurePosixPath(name).parts[:-1]
    return "/".join(folders[:-1]), "/".join(folders[-1:])


def _gather(
    source: Source, side: int, place: Callable[[str], tuple[str, str]], most: int, progress: Progress | None
) -> tuple[dict[tuple[str, str], _Gathered], list[str]]:
    """Decode every image into the sample of its place; and the files that are no images."""
    found: dict[tuple[str, str], _Gathered] = {}
    passed, count = [], 0
    for name, data in _files(source):
        if not _called_image(name) and not data.startswith(STARTS):
            passed.append(name)
            continue
        if (count := count + 1) > most:
            raise ImageFileError(f"There are more than {most:,} images here. Bring fewer.")
        image, changes = decode(name, data, side)
        here = found.setdefault(place(name), _Gathered())
        here.images.append(image)
        here.names.append(name)
        here.changes.update(changes)
        if progress is not None:
            progress(count, max(count + 1, 100), 0.0)
    if not found:
        raise ImageFileError("There is no PNG or JPEG image here. Bring a folder or ZIP with some.")
    return found, passed


def _called_image(name: str) -> bool:
    return suffix_of(name) in EXTENSIONS.keys() | OTHER_IMAGES


def _file(name: str, size: int, read: Callable[[], bytes]) -> File:
    """A file with its content. What is too large is refused if it is called an image, and otherwise left empty."""
    if _called_image(name):
        check_bytes(name, size)
    data = b"" if size > MOST_BYTES else read()
    check_bytes(name, len(data))
    return name, data


def _files(source: Source) -> Iterator[File]:
    """Every file of a source by name, in the order of names; hidden files do not count."""
    if isinstance(source, str | Path):
        yield from _from_path(Path(source))
        return
    for name, data in sorted(source):
        if name.lower().endswith(".zip"):
            yield from _from_zip(io.BytesIO(data), name)
        elif not _hidden(name):
            yield _file(name, len(data), partial(bytes, data))


def _from_path(path: Path) -> Iterator[File]:
    if path.is_file() and path.suffix.lower() == ".zip":
        with path.open("rb") as opened:
            yield from _from_zip(opened, path.name)
        return
    if not path.is_dir():
        raise ImageFileError(f"{path} is neither a folder nor a ZIP. Name a folder or ZIP of PNGs or JPEGs.")
    for file in sorted(path.rglob("*")):
        if file.is_file() and not any(part.startswith(".") for part in file.relative_to(path).parts):
            name = file.relative_to(path).as_posix()
            yield _file(name, file.stat().st_size, file.read_bytes)


def _from_zip(opened: IO[bytes], where: str) -> Iterator[File]:
    try:
        with zipfile.ZipFile(opened) as archive:
            entries = [entry for entry in archive.infolist() if not entry.is_dir() and not _hidden(entry.filename)]
            if len(entries) > 2 * MOST_IMAGES:
                raise ImageFileError(f"{where} holds {len(entries):,} files. Bring at most {MOST_IMAGES:,} images.")
            if sum(entry.file_size for entry in entries) > MOST_UNPACKED:
                raise ImageFileError(f"{where} unpacks to more than {MOST_UNPACKED >> 20:,} MB. Bring fewer images.")
            for entry in sorted(entries, key=lambda entry: entry.filename):
                if entry.flag_bits & 1:
                    raise ImageFileError(f"{where} is locked with a password. Bring it without one.")
                yield _file(entry.filename, entry.file_size, partial(_unpacked, archive, entry))
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError):
        raise ImageFileError(f"{where} is not a readable ZIP. Pack the images again.") from None


def _unpacked(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> bytes:
    """The content of a file, and one byte more than allowed if there is more."""
    with archive.open(entry) as member:
        return member.read(MOST_BYTES + 1)


def _hidden(name: str) -> bool:
    return any(part.startswith((".", "__MACOSX")) for part in PurePosixPath(name).parts)
