"""Features of images: a fixed function of one image, computed once and cached by the image's bytes.

``extractor`` returns a function by name: the pretrained EfficientNet-Lite0, or a network of torchvision or timm whose
weights are on this machine. ``network_extractor`` takes the user's network or function. Nothing is downloaded. No label
and no other image is used, so tests of features need no split for the extractor.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pandas as pd
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file
from torch import Tensor, nn
from torch.nn import functional

from m2st_core.data.images.efficientnet import FEATURES, EfficientNet, package_weights, read_weights
from m2st_core.data.images.files import SIDE
from m2st_core.device import map_threads, one_thread_per_operation, resolve_device, short_memory_in_words
from m2st_core.environment import home_folder
from m2st_core.types import Progress, Shape

PIXELS, PRETRAINED = "pixels", "efficientnet-lite0"
FEATURE_COUNTS = {PRETRAINED: FEATURES}  # numbers per image
SMALL_IMAGE, SMALL_SIDE = 16, 64  # pixels: images up to this side are brought to 64 only, and gain nothing from more
IMAGENET_CENTRE, IMAGENET_SCALE = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)  # of bytes
AT_ONCE = 50  # images in one pass: their layers stay in a processor's cache
MOST_BYTES = 500 * 2**20  # of all cached features
MOST_FILES = 200
MOST_REMEMBERED = 60_000  # images whose features one process holds
KEY_BYTES = 16

ImageNetwork = Callable[[Tensor], Tensor] | nn.Module
"""Images (n, 3, side, side) with pixels from 0 to 255 → features (n, d)."""


@dataclass(frozen=True)
class Extractor:
    """A function from images, brought to ``side``×``side`` pixels, to features.

    ``key`` identifies the function in the cache; it is empty for a function that may change.
    """

    name: str
    side: int
    network: nn.Module
    key: str = ""

    @property
    def words(self) -> str:
        """The extractor in a sentence: "features of efficientnet-lite0 at 128 pixels"."""
        return f"features of {self.name} at {self.side} pixels"


def extractor(name: str = PRETRAINED, side: int = SIDE) -> Extractor:
    """Return the features with this name: ``efficientnet-lite0``, ``torchvision:NAME`` or ``timm:NAME``."""
    if isinstance(side, bool) or not isinstance(side, int) or not 16 <= side <= 512:
        raise ValueError(f"side={side!r}: features are computed at 16 to 512 pixels. Use 64, 128 or 224.")
    if name == PRETRAINED:
        network = _efficientnet(package_weights())
        return Extractor(name, side, network, f"{name}-{side}-{weights_digest(network)}")
    library, _, model = name.partition(":")
    if library in LIBRARIES and model:
        by = network_extractor(LIBRARIES[library](model), side=side, name=name)
        version = getattr(_library(library), "__version__", "")
        return replace(by, key=f"{name}-{side}-{weights_digest(by.network, version)}")
    raise ValueError(f"Unknown features {name!r}. Use {PRETRAINED!r}, 'torchvision:NAME' or 'timm:NAME'.")


def network_extractor(
    network: ImageNetwork,
    *,
    side: int = 224,
    name: str = "",
    weights: str | Path | None = None,
    centre: Sequence[float] = IMAGENET_CENTRE,
    scale: Sequence[float] = IMAGENET_SCALE,
) -> Extractor:
    """Return the features of a network (n, 3, side, side) → (n, d), or of any function of such images.

    Bytes of red, green and blue are centred and scaled first, by default as ImageNet's are. ``weights`` names a
    .safetensors or .pth file with the network's state dict. These features are not cached, because weights do not
    determine what a network computes.
    """
    if weights is not None:
        if not isinstance(network, nn.Module):
            raise ValueError("weights belong to a torch network. Pass the network itself.")
        try:
            network.load_state_dict(read_weights(Path(weights)))
        except RuntimeError as error:
            raise ValueError(f"{weights} does not fit this network: {str(error).splitlines()[-1].strip()}") from None
    whole = _Standardised(network, centre, scale).eval().requires_grad_(False)
    return Extractor(name or type(network).__name__, side, whole)


class _Standardised(nn.Module):
    """A network of images whose red, green and blue are centred and scaled first."""

    centre: Tensor
    scale: Tensor

    def __init__(self, network: ImageNetwork, centre: Sequence[float], scale: Sequence[float]) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("centre", torch.tensor(centre)[:, None, None])
        self.register_buffer("scale", torch.tensor(scale)[:, None, None])

    def forward(self, images: Tensor) -> Tensor:
        """Features (n, d) of images (n, 3, S, S)."""
        return self.network((images - self.centre) / self.scale)


def weights_digest(network: nn.Module, more: str = "") -> str:
    """A hash of a network's weights and of anything else that determines its features."""
    sha = hashlib.sha256(more.encode())
    for name, value in sorted(network.state_dict().items()):
        sha.update(name.encode())
        sha.update(np.ascontiguousarray(value.detach().cpu().numpy()).tobytes())
    return sha.hexdigest()[:16]


@cache
def _efficientnet(path: Path) -> EfficientNet:
    return EfficientNet(read_weights(path)).eval().requires_grad_(False)


def _torchvision(model: str) -> nn.Module:
    """A model of torchvision with its default weights, if their file is in torch's folder of checkpoints."""
    models = _library("torchvision.models")
    try:
        weights = models.get_model_weights(model).DEFAULT
    except (KeyError, ValueError):
        raise ValueError(f"torchvision has no model {model!r}. Use a name such as 'torchvision:resnet18'.") from None
    file = Path(torch.hub.get_dir()) / "checkpoints" / weights.url.rpartition("/")[2]
    if not file.is_file():
        raise ValueError(f"The weights of {model} are not on this machine. Put {weights.url} into {file.parent}.")
    network = models.get_model(model)
    network.load_state_dict(read_weights(file))
    return _without_classifier(network)


def _timm(model: str) -> nn.Module:
    """A model of timm with its pretrained weights, if they are in the Hugging Face cache."""
    timm, hub = _library("timm"), _library("huggingface_hub")
    if not timm.is_model(model):
        raise ValueError(f"timm has no model {model!r}. Use a name such as 'timm:resnet18'.")
    about = timm.create_model(model, pretrained=False).pretrained_cfg
    weights = hub.try_to_load_from_cache(about.get("hf_hub_id") or "", "model.safetensors")
    if not isinstance(weights, str):
        raise ValueError(f"The weights of {model} are not on this machine. Load them once with timm, then try again.")
    network = timm.create_model(model, pretrained=False, num_classes=about["num_classes"])
    network.load_state_dict(read_weights(Path(weights)))
    network.reset_classifier(0)
    return network


LIBRARIES: dict[str, Callable[[str], nn.Module]] = {"torchvision": _torchvision, "timm": _timm}


def _library(name: str) -> Any:
    """Import an optional library, or a module of it."""
    library = name.partition(".")[0]
    if find_spec(library) is None:
        raise ValueError(f"{library} is not installed. Install it, or use {PRETRAINED!r}.")
    return import_module(name)


def _without_classifier(network: nn.Module) -> nn.Module:
    """The network without its last linear layer, whatever it is called."""
    name, _ = [entry for entry in network.named_modules() if isinstance(entry[1], nn.Linear)][-1]
    parent, _, attribute = name.rpartition(".")
    setattr(network.get_submodule(parent), attribute, nn.Identity())
    return network


def image_features(
    images: Any,
    by: Extractor | None = None,
    *,
    device: str | torch.device = "auto",
    keep: bool | FeatureCache = True,
    progress: Progress | None = None,
) -> np.ndarray:
    """Compute features (n, d) of images, bytes (n, H, W, 3), (n, H, W, 1) or (n, H, W).

    By default ``by`` is the pretrained EfficientNet-Lite0 at 128 pixels. ``keep`` caches features under ``M2ST_HOME``,
    or in the caller's cache, from which those of known images are taken.
    """
    by = by or extractor()
    pixels = as_bytes(images)
    keys = image_keys(pixels)
    distinct, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    cached = keep if isinstance(keep, FeatureCache) else FeatureCache(by.key) if keep and by.key else None
    features = cached.look_up(distinct) if cached is not None else {}
    new = np.flatnonzero([key.tobytes() not in features for key in distinct])
    if len(new):
        computed = _compute(pixels, first[new], by, device, progress)
        if cached is not None:
            cached.keep(distinct[new], computed)
        features |= {distinct[index].tobytes(): row for index, row in zip(new, computed, strict=True)}
    elif progress is not None:
        progress(1, 1, 0.0)
    return np.stack([features[key.tobytes()] for key in distinct])[inverse.ravel()]


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
    """Features of the images at these positions, in batches; threads share the batches."""
    device = resolve_device(device)
    by.network.to(device)
    batches = [which[start : start + AT_ONCE] for start in range(0, len(which), AT_ONCE)]

    def describe(batch: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            rows = torch.from_numpy(pixels[batch]).to(device).permute(0, 3, 1, 2).float().expand(-1, 3, -1, -1)
            if rows.shape[-2:] != (by.side, by.side):
                smaller = by.side < min(rows.shape[-2:])
                rows = functional.interpolate(rows, (by.side, by.side), mode="bilinear", antialias=smaller)
            values = by.network(rows)
        if not isinstance(values, Tensor) or values.ndim != 2 or len(values) != len(batch):
            kind = str(tuple(values.shape)) if isinstance(values, Tensor) else type(values).__name__
            raise ValueError(f"{by.name} must return a tensor (images, features). It returned {kind}.")
        return values.float().cpu().numpy()

    done: list[np.ndarray] = []
    with one_thread_per_operation(), short_memory_in_words():
        for values in map_threads(describe, batches) if device.type == "cpu" else map(describe, batches):
            done.append(values)
            if progress is not None:
                progress(len(done), len(batches), 0.0)
    rows = np.concatenate(done)
    if not np.isfinite(rows).all():
        raise ValueError(f"{by.name} returned features that are not finite numbers. Check its weights.")
    return rows


def feature_side(shape: Shape) -> int:
    """The side in pixels to which images of this shape (channels, height, width) are enlarged for their features."""
    return SMALL_SIDE if max(shape[1:]) <= SMALL_IMAGE else SIDE


class FeatureCache:
    """Least-recently-used cache of one extractor's features: files with keys of images and their features.

    ``in_memory`` also caches features in this process, for studies that draw the same images again. Without ``on_disk``
    no file is written, for images that no other process draws.
    """

    def __init__(self, key: str, *, in_memory: bool = False, on_disk: bool = True) -> None:
        self.folder = home_folder() / "features"
        self.name = hashlib.sha256(key.encode()).hexdigest()[:16]
        self.in_memory, self.on_disk = in_memory, on_disk
        self.recent: dict[bytes, np.ndarray] = {}

    def look_up(self, wanted: np.ndarray) -> dict[bytes, np.ndarray]:
        """The cached features by key, from files only where they are not in memory."""
        features = {key: self.recent[key] for key in (k.tobytes() for k in wanted) if key in self.recent}
        missing = np.array([key for key in wanted if key.tobytes() not in features], dtype=wanted.dtype)
        if len(missing) and self.on_disk:
            stored = self._read(missing)
            self._remember(stored)
            features |= stored
        return features

    def keep(self, keys: np.ndarray, features: np.ndarray) -> None:
        """Cache new features, on disk if possible, and evict the least recently used files beyond the bounds."""
        self._remember({key.tobytes(): row for key, row in zip(keys, features, strict=True)})
        if not self.on_disk:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            path = self.folder / f"{self.name}-{uuid4().hex[:12]}.safetensors"
            key_bytes = np.frombuffer(keys.tobytes(), dtype=np.uint8).reshape(len(keys), -1)
            save_file({"keys": key_bytes, "features": features}, path.with_suffix(".part"))
            path.with_suffix(".part").replace(path)
        except OSError:
            return  # the features are computed again next time
        total = 0
        for number, path in enumerate(self._files("*.safetensors")):
            with suppress(OSError):
                total += path.stat().st_size
                if number and (total > MOST_BYTES or number >= MOST_FILES):
                    path.unlink()

    def _remember(self, features: dict[bytes, np.ndarray]) -> None:
        if self.in_memory:
            if len(self.recent) + len(features) > MOST_REMEMBERED:
                self.recent.clear()
            self.recent |= features

    def _read(self, wanted: np.ndarray) -> dict[bytes, np.ndarray]:
        """Features by key from the files. Unreadable files are skipped."""
        features: dict[bytes, np.ndarray] = {}
        for path in self._files(f"{self.name}-*.safetensors"):
            try:
                with safe_open(path, framework="np") as opened:
                    keys = np.frombuffer(opened.get_tensor("keys").tobytes(), dtype=wanted.dtype)
                    matches = np.flatnonzero(np.isin(keys, wanted))
                    if len(matches):
                        rows = opened.get_tensor("features")[matches]
                        features |= {keys[index].tobytes(): row for index, row in zip(matches, rows, strict=True)}
                        os.utime(path)  # the time of the last use, for eviction
            except (OSError, SafetensorError, ValueError):
                continue
        return features

    def _files(self, pattern: str) -> list[Path]:
        """Files of this pattern, the last used first."""
        dated = []
        for path in self.folder.glob(pattern):
            with suppress(OSError):  # evicted by another process
                dated.append((path.stat().st_mtime, path))
        return [path for _, path in sorted(dated, reverse=True)]


@cache
def process_cache(key: str, on_disk: bool, home: Path) -> FeatureCache:
    """The cache of an extractor in this process and, if ``on_disk``, in this folder of the store."""
    return FeatureCache(key, in_memory=True, on_disk=on_disk)
