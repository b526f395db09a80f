"""Read saved learners: a folder, or a ZIP with the encoding of its columns."""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load

from m2st_core.data.overlap import KnownRows, find_overlap
from m2st_core.data.tables.encoding import ENCODING_FILE, Encoding, load_encoding
from m2st_core.data.tables.questions import TableError
from m2st_core.data.tables.table import Limits
from m2st_core.learners.ascent import Course
from m2st_core.learners.knowledge import rebuild_knowledge
from m2st_core.numbers import is_count, is_number
from m2st_core.testing.meta import ABOUT, FORMAT, SEEN, TENSORS, MetaLearner
from m2st_core.testing.methods import METHODS
from m2st_core.testing.run import run_tests
from m2st_core.types import TwoSample

MOST_STEPS, WIDEST = 1_000, 200_000  # a forged file must not take a server's time and memory
TRIED_ROWS = 80  # no method needs more
TRIAL: dict[str, Any] = {"alpha": 0.5, "n_permutations": 3, "device": "cpu"}


def load_learner(path: str | os.PathLike[str]) -> MetaLearner:
    """Read a learner as it was saved, to the bit, from a folder or a ZIP. A damaged file gives a ValueError."""
    return open_learner(path)[0]


def _from_folder(folder: Path) -> MetaLearner:
    for name in (ABOUT, TENSORS):
        if not (folder / name).is_file():
            raise ValueError(f"{folder} does not hold a learner: {name} is missing.")
    try:
        about = (folder / ABOUT).read_text(encoding="utf-8")
        packed = (folder / TENSORS).read_bytes()
    except UnicodeDecodeError:
        raise ValueError(f"{folder} holds a damaged learner (its JSON is not text). Train again.") from None
    except OSError as error:
        raise ValueError(f"{folder} cannot be read: {error.strerror}.") from None
    return _tried_out(learner_from_parts(about, packed, str(folder)), str(folder))


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


SCHEMA: dict[str, Callable[[Any], bool]] = {
    "method": lambda value: isinstance(value, str),
    "seed": is_count,
    "task_names": _are_texts,
    "columns": lambda value: is_count(value) and value <= WIDEST,
    "column_names": _are_texts,
    "notes": _are_texts,
    "shape": lambda one: one is None or (len(one) == 3 and all(map(is_count, one)) and math.prod(one) <= WIDEST),
    "base_names": _are_texts,
    "choices": lambda value: all(map(is_number, value.values())) and value.get("adaptation_steps", 0) <= MOST_STEPS,
    "sha256": lambda value: isinstance(value, str),
}


def _read_description(text: str, where: str) -> dict[str, Any]:
    """What a learner's JSON says, with every entry of the kind that was saved."""
    try:
        about = json.loads(text)
    except (ValueError, RecursionError):
        about = None
    if not isinstance(about, dict):
        raise ValueError(f"{where} holds a damaged learner: {ABOUT} is not the JSON that was saved. Train again.")
    if (version := about.get("format")) != FORMAT:
        raise ValueError(f"{where} has learner format {version}, and this version reads format {FORMAT}. Train again.")
    for name, fits in SCHEMA.items():
        try:
            right = fits(about[name])
        except (KeyError, TypeError, AttributeError):
            right = False
        if not right:
            raise ValueError(f"{where} holds a damaged learner: {ABOUT} does not say its {name!r}. Train again.")
    if about["column_names"] and len(about["column_names"]) != about["columns"]:
        raise ValueError(f"{where} holds a damaged learner: {ABOUT} does not name all its columns. Train again.")
    return about


def learner_from_parts(about_json: str, packed: bytes, where: str = "This") -> MetaLearner:
    """Rebuild a learner from its parts. ``where`` names their source in error messages."""
    about = _read_description(about_json, where)
    if about["sha256"] != hashlib.sha256(packed).hexdigest():
        raise ValueError(f"{where}: {TENSORS} is damaged: it is not the file that was saved. Train again.")
    method = METHODS[about["method"]]
    if method.adapt is None:
        raise ValueError(f"{where} holds a learner for {method.name}, which this version cannot use.")
    shape = None if about["shape"] is None else (about["shape"][0], about["shape"][1], about["shape"][2])
    try:
        tensors = load(packed)
        course = Course(*(tensors.pop(f"course.{name}").numpy() for name in ("step", "train", "held_out")))
        names = [name for name in SEEN if f"seen.{name}" in tensors]
        seen = KnownRows(**{name: tensors.pop(f"seen.{name}").numpy() for name in names})
        wrong = [name for name, tensor in tensors.items() if not _has_numbers(name, tensor)]
        knowledge = None if wrong else rebuild_knowledge(tensors, method.preset.on(shape))
    except (KeyError, IndexError, TypeError, ValueError, SafetensorError, RuntimeError):
        raise ValueError(f"{where} holds a damaged learner: parts of {TENSORS} do not fit. Train again.") from None
    if knowledge is None:
        raise ValueError(f"{where} holds a damaged learner: {wrong[0]} has no numbers. Train again.")
    knowledge.course = course
    knowledge.base_names = tuple(about["base_names"])
    knowledge.choices = {name: float(value) for name, value in about["choices"].items()}
    return MetaLearner(
        method=method.name,
        seed=about["seed"],
        task_names=tuple(about["task_names"]),
        columns=about["columns"],
        knowledge=knowledge,
        seen=seen,
        shape=shape,
        column_names=tuple(about["column_names"]),
        notes=tuple(about["notes"]),
    )


def _has_numbers(name: str, tensor: torch.Tensor) -> bool:
    """Whether all numbers are finite. The logarithm of a weight may be that of 0."""
    fine = tensor.isfinite() | ((tensor == -math.inf) & ("log_weight" in name))
    return tensor.is_floating_point() and bool(fine.all())


def _tried_out(learner: MetaLearner, where: str) -> MetaLearner:
    """The learner, after it has tested random rows: its method, settings and tensors fit together."""
    method, generator = learner.bound(torch.device("cpu")), torch.Generator().manual_seed(0)
    x, y = (torch.rand(1, TRIED_ROWS, learner.columns, generator=generator, dtype=torch.float64) for _ in range(2))
    sample = TwoSample(x, y, learner.shape)
    try:
        (result,) = run_tests(sample, method, seeds=[0], **TRIAL)
        find_overlap(TwoSample(x[0], y[0], learner.shape), learner.seen)
        works = math.isfinite(result.statistic)
    except Exception:  # whatever a forged file makes the test stumble over
        works = False
    if not works:
        raise ValueError(f"{where} holds a damaged learner: {learner.method} cannot test with it. Train again.")
    return learner


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
    if missing := [part for part in (ABOUT, TENSORS) if part not in found]:
        raise TableError(f"{name} does not hold a learner: {missing[0]} is missing. Bring the exported file.")
    try:
        learner = _tried_out(learner_from_parts(found[ABOUT].decode(), found[TENSORS], name), name)
        encoding = Encoding.from_json(found[ENCODING_FILE].decode(), name) if ENCODING_FILE in found else None
    except UnicodeDecodeError:
        raise TableError(f"{name} is damaged: its JSON is not text. Train and save again.") from None
    except ValueError as error:
        raise TableError(str(error)) from None
    except Exception:  # whatever a forged file makes the reader stumble over
        raise TableError(f"{name} holds a damaged learner. Train again.") from None
    return _fitting(learner, encoding, name)


def _fitting(learner: MetaLearner, encoding: Encoding | None, name: str) -> tuple[MetaLearner, Encoding | None]:
    if encoding is None:
        return learner, None
    if len(encoding.features) != learner.columns or learner.column_names not in ((), encoding.features):
        raise TableError(f"{name} is damaged: its columns do not fit its learner. Train and save again.")
    return replace(learner, column_names=encoding.features), encoding


def open_learner(path: str | os.PathLike[str]) -> tuple[MetaLearner, Encoding | None]:
    """A learner from its folder or from its ZIP."""
    if (place := Path(path)).is_file():
        return learner_from_zip(str(place), place.read_bytes())
    return _fitting(_from_folder(place), load_encoding(place), str(place))
