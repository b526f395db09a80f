"""What can befall an image: noise, blur, brightness, light. Images are (n, c, h, w) in [0, 1] and stay there."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Corruption = Callable[[np.ndarray, float, np.random.Generator], np.ndarray]
"""(images, severity from 0 to 1, generator) → images; severity 0 changes nothing."""

LARGEST_DEVIATION = 0.5  # of noise, in the range from black to white
LARGEST_BLUR = 1 / 12  # its width as a share of an image's side
LARGEST_BRIGHTNESS = 0.6


def add_noise(images: np.ndarray, severity: float, generator: np.random.Generator) -> np.ndarray:
    """Independent Gaussian noise on every pixel."""
    noise = generator.standard_normal(images.shape)
    return np.clip(images + LARGEST_DEVIATION * severity * noise, 0, 1)


def blur(images: np.ndarray, severity: float, generator: np.random.Generator) -> np.ndarray:
    """A Gaussian blur, in the same way for images of any size."""
    from scipy.ndimage import gaussian_filter  # slow to import

    height, width = (LARGEST_BLUR * severity * side for side in images.shape[-2:])
    return np.clip(gaussian_filter(images, sigma=(0, 0, height, width), mode="nearest"), 0, 1)


def brighten(images: np.ndarray, severity: float, generator: np.random.Generator) -> np.ndarray:
    """Every pixel lighter by the same amount."""
    return np.clip(images + LARGEST_BRIGHTNESS * severity, 0, 1)


CORRUPTIONS: dict[str, Corruption] = {"noise": add_noise, "blur": blur, "brightness": brighten}


def relight(images: np.ndarray, strength: float, generator: np.random.Generator) -> np.ndarray:
    """Every image in a light of its own: contrast from 1−strength to 1, and a brightness for which there is room."""
    contrast, brightness = (generator.random((len(images), 1, 1, 1)) for _ in range(2))
    contrast = 1 - strength * contrast
    return contrast * images + (1 - contrast) * brightness


def corrupt_some(
    images: np.ndarray, shares: dict[str, float], severity: float, generator: np.random.Generator
) -> np.ndarray:
    """Each image is corrupted in each way with the probability of its share, independently of all others."""
    images = images.copy()
    for name, corrupt in CORRUPTIONS.items():
        chosen = generator.random(len(images)) < shares.get(name, 0.0)
        if chosen.any():
            images[chosen] = corrupt(images[chosen], severity, generator)
    return images
