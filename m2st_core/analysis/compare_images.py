"""Two samples of a user's own images: features, a test, the answer in words, and the images that differ most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from m2st_core.analysis.evidence import evidence_of
from m2st_core.analysis.image_answer import ImageComparison
from m2st_core.data.images.features import PRETRAINED, Extractor, as_bytes, extractor, image_features, image_keys
from m2st_core.data.images.own import RULE, SIDE, ImageSample, Source, read_image_tasks, read_images
from m2st_core.data.images.tasks import PIXELS
from m2st_core.progress import part_of
from m2st_core.testing.method import TestSettings
from m2st_core.testing.methods import METHODS
from m2st_core.testing.two_sample import examine
from m2st_core.types import BASELINE, DEFAULT_TAUGHT_TEST, DEFAULT_TEST, Progress

PIXEL_SIDE = 32
GIVEN = "features that were computed elsewhere"
READ, DESCRIBED, TESTED = 0.3, 0.6, 0.95  # of the progress

Images = ImageSample | Source | np.ndarray
"""Images that were read, where to read them, or an array: bytes (n, H, W, 3), or features (n, d)."""
RelatedImages = Mapping[str, tuple[Images, Images]] | Source


def compare_images(
    x: Images,
    y: Images,
    *,
    related_tasks: RelatedImages | None = None,
    features: str | Extractor = PRETRAINED,
    side: int = SIDE,
    method: str = "",
    names: tuple[str, str] | None = None,
    alpha: float = 0.05,
    n_permutations: int = 999,
    seed: int = 0,
    keep: bool = True,
    device: str = "auto",
    progress: Progress | None = None,
) -> ImageComparison:
    """Test whether two samples of images come from the same source.

    Args:
        x: The first sample: a folder, a ZIP, an array of bytes (n, H, W, 3), or features (n, d).
        y: The second sample.
        related_tasks: Related tasks by name, each a pair of samples; or a folder or ZIP of them.
        features: What describes an image: a name or an Extractor, or ``"pixels"``.
        side: Pixels to which images are brought.
        method: The test that decides; by default Meta-FUSE with related tasks, and Omnibus without. Beside a test that
            learned from related tasks, Omnibus is shown and decides nothing.
        names: What to call the samples; by default as their folders or ZIPs, or x and y.
        alpha: Level of the test.
        n_permutations: Random labellings.
        seed: Of all random numbers.
        keep: Whether features are stored under ``M2ST_HOME``, so that they are computed once.
        device: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        progress: Called with (step, total, value).
    """
    names = names or _names(x, y)
    reading = part_of(progress, 0, READ)
    samples = [_read(x, side, reading), _read(y, side, reading)]
    related = _read_tasks(related_tasks, side, reading)
    every = [*samples, *(sample for pair in related.values() for sample in pair)]
    described = not any(isinstance(sample, ImageSample) for sample in every)
    by = features if isinstance(features, Extractor) else None
    if by is None and features != PIXELS and not described:
        by = extractor(str(features), side)
    rows = _describe(every, by, keep, device, part_of(progress, READ, DESCRIBED))
    pairs = zip(related, zip(rows[2::2], rows[3::2], strict=True), strict=True)
    tasks = dict(pairs) or None
    primary = method or (DEFAULT_TAUGHT_TEST if tasks else DEFAULT_TEST)
    taught = METHODS.find(primary).uses_related_tasks
    tests = (primary, BASELINE) if taught else (primary,)
    finished = []
    for place, name in enumerate(tests):
        step = (TESTED - DESCRIBED) / len(tests)
        settings = TestSettings(
            alpha=alpha,
            n_permutations=n_permutations,
            seed=seed,
            device=device,
        )
        stage = part_of(progress, DESCRIBED + place * step, DESCRIBED + (place + 1) * step)
        given = tasks if METHODS[name].uses_related_tasks else None
        finished.append(examine(rows[0], rows[1], name, settings, related_tasks=given, progress=stage))
    result, *others = (one.result for one in finished)
    evidence = evidence_of(finished[0])
    at_x, at_y = evidence.at_rows()
    typical = np.argsort(-at_x, kind="stable"), np.argsort(at_y, kind="stable")
    return ImageComparison(
        names=names,
        result=result,
        baseline=others[0] if others else None,
        n_tasks=len(related) if taught else 0,
        features=GIVEN if described else by.words if by is not None else f"their pixels, {PIXEL_SIDE}×{PIXEL_SIDE}",
        samples=(_pictures(samples[0]), _pictures(samples[1])),
        typical=(evidence.rows[0][typical[0]], evidence.rows[1][typical[1]]),
        notes=(*_notes(names, samples, side), *dict.fromkeys(note for one in (result, *others) for note in one.notes)),
        files=(_files(samples[0]), _files(samples[1])),
    )


Sample = ImageSample | np.ndarray


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
    return ImageSample(as_bytes(source), tuple(str(place + 1) for place in range(len(source))))


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


def _pictures(sample: Sample) -> np.ndarray | None:
    return sample.images if isinstance(sample, ImageSample) else None


def _files(sample: Sample) -> tuple[str, ...]:
    return sample.names if isinstance(sample, ImageSample) else ()


def _notes(names: tuple[str, str], samples: Sequence[Sample], side: int) -> tuple[str, ...]:
    """What was done to the images, in words."""
    read = [(name, sample) for name, sample in zip(names, samples, strict=True) if isinstance(sample, ImageSample)]
    rule = [RULE.format(side=side)] if read else [f"The samples came as {GIVEN}."]
    first, second = (set(image_keys(np.ascontiguousarray(_rows(sample))).tolist()) for sample in samples)
    if both := len(first & second):
        rule.append(f"{both} image{'s are' if both > 1 else ' is'} in both samples. If that is a mistake, remove them.")
    return (*rule, *(f"“{name}”: {note}" for name, sample in read for note in sample.notes))


def _rows(sample: Sample) -> np.ndarray:
    return sample.images if isinstance(sample, ImageSample) else sample
