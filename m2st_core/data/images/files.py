"""A user's own images: folders, ZIPs or uploaded files of PNGs and JPEGs, read one at a time and within limits.

The content of a file decides its format, and its size is checked before its pixels are decoded.
"""

from __future__ import annotations

import io
import os
import zipfile
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import IO

import numpy as np
from PIL import Image, ImageOps

from m2st_core.types import Progress, listed

SIDE = 128  # pixels to which images are brought
MOST_IMAGES, MOST_RELATED = 2_000, 2_000  # of one sample, of all related tasks
MOST_BYTES = 30 * 2**20  # of one file
MOST_UNPACKED = 1_000 * 2**20  # bytes of all files of one ZIP
MOST_PIXELS = 40_000_000
FEWEST_SIDE = 4
LONGEST_SIDE = 20  # times the shorter one
FORMATS = ("PNG", "JPEG")
EXTENSIONS = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".jpe": "JPEG", ".jfif": "JPEG"}
OTHER_IMAGES = {".gif", ".svg", ".bmp", ".tif", ".tiff", ".webp", ".heic", ".heif", ".avif", ".ico", ".psd", ".eps"}
IMAGE_STARTS = (b"\x89PNG\r\n", b"\xff\xd8\xff")  # of a PNG and of a JPEG, whatever they are called
OTHER_STARTS = {
    b"GIF8": "a GIF",
    b"<svg": "an SVG drawing",
    b"<?xml": "an SVG or XML file",
    b"BM": "a BMP",
    b"II*\x00": "a TIFF",
    b"MM\x00*": "a TIFF",
    b"RIFF": "a WebP",
    b"%PDF": "a PDF",
    b"PK": "a ZIP",
}
RULE = (
    "Images are turned upright, transparent parts become white, the shorter side is scaled to {side} pixels, and the "
    "central square is kept. Size and proportions of the files are therefore not compared."
)
SINGULAR = {"were": "was", "are": "is", "have": "has"}

File = tuple[str, bytes]
"""The name and the content of an uploaded file."""
Decoded = tuple[str, np.ndarray, list[str]]
"""The name of a file, its image, and the changes made to it."""
ImageSource = str | Path | Sequence[File]
"""A folder or ZIP by its path; or uploaded files, images and ZIPs."""


class ImageFileError(ValueError):
    """A file that cannot be used: a sentence with its name and the remedy."""


@dataclass(frozen=True)
class ImageSample:
    """Images (n, S, S, 3) as bytes, the names of their files, and notes on how they were changed."""

    images: np.ndarray = field(repr=False)
    names: tuple[str, ...] = field(repr=False)
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.images)


def read_images(source: ImageSource, side: int = SIDE, progress: Progress | None = None) -> ImageSample:
    """Read a folder or a ZIP by its path, or uploaded files by name and content."""
    groups, skipped = _decode_groups(source, side, lambda name: ("", ""), MOST_IMAGES, progress)
    return _sample(groups["", ""], skipped)


def read_image_tasks(
    source: ImageSource, side: int = SIDE, progress: Progress | None = None
) -> dict[str, tuple[ImageSample, ImageSample]]:
    """Read related tasks: a folder or ZIP with a folder for each, which has two folders of images."""

    def task_and_group(name: str) -> tuple[str, str]:
        folders = PurePosixPath(name).parts[:-1]
        return "/".join(folders[:-1]), "/".join(folders[-1:])

    samples, _ = _decode_groups(source, side, task_and_group, MOST_RELATED, progress)
    tasks: dict[str, list[ImageSample]] = defaultdict(list)
    for (task, _), decoded in samples.items():
        tasks[task].append(_sample(decoded))
    for task, groups in tasks.items():
        if not task or len(groups) != 2:
            raise ImageFileError(
                f"The related tasks' folder {task!r} has {len(groups)} folders of images. Bring a folder for each "
                "related task, with two folders of images in it."
            )
    paths = [PurePosixPath(task).parts for task in tasks]
    common = len(os.path.commonprefix(paths)) if len(paths) > 1 else len(paths[0]) - 1
    names = ["/".join(folders[common:]) or folders[-1] for folders in paths]
    return {name: (groups[0], groups[1]) for name, groups in zip(names, tasks.values(), strict=True)}


def _sample(decoded: Sequence[Decoded], skipped: Sequence[str] = ()) -> ImageSample:
    """A sample of decoded images, with notes on how they were changed and on files that were skipped."""
    names, images, changes = zip(*decoded, strict=True)
    notes = []
    for change, count in sorted(Counter(chain(*changes)).items()):
        verb, _, rest = change.partition(" ")
        notes.append(f"{count} of {len(images)} images {SINGULAR.get(verb, verb) if count == 1 else verb} {rest}.")
    if skipped:
        notes.append(f"Skipped, because they are not images: {listed(skipped, 3)}.")
    return ImageSample(np.stack(images), names, tuple(notes))


def _decode_groups(
    source: ImageSource, side: int, group_of: Callable[[str], tuple[str, str]], most: int, progress: Progress | None
) -> tuple[dict[tuple[str, str], list[Decoded]], list[str]]:
    """Decode the images, grouped into samples, and list the files that are no images."""
    groups: dict[tuple[str, str], list[Decoded]] = defaultdict(list)
    skipped, count = [], 0
    for name, data in _files(source):
        if not _called_image(name) and not data.startswith(IMAGE_STARTS):
            skipped.append(name)
            continue
        if (count := count + 1) > most:
            raise ImageFileError(f"There are more than {most:,} images here. Bring fewer.")
        groups[group_of(name)].append((name, *decode_image(name, data, side)))
        if progress is not None:
            progress(count, max(count + 1, 100), 0.0)
    if not groups:
        raise ImageFileError("There is no PNG or JPEG image here. Bring a folder or ZIP with some.")
    return groups, skipped


def _files(source: ImageSource) -> Iterator[File]:
    """Yield the files of a source in the order of their names, without hidden ones."""
    if not isinstance(source, str | Path):
        for name, data in sorted(source):
            if name.lower().endswith(".zip"):
                yield from _from_zip(io.BytesIO(data), name)
            elif not _hidden(name):
                yield _file(name, len(data), partial(bytes, data))
        return
    path = Path(source)
    if path.is_file() and path.suffix.lower() == ".zip":
        yield from _from_zip(path, path.name)
        return
    if not path.is_dir():
        raise ImageFileError(f"{path} is neither a folder nor a ZIP. Name a folder or ZIP of PNGs or JPEGs.")
    for file in sorted(path.rglob("*")):
        name = file.relative_to(path).as_posix()
        if file.is_file() and not _hidden(name):
            yield _file(name, file.stat().st_size, file.read_bytes)


def _from_zip(opened: IO[bytes] | Path, where: str) -> Iterator[File]:
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
    """The content of a file, up to one byte more than allowed."""
    with archive.open(entry) as member:
        return member.read(MOST_BYTES + 1)


def _file(name: str, size: int, read: Callable[[], bytes]) -> File:
    """A file and its content. Too large files are refused if named like images; the content of others is not read."""
    if _called_image(name):
        _check_bytes(name, size)
    data = b"" if size > MOST_BYTES else read()
    _check_bytes(name, len(data))
    return name, data


def _check_bytes(name: str, size: int) -> None:
    if size > MOST_BYTES:
        megabytes = f"{size / 2**20:,.0f} MB, and {MOST_BYTES >> 20} MB is the most"
        raise ImageFileError(f"{name} has {megabytes}. Save it smaller.")


def _called_image(name: str) -> bool:
    return PurePosixPath(name).suffix.lower() in EXTENSIONS.keys() | OTHER_IMAGES


def _hidden(name: str) -> bool:
    return any(part.startswith((".", "__MACOSX")) for part in PurePosixPath(name).parts)


def decode_image(name: str, data: bytes, side: int = SIDE) -> tuple[np.ndarray, list[str]]:
    """Decode one untrusted PNG or JPEG: bytes (side, side, 3), and the changes made to it."""
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as opened:
            _check_pixels(name, *opened.size)
            form, mode, transparent = str(opened.format), opened.mode, "transparency" in opened.info
            orientation = opened.getexif().get(0x0112, 1)
            if form in ("JPEG", "MPO"):
                opened.draft("RGB" if mode in ("RGB", "YCbCr") else None, (side, side))  # decodes fewer pixels
            turned = isinstance(orientation, int) and orientation in range(2, 9)
            expected = EXTENSIONS.get(PurePosixPath(name).suffix.lower(), form)
            changes = ["have the extension of another format"] * (expected != form)
            changes += ["were turned upright"] * turned
            upright = ImageOps.exif_transpose(opened) if turned else None
            return _small(upright or opened.copy(), transparent, side, changes), changes
    except ImageFileError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise ImageFileError(f"{name} claims to have far too many pixels. Remove it or save it smaller.") from None
    except Exception:  # damaged and hostile files raise many kinds
        raise ImageFileError(_unreadable(name, data)) from None


def _check_pixels(name: str, width: int, height: int) -> None:
    if width * height > MOST_PIXELS:
        most = f"{MOST_PIXELS // 10**6} million"
        raise ImageFileError(f"{name} has {width:,}×{height:,} pixels, and {most} is the most. Save it smaller.")
    if min(width, height) < FEWEST_SIDE:
        raise ImageFileError(f"{name} has {width}×{height} pixels. Bring at least {FEWEST_SIDE}×{FEWEST_SIDE}.")
    if max(width, height) > LONGEST_SIDE * min(width, height):
        raise ImageFileError(f"{name} has {width:,}×{height:,} pixels: its central square is almost nothing of it.")


def _small(image: Image.Image, transparent: bool, side: int, changes: list[str]) -> np.ndarray:
    """Red, green and blue of the central square of an image in any mode, scaled to side×side pixels."""
    if image.mode.startswith("I") or image.mode == "F":
        changes.append("had 16 bits per pixel, of which the upper 8 are used")
        image = Image.fromarray((np.asarray(image).clip(0, 65_535).astype(np.uint16) >> 8).astype(np.uint8))
    changes += ["were converted from CMYK"] * (image.mode == "CMYK") + ["are grey"] * (image.mode in ("L", "LA", "1"))
    if image.mode in ("LA", "PA") or transparent:
        image = image.convert("RGBA")
    elif image.mode in ("P", "1"):
        image = image.convert("RGB")
    short = min(image.size)
    left, top = ((size - short) // 2 for size in image.size)
    small = image.resize((side, side), Image.Resampling.BILINEAR, box=(left, top, left + short, top + short))
    if small.mode == "RGBA":
        changes.append("had transparent parts, now white")
        small = Image.alpha_composite(Image.new("RGBA", small.size, "white"), small)
    return np.asarray(small.convert("RGB"))


def _unreadable(name: str, data: bytes) -> str:
    """The error for a file that is no readable PNG or JPEG, with its likely format."""
    start = data[:200].lstrip()
    kind = next((words for mark, words in OTHER_STARTS.items() if start.lower().startswith(mark.lower())), "")
    if kind:
        return f"{name} is {kind}, not a PNG or JPEG. Convert it, or leave it out."
    if data.startswith((b"\x89PNG", b"\xff\xd8")):
        return f"{name} is damaged or cut off. Save it again, or leave it out."
    return f"{name} is not a readable PNG or JPEG image. Save it again, or leave it out."
