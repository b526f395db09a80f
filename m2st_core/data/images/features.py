"""Features of images, computed once and kept: by the image's bytes, the extractor and its size, bounded on disk.

Every image is described by itself. No label is used, so tests of features need no split for the extractor.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pandas as pd
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file
from torch.nn import functional

from m2st_core.data.images.extractors import Extractor, extractor
from m2st_core.device import map_threads, one_thread_per_operation, resolve_device, short_memory_in_words
from m2st_core.environment import home_folder
from m2st_core.types import Progress

AT_ONCE = 50  # images in one pass: their layers stay in a processor's cache
MOST_BYTES = 500 * 2**20  # of all kept features
MOST_FILES = 200
KEY_BYTES = 16


def image_features(
    images: Any,
    by: Extractor | None = None,
    *,
    device: str | torch.device = "auto",
    keep: bool | FeatureShelf = True,
    progress: Progress | None = None,
) -> np.ndarray:
    """Describe images, bytes (n, H, W, 3), (n, H, W, 1) or (n, H, W), by features (n, d).

    By default ``by`` is the pretrained EfficientNet-Lite0 at 128 pixels. With ``keep`` they are stored under
    ``M2ST_HOME``, or on a shelf of the caller's, and images seen before are looked up.
    """
    by = by or extractor()
    pixels = as_bytes(images)
    keys = image_keys(pixels)
    distinct, first, place = np.unique(keys, return_index=True, return_inverse=True)
    shelf = keep if isinstance(keep, FeatureShelf) else FeatureShelf(by.key) if keep and by.key else None
    known = shelf.look_up(distinct) if shelf is not None else {}
    new = np.flatnonzero([key.tobytes() not in known for key in distinct])
    if len(new):
        found = _compute(pixels, first[new], by, device, progress)
        if shelf is not None:
            shelf.keep(distinct[new], found)
        known |= {distinct[index].tobytes(): row for index, row in zip(new, found, strict=True)}
    elif progress is not None:
        progress(1, 1, 0.0)
    return np.stack([known[key.tobytes()] for key in distinct])[place.ravel()]


def read_features(path: str | os.PathLike[str]) -> np.ndarray:
    """Read features (n, d) that were computed elsewhere: .npy, .npz with one array, or .csv with or without names."""
    file = Path(path)
    try:
        if file.suffix == ".csv":
            table = pd.read_csv(file, header=None)
            numbers = table.apply(pd.to_numeric, errors="coerce")
            rows = numbers.iloc[1 if numbers.iloc[0].isna().all() else 0 :].to_numpy(dtype=np.float64)
        else:
            loaded = np.load(file, allow_pickle=False)
            rows = loaded if isinstance(loaded, np.ndarray) else loaded[loaded.files[0]]
    except FileNotFoundError:
        raise ValueError(f"{file} does not exist. Name a file of features.") from None
    except (OSError, ValueError, IndexError, EOFError, zipfile.BadZipFile):
        raise ValueError(f"{file} is not a table of numbers. Save features with numpy.save, or as CSV.") from None
    if rows.ndim != 2 or rows.dtype.kind not in "fiu" or not np.isfinite(rows).all():
        raise ValueError(f"{file} must hold one row of finite numbers for each image.")
    return rows.astype(np.float64)


def as_bytes(images: Any) -> np.ndarray:
    """Images as bytes (n, H, W, 1 or 3)."""
    pixels = np.asarray(images)
    pixels = pixels[..., None] if pixels.ndim == 3 else pixels
    if pixels.dtype != np.uint8:
        raise ValueError(f"Features are computed from bytes (uint8) from 0 to 255. These images are {pixels.dtype}.")
    if pixels.ndim != 4 or pixels.shape[-1] not in (1, 3) or 0 in pixels.shape:
        raise ValueError(f"The images have the shape {pixels.shape}. Bring (n, height, width, 3), or 1 for grey.")
    return np.ascontiguousarray(pixels)


def image_keys(pixels: np.ndarray) -> np.ndarray:
    """A hash of each image and its shape: (n,)."""
    about = repr(pixels.shape[1:]).encode()
    digests = (hashlib.blake2b(image.data, digest_size=KEY_BYTES, key=about).digest() for image in pixels)
    return np.frombuffer(b"".join(digests), dtype=f"V{KEY_BYTES}")


@torch.inference_mode()
def _compute(
    pixels: np.ndarray, which: np.ndarray, by: Extractor, device: str | torch.device, progress: Progress | None
) -> np.ndarray:
    """Features of the images at these places, some at a time; threads share them, each with its own images."""
    place = resolve_device(device)
    by.network.to(place)
    batches = [which[start : start + AT_ONCE] for start in range(0, len(which), AT_ONCE)]

    def describe(batch: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            some = torch.from_numpy(pixels[batch]).to(place).permute(0, 3, 1, 2).float().expand(-1, 3, -1, -1)
            if some.shape[-2:] != (by.side, by.side):
                smaller = by.side < min(some.shape[-2:])
                some = functional.interpolate(some, (by.side, by.side), mode="bilinear", antialias=smaller)
            values = by.network(some)
        if not isinstance(values, torch.Tensor) or values.ndim != 2 or len(values) != len(batch):
            raise ValueError(f"{by.name} must return a tensor (images, features). It returned {_shape(values)}.")
        return values.float().cpu().numpy()

    found = []
    with one_thread_per_operation(), short_memory_in_words():
        for values in map_threads(describe, batches) if place.type == "cpu" else map(describe, batches):
            found.append(values)
            if progress is not None:
                progress(len(found), len(batches), 0.0)
    rows = np.concatenate(found)
    if not np.isfinite(rows).all():
        raise ValueError(f"{by.name} returned features that are not finite numbers. Check its weights.")
    return rows


def _shape(values: object) -> str:
    return str(tuple(values.shape)) if isinstance(values, torch.Tensor) else type(values).__name__


class FeatureShelf:
    """Kept features of one extractor: files with the keys of images and their features, the oldest dropped first."""

    def __init__(self, key: str) -> None:
        self.folder = home_folder() / "features"
        self.name = hashlib.sha256(key.encode()).hexdigest()[:16]

    def look_up(self, wanted: np.ndarray) -> dict[bytes, np.ndarray]:
        """Features by key, of those that are kept. A file that cannot be read is passed over."""
        found: dict[bytes, np.ndarray] = {}
        for path in self._files(f"{self.name}-*.safetensors"):
            try:
                with safe_open(path, framework="np") as opened:
                    keys = np.frombuffer(opened.get_tensor("keys").tobytes(), dtype=wanted.dtype)
                    here = np.flatnonzero(np.isin(keys, wanted))
                    if len(here):
                        features = opened.get_tensor("features")[here]
                        found |= {keys[index].tobytes(): row for index, row in zip(here, features, strict=True)}
                        os.utime(path)  # used features are young
            except (OSError, SafetensorError, ValueError):
                continue
        return found

    def keep(self, keys: np.ndarray, features: np.ndarray) -> None:
        """Write new features, if the disk allows it, then drop the oldest files beyond the bounds."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            path = self.folder / f"{self.name}-{uuid4().hex[:12]}.safetensors"
            parts = {"keys": np.frombuffer(keys.tobytes(), dtype=np.uint8).reshape(len(keys), -1), "features": features}
            save_file(parts, path.with_suffix(".part"))
            path.with_suffix(".part").replace(path)
        except OSError:
            return  # they are computed again next time
        self._drop(self._files("*.safetensors"))

    def _files(self, pattern: str) -> list[Path]:
        """Files of this pattern, the youngest first."""
        return [path for _, path in sorted(_dated(self.folder.glob(pattern)), reverse=True)]

    @staticmethod
    def _drop(files: Sequence[Path]) -> None:
        total = 0
        for place, path in enumerate(files):
            try:
                total += path.stat().st_size
                if place and (total > MOST_BYTES or place >= MOST_FILES):
                    path.unlink()
            except OSError:
                continue


def _dated(paths: Iterator[Path]) -> Iterator[tuple[float, Path]]:
    for path in paths:
        try:
            yield path.stat().st_mtime, path
        except OSError:  # another process has dropped it
            continue
