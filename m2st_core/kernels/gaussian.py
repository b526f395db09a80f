"""Kernels of distances: Gaussian, Laplace and energy; the median heuristic; regularised kernels."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from m2st_core.kernels.base import SMALLEST_EXPONENT, Kernel, Rows, distance_factors, negative_squared_distances

RIDGE = 1e-5  # of the largest eigenvalue
SMALLEST_RIDGE = 1e-100
EVEN_COLUMNS = 20  # up to so many, points are evenly spread rather than random
SMALLEST_ROOT = 1e-9  # its fourth power is still a normal float32


class GaussianKernel(Kernel):
    """k(x, y) = exp(−‖x−y‖²/σ²), without a factor 2; ``width`` is σ² > 0, of any batch shape.

    >>> GaussianKernel(torch.tensor(4.0))(torch.tensor([[0.0]]), torch.tensor([[2.0]])).item() # doctest: +ELLIPSIS
    0.3678...
    """

    def __init__(self, width: Tensor) -> None:
        super().__init__()
        self.log_width = nn.Parameter(width.log())

    @property
    def width(self) -> Tensor:
        """σ²."""
        return self.log_width.exp()

    def embed(self, x: Tensor) -> Rows:
        """Rows divided by the largest σ of a family (…, k), so that all widths share their distances."""
        return (x * torch.exp(-0.5 * _unit(self.log_width))[..., None, None],)

    def gram(self, first: Rows, second: Rows, dtype: torch.dtype | None = None) -> Tensor:
        """exp(−distance²·σ²_max/σ²)."""
        if self.log_width.ndim < 2 or self.log_width.shape[-1] == 1:
            return negative_squared_distances(first[0], second[0], dtype, SMALLEST_EXPONENT).exp_()
        squares = negative_squared_distances(first[0], second[0], dtype)
        return (squares * _in_units(self.log_width, squares)).clamp_(min=SMALLEST_EXPONENT).exp_()

    def strips(self, rows: Rows, dtype: torch.dtype | None = None) -> Callable[[int, int], Tensor]:
        """The same strips; rows are extended by their lengths once."""
        left, right = distance_factors(rows[0], rows[0])
        units = _in_units(self.log_width, left).to(dtype or left.dtype)

        def strip(start: int, stop: int) -> Tensor:
            squares = (left[..., start:stop, :] @ right[..., start:, :].mT).to(units.dtype).clamp_(max=0)
            return (squares * units).clamp_(min=SMALLEST_EXPONENT).exp_()

        return strip

    def joined(self, other: Kernel) -> Kernel | None:
        """Gaussian kernels of all widths."""
        if type(other) is not GaussianKernel or min(self.log_width.ndim, other.log_width.ndim) < 2:
            return None
        return GaussianKernel(torch.cat([self.width, other.width], dim=-1))

    def weighted_gram(self, first: Rows, second: Rows, weights: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """Σ_i w_i·k_i. If widths are powers of 4 apart, only the widest kernel takes an exp: exp(−4D) = exp(−D)⁴."""
        powers = self._powers_of_4()
        if powers is None or torch.is_grad_enabled():
            return super().weighted_gram(first, second, weights, dtype)
        if self.log_width.ndim < 2:
            widest = slice(powers.index(0), powers.index(0) + 1)
            first, second = (first[0][..., widest, :, :],), (second[0][..., widest, :, :],)
        value = negative_squared_distances(first[0], second[0], dtype, SMALLEST_EXPONENT).exp_()[..., 0, :, :]
        total, power = torch.zeros_like(value), 0
        for index in sorted(range(len(powers)), key=powers.__getitem__):
            for _ in range(powers[index] - power):
                value.clamp_(min=SMALLEST_ROOT).square_().square_()
            total.addcmul_(value, weights[..., index, None, None].to(value))
            power = powers[index]
        return total

    def _powers_of_4(self) -> list[int] | None:
        """p with σ_i² = 4^(−p_i)·σ²_max in all runs, or None if the widths of the family (…, k) are not so spaced."""
        exponents = (self.log_width.amax(dim=-1, keepdim=True) - self.log_width).detach() / math.log(4)
        whole = exponents.round()
        same = whole.flatten(0, -2)[0] if whole.ndim > 1 else whole
        alike = bool(((exponents - same).abs() < 1e-6).all())
        return [int(power) for power in same.tolist()] if alike else None


@torch.no_grad()
def median_squared_distance(x: Tensor) -> Tensor:
    """Median of ‖x_i−x_j‖² over i<j: (…, n, d) → (…).

    If it is 0, the median of the positive distances is used; identical rows give 1.
    """
    n = x.shape[-2]
    i, j = torch.triu_indices(n, n, offset=1, device=x.device)
    distances = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist")[..., i, j]  # … x n(n-1)/2
    medians = _median(distances)
    if not bool((medians > 0).all()):
        positive = distances.where(distances > 0, torch.nan)
        medians = medians.where(medians > 0, _median(positive).nan_to_num(nan=1.0))
    return medians.square()


def _median(values: Tensor) -> Tensor:
    """The median over the last dimension, ignoring nan; the mean of the two middle values if their number is even."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # numpy warns about runs that have nan only
        return torch.as_tensor(np.nanmedian(values.cpu().numpy(), axis=-1)).to(values)


class LaplaceKernel(Kernel):
    """k(x, y) = exp(−‖x−y‖₁/σ); ``width`` is σ > 0, of any batch shape."""

    def __init__(self, width: Tensor) -> None:
        super().__init__()
        self.log_width = nn.Parameter(width.log())

    def embed(self, x: Tensor) -> Rows:
        """Rows divided by the largest σ of a family (…, k), so that all widths share their distances."""
        return (x * torch.exp(-_unit(self.log_width))[..., None, None],)

    def gram(self, first: Rows, second: Rows, dtype: torch.dtype | None = None) -> Tensor:
        """exp(−distance·σ_max/σ)."""
        distances = torch.cdist(first[0], second[0], p=1.0)
        distances = distances.to(dtype or distances.dtype)
        return (distances * -_in_units(self.log_width, distances)).clamp_(min=SMALLEST_EXPONENT).exp_()


def _unit(log_width: Tensor) -> Tensor:
    """The log width by which rows are divided: the largest of a family (…, k), otherwise each kernel's own."""
    return log_width.amax(dim=-1, keepdim=True) if log_width.ndim > 1 else log_width


def _in_units(log_width: Tensor, distances: Tensor) -> Tensor:
    """The largest width of the family over each width, (…, k, 1, 1)."""
    return torch.exp(_unit(log_width) - log_width)[..., None, None].to(distances)


class EnergyKernel(Kernel):
    """k(x, y) = ‖x−o‖ + ‖y−o‖ − ‖x−y‖, whose MMD² is the energy distance; ``centre`` o is (…, 1, d), a buffer.

    The energy distance is 2E‖x−y‖ − E‖x−x'‖ − E‖y−y'‖. It does not depend on o, which makes k positive semi-definite.
    ``norm`` is 2 for Euclidean distances and 1 for ℓ₁, the sum of the columns' own energy distances.
    """

    centre: Tensor

    def __init__(self, centre: Tensor, norm: float = 2.0) -> None:
        super().__init__()
        self.register_buffer("centre", centre)
        self.norm = norm

    def embed(self, x: Tensor) -> Rows:
        """Rows measured from the centre."""
        return (x - self.centre,)

    def gram(self, first: Rows, second: Rows, dtype: torch.dtype | None = None) -> Tensor:
        """Distances to the centre, minus those between rows."""
        lengths = (torch.linalg.vector_norm(rows[0], self.norm, dim=-1, keepdim=True) for rows in (first, second))
        distances = torch.cdist(first[0], second[0], p=self.norm, compute_mode="donot_use_mm_for_euclid_dist")
        return (next(lengths) + next(lengths).mT - distances).to(dtype or distances.dtype)


class LandmarkFeatures(nn.Module):
    """ψ_j(x) = k(x, z_j) for a kernel k and landmarks z (…, q, d): (…, n, d) → (…, n, q), float64."""

    landmarks: Tensor

    def __init__(self, kernel: Kernel, landmarks: Tensor) -> None:
        super().__init__()
        self.kernel = kernel
        self.register_buffer("landmarks", landmarks)

    def forward(self, x: Tensor) -> Tensor:
        """Kernel values at the landmarks."""
        return self.kernel.gram(self.kernel.embed(x), self.kernel.embed(self.landmarks), torch.float64)


@torch.no_grad()
def regularised_matrix(features: LandmarkFeatures, rows: Tensor, directions: int) -> Tensor:
    """M with ψ(x)ᵀMMᵀψ(y) = Σ_i e_i(x)·e_i(y)·s_i/(s_i+λ), for rows (…, N, d): (…, q, q).

    s_i and e_i are eigenvalues and eigenfunctions of the rows' covariance operator, in the span of the landmarks
    (Nyström). λ is the eigenvalue that follows the first ``directions``: differences along these count about equally,
    and those along later ones less and less.
    """
    own = features(features.landmarks)
    values, vectors = torch.linalg.eigh((own + own.mT) / 2)
    ridge = (RIDGE * values[..., -1:]).clamp(min=SMALLEST_RIDGE)
    root = vectors * (values.clamp(min=0) + ridge).rsqrt()[..., None, :] @ vectors.mT
    whole = features(rows) @ root
    whole = whole - whole.mean(dim=-2, keepdim=True)
    values, vectors = torch.linalg.eigh(whole.mT @ whole / whole.shape[-2])
    values = values.clamp(min=0)
    level = values[..., -1 - min(directions, values.shape[-1] - 1), None]
    level = torch.maximum(level, RIDGE * values[..., -1:]).clamp(min=SMALLEST_RIDGE)
    return root @ (vectors * (values + level).rsqrt()[..., None, :] @ vectors.mT)


def normal_points(columns: int, count: int, generator: torch.Generator) -> Tensor:
    """Points of N(0, I), (columns, count): in few columns more even than random ones."""
    if columns > EVEN_COLUMNS:
        return torch.randn(columns, count, generator=generator, dtype=torch.float64)
    sobol = torch.quasirandom.SobolEngine(columns, scramble=True, seed=generator.initial_seed() % 2**31)
    return torch.special.ndtri(sobol.draw(count, dtype=torch.float64).clamp(2**-31, 1 - 2**-31)).mT
