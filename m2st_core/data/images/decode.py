"""One image file of a stranger, decoded: PNG or JPEG by its content, checked before its pixels are read."""

from __future__ import annotations

import io
from pathlib import PurePosixPath

import numpy as np
from PIL import Image, ImageFile, ImageOps

SIDE = 128  # pixels to which images are brought
MOST_BYTES = 30 * 2**20  # of one file
MOST_PIXELS = 40_000_000
FEWEST_SIDE = 4
LONGEST_SIDE = 20  # times the shorter one
FORMATS = ("PNG", "JPEG")
EXTENSIONS = {".png": "PNG", ".jpg": "JPEG", ".jpeg": "JPEG", ".jpe": "JPEG", ".jfif": "JPEG"}
RULE = (
    "Images are turned upright, transparent parts become white, the shorter side is scaled to {side} pixels, and the "
    "central square is kept. Size and proportions of the files are therefore not compared."
)
STARTS = {
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


class ImageFileError(ValueError):
    """A file that cannot be used: one sentence that names it and says what to do."""


def check_bytes(name: str, size: int) -> None:
    """Refuse a file that is too large."""
    if size > MOST_BYTES:
        megabytes = f"{size / 2**20:,.0f} MB, and {MOST_BYTES >> 20} MB is the most"
        raise ImageFileError(f"{name} has {megabytes}. Save it smaller.")


def decode(name: str, data: bytes, side: int = SIDE) -> tuple[np.ndarray, list[str]]:
    """One image as bytes (side, side, 3), and what was done to it. Its content decides its format, not its name."""
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as opened:
            width, height = opened.size
            _check_pixels(name, width, height)
            form, mode, see_through = str(opened.format), opened.mode, "transparency" in opened.info
            orientation = opened.getexif().get(0x0112, 1)
            if form in ("JPEG", "MPO"):
                opened.draft("RGB" if mode in ("RGB", "YCbCr") else None, (side, side))  # decodes fewer pixels
            upright = _upright(opened, int(orientation) if isinstance(orientation, int) else 1)
            changes = ["have the extension of another format"] * (EXTENSIONS.get(suffix_of(name)) not in (form, None))
            changes += ["were turned upright"] * (orientation in range(2, 9))
            return _small(upright, see_through, side, changes), changes
    except ImageFileError:
        raise
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise ImageFileError(f"{name} claims to have far too many pixels. Remove it or save it smaller.") from None
    except Exception:  # whatever a damaged or hostile file raises
        raise ImageFileError(_unreadable(name, data)) from None


def _check_pixels(name: str, width: int, height: int) -> None:
    if width * height > MOST_PIXELS:
        most = f"{MOST_PIXELS // 10**6} million"
        raise ImageFileError(f"{name} has {width:,}×{height:,} pixels, and {most} is the most. Save it smaller.")
    if min(width, height) < FEWEST_SIDE:
        raise ImageFileError(f"{name} has {width}×{height} pixels. Bring at least {FEWEST_SIDE}×{FEWEST_SIDE}.")
    if max(width, height) > LONGEST_SIDE * min(width, height):
        raise ImageFileError(f"{name} has {width:,}×{height:,} pixels: its central square is almost nothing of it.")


def _upright(opened: ImageFile.ImageFile, orientation: int) -> Image.Image:
    """The image, turned or mirrored as its EXIF data say."""
    turned = ImageOps.exif_transpose(opened) if orientation in range(2, 9) else opened.copy()
    return turned or opened.copy()


def _small(image: Image.Image, see_through: bool, side: int, changes: list[str]) -> np.ndarray:
    """Red, green and blue of the central square of an image in any mode, scaled to side×side pixels."""
    if image.mode.startswith("I") or image.mode == "F":
        changes.append("had 16 bits per pixel, of which the upper 8 are used")
        image = Image.fromarray((np.asarray(image).clip(0, 65_535).astype(np.uint16) >> 8).astype(np.uint8))
    changes += ["were converted from CMYK"] * (image.mode == "CMYK") + ["are grey"] * (image.mode in ("L", "LA", "1"))
    if image.mode in ("LA", "PA") or see_through:
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


def suffix_of(name: str) -> str:
    """The extension of a file's name, in small letters."""
    return PurePosixPath(name).suffix.lower()


def _unreadable(name: str, data: bytes) -> str:
    """Say what a file is instead of a readable PNG or JPEG."""
    start = data[:200].lstrip()
    kind = next((words for mark, words in STARTS.items() if start.lower().startswith(mark.lower())), "")
    if kind:
        return f"{name} is {kind}, not a PNG or JPEG. Convert it, or leave it out."
    if data.startswith((b"\x89PNG", b"\xff\xd8")):
        return f"{name} is damaged or cut off. Save it again, or leave it out."
    return f"{name} is not a readable PNG or JPEG image. Save it again, or leave it out."
