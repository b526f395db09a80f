"""Read saved learners: a folder, or a ZIP with the encoding of its columns."""

from __future__ import annotations

import hashlib
import io
import json
import os
import zipfile
import zlib
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load

from m2st_core.data.overlap import KnownRows
from m2st_core.data.tables.encoding import ENCODING_FILE, Encoding, load_encoding
from m2st_core.data.tables.limits import Limits, TableError
from m2st_core.learners.ascent import Course
from m2st_core.learners.knowledge import rebuild
from m2st_core.presets import PRESETS
from m2st_core.testing.meta import ABOUT, FORMAT, SEEN, TENSORS, MetaLearner
from m2st_core.testing.methods import METHODS

CHOICES_OF_5 = {  # the names of choices in format 5
    "β is learned": "beta_is_learned",
    "λ of β": "beta_regularisation",
    "adaptation steps": "adaptation_steps",
}
STAMP = (2020, 1, 1, 0, 0, 0)  # the same learner gives the same bytes


def load_learner(path: str | os.PathLike[str]) -> MetaLearner:
    """Read a learner as it was saved, to the bit. A damaged or foreign file gives a ValueError."""
    folder = Path(path)
    for name in (ABOUT, TENSORS):
        if not (folder / name).is_file():
            raise ValueError(f"{folder} does not hold a learner: {name} is missing.")
    try:
        about = (folder / ABOUT).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{folder} holds a damaged learner (its JSON is not text). Train again.") from None
    return learner_from_parts(about, (folder / TENSORS).read_bytes(), str(folder))


def learner_from_parts(about_json: str, packed: bytes, where: str = "This") -> MetaLearner:
    """Rebuild a learner from its parts. ``where`` names their source in error messages."""
    try:
        about = json.loads(about_json)
        version = about["format"]
        if version not in (5, 6, 7, FORMAT):
            raise ValueError(
                f"{where} has learner format {version}, and this version reads 5 to {FORMAT}. In other formats "
                "some names of methods stand for other algorithms. Train again."
            )
        if about["sha256"] != hashlib.sha256(packed).hexdigest():
            raise ValueError(f"{where}: {TENSORS} is damaged: it is not the file that was saved. Train again.")
        method, preset = METHODS.find(about["method"]), PRESETS.find(about["preset"])
        if method.adapt is None:
            raise ValueError(f"{where} holds a learner for {method.name}, which this version cannot use.")
        tensors = load(packed)
        if version < FORMAT and method.only_recommended:
            raise ValueError(f"{where} was trained for an earlier form of {method.name}. Train again.")
        course = Course(*(tensors.pop(f"course.{name}").numpy() for name in ("step", "train", "held_out")))
        seen = KnownRows(*(tensors.pop(f"seen.{name}").numpy() for name in SEEN))
        channels, height, width = about.get("shape") or (0, 0, 0)
        shape = (int(channels), int(height), int(width)) if channels else None
        knowledge = rebuild(tensors, preset.on(shape))
        knowledge.course = course
        knowledge.base_names = tuple(str(name) for name in about["base_names"])
        knowledge.choices = {CHOICES_OF_5.get(name, name): float(value) for name, value in about["choices"].items()}
        return MetaLearner(
            method=method.name,
            preset=preset.name,
            seed=int(about["seed"]),
            task_names=tuple(str(name) for name in about["task_names"]),
            columns=int(about["columns"]),
            knowledge=knowledge,
            seen=seen,
            shape=shape,
        )
    except (json.JSONDecodeError, KeyError, TypeError, SafetensorError, RuntimeError) as error:
        raise ValueError(f"{where} holds a damaged learner ({type(error).__name__}). Train again.") from None


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
        raise TableError(f"{name}: this is not a ZIP of a learner. Bring the file that this page exported.") from None
    for part in (ABOUT, TENSORS):
        if part not in found:
            raise TableError(
                f"{name} does not hold a learner: {part} is missing. Bring the file that this page exported."
            )
    try:
        learner = learner_from_parts(found[ABOUT].decode(), found[TENSORS], name)
        encoding = Encoding.from_json(found[ENCODING_FILE].decode(), name) if ENCODING_FILE in found else None
    except UnicodeDecodeError:
        raise TableError(f"{name} is damaged: its JSON is not text. Train and save again.") from None
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
