"""Ways to describe an image by features: a fixed function of one image that knows no label and no other image.

``extractor`` finds one by name: the pretrained EfficientNet-Lite0, or a network of torchvision or timm whose weights
are on this machine. ``network_extractor`` takes any network or function of the user's. Nothing is downloaded.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from m2st_core.data.images.decode import SIDE
from m2st_core.data.images.efficientnet import EfficientNet, missing_weights, package_weights, read_weights

PRETRAINED = "efficientnet-lite0"
SIDES = (64, 128, 224)
IMAGENET_CENTRE, IMAGENET_SCALE = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)  # of bytes

Network = Callable[[Tensor], Tensor] | nn.Module
"""Images (n, 3, side, side) with pixels from 0 to 255 → features (n, d)."""


@dataclass(frozen=True)
class Extractor:
    """A function from images to features.

    Images are brought to ``side``×``side`` pixels. ``key`` identifies the function, so that its features can be kept;
    it is empty for a function that may change.
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
        found = network_extractor(LIBRARIES[library](model), side=side, name=name)
        version = getattr(_library(library), "__version__", "")
        return replace(found, key=f"{name}-{side}-{weights_digest(found.network, version)}")
    raise ValueError(f"Unknown features {name!r}. Use {PRETRAINED!r}, 'torchvision:NAME' or 'timm:NAME'.")


def missing_extractor(name: str = PRETRAINED) -> str:
    """Say what is missing for features with this name; empty if they can be computed."""
    return missing_weights() if name == PRETRAINED else ""


def network_extractor(
    network: Network,
    *,
    side: int = 224,
    name: str = "",
    weights: str | Path | None = None,
    centre: Sequence[float] = IMAGENET_CENTRE,
    scale: Sequence[float] = IMAGENET_SCALE,
) -> Extractor:
    """Return the features of a network (n, 3, side, side) → (n, d), or of any function of such images.

    Bytes of red, green and blue are centred and scaled first, by default as ImageNet's are. ``weights`` names a
    .safetensors or .pth file with the network's state dict. These features are computed anew each time: what a network
    computes cannot be known from its weights.
    """
    if weights is not None:
        if not isinstance(network, nn.Module):
            raise ValueError("weights belong to a torch network. Pass the network itself.")
        try:
            network.load_state_dict(read_weights(Path(weights)))
        except RuntimeError as error:
            raise ValueError(f"{weights} does not fit this network: {str(error).splitlines()[-1].strip()}") from None
    whole = Standardised(network, centre, scale).eval().requires_grad_(False)
    return Extractor(name or type(network).__name__, side, whole)


class Standardised(nn.Module):
    """A network of images whose red, green and blue are centred and scaled first."""

    centre: Tensor
    scale: Tensor

    def __init__(self, network: Network, centre: Sequence[float], scale: Sequence[float]) -> None:
        super().__init__()
        self.network = network
        self.register_buffer("centre", torch.tensor(centre)[:, None, None])
        self.register_buffer("scale", torch.tensor(scale)[:, None, None])

    def forward(self, images: Tensor) -> Tensor:
        """Features (n, d) of images (n, 3, S, S)."""
        return self.network((images - self.centre) / self.scale)


def weights_digest(network: nn.Module, more: str = "") -> str:
    """A hash of a network's weights and whatever else decides its features."""
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
    models = _library("torchvision", "models")
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
    found = hub.try_to_load_from_cache(about.get("hf_hub_id") or "", "model.safetensors")
    if not isinstance(found, str):
        raise ValueError(f"The weights of {model} are not on this machine. Load them once with timm, then try again.")
    network = timm.create_model(model, pretrained=False, num_classes=about["num_classes"])
    network.load_state_dict(read_weights(Path(found)))
    network.reset_classifier(0)
    return network


LIBRARIES: dict[str, Callable[[str], nn.Module]] = {"torchvision": _torchvision, "timm": _timm}


def _library(name: str, part: str = "") -> Any:
    """Import an optional library, or a part of it."""
    if find_spec(name) is None:
        raise ValueError(f"{name} is not installed. Install it, or use {PRETRAINED!r}.")
    return __import__(f"{name}.{part}" if part else name, fromlist=[part] if part else [])


def _without_classifier(network: nn.Module) -> nn.Module:
    """The network without its last linear layer, whatever it is called."""
    name, _ = [entry for entry in network.named_modules() if isinstance(entry[1], nn.Linear)][-1]
    owner, _, own = name.rpartition(".")
    setattr(network.get_submodule(owner), own, nn.Identity())
    return network
