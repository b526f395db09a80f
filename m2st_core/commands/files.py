"""Output files of commands: checked before anything is computed, and written whole or not at all."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable
from pathlib import Path


def check_file(path: str | None) -> None:
    """Refuse a file that cannot be written, before its content is computed."""
    if path is None:
        return
    file = Path(path)
    if file.is_dir():
        raise ValueError(f"{path} cannot be written: it is a folder. Name a file in it.")
    if not file.absolute().parent.is_dir():
        raise ValueError(f"{path} cannot be written: there is no folder {file.parent}. Make it first.")
    if not os.access(file if file.exists() else file.absolute().parent, os.W_OK):
        raise ValueError(f"{path} cannot be written: writing is not allowed there.")


def check_folder(path: str) -> None:
    """Refuse a folder that cannot be made."""
    above = next(folder for folder in (Path(path).absolute(), *Path(path).absolute().parents) if folder.exists())
    if not above.is_dir():
        raise ValueError(f"{path} cannot be written: {above} is a file, not a folder.")
    if not os.access(above, os.W_OK):
        raise ValueError(f"{path} cannot be written: writing is not allowed in {above}.")


def write_whole(path: str, write: Callable[[Path], object]) -> None:
    """Let ``write`` fill a new file, which then replaces the old one; a ValueError if it cannot be written."""
    check_file(path)
    file = Path(path)
    new = file.with_name(f"{file.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        write(new)
        new.replace(file)
    except OSError as error:
        raise ValueError(f"{path} cannot be written: {error.strerror or 'the disk refuses'}.") from None
    finally:
        new.unlink(missing_ok=True)


def write_text(path: str, text: str) -> None:
    """Write text into a file."""
    write_whole(path, lambda file: file.write_text(text, encoding="utf-8"))
