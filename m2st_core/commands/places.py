"""Where commands write: checked before anything is computed, and whole or not at all."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from pathlib import Path


def check_file(path: str | None) -> None:
    """Refuse a file that cannot be written, before hours are spent on what it should hold."""
    if path is None:
        return
    place = Path(path)
    if place.is_dir():
        raise ValueError(f"{path} cannot be written: it is a folder. Name a file in it.")
    if not place.absolute().parent.is_dir():
        raise ValueError(f"{path} cannot be written: there is no folder {place.parent}. Make it first.")
    if not os.access(place if place.exists() else place.absolute().parent, os.W_OK):
        raise ValueError(f"{path} cannot be written: writing is not allowed there.")


def check_folder(path: str) -> None:
    """Refuse a folder that cannot be made."""
    above = next(place for place in (Path(path).absolute(), *Path(path).absolute().parents) if place.exists())
    if not above.is_dir():
        raise ValueError(f"{path} cannot be written: {above} is a file, not a folder.")
    if not os.access(above, os.W_OK):
        raise ValueError(f"{path} cannot be written: writing is not allowed in {above}.")


def write_whole(path: str, write: Callable[[Path], object]) -> None:
    """Let ``write`` fill a new file, which then takes the place of the old one; a ValueError says why it cannot."""
    check_file(path)
    place = Path(path)
    new = place.with_name(f"{place.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        write(new)
        new.replace(place)
    except OSError as error:
        raise ValueError(f"{path} cannot be written: {error.strerror or 'the disk refuses'}.") from None
    finally:
        new.unlink(missing_ok=True)


def write_text(path: str, text: str) -> None:
    """Write text into a file."""
    write_whole(path, lambda place: place.write_text(text, encoding="utf-8"))
