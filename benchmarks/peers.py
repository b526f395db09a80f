"""Power of tests without related tasks where their authors have published it, on the authors' own tasks.

Mixture: four Gaussians at (±20, ±20) with equal weights; in Q one of them has standard deviation 1.3 instead of 1.
Perturbed uniform on [0, 1]^d: the density 1 + a·Σ_ν θ_ν·Π_i e·G(2u_i−ν_i) over ν in {1, 2}^d, where θ are random signs
and G is a bump on (−1, −½) followed by its negative on (−½, 0). At a=1 the density touches 0. Published powers: the
result files of Biggs, Schrab, Gretton (2023), 200 repeats, which also have MMDAgg.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

import m2st_core as m2st
from benchmarks.common import ALPHA, Page, batch, parse, rejection_rate
from m2st_core.numbers import null_band
from m2st_core.rng import Streams
from m2st_core.types import TwoSample

CELLS: dict[str, tuple[float, ...]] = {  # the published power of MMD-FUSE, MMDAgg and MMD-M
    "perturbed uniform, d=1, a=0.2, n=500": (0.18, 0.21, 0.105),
    "perturbed uniform, d=1, a=0.3, n=500": (0.505, 0.605, 0.29),
    "perturbed uniform, d=1, a=0.4, n=500": (0.825, 0.88, 0.465),
    "perturbed uniform, d=1, a=0.5, n=500": (0.975, 0.985, 0.675),
    "perturbed uniform, d=2, a=0.4, n=500": (0.17, 0.145, 0.065),
    "perturbed uniform, d=2, a=0.6, n=500": (0.485, 0.395, 0.05),
    "perturbed uniform, d=2, a=0.8, n=500": (0.885, 0.83, 0.06),
    "perturbed uniform, d=2, a=1.0, n=500": (0.995, 0.99, 0.075),
    "mixture, n=500": (0.18, 0.19, 0.055),
    "mixture, n=1000": (0.38, 0.385, 0.065),
    "mixture, n=2000": (0.765, 0.785, 0.035),
    "mixture, n=3000": (0.97, 0.99, 0.04),
}
PUBLISHED = {name: dict(zip(("MMD-FUSE", "MMDAgg", "MMD-M"), cell, strict=True)) for name, cell in CELLS.items()}
PUBLISHED_REPEATS = 200
METHODS = ("MMD-FUSE", "MMDAgg", "Energy", "Omnibus", "MMD-M")
LARGE = ("mixture, n=2000", "mixture, n=3000")
NULLS = ("perturbed uniform, d=2, a=0.6, n=500",)


def mixture(n: int, deviation: float, seed: int) -> TwoSample:
    """Draw n rows of each sample; Q's first Gaussian has this standard deviation."""
    streams = Streams(seed)
    samples = []
    for side, first in (("P", 1.0), ("Q", deviation)):
        generator = streams.numpy(side)
        which = generator.integers(0, 4, size=n)
        centres = 20.0 * np.array([(1, 1), (1, -1), (-1, 1), (-1, -1)])[which]
        scale = np.where(which == 0, first, 1.0)[:, None]
        samples.append(torch.from_numpy(centres + scale * generator.standard_normal((n, 2))))
    return TwoSample(*samples)


def bump(t: np.ndarray) -> np.ndarray:
    """e·G: a smooth bump of height 1 on (−1, −½), and its negative on (−½, 0)."""
    height = np.zeros_like(t)
    for sign, shift, inside in ((1, 3, (t > -1) & (t < -0.5)), (-1, 1, (t > -0.5) & (t < 0))):
        height[inside] = sign * np.exp(1 - 1 / (1 - (4 * t[inside] + shift) ** 2))
    return height


def perturbed_uniform(n: int, dimension: int, amplitude: float, seed: int) -> TwoSample:
    """Draw n rows of each sample; the signs of the perturbations are drawn anew for every pair."""
    streams = Streams(seed)
    x = streams.numpy("P").uniform(size=(n, dimension))
    signs = streams.numpy("signs").choice([-1.0, 1.0], size=2**dimension)
    generator = streams.numpy("Q")
    corners = np.array(list(itertools.product((1, 2), repeat=dimension)))
    kept: list[np.ndarray] = []
    while sum(map(len, kept)) < n:
        rows = generator.uniform(size=(2 * n, dimension))
        perturbation = bump(2 * rows[:, None] - corners).prod(axis=-1) @ signs
        kept.append(rows[generator.uniform(size=2 * n) * (1 + amplitude) <= 1 + amplitude * perturbation])
    return TwoSample(torch.from_numpy(x), torch.from_numpy(np.concatenate(kept)[:n]))


def source(name: str, null: bool = False) -> Callable[[int], TwoSample]:
    """The sampler of a task in ``PUBLISHED``: seed → pair."""
    settings = dict(part.split("=") for part in name.split(", ")[1:])
    n = int(settings["n"])
    if name.startswith("mixture"):
        return lambda seed: mixture(n, 1.0 if null else 1.3, seed)
    return lambda seed: perturbed_uniform(n, int(settings["d"]), 0.0 if null else float(settings["a"]), seed)


def main(arguments: Sequence[str] = ()) -> None:
    """Print the table; write it where --out says."""
    sizes = {"repeats": 200, "large_repeats": 40, "permutations": 499}
    options = parse(arguments, __doc__, **sizes, tasks=PUBLISHED, methods=METHODS, seed=0, out=Path)
    page = Page(options.out)
    page.say(
        "# Published powers of tests without related tasks",
        "",
        *(__doc__ or "").strip().splitlines()[2:],
        "",
        f"α=0.05, n rows per sample, {options.repeats} pairs per cell ({options.large_repeats} from n=2000 on),",
        f"{options.permutations} permutations, seed {options.seed}. In brackets: the standard error. MMD-M is",
        "published as “median”, with a wider Gaussian kernel: exp(−‖x−y‖²/(2·median²)), where ours has no 2. A",
        "published power is reached if ours is above it, or at most two standard errors of the difference below it.",
        "Made by `python -m m2st_core bench peers --out docs/peers.md`.",
        "",
    )
    page.head("task", "method", "published", "ours", "reached")
    for name, null in [(name, False) for name in options.tasks] + [(n, True) for n in NULLS if n in options.tasks]:
        repeats = options.large_repeats if name in LARGE else options.repeats
        streams = Streams(options.seed).child(f"{name}, null={null}")
        pairs = batch(source(name, null), repeats, streams)
        for method in options.methods:
            rate = rejection_rate(pairs, m2st.METHODS[method], options.permutations, streams)
            variance = rate * (1 - rate) / repeats
            shown = f"{rate:.3f} ({np.sqrt(variance):.3f})"
            if null:
                low, high = null_band(ALPHA, repeats)
                inside = "inside" if low <= rate <= high else "outside"
                page.row(f"{name}, no difference", method, "–", shown, f"{inside} the 99 % band")
            elif (published := PUBLISHED[name].get(method)) is None:
                page.row(name, method, "–", shown, "–")
            else:
                error = np.sqrt(variance + published * (1 - published) / PUBLISHED_REPEATS)
                reached = "yes" if rate >= published - 2 * error else "**no**"
                page.row(name, method, f"{published:.3f}", shown, reached)
