"""A learner in one file: a ZIP of what ``save`` writes and of the encoding of its columns."""

from __future__ import annotations

import io
import os
import zipfile
import zlib
from pathlib import Path

from m2st_core.data.tables.encoding import ENCODING_FILE, Encoding, load_encoding
from m2st_core.data.tables.limits import Limits, TableError
from m2st_core.testing.meta import ABOUT, TENSORS, MetaLearner, learner_from_parts, load_learner

STAMP = (2020, 1, 1, 0, 0, 0)  # the same learner gives the same bytes


def learner_to_zip(learner: MetaLearner, encoding: Encoding | None) -> bytes:
    """One file that ``learner_from_zip`` and ``--learner`` read."""
    about, tensors = learner.parts()
    parts: dict[str, str | bytes] = {ABOUT: about, TENSORS: tensors}
    if encoding is not None:
        parts[ENCODING_FILE] = encoding.to_json()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(zipfile.ZipInfo(name, STAMP), content, zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def learner_from_zip(name: str, data: bytes, limits: Limits | None = None) -> tuple[MetaLearner, Encoding | None]:
    """The learner in these bytes and the encoding of its columns, if it has one; a TableError says what is wrong."""
    limits = limits or Limits.from_environment()
    limits.check_bytes(name, len(data))
    found: dict[str, bytes] = {}
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for info in archive.infolist():
                part = info.filename.replace("\\", "/").rsplit("/", 1)[-1]
                if part in (ABOUT, TENSORS, ENCODING_FILE) and part not in found:
                    left = limits.unpacked - sum(map(len, found.values()))
                    with archive.open(info) as stream:
                        found[part] = stream.read(left + 1)
                    if len(found[part]) > left:
                        raise TableError(f"{name}: it unpacks to more than {limits.unpacked:,} bytes. Train again.")
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, OSError, RuntimeError, ValueError) as error:
        if isinstance(error, TableError):
            raise
        raise TableError(f"{name}: this is no ZIP of a learner. Bring the file that this page exported.") from None
    for part in (ABOUT, TENSORS):
        if part not in found:
            raise TableError(f"{name} holds no learner: {part} is missing. Bring the file that this page exported.")
    try:
        learner = learner_from_parts(found[ABOUT].decode(), found[TENSORS], name)
        encoding = Encoding.from_json(found[ENCODING_FILE].decode(), name) if ENCODING_FILE in found else None
    except UnicodeDecodeError:
        raise TableError(f"{name} is damaged: its JSON is no text. Train and save again.") from None
    except ValueError as error:
        raise TableError(str(error)) from None
    except Exception as error:  # whatever a forged file makes the reader stumble over
        raise TableError(f"{name} holds a damaged learner ({type(error).__name__}). Train again.") from None
    if encoding is not None and len(encoding.features) != learner.columns:
        raise TableError(f"{name} is damaged: its columns do not fit its learner. Train and save again.")
    return learner, encoding


def open_learner(path: str | os.PathLike[str]) -> tuple[MetaLearner, Encoding | None]:
    """A learner from its folder or from its ZIP."""
    place = Path(path)
    if place.is_file():
        return learner_from_zip(str(place), place.read_bytes())
    return load_learner(place), load_encoding(place)
