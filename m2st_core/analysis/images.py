"""Two samples of a user's own images and related tasks of images, prepared as features for the path of tables."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from m2st_core.analysis.plan import Outcome, Plan, carry_out
from m2st_core.data.arrays import as_related_tasks, as_two_sample, in_order_of
from m2st_core.data.images.features import (
    PIXELS,
    PRETRAINED,
    Extractor,
    as_bytes,
    extractor,
    image_features,
    image_keys,
)
from m2st_core.data.images.files import RULE, SIDE, ImageSample, ImageSource, read_image_tasks, read_images
from m2st_core.data.separate import without_target
from m2st_core.data.tables.prepare import Prepared
from m2st_core.progress import part_of
from m2st_core.types import DEFAULT_TAUGHT_TEST, DEFAULT_TEST, Progress

PIXEL_SIDE = 32
GIVEN = "features that were computed elsewhere"
READ, PREPARED = 0.5, 0.6  # of the progress of preparing, and of comparing

Images = ImageSample | ImageSource | np.ndarray
"""Images that were read, where to read them, or an array: bytes (n, H, W, 3), or features (n, d)."""
RelatedImages = Mapping[str, tuple[Images, Images]] | ImageSource
Sample = ImageSample | np.ndarray


def compare_images(
    x: Images,
    y: Images,
    *,
    method: str = "",
    alpha: float = 0.05,
    n_permutations: int = 999,
    seed: int = 0,
    device: str = "auto",
    progress: Progress | None = None,
    **preparation: Any,
) -> Outcome:
    """Test whether two samples of images come from the same source: ``prepare_images``, then ``carry_out``.

    Args:
        x: The first sample.
        y: The second sample.
        method: The test that decides; by default Meta-FUSE with related tasks, and Omnibus without. Beside a test that
            learned from related tasks, Omnibus is shown and decides nothing.
        alpha: Level of the test.
        n_permutations: Random labellings.
        seed: Of all random numbers.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        progress: Called with (step, total, value).
        preparation: Related tasks, features, names and further settings of ``prepare_images``.
    """
    data = prepare_images(x, y, device=device, progress=part_of(progress, 0, PREPARED), **preparation)
    primary = method or (DEFAULT_TAUGHT_TEST if data.related is not None else DEFAULT_TEST)
    plan = Plan(primary, alpha=alpha, n_permutations=n_permutations, seed=seed)
    return carry_out(data, plan, device=device, progress=part_of(progress, PREPARED, 1))


def prepare_images(
    x: Images,
    y: Images,
    *,
    related_tasks: RelatedImages | None = None,
    features: str | Extractor = PRETRAINED,
    side: int = SIDE,
    names: tuple[str, str] | None = None,
    keep: bool = True,
    device: str = "auto",
    progress: Progress | None = None,
) -> Prepared:
    """Prepare two samples of images, and related tasks, as rows of features for a test.

    Args:
        x: The first sample: a folder, a ZIP, an array of bytes (n, H, W, 3), or features (n, d).
        y: The second sample.
        related_tasks: Related tasks by name, each a pair of samples; or a folder or ZIP of them.
        features: What describes an image: a name or an Extractor, or ``"pixels"``.
        side: Pixels to which images are brought.
        names: What to call the samples; by default as their folders or ZIPs, or x and y.
        keep: Whether features are stored under ``M2ST_HOME``, so that they are computed once.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        progress: Called with (step, total, value).
    """
    names, reading = names or _names(x, y), part_of(progress, 0, READ)
    first, second = _read(x, side, reading), _read(y, side, reading)
    related = _read_tasks(related_tasks, side, reading)
    samples = [first, second, *(sample for pair in related.values() for sample in pair)]
    given = not any(isinstance(sample, ImageSample) for sample in samples)
    by = features if isinstance(features, Extractor) else None
    if by is None and features != PIXELS and not given:
        by = extractor(str(features), side)
    rows = _describe(samples, by, keep, device, part_of(progress, READ, 1))
    target, tasks, separation = as_two_sample(rows[0], rows[1]), None, None
    if related:
        tasks = as_related_tasks(dict(zip(related, zip(rows[2::2], rows[3::2], strict=True), strict=True)))
        target = in_order_of(target, tasks.columns, tasks.rows.shape[-1])
        separation = without_target(tasks, target)
    described = GIVEN if given else by.words if by is not None else f"their pixels, {PIXEL_SIDE}×{PIXEL_SIDE}"
    notes = _notes(names, (first, second), side)
    digest = hashlib.sha256(repr((described, names, tuple(related))).encode())
    for sample_rows in rows:
        digest.update(np.ascontiguousarray(sample_rows).tobytes())
    pictures = None
    if isinstance(first, ImageSample) and isinstance(second, ImageSample):
        pictures = first.images, second.images
    return Prepared(
        target=target,
        x_name=names[0],
        y_name=names[1],
        related=tasks,
        encoding=None,
        rows=(_files(first), _files(second)),
        separation=separation,
        decisions=notes,
        record={
            "rows": {"target": list(target.sizes)} | {name: [len(p), len(q)] for name, (p, q) in related.items()},
            "described_by": described,
            "decisions": list(notes),
        },
        digest=digest.hexdigest(),
        described_by=described,
        pictures=pictures,
    )


def _names(x: Images, y: Images) -> tuple[str, str]:
    """The names of two folders or ZIPs, if they have different ones."""
    if isinstance(x, str | Path) and isinstance(y, str | Path) and Path(x).stem != Path(y).stem:
        return Path(x).stem or "x", Path(y).stem or "y"
    return "x", "y"


def _read(source: Images, side: int, progress: Progress | None) -> Sample:
    """Images as they were read; an array of bytes is a sample, one of numbers is features."""
    if isinstance(source, ImageSample):
        return source
    if not isinstance(source, np.ndarray):
        return read_images(source, side, progress)
    if source.ndim == 2:
        return source
    return ImageSample(as_bytes(source), tuple(map(str, range(1, len(source) + 1))))


def _read_tasks(tasks: RelatedImages | None, side: int, progress: Progress | None) -> dict[str, tuple[Sample, Sample]]:
    if tasks is None:
        return {}
    if isinstance(tasks, Mapping):
        return {name: (_read(a, side, progress), _read(b, side, progress)) for name, (a, b) in tasks.items()}
    return dict(read_image_tasks(tasks, side, progress))


def _describe(
    samples: Sequence[Sample], by: Extractor | None, keep: bool, device: str, progress: Progress | None
) -> list[np.ndarray]:
    """Features of every sample, or small images (n, 3, 32, 32) for tests of pixels. Features stay as they are."""
    images = [sample.images for sample in samples if isinstance(sample, ImageSample)]
    if images and len(images) < len(samples):
        raise ValueError("Some samples are images and others features. Bring all of them in the same form.")
    if not images:
        return [np.asarray(sample, dtype=np.float64) for sample in samples if isinstance(sample, np.ndarray)]
    if by is None:
        return [_small(part) for part in images]
    shapes = {part.shape[1:] for part in images}
    cuts = np.cumsum([len(part) for part in images])[:-1]
    if len(shapes) > 1:
        return [image_features(part, by, device=device, keep=keep).astype(np.float64) for part in images]
    whole = image_features(np.concatenate(images), by, device=device, keep=keep, progress=progress)
    return np.split(whole.astype(np.float64), cuts)


def _small(images: np.ndarray) -> np.ndarray:
    """Images of 32×32 pixels as bytes (n, 3, 32, 32)."""
    size = (PIXEL_SIDE, PIXEL_SIDE)
    shown = images.repeat(3, axis=-1) if images.shape[-1] == 1 else images
    small = [np.asarray(Image.fromarray(image).resize(size, Image.Resampling.BOX)) for image in shown]
    return np.stack(small).transpose(0, 3, 1, 2)


def _files(sample: Sample) -> np.ndarray:
    """The names of the files of a sample, or the numbers of its rows."""
    return np.array(sample.names if isinstance(sample, ImageSample) else [str(row + 1) for row in range(len(sample))])


def _notes(names: tuple[str, str], samples: Sequence[Sample], side: int) -> tuple[str, ...]:
    """Notes on what was done to the images."""
    read = [(name, sample) for name, sample in zip(names, samples, strict=True) if isinstance(sample, ImageSample)]
    rule = [RULE.format(side=side)] if read else [f"The samples came as {GIVEN}."]
    first, second = (
        set(image_keys(np.ascontiguousarray(sample.images if isinstance(sample, ImageSample) else sample)).tolist())
        for sample in samples
    )
    if both := len(first & second):
        rule.append(f"{both} image{'s are' if both > 1 else ' is'} in both samples. If that is a mistake, remove them.")
    return (*rule, *(f"“{name}”: {note}" for name, sample in read for note in sample.notes))
