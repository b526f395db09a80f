"""Kernels that are functions of a distance: Gaussian, Laplace and energy; and the median heuristic."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from m2st_core.kernels.base import Kernel, Rows
from m2st_core.rng import Streams, some_rows

SMALLEST_EXPONENT = -80.0  # exp of anything below is a denormal float32, which processors handle slowly
CENTRE_ROWS = 64
MEDIAN_ROWS = 500  # of which the median heuristic is taken


def negative_squared_distances(
    a: Tensor, b: Tensor, dtype: torch.dtype | None = None, smallest: float | None = None
) -> Tensor:
    """−‖a_i−b_j‖², (…, n, m), as one matrix product. Values are clamped to [``smallest``, 0]."""
    left, right = distance_factors(a, b)
    return (left @ right.mT).to(dtype or a.dtype).clamp_(min=smallest, max=0)


def distance_factors(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Rows extended by their squared lengths, (…, n, d+2) and (…, m, d+2), whose product is −‖a_i−b_j‖².

    Both sides are first shifted by the median of some rows of b: a large common offset, or one huge row, then costs no
    digits.
    """
    every = math.ceil(b.shape[-2] / CENTRE_ROWS)
    centre = b.detach()[..., ::every, :].median(dim=-2, keepdim=True).values
    a, b = a - centre, b - centre
    a_length, b_length = (rows.square().sum(dim=-1, keepdim=True) for rows in (a, b))
    left = torch.cat([a, a_length, torch.ones_like(a_length)], dim=-1)
    return left, torch.cat([2 * b, -torch.ones_like(b_length), -b_length], dim=-1)


class _WidthKernel(Kernel):
    """A function of a distance divided by a width, of any batch shape.

    Kernels of a family, batch shape (…, k), share their distances: rows are divided by the largest σ, and distances of
    embedded rows are multiplied by ``ratios``. ``power`` is that of the width which is σ.
    """

    power: float

    def __init__(self, width: Tensor) -> None:
        super().__init__()
        self.log_width = nn.Parameter(width.log())

    @property
    def width(self) -> Tensor:
        """σ² or σ."""
        return self.log_width.exp()

    def embed(self, x: Tensor) -> Rows:
        """Rows divided by the largest σ of a family, otherwise by each kernel's own."""
        widest = self.log_width.amax(dim=-1, keepdim=True) if self.log_width.ndim > 1 else self.log_width
        return (x * torch.exp(-self.power * widest)[..., None, None],)

    def ratios(self, distances: Tensor) -> Tensor:
        """The largest width of a family over each width, (…, k, 1, 1), for distances of embedded rows."""
        widest = self.log_width.amax(dim=-1, keepdim=True)
        return torch.exp(widest - self.log_width)[..., None, None].to(distances)


class GaussianKernel(_WidthKernel):
    """k(x, y) = exp(−‖x−y‖²/σ²), without a factor 2; ``width`` is σ² > 0, of any batch shape.

    >>> GaussianKernel(torch.tensor(4.0))(torch.tensor([[0.0]]), torch.tensor([[2.0]])).item() # doctest: +ELLIPSIS
    0.3678...
    """

    power = 0.5

    def gram(self, first: Rows, second: Rows, dtype: torch.dtype | None = None) -> Tensor:
        """exp(−distance²·σ²_max/σ²)."""
        if self.log_width.ndim < 2 or self.log_width.shape[-1] == 1:
            return negative_squared_distances(first[0], second[0], dtype, SMALLEST_EXPONENT).exp_()
        squares = negative_squared_distances(first[0], second[0], dtype)
        return (squares * self.ratios(squares)).clamp_(min=SMALLEST_EXPONENT).exp_()


class LaplaceKernel(_WidthKernel):
    """k(x, y) = exp(−‖x−y‖₁/σ); ``width`` is σ > 0, of any batch shape.

    >>> LaplaceKernel(torch.tensor(2.0))(torch.zeros(1, 2), torch.ones(1, 2)).item() # doctest: +ELLIPSIS
    0.3678...
    """

    power = 1.0

    def gram(self, first: Rows, second: Rows, dtype: torch.dtype | None = None) -> Tensor:
        """exp(−distance·σ_max/σ)."""
        distances = torch.cdist(first[0], second[0], p=1.0)
        distances = distances.to(dtype or distances.dtype)
        scaled = distances * -self.ratios(distances) if self.log_width.ndim > 1 else -distances
        return scaled.clamp_(min=SMALLEST_EXPONENT).exp_()


class EnergyKernel(Kernel):
    """k(x, y) = ‖x−o‖ + ‖y−o‖ − ‖x−y‖, whose MMD² is the energy distance; ``centre`` o is (…, 1, d), a buffer.

    The energy distance is 2E‖x−y‖ − E‖x−x'‖ − E‖y−y'‖. It does not depend on o, which makes k positive semi-definite.
    ``norm`` is 2 for Euclidean distances and 1 for ℓ₁, the sum of the columns' energy distances.

    >>> EnergyKernel(torch.zeros(1, 1))(torch.tensor([[2.0]]), torch.tensor([[3.0]])).item()
    4.0
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


@torch.no_grad()
def median_width(rows: Tensor, streams: Sequence[Streams]) -> Tensor:
    """The median heuristic σ² = median ‖x_i−x_j‖² of at most 500 rows, drawn blind to the labels: (R, n, d) → (R,)."""
    return median_squared_distance(some_rows(rows, MEDIAN_ROWS, streams, "median heuristic"))


def median_squared_distance(x: Tensor) -> Tensor:
    """The median of ‖x_i−x_j‖² over i<j: (…, n, d) → (…).

    If it is 0, the median of the positive distances is used; identical rows give 1.
    """
    n = x.shape[-2]
    i, j = torch.triu_indices(n, n, offset=1, device=x.device)
    distances = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist")[..., i, j]  # … x n(n-1)/2
    values = distances.cpu().numpy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # numpy warns about runs that have nan only
        medians = np.nanmedian(values, axis=-1)  # torch's median is the lower of two middle values
        if not (medians > 0).all():
            positive = np.nanmedian(np.where(values > 0, values, np.nan), axis=-1)
            medians = np.where(medians > 0, medians, np.nan_to_num(positive, nan=1.0))
    return torch.as_tensor(medians).to(distances).square()
