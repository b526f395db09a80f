"""General-purpose kernels, chosen from pooled rows without their labels."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from m2st_core.data.related import PairedRows
from m2st_core.kernels.base import Family, Kernel, KernelBank, MixtureKernel
from m2st_core.kernels.features import ComposedKernel, FourierKernel, gaussian_frequencies
from m2st_core.kernels.gaussian import GaussianKernel, LaplaceKernel
from m2st_core.learners.ascent import draw_rows
from m2st_core.learners.meta_features import ImageFeatures, MetaFeatures, NetworkView
from m2st_core.learners.mixtures import kernel_terms
from m2st_core.learners.target_kernels import MEDIAN_ROWS, median_width
from m2st_core.permutation.fused import FuseTest
from m2st_core.preset import Preset
from m2st_core.rng import Streams
from m2st_core.types import Progress

WIDTHS = 10  # of each family
FACTORS = (0.25, 1.0, 4.0)
GENERIC = "Gaussian"
GENERIC_NAMES = tuple(f"{GENERIC}, {factor:g}·median" for factor in FACTORS)
DISTANCE_ROWS = 500


def fit_bank(pooled: Tensor, preset: Preset, streams: Sequence[Streams], progress: Progress | None = None) -> FuseTest:
    """MMD-FUSE: Gaussian and Laplace kernels at ten widths each, for pooled rows (R, N, d).

    The widths σ run evenly from half the 5 % to twice the 95 % quantile of the pooled distances, Euclidean for
    exp(−‖x−y‖²/(2σ²)) and ℓ₁ for exp(−√2·‖x−y‖₁/σ).
    """
    generators = [stream.torch("kernel bank") for stream in streams]
    rows = draw_rows(pooled, min(pooled.shape[-2], DISTANCE_ROWS), generators)
    names = {kind: tuple(f"{kind} {i + 1}/{WIDTHS}" for i in range(WIDTHS)) for kind in ("Gaussian", "Laplace")}
    gaussian = Family(GaussianKernel(2 * _widths(rows, 2.0).square()), names["Gaussian"], 1 / (2 * WIDTHS))
    laplace = Family(LaplaceKernel(_widths(rows, 1.0) / math.sqrt(2)), names["Laplace"], 1 / (2 * WIDTHS))
    return FuseTest(KernelBank((gaussian, laplace)))


def generic_family(pooled: Tensor, share: float, streams: Sequence[Streams]) -> Family:
    """Gaussian kernels of widths σ²/4, σ² and 4σ², with σ² the median heuristic of pooled rows (R, N, d)."""
    width = median_width(pooled, streams)[:, None] * torch.tensor(FACTORS).to(pooled)
    return Family(GaussianKernel(width), GENERIC_NAMES, share / len(FACTORS))


def is_generic(name: str) -> bool:
    """Whether a kernel of this name is a general-purpose one, with nothing learned from related tasks."""
    return name.startswith(GENERIC)


def _widths(rows: Tensor, norm: float) -> Tensor:
    """Ten widths per run: (R, n, d) → (R, 10). Distances of equal rows do not count."""
    n = rows.shape[-2]
    i, j = torch.triu_indices(n, n, offset=1, device=rows.device)
    distances = torch.cdist(rows, rows, p=norm, compute_mode="donot_use_mm_for_euclid_dist")[..., i, j]
    positive = distances.where(distances > 0, torch.nan)
    low, high = (torch.nanquantile(positive, level, dim=-1).nan_to_num(1.0) for level in (0.05, 0.95))
    steps = torch.linspace(0, 1, WIDTHS, dtype=rows.dtype, device=rows.device)
    return torch.lerp((low / 2)[..., None], (2 * high)[..., None], steps)


GAUSSIAN_SHARE = 0.05  # share of the Gaussian kernel beside a kernel of rows
FREQUENCIES = 50  # number of random frequencies of that Gaussian kernel
NETWORK_SHARES = (0.25, 0.25)  # shares of the Gaussian kernels on φ and on white φ beside a kernel of images


def generic_families(
    features: MetaFeatures | None, pooled: Tensor, share: float, streams: Sequence[Streams]
) -> list[Family]:
    """Gaussian kernels for pooled rows (R, N, d); ``share`` is their total prior weight."""
    if not isinstance(features, ImageFeatures):
        return [generic_family(pooled, share, streams)]
    families = [generic_family(pooled, share / 3, streams)]
    for white, what in ((False, "features"), (True, "white features")):
        view = NetworkView(features, white)
        family = generic_family(view(pooled), share / 3, streams)
        names = tuple(name.replace(GENERIC, f"{GENERIC} on {what}") for name in family.names)
        families.append(Family(ComposedKernel(view, family.kernel), names, family.share))
    return families


def beside_generic(features: MetaFeatures, kernel: Kernel, pooled: Tensor, streams: Sequence[Streams]) -> Kernel:
    """A kernel on ψ, batch shape (R, 1), mixed with generic ones for pooled rows (R, N, d).

    For rows: 95 % of the kernel and 5 % of a Gaussian at random frequencies. The mixture is an inner product of
    finitely many features: it is permuted quickly, but misses differences that no feature shows. For images: half of
    the kernel and half of Gaussians on the network's features, in units of their null standard deviations.
    """
    learned = ComposedKernel(features, kernel)
    if not isinstance(features, ImageFeatures):
        generic = _gaussian_at_frequencies(pooled, streams)
        shares = torch.tensor([1 - GAUSSIAN_SHARE, GAUSSIAN_SHARE], dtype=pooled.dtype, device=pooled.device)
        return MixtureKernel([learned, generic], [1, 1], shares)
    views = [NetworkView(features, white) for white in (False, True)]
    kernels: list[Kernel] = [learned]
    kernels += [ComposedKernel(view, GaussianKernel(median_width(view(pooled), streams)[:, None])) for view in views]
    shares = torch.tensor([1 - sum(NETWORK_SHARES), *NETWORK_SHARES], dtype=pooled.dtype, device=pooled.device)
    weights = shares / _null_deviations(kernels, pooled, streams)
    return MixtureKernel(kernels, [1] * len(kernels), weights / weights.sum(dim=-1, keepdim=True))


def _gaussian_at_frequencies(pooled: Tensor, streams: Sequence[Streams]) -> Kernel:
    """The Gaussian kernel of the median width at random frequencies, for pooled rows (R, N, d): batch (R, 1)."""
    generators = [stream.torch("frequencies") for stream in streams]
    frequencies = gaussian_frequencies(median_width(pooled, streams), pooled.shape[-1], FREQUENCIES, generators)
    return FourierKernel(frequencies[:, None], pooled.median(dim=-2, keepdim=True).values[:, None])


def _null_deviations(kernels: Sequence[Kernel], pooled: Tensor, streams: Sequence[Streams]) -> Tensor:
    """Null standard deviation of each kernel's MMD², from random halves of the unlabelled pooled rows: (R, k)."""
    half = min(pooled.shape[-2], MEDIAN_ROWS) // 2
    orders = [torch.randperm(pooled.shape[-2], generator=stream.torch("null deviations")) for stream in streams]
    chosen = torch.stack(orders)[:, : 2 * half, None].to(pooled.device)  # in order, they would be x and y
    x, y = pooled.take_along_dim(chosen, dim=-2).split(half, dim=-2)
    bank = KernelBank(tuple(Family(kernel, ("",), 1.0) for kernel in kernels))
    return kernel_terms(bank, PairedRows(x, y, torch.ones_like(x[..., 0]))).null_deviation
